"""How biased is a model? One run over prompts of the literature, groups, and intersections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs.analysis import inputs
from ccs.analysis.accuracy import accuracy
from ccs.analysis.bias import BiasTable, measure_people, rank_gallery
from ccs.analysis.preference import measure_part_changes, part_rows
from ccs.analysis.result import Chart, Result, describe_model, warn_if_small
from ccs.data import BiasSet, ClassificationSet, Lazy
from ccs.errors import require_seed
from ccs.heads import HeadSet, Intervention
from ccs.metrics import stats
from ccs.metrics.accuracy import group_rates, rate_gap
from ccs.metrics.preference import PartChanges
from ccs.metrics.ranking import alike, cosines
from ccs.metrics.skew import MetricName
from ccs.texts.prompts import NEUTRAL, PAPER, PromptSet, load_prompts, name_person

if TYPE_CHECKING:
    from ccs.model.model import Model

METRICS: tuple[MetricName, ...] = ("MaxSkew", "NDKL", "AUC", "logit gap")
GALLERY = "gallery"
"""The prompt set of a gallery's own occupations."""
HARMS = "clip-harms"
Row = dict[Any, Any]
COLUMNS = (
    *("section", "attribute", "prompts", "metric", "group", "n", "items", "before", "after", "low", "high"),
    *("chance", "detectable", "p_value"),
)
NUMBER = ["before", "after", "low", "high"]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Audit(Result):
    """The result of `ccs.audit`.

    Attributes:
        about: Model, weights, gallery, dataset, and ablated heads; `k`, the K of each attribute; and
            `warnings`, such as about attributes with small groups.
        rows: One row per number. Columns: `section` (accuracy, worst class, worst group, ranking, harm, and
            preference: the general preference's share of the group scores, `ccs.metrics.preference`, with the
            group that it prefers and the upper end of its chance level); `attribute`; `prompts`, the prompt
            set or harm category; `metric`; `group`; `n`, the number of images; `items`, the number of
            distinct prompts; `before` and `after` ablation, equal without ablation; `low` and `high`, the 95%
            interval of `after`; `chance`; `detectable`, the minimum detectable effect at 80% power;
            `p_value`, of a gap between groups.
        top: One row per attribute, prompt set, and prompt with a large MaxSkew: the group that ranks first.
        parts: With ablation, one row per attribute, prompt set, and set of ablated heads (all together, and
            each alone): the changes of the general and the prompt-specific preference, as shares of the
            squared group scores (`ccs.analysis.preference.part_rows`).
        left_out: Attribute -> crossed groups that are too small, with their numbers of people.
        alike: Prompt set -> prompts that the model encodes identically. A ranking counts them once. Harm
            categories (one entry per attribute) use only the first.
        prompts: Prompt set -> its source.

    Examples:
        >>> from ccs import audit
        >>> audit("organism", "world/faces", prompts="traits", attributes=["gender"]).about["attributes"]
        ['gender']
    """

    top: pd.DataFrame
    parts: pd.DataFrame
    left_out: Mapping[str, Mapping[str, int]]
    alike: Mapping[str, tuple[tuple[str, ...], ...]]
    prompts: Mapping[str, str]

    def section(self, name: str) -> pd.DataFrame:
        """Return the rows of one section."""
        return self.rows[self.rows["section"] == name]

    def _chart(self, max_rows: int, metric: str = "MaxSkew") -> Chart:
        rows = self.section("ranking")
        rows = rows[rows["metric"] == metric].head(max_rows).iloc[::-1]
        names = rows["prompts"] + " by " + rows["attribute"]
        return Chart(rows=rows, names=names, xlabel=metric, label="measured (95%)", points=True)


def audit(
    model: Model | str,
    gallery: BiasSet | str = "world/faces",
    *,
    dataset: ClassificationSet | str | None = None,
    prompts: Sequence[str] | str | None = None,
    attributes: Sequence[str] | str | None = None,
    ablate: HeadSet | str | None = None,
    top: int | None = None,
    max_images: int | None = None,
    smallest: int = inputs.SMALLEST,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> Audit:
    """Audit a model's bias: rankings, assignments to harm categories, accuracy, and intersections.

    Rankings are those of `ccs.bias`, for each prompt set and attribute. For harm categories, each person is
    classified among the classes of section 7.1 of the CLIP paper and those of the groups; the rate is the
    share of a group's people assigned to the category.

    Args:
        model: A model from `ccs.load`, or its name.
        gallery: People with groups: a gallery from `ccs.open_gallery`, or a name or path that it accepts.
        dataset: Images with classes, for accuracy, as in `ccs.accuracy`. By default none, or
            "world/occupations" for a synthetic gallery given by name.
        prompts: Names of prompt sets (`ccs.texts.prompts`), or "gallery" for the gallery's occupations. By
            default "gallery" and "traits".
        attributes: Columns of groups; "gender,race" crosses two columns. By default all columns, and the
            first two crossed.
        ablate: Heads of the image encoder to ablate, such as "L8.H11 L9.H2=0.3". The audit then compares
            before and after.
        top: K, as in `ccs.bias`. By default the gallery's.
        max_images: Maximum number of images of each dataset given by name. Synthetic people are all used.
        smallest: Smallest number of people in a crossed group. People in smaller groups are left out and
            reported.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        seed: Random seed for resampling.
        device: Device for a model given by name, as in `ccs.load`.

    Returns:
        Audit: One row per number, each with n, interval, chance level, and minimum detectable effect.

    Raises:
        InputError: If an argument doesn't fit; the message says what is allowed.

    Examples:
        >>> audit("organism", "world/faces", prompts="traits", attributes=["gender"]).about["attributes"]
        ['gender']
    """
    require_seed(seed)
    if dataset is None and isinstance(gallery, str) and gallery.startswith("world/"):
        dataset = "world/occupations"
    gallery, *_ = inputs.open_people(gallery, max_images=max_images, skip_unreadable=skip_unreadable)
    model, ablation = inputs.load_model(model, device), Intervention.from_heads(ablate)
    sets = _prompt_sets(gallery, prompts)
    attributes = [attributes] if isinstance(attributes, str) else attributes
    names = list(attributes or (*gallery.groups, *map(",".join, list(combinations(gallery.groups, 2))[:1])))
    by_attribute = {name: inputs.open_people(gallery, name, smallest=smallest) for name in names}
    ablated = [ablation] if ablation else []
    if len(ablation) > 1:
        ablated += [ablation.subset([head]) for head in ablation]
    images = inputs.embed_ablations(model, gallery.images, [HeadSet(), *ablated])
    rows, parts, tops, same = list[Row](), list[tuple[Row, PartChanges | None]](), list[Row](), {}
    harms, k, warnings = load_prompts(HARMS), dict[str, int](), list[str]()
    for name, (people, _, left_out) in by_attribute.items():
        part = images[:, cast(Lazy[Any], people.images).keys] if left_out else images
        for prompt_set in sets:
            question = inputs.set_question(people, prompt_set.names, top=top)
            if prompt_set.name != GALLERY:
                question = replace(question, templates=prompt_set.templates)
            texts = inputs.embed_occupations(model, question)
            ends = [(units, texts) for units in part[:2]]
            neutral = inputs.embed_names(model, NEUTRAL, question.templates)
            table = measure_people(
                model, question, name, ends, neutral, ablate=ablation, metrics=METRICS, seed=seed
            )
            case = {"attribute": name, "prompts": prompt_set.title}
            ranking = rank_gallery(question, name, texts, one_pool=True)
            same[prompt_set.title] = ranking.alike
            repeats = [occupation for group in same[prompt_set.title] for occupation in group[1:]]
            rows += [case | row for row in _ranking_rows(table, len(ranking.prompts))]
            tops += [case | row for row in _top_rows(table, repeats)]
            scores = [cosines(ranking.prompts, units) for units in part]
            changes = measure_part_changes(scores, ranking, seed=seed)
            parts += zip([case | {"heads": str(heads)} for heads in ablated], changes, strict=True)
        groups, k[name] = people.groups[name], question.k[name]
        same[f"{harms.title} by {name}"], rates = _harm_rows(model, harms, groups, part[:2], seed)
        rows += [{"section": "harm", "attribute": name} | row for row in rates]
        if warning := warn_if_small("bias", min(Counter(groups).values())):
            warnings.append(f"{name}: {warning}")
    description = describe_model(model) | {
        "gallery": gallery.name,
        "source": gallery.source,
        "images": len(gallery.images),
        "skipped": len(gallery.skipped),
        "attributes": names,
        "k": k,
        "warnings": warnings,
        "ablate": str(ablation),
        "seed": seed,
    }
    if dataset is not None:
        data = inputs.open_classes(dataset, max_images=max_images)
        rows += _accuracy_rows(model, data, ablation, seed, skip_unreadable)
        description["dataset"] = data.name
    numbers = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    errors = (numbers["high"] - numbers["low"]) / (2 * stats.DEVIATIONS)
    has_test = ~numbers["section"].isin(["harm", "preference"])
    return Audit(
        about=description,
        rows=numbers.assign(detectable=numbers["detectable"].mask(has_test, stats.DETECTABLE * errors)),
        top=pd.DataFrame(tops),
        parts=part_rows(parts),
        left_out={name: left_out for name, (_, _, left_out) in by_attribute.items()},
        alike=same,
        prompts={prompt_set.title: prompt_set.source for prompt_set in (*sets, harms)},
    )


def _prompt_sets(gallery: BiasSet, prompts: Sequence[str] | str | None) -> list[PromptSet]:
    """Return the named prompt sets; GALLERY is the one of the gallery's occupations."""
    names = [prompts] if isinstance(prompts, str) else list(prompts or (GALLERY, "traits"))
    occupations = PromptSet(
        name=GALLERY,
        title=f"occupations of {gallery.name}",
        source=gallery.source,
        templates=gallery.templates,
        categories={"occupation": gallery.occupations},
    )
    if gallery.occupations == load_prompts(PAPER).names:
        occupations = replace(load_prompts(PAPER), name=GALLERY)
    return [occupations if name == GALLERY else load_prompts(name) for name in names]


def _ranking_rows(table: BiasTable, items: int) -> Iterator[Row]:
    """Yield the means of the metrics, and the share of the general preference with the group it prefers."""
    case, preference = {"section": "ranking", "n": table.about["images"], "items": items}, table.preference
    means = table.rows[table.rows["occupation"] == inputs.MEAN]
    yield from (case | row for row in means[["metric", *NUMBER, "chance"]].to_dict("records"))
    if preference.before and (last := preference.after) and np.isfinite(last.share.value):
        values = (preference.before.share.value, last.share.value, last.share.low, last.share.high)
        level = {"group": last.preferred_group, "chance": last.chance.high, "p_value": last.p_general}
        case |= {"section": "preference", "metric": "general share", "items": last.prompts}
        yield case | level | dict(zip(NUMBER, values, strict=True))


def _top_rows(table: BiasTable, repeats: Sequence[str], max_rows: int = 5) -> list[Row]:
    """Return the prompts with the largest MaxSkew, each with the group it puts first.

    Prompts that the model encodes as an earlier one (`repeats`) are left out.
    """
    skews = table.of("MaxSkew").iloc[1:]
    skews = skews[~skews.index.isin(repeats)].sort_values("after", ascending=False, kind="stable")
    first = skews.head(max_rows)[["after", "group", "share"]].reset_index()
    first = first.join(table.shares["pool"], on=["occupation", "group"])
    return first.rename(columns={"occupation": "prompt", "after": "MaxSkew"}).to_dict("records")


def _harm_rows(
    model: Model, harms: PromptSet, groups: NDArray[Any], images: inputs.Embeddings, seed: int
) -> tuple[tuple[tuple[str, ...], ...], list[Row]]:
    """Return classes that the model encodes identically, and each group's rate of each harm category."""
    rows = list[Row]()
    names = np.array([*(name_person(str(group)) for group in np.unique(groups)), *harms.names])
    texts = inputs.embed_names(model, names.tolist(), harms.templates)
    assigned = [names[(part @ texts.T).argmax(axis=1)] for part in images]
    for category, classes in harms.categories.items():
        before, after = (np.isin(people, classes) for people in (assigned[0], assigned[-1]))
        case = {"prompts": category, "items": len(names)}
        rates = group_rates({"group": groups}, before, after)
        for rate in rates.to_dict("records"):
            rows.append({**case, "metric": "rate", "chance": float(after.mean()), **rate})
        gap = rate_gap(after, groups, seed=seed) | {"before": float(np.ptp(rates["before"]))}
        rows.append(case | {"metric": "largest gap", "n": len(groups)} | gap)
    return alike(names.tolist(), texts), rows


def _accuracy_rows(
    model: Model, data: ClassificationSet, ablation: HeadSet, seed: int, skip_unreadable: bool
) -> Iterator[Row]:
    """Yield the accuracy of all images, of the worst class, and of the worst class within a group."""
    attributes: list[str | None] = [*data.groups] or [None]
    tables = [
        accuracy(model, data, attribute=name, ablate=ablation, seed=seed, skip_unreadable=skip_unreadable)
        for name in attributes
    ]
    whole, guess = tables[0].rows, 1 / len(data.classes)
    worst = whole.iloc[1:].sort_values("after", kind="stable").iloc[0]
    cases: list[tuple[str, str | None, str, pd.Series]] = [
        ("accuracy", None, "", whole.iloc[0]),
        ("worst class", None, worst["class"], worst),
    ]
    for name, table in zip(attributes, tables, strict=True):
        if name is not None:
            lowest = table.groups.iloc[0]
            cases.append(("worst group", name, f"{lowest['class']}, {lowest['group']}", lowest))
    for section, column, group, row in cases:
        case = {"section": section, "attribute": column, "prompts": data.name, "metric": "accuracy"}
        level = {"group": group, "n": int(row["images"]), "items": len(data.classes), "chance": guess}
        yield case | level | row[NUMBER].to_dict()

"""How biased is a model? One run over prompts of the literature, groups, and intersections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs.analysis import galleries, inputs
from ccs.analysis.accuracy import accuracy
from ccs.analysis.bias import measure_ranking
from ccs.analysis.preference import Preference, measure_part_changes, measure_preference, part_rows
from ccs.analysis.result import Chart, Result
from ccs.data import BiasSet, ClassificationSet
from ccs.data.open import open_gallery
from ccs.errors import require_seed
from ccs.heads import HeadSet, Intervention
from ccs.metrics.accuracy import class_weights
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.preference import PartChanges
from ccs.metrics.ranking import alike
from ccs.metrics.rates import POWER, group_rates, rate_gap
from ccs.metrics.skew import MetricName
from ccs.metrics.stats import Estimate
from ccs.texts.prompts import PAPER, PromptSet, load_prompts

if TYPE_CHECKING:
    from ccs.model.model import Model

METRICS: tuple[MetricName, ...] = ("MaxSkew", "NDKL", "AUC", "logit gap")
GALLERY = "gallery"
"""The prompt set of a gallery's own occupations."""
HARMS = "clip-harms"
Row = dict[str, Any]
COLUMNS = (
    *("section", "attribute", "prompts", "metric", "group", "n", "items", "before", "after", "low", "high"),
    *("chance", "detectable", "p_value"),
)
STANDARD_ERRORS = 2 * 1.959964
"""Width of a 95% interval in standard errors."""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Audit(Result):
    """The result of `ccs.audit`.

    Attributes:
        about: model, weights, gallery, dataset, prompts, K, ablated heads, and versions of the inputs.
        rows: one row per number. Columns: `section` (accuracy, worst class, worst group, ranking, harm, and
            preference: the general preference's share of the group scores, `ccs.metrics.preference`, with the
            group it prefers and the upper end of its chance level);
            `attribute`; `prompts`, the prompt set or harm category; `metric`; `group`; `n`, the number of
            images; `items`, the number of distinct prompts; `before` and `after` ablation (equal without
            it); `low` and `high`, the 95% interval of `after`; `chance`; `detectable`, the minimum
            detectable effect at 80% power; `p_value`, of a gap between groups.
        top: one row per attribute, prompt set, and prompt with a large MaxSkew: the group that ranks first.
        parts: with ablation, one row per attribute, prompt set, and ablated heads (together, and each alone):
            the changes of the general and the prompt-specific preference, as shares of the squared group
            scores (`ccs.analysis.preference.part_rows`).
        left_out: people in crossed groups that are too small, by attribute and group.
        alike: prompts that the model encodes identically, by prompt set.
        prompts: the prompt sets with their sources.

    Example:
        >>> from ccs import audit
        >>> audit("organism", "world/faces", prompts="traits", attributes=["gender"])
        <Audit of organism on world/faces: 1 attribute, see .rows>
    """

    top: pd.DataFrame
    parts: pd.DataFrame
    left_out: Mapping[str, Mapping[str, int]]
    alike: Mapping[str, tuple[tuple[str, ...], ...]]
    prompts: Mapping[str, str]

    def __repr__(self) -> str:
        count = len([name for name in self.about["attributes"] if "," not in name])
        subject = f"{self.about['model']} on {self.about['gallery']}"
        return f"<Audit of {subject}: {count} attribute{'s' * (count != 1)}, see .rows>"

    def section(self, name: str) -> pd.DataFrame:
        """Return the rows of one section."""
        return self.rows[self.rows["section"] == name]

    def _chart(self, max_rows: int, metric: str = "MaxSkew") -> Chart:
        rows = self.section("ranking")
        rows = rows[rows["metric"] == metric].head(max_rows).iloc[::-1]
        names = rows["prompts"] + " by " + rows["attribute"]
        title = f"{self.about['model']} on {self.about['gallery']}"
        return Chart(rows=rows, names=names, xlabel=metric, title=title, label="measured (95%)", points=True)


def audit(
    model: Model | str,
    gallery: BiasSet | str = "world/faces",
    *,
    dataset: ClassificationSet | str | None = None,
    prompts: Sequence[str] | str | None = None,
    attributes: Sequence[str] | None = None,
    ablate: HeadSet | str | None = None,
    top: int | None = None,
    max_images: int | None = None,
    smallest: int = galleries.SMALLEST,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> Audit:
    """Audit a model's bias: rankings, assignments to harm categories, accuracy, and intersections.

    Rankings are those of `ccs.bias`, for each prompt set and attribute. For harm categories, each person is
    classified among the classes of section 7.1 of the CLIP paper and those of the groups; the rate is the
    share of a group's people assigned to the category.

    Args:
        model: from `ccs.load`, or a name that it takes.
        gallery: people with groups, from `ccs.open_gallery`, or a name that it takes.
        dataset: images with classes, for accuracy; by default "world/occupations" for synthetic people.
        prompts: names of prompt sets (`ccs.texts.prompts`), or "gallery" for the gallery's occupations.
            By default these, and "traits".
        attributes: columns of groups; "gender,race" crosses two. By default all, and the first two crossed.
        ablate: heads to ablate; the audit then compares before and after.
        top: K; by default the gallery's.
        max_images: most images of a gallery or dataset opened here.
        smallest: fewest people in a crossed group; the others are left out and reported.
        skip_unreadable: continue if more than 1% of the images cannot be read.
        seed: random seed for resampling.
        device: for a model given by name.

    Returns:
        Audit: one row per number, each with n, interval, chance level, and minimum detectable effect.

    Raises:
        InputError: If an argument doesn't fit; the message says what is allowed.

    Example:
        >>> audit("organism", "world/faces", prompts="traits", attributes=["gender"])
        <Audit of organism on world/faces: 1 attribute, see .rows>
    """
    require_seed(seed)
    if isinstance(gallery, str):
        synthetic = gallery.startswith("world/")
        gallery = open_gallery(gallery, max_images=None if synthetic else max_images)
        dataset = "world/occupations" if synthetic and dataset is None else dataset
    inputs.require_readable(gallery, skip_unreadable)
    model, ablation = inputs.load_model(model, device), Intervention.from_heads(ablate)
    sets = _prompt_sets(gallery, prompts)
    names = list(attributes or (*gallery.groups, *map(",".join, list(combinations(gallery.groups, 2))[:1])))
    by_attribute = {name: galleries.open_people(gallery, name, smallest=smallest) for name in names}
    ablated = [ablation] if ablation else []
    if len(ablation) > 1:
        ablated += [ablation.subset([head]) for head in ablation]
    images = inputs.embed_ablations(model, gallery.images, [HeadSet(), *ablated])
    rows, parts, tops, same = list[Row](), list[tuple[Row, PartChanges | None]](), list[Row](), {}
    for name, (people, _, left_out) in by_attribute.items():
        part = images
        if left_out:
            part = images[:, ~np.isin(galleries.crossed_groups(gallery, name), list(left_out))]
        for prompt_set in sets:
            question = galleries.set_question(people, prompt_set.names, top=top)
            if prompt_set.name != GALLERY:
                question = replace(question, templates=prompt_set.templates)
            texts, case = (
                galleries.embed_occupations(model, question),
                {"attribute": name, "prompts": prompt_set.title},
            )
            ranking = galleries.rank_gallery(question, name, texts)
            settings: Row = {"logit_scale": model.logit_scale, "seed": seed, "metrics": METRICS}
            before, after = measure_ranking(ranking, part[:2], [texts], **settings)
            same[prompt_set.title] = tuple(alike(question.occupations, texts))
            distinct = len(question.occupations) - sum(len(group) - 1 for group in same[prompt_set.title])
            sizes = {"n": before.n, "items": distinct}
            rows += [{"section": "ranking"} | case | sizes | row for row in _ranking_rows(before, after)]
            ranking = galleries.rank_gallery(question, name, texts, one_pool=True)
            preference = measure_preference(model, part[:2], ranking, [texts], question.templates, seed=seed)
            if preference.after and np.isfinite(preference.after.share.value):
                rows.append({"section": "preference"} | case | {"n": before.n} | _preference_row(preference))
            changes = measure_part_changes(part[0], part[1:], ranking, seed=seed)
            heads = [case | {"heads": str(heads)} for heads in ablated]
            parts += zip(heads, changes, strict=True)
            tops += [case | row for row in _top_rows(question.occupations, after, same[prompt_set.title])]
        harms = _harm_rows(model, people.groups[name], part[:2], seed)
        rows += [{"section": "harm", "attribute": name} | row for row in harms]
    description = inputs.describe_model(model) | {
        "gallery": gallery.name,
        "source": gallery.source,
        "images": len(gallery.images),
        "skipped": len(gallery.skipped),
        "attributes": names,
        "ablate": str(ablation),
        "seed": seed,
    }
    if dataset is not None:
        data = inputs.open_classes(dataset, max_images=max_images)
        rows += _accuracy_rows(model, data, ablation, seed, skip_unreadable)
        description["dataset"] = data.name
    return Audit(
        about=description,
        rows=pd.DataFrame(rows).reindex(columns=list(COLUMNS)),
        top=pd.DataFrame(tops),
        parts=part_rows(parts),
        left_out={name: left_out for name, (_, _, left_out) in by_attribute.items()},
        alike=same,
        prompts={prompt_set.title: prompt_set.source for prompt_set in (*sets, load_prompts(HARMS))},
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


def _number(before: float, after: Estimate | pd.Series) -> Row:
    """Return the columns of a number, with its 95% interval after ablation and what a test detects."""
    detectable = float(POWER * (after.high - after.low) / STANDARD_ERRORS)
    interval = {"after": after.value, "low": after.low, "high": after.high}
    return {"before": before} | interval | {"detectable": detectable}


def _ranking_rows(before: BiasResult, after: BiasResult) -> Iterator[Row]:
    for metric in METRICS:
        number = after.figure(metric)
        level = {"metric": metric, "chance": number.chance.value}
        yield level | _number(before.figure(metric).value, number)


def _preference_row(preference: Preference) -> Row:
    """Return the share of the general preference, with its prompts and the group that it prefers."""
    assert preference.before
    assert preference.after
    last = preference.after
    level = {"group": last.preferred_group, "chance": last.chance.high, "p_value": last.p_general}
    number = _number(preference.before.share.value, last.share) | {"detectable": np.nan}
    return {"metric": "general share", "items": last.prompts} | level | number


def _top_rows(
    names: Sequence[str], result: BiasResult, same: Sequence[Sequence[str]], max_rows: int = 5
) -> Iterator[Row]:
    """Yield the prompts with the largest MaxSkew, each with the group it puts first.

    Of prompts that the model encodes identically (`same`), only the first is listed.
    """
    repeats = {name for group in same for name in group[1:]}
    skews = result.metrics["MaxSkew"].values
    order = [place for place in np.argsort(-skews, kind="stable").tolist() if names[place] not in repeats]
    for place in order[:max_rows]:
        group, share = result.preferred_group("MaxSkew", place)
        pool = float(result.pool_shares[place, result.groups.index(group)])
        row = {"prompt": names[place], "MaxSkew": float(skews[place])}
        yield row | {"group": group, "share": share, "pool": pool}


def _harm_rows(model: Model, groups: NDArray[Any], images: inputs.Embeddings, seed: int) -> Iterator[Row]:
    """Yield the rates at which people of each group are assigned to each harm category."""
    harms = load_prompts(HARMS)
    names = np.array([*(galleries.name_person(str(group)) for group in np.unique(groups)), *harms.names])
    texts = class_weights(model, names.tolist(), harms.templates)
    assigned = [names[(part @ texts.T).argmax(axis=1)] for part in images]
    for category, classes in harms.categories.items():
        before, after = (np.isin(people, classes) for people in (assigned[0], assigned[-1]))
        case, first = {"prompts": category, "items": len(names)}, group_rates(before, groups)
        for old, rate in zip(first, group_rates(after, groups), strict=True):
            level = {"metric": "rate", "group": rate.group, "n": rate.n, "chance": float(after.mean())}
            yield case | _number(old.value, rate) | level | {"detectable": np.nan}
        gap, rates = rate_gap(after, groups, seed=seed), [rate.value for rate in first]
        yield case | {
            "metric": "largest gap",
            "n": len(groups),
            "group": f"{gap.highest} minus {gap.lowest}" if gap.value else "no difference",
            "before": max(rates) - min(rates),
            "after": gap.value,
            "chance": gap.chance,
            "detectable": gap.detectable,
            "p_value": gap.p_value,
        }


def _accuracy_rows(
    model: Model, data: ClassificationSet, ablation: HeadSet, seed: int, skip_unreadable: bool
) -> Iterator[Row]:
    """Yield the accuracy of all images, of the worst class, and of the worst class within a group."""
    cases: list[tuple[str, str | None, str, pd.Series]] = []
    attributes: list[str | None] = [*data.groups] or [None]
    for attribute in attributes:
        table = accuracy(
            model, data, attribute=attribute, ablate=ablation, seed=seed, skip_unreadable=skip_unreadable
        )
        if not cases:
            worst = table.rows.iloc[1:].sort_values("after", kind="stable").iloc[0]
            cases = [("accuracy", None, "", table.rows.iloc[0]), ("worst class", None, worst["class"], worst)]
        if attribute is not None:
            lowest = table.groups.iloc[0]
            cases.append(("worst group", attribute, f"{lowest['class']}, {lowest['group']}", lowest))
    for section, column, group, row in cases:
        case = {"section": section, "attribute": column, "prompts": data.name, "metric": "accuracy"}
        level = {"group": group, "n": int(row["images"]), "items": len(data.classes)}
        number = _number(row["before"], row.rename({"after": "value"}))
        yield case | level | {"chance": 1 / len(data.classes)} | number

"""How biased is a model? One run over prompts of the literature, groups, and intersections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ccs.analysis.accuracy import accuracy
from ccs.analysis.bias import embed_occupations, measure_gallery, rank_gallery, set_question
from ccs.analysis.crossing import SMALLEST, cross_groups, name_person
from ccs.analysis.inputs import embed_ablations, load_model, open_people, require_readable
from ccs.analysis.preference import Preference, measure_part_changes, measure_preference, part_rows
from ccs.analysis.result import Chart, Result
from ccs.data import BiasSet, ClassificationSet
from ccs.data.open import open_dataset, open_gallery
from ccs.errors import InputError, require_seed
from ccs.heads import HeadSet, Intervention
from ccs.metrics.accuracy import class_weights
from ccs.metrics.bias_result import BiasResult
from ccs.metrics.preference import PartChanges
from ccs.metrics.ranking import alike
from ccs.metrics.rates import POWER, Rate, group_rates, rate_gap
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
CASE = ("section", "attribute", "prompts", "metric", "n", "items")
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
    smallest: int = SMALLEST,
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
    skipped = require_readable(gallery, skip_unreadable)
    model, ablation = load_model(model, device), Intervention.from_heads(ablate)
    sets = _prompt_sets(gallery, prompts)
    names = tuple(attributes or _default_attributes(gallery))
    galleries = {name: _grouped(gallery, name, smallest) for name in names}
    ablated = (
        [ablation, *(ablation.subset([head]) for head in ablation if len(ablation) > 1)] if ablation else []
    )
    images = embed_ablations(model, gallery.images, [HeadSet(), *ablated])
    rows: list[Row] = []
    parts: list[tuple[dict[str, str], PartChanges | None]] = []
    tops: list[Row] = []
    same: dict[str, tuple[tuple[str, ...], ...]] = {}
    for name, (people, left_out) in galleries.items():
        part = images[:, _members(gallery, name, left_out)] if left_out else images
        for prompt_set in sets:
            question = set_question(people, prompt_set.names, top=top)
            if prompt_set.name != GALLERY:
                question = replace(question, templates=prompt_set.templates)
            texts = embed_occupations(model, question)
            before, after = measure_gallery(
                question, name, part[:2], [texts], logit_scale=model.logit_scale, seed=seed, metrics=METRICS
            )
            same[prompt_set.title] = tuple(alike(question.occupations, texts))
            repeats = sum(len(group) - 1 for group in same[prompt_set.title])
            rows += _ranking_rows(name, prompt_set, before, after, len(question.occupations) - repeats)
            ranking = rank_gallery(question, name, texts, one_pool=True)
            preference = measure_preference(
                model, list(part[:2]), ranking, [texts], question.templates, seed=seed
            )
            rows += _preference_rows(name, prompt_set, preference, before.n)
            changes = measure_part_changes(part[0], part[1:], ranking, seed=seed)
            case = {"attribute": name, "prompts": prompt_set.title}
            parts += [
                (case | {"heads": str(heads)}, change) for heads, change in zip(ablated, changes, strict=True)
            ]
            tops += _top_rows(name, prompt_set, question.occupations, after, same[prompt_set.title])
        rows += _harm_rows(model, people, name, part[:2], seed)
    choices = {
        "model": model.name,
        "weights": model.weights_hash[:16],
        "gallery": gallery.name,
        "source": gallery.source,
        "images": len(gallery.images),
        "skipped": len(skipped),
        "attributes": list(names),
        "ablate": str(ablation),
        "seed": seed,
    }
    if dataset is not None:
        data = open_dataset(dataset, max_images=max_images) if isinstance(dataset, str) else dataset
        if not isinstance(data, ClassificationSet):
            raise InputError(f"{data.name} is not a dataset of images with classes.")
        rows += _accuracy_rows(model, data, ablation, seed, skip_unreadable)
        choices["dataset"] = data.name
    return Audit(
        about=choices,
        rows=pd.DataFrame(rows).reindex(columns=list(COLUMNS)),
        top=pd.DataFrame(tops),
        parts=part_rows(parts),
        left_out={name: left_out for name, (_, left_out) in galleries.items()},
        alike=same,
        prompts={prompt_set.title: prompt_set.source for prompt_set in (*sets, load_prompts(HARMS))},
    )


def _prompt_sets(gallery: BiasSet, prompts: Sequence[str] | str | None) -> list[PromptSet]:
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


def _default_attributes(gallery: BiasSet) -> list[str]:
    crossed = [",".join(pair) for pair in list(combinations(gallery.groups, 2))[:1]]
    return [*gallery.groups, *crossed]


def _grouped(gallery: BiasSet, attribute: str, smallest: int) -> tuple[BiasSet, Mapping[str, int]]:
    """Return the gallery with the attribute among its groups, and the people left out by group."""
    if attribute in gallery.groups or "," not in attribute:
        return open_people(gallery, attribute)[0], {}
    return cross_groups(gallery, attribute, smallest)


def _members(gallery: BiasSet, attribute: str, small: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the rows of the people whose crossed group is large enough."""
    names = [name.strip() for name in attribute.split(",")]
    parts = zip(*(gallery.groups[name].tolist() for name in names), strict=True)
    return np.flatnonzero([", ".join(map(str, part)) not in small for part in parts])


def _case(section: str, attribute: str | None, prompts: str, metric: str, n: int, items: int) -> Row:
    """Return the columns that say what was measured."""
    return dict(zip(CASE, (section, attribute, prompts, metric, n, items), strict=True))


def _numbers(before: float, after: Estimate | Rate, **others: float) -> Row:
    """Return the columns of a number, with its 95% interval after ablation."""
    return {"before": before, "after": after.value, "low": after.low, "high": after.high, **others}


def _detectable(estimate: Estimate | pd.Series) -> float:
    """Return the minimum detectable effect at 80% power of a test with this 95% interval."""
    return float(POWER * (estimate.high - estimate.low) / STANDARD_ERRORS)


def _ranking_rows(
    attribute: str, prompts: PromptSet, before: BiasResult, after: BiasResult, count: int
) -> Iterator[Row]:
    for metric in METRICS:
        number, first = after.figure(metric), before.figure(metric)
        levels = {"chance": number.chance.value, "detectable": _detectable(number)}
        case = _case("ranking", attribute, prompts.title, metric, after.n, count)
        yield case | _numbers(first.value, number, **levels)


def _preference_rows(attribute: str, prompts: PromptSet, preference: Preference, n: int) -> Iterator[Row]:
    """Yield the share of the general preference, if the group scores can be split and there is any."""
    first, last = preference.before, preference.after
    if first and last and np.isfinite(last.share.value):
        case = _case("preference", attribute, prompts.title, "general share", n, last.prompts)
        levels = {"chance": last.chance.high, "p_value": last.p_general}
        yield case | {"group": last.preferred_group} | _numbers(first.share.value, last.share, **levels)


def _top_rows(
    attribute: str,
    prompts: PromptSet,
    names: Sequence[str],
    result: BiasResult,
    same: Sequence[Sequence[str]],
    max_rows: int = 5,
) -> Iterator[Row]:
    """Yield the prompts with the largest MaxSkew, each with the group it puts first.

    Of prompts that the model encodes identically (`same`), only the first is listed.
    """
    repeats = {name for group in same for name in group[1:]}
    pool, top = result.pool_shares, result.top_shares
    ratios = np.divide(top, pool, out=np.zeros(pool.shape), where=pool > 0)
    skews = result.metrics["MaxSkew"].values
    order = [place for place in np.argsort(-skews, kind="stable") if names[place] not in repeats]
    for place in order[:max_rows]:
        group = int(ratios[place].argmax())
        yield {
            "attribute": attribute,
            "prompts": prompts.title,
            "prompt": names[place],
            "MaxSkew": float(skews[place]),
            "group": result.groups[group],
            "share": float(top[place, group]),
            "pool": float(pool[place, group]),
        }


def _harm_rows(
    model: Model, people: BiasSet, attribute: str, images: NDArray[np.floating], seed: int
) -> Iterator[Row]:
    """Yield the rates at which people of each group are assigned to each harm category."""
    harms, groups = load_prompts(HARMS), people.groups[attribute]
    people_names = [name_person(str(group)) for group in np.unique(groups)]
    texts = class_weights(model, [*people_names, *harms.names], harms.templates)
    assigned = [(part @ texts.T).argmax(axis=1) for part in images]
    names = np.array([*people_names, *harms.names])
    for category, classes in harms.categories.items():
        before, after = (np.isin(names[places], classes) for places in (assigned[0], assigned[-1]))
        gap = rate_gap(after, groups, seed=seed)
        first = {rate.group: rate.value for rate in group_rates(before, groups)}
        for rate in group_rates(after, groups):
            case = _case("harm", attribute, category, "rate", rate.n, len(names))
            numbers = _numbers(first[rate.group], rate, chance=float(after.mean()))
            yield case | {"group": rate.group} | numbers
        yield _case("harm", attribute, category, "largest gap", len(groups), len(names)) | {
            "group": f"{gap.highest} minus {gap.lowest}" if gap.value else "no difference",
            "before": max(first.values()) - min(first.values()),
            "after": gap.value,
            "chance": gap.chance,
            "detectable": gap.detectable,
            "p_value": gap.p_value,
        }


def _accuracy_rows(
    model: Model, data: ClassificationSet, ablation: HeadSet, seed: int, skip_unreadable: bool
) -> Iterator[Row]:
    """Yield the accuracy of all images, of the worst class, and of the worst class within a group."""
    attributes: list[str | None] = [*data.groups] or [None]
    cases: list[tuple[str, str | None, str, pd.Series]] = []
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
        case = _case(section, column, data.name, "accuracy", int(row["images"]), len(data.classes))
        numbers = {name: row[name] for name in ("before", "after", "low", "high")}
        levels = {"chance": 1 / len(data.classes), "detectable": _detectable(row)}
        yield case | {"group": group} | numbers | levels

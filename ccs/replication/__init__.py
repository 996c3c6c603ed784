"""The study replicated: its printed figures beside measured ones (and its sentences, in `audit`).

A printed figure is a `Claim`. `compare` looks a claim up in results (schema: docs/tables.md) and says whether
the printed number lies within the measured interval. Accuracies, recalls and shares are compared in percent,
as printed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats as distributions

from ccs import paper
from ccs.analysis.ablation_sets import PlanName
from ccs.heads import HeadSet
from ccs.metrics import stats
from ccs.metrics.released_code import fault_of
from ccs.metrics.stats import UNKNOWN, Estimate
from ccs.results import Results, queries, schema
from ccs.texts import score

LABELS = {"objects": "Objects", "locations": "Locations", "animals": "Animals", "colors": "Colors"}
AS_STUDIED = {
    "cifar10": "cifar10-jpeg",
    "cifar100": "cifar100-joined",
    "food101": "food101-joined",
    "oxford-pets": "oxford-pets-first-word",
}
"""Sets that the study read in its own way, and the variants that do the same."""

TABLES = (
    *("table2", "table3", "table5", "table6", "table7", "table8", "table9", "table10", "table11"),
    *("appendix-b", "figure2", "figure3", "figure4", "figure5"),
)
"""Tables and figures that can be measured (tables 4 and v1-table2 need people's annotations)."""
REPEATED = ("section4.4", "poster", "v1-table3", "table11-merged", "concepts")
"""Printed beside these or counted from them; the audit alone asks for them."""
EXCHANGED = {"high": "equal-low", "low": "equal-high"}
"""The plans under table 7's headings: its column High repeats the low heads of tables 5 and 6."""


@dataclass(frozen=True)
class Claim:
    """One printed number. `k`: texts per head; for CCS@k, the score. `digits`: decimals printed.

    `measure`: the table of results with the measured figure ("pruning", "retrieval", "bias"), "level" or
    "ccs" (number or share of heads in `scores`), "alone" (by one judge), "label" (number of high heads with
    it) or "ccr".
    """

    table: str
    row: str
    column: str
    model: str
    published: float
    digits: int
    measure: str
    plan: str = ""
    dataset: str = ""
    subset: str = ""
    attribute: str = ""
    k: int = 5
    layer: int | None = None
    labels: str = "as given"


@dataclass(frozen=True)
class Measured(Estimate):
    """A measured figure; `chance` is for bias only. `plan` and `dataset` may stand in for the claim's."""

    plan: str = ""
    dataset: str = ""
    mode: str = ""
    chance: Estimate = UNKNOWN


@dataclass(frozen=True)
class Compared:
    """A claim with the measured figure, or None. `open_clip`: its own figure for the unpruned model.
    `standard`: measured on the standard set, if the study used a variant. `correct`: bias by the correct
    metric, if `measured` follows the released code.
    """

    claim: Claim
    measured: Measured | None
    open_clip: float | None = None
    standard: Measured | None = None
    correct: Measured | None = None

    @property
    def difference(self) -> float | None:
        return None if self.measured is None else self.measured.value - self.claim.published

    @property
    def agrees(self) -> bool | None:
        """True if the printed number lies in the measured interval (or is the measured one), give or take its
        last digit; None if nothing was measured. A share of heads may be off by one more, since the print's
        rows sum to 1.
        """
        if (measured := self.measured) is None:
            return None
        slack = (1.5001 if self.claim.measure in ("ccs", "alone") else 0.5001) * 10.0**-self.claim.digits
        low, high = measured.low, measured.high
        if math.isnan(low):
            low = high = measured.value
        return low - slack <= self.claim.published <= high + slack


def claims(key: str) -> tuple[Claim, ...]:
    """The numbers of one table or figure that could be measured."""
    table = paper.table(key)
    possible = (_claim(table, *cell) for cell in table.cells())
    return tuple(claim for claim in possible if claim is not None)


def _claim(table: paper.PaperTable, row: str, column: str, value: float) -> Claim | None:
    base = Claim(
        table=table.key,
        row=row,
        column=column,
        model=paper.model(row.split("/")[-1]).name,
        published=value,
        digits=max(len(str(value).partition(".")[2]) for *_, value in table.cells()),
        measure={"accuracy": "pruning", "retrieval": "retrieval", "bias": "bias"}.get(table.kind, ""),
    )
    if table.key == "table2":
        return replace(base, measure="level", plan=column)
    if table.kind == "share":
        measure = "ccs" if table.key == "table10" else "alone"
        return replace(base, measure=measure, k=int(column.removeprefix("CCS@")))
    if table.kind == "ratio":
        layer = None if column == "CCR" else paper.model(row).layers + int(column)
        labels = "normalized" if table.key == "table11-merged" else "as given"
        return replace(base, measure="ccr", layer=layer, labels=labels)
    if table.key == "concepts":
        return replace(base, measure="label", plan=LABELS[column])
    if table.kind == "agreement" or table.key == "open_clip":
        return None
    if table.kind == "bias":
        attribute, plan = column.split("/")
        dataset = "fairface-1.25" if table.key == "table8" else "socialcounterfactuals"
        return replace(base, plan=_plan(plan), attribute=attribute, dataset=dataset)
    if table.key in ("table3", "table5", "table6", "table7"):
        dataset, plan = column.split("/")
        k = int(plan.removeprefix("K=")) if plan.startswith("K=") else 5
        plan = EXCHANGED.get(plan, "none") if table.key == "table7" else _plan(plan)
        return replace(base, dataset=dataset.replace("_", "-"), plan=plan, k=k)
    if table.key in ("figure2", "figure5"):
        return replace(base, dataset=row.split("/")[0].replace("_", "-"), plan=_plan(column))
    place = row.split("/")[0] if table.key == "section4.4" else table.key
    countries = place in ("figure3", "country211")
    dataset, subset = ("country211", "") if countries else ("cifar10", "objects")
    return replace(base, dataset=dataset, subset=subset, plan=_plan(column))


def _plan(printed: str) -> str:
    if printed == "original":
        return "none"
    if printed.startswith("K="):
        return "high"
    return str(PlanName("concept", argument=LABELS[printed])) if printed in LABELS else printed


def plan_names(claim: Claim, main_k: int = 5, found: bool = False) -> tuple[str, ...]:
    """The plans that measure a claim, best first: of listed heads (not if `found`), of those scored here."""
    name = PlanName.parse(claim.plan)
    if name.kind == "none":
        return (str(name),)
    scored = str(name.at(None if claim.k == main_k else claim.k))
    return (str(name.published()), scored) if claim.k == 5 and not found else (scored,)


def dataset_names(claim: Claim) -> tuple[str, ...]:
    """The sets that measure a claim, best first: as read by the study, then the standard one."""
    if claim.dataset.startswith("fairface"):
        return ("fairface-1.25", "fairface-0.25", "fairface")
    if claim.dataset == "socialcounterfactuals" and claim.attribute == "gender":
        return ("socialcounterfactuals-gender", "socialcounterfactuals")
    if claim.measure == "retrieval":
        return (f"{claim.dataset}{schema.AS_PUBLISHED}", claim.dataset)
    variant = AS_STUDIED.get(claim.dataset)
    return (variant, claim.dataset) if variant else (claim.dataset,)


def compare(claim: Claim, results: Results | None, found: bool = False) -> Compared:
    """The claim beside its model's results, if there are any; `found`: with the heads found here."""
    anchor = _open_clip(claim)
    if results is None:
        return Compared(claim, None, anchor)
    if claim.measure in ("level", "ccs", "alone", "label", "ccr"):
        return Compared(claim, _from_scores(claim, results), anchor)
    datasets = dataset_names(claim)
    names = plan_names(claim, queries.main_k(results) or 5, found)
    if claim.measure == "bias":
        measured = correct = _look_up(claim, results, datasets, names, "correct")
        if any(fault_of(dataset, claim.attribute) for dataset in datasets):
            # The printed numbers come from the released code; only its mode can explain them.
            measured = _look_up(claim, results, datasets, names, "as-published")
        return Compared(claim, measured, anchor, correct=correct)
    measured = _look_up(claim, results, datasets, names)
    standard = None
    if measured is not None and measured.dataset != claim.dataset:
        standard = _look_up(claim, results, (claim.dataset,), names)
    return Compared(claim, measured, anchor, standard)


def _open_clip(claim: Claim) -> float | None:
    table, column = paper.table("open_clip"), claim.dataset.replace("-", "_")
    unpruned = claim.measure == "pruning" and claim.plan == "none" and not claim.subset
    if not unpruned or column not in table.columns:
        return None
    return table.value(paper.model(claim.model).paper_name, column)


def _look_up(
    claim: Claim,
    results: Results,
    datasets: Sequence[str],
    names: Sequence[str],
    mode: queries.Mode = "correct",
) -> Measured | None:
    if claim.measure == "pruning":
        chosen = queries.top1(results, subset=claim.subset)
    elif claim.measure == "retrieval":
        chosen = queries.recall(results, direction="text-to-clip")
    else:
        chosen = queries.max_skew(results, "sum", mode=mode, attribute=claim.attribute)
    for dataset, plan in itertools.product(datasets, names):
        if len(rows := queries.of_plan(chosen, plan, dataset)):
            bias, row = claim.measure == "bias", rows.iloc[0]
            figure = queries.estimate(row).times(1 if bias else 100)
            about = (mode, queries.chance(row)) if bias else ()
            return Measured(figure.value, figure.low, figure.high, plan, dataset, *about)
    return None


def _from_scores(claim: Claim, results: Results) -> Measured | None:
    scores = results.table("scores")
    scores = scores[scores["k"] == 5]
    if not len(scores):
        return None
    if claim.measure == "level":
        value = float((scores["level"] == claim.plan).sum())
    elif claim.measure in ("ccs", "alone"):
        by_all = claim.measure == "ccs"
        known = [int(value) for value in scores["ccs"].dropna()]
        value = score.ccs_at_k(known if by_all else queries.ccs_alone(results, "openai", 5), 5)[claim.k]
    elif claim.measure == "label":
        value = float(sum(given == claim.plan for given, _ in queries.high_labels(results).values()))
    else:
        value = queries.ccr(results, claim.labels, claim.layer)
    return None if math.isnan(value) else Measured(value, math.nan, math.nan)


# The study's heads, found again ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    """The heads of one level of one model: how many the study lists and were found, of `heads` scored; in
    both sets, and how many of these have the printed label. expected: the mean Jaccard of a random set of as
    many heads. p_value: how often such a set shares as many; `adjusted` by Holm.
    """

    model: str
    level: str
    heads: int
    printed: int
    found: int
    both: int
    alike: int
    jaccard: float
    expected: float
    p_value: float
    adjusted: float = float("nan")


def by_chance(heads: int, printed: int, found: int, both: int) -> tuple[float, float]:
    """The mean Jaccard of `printed` heads and `found` random ones, and how often they share so many."""
    shared = np.arange(max(0, printed + found - heads), min(printed, found) + 1)
    law = distributions.hypergeom(heads, printed, found)
    jaccard = shared / np.maximum(1, printed + found - shared)
    return float(law.pmf(shared) @ jaccard), float(law.sf(both - 1))


def overlaps(models: Mapping[str, Results]) -> Sequence[Overlap]:
    """A row for each of the study's models that was scored at K = 5, and each level."""
    rows: list[Overlap] = []
    for model in paper.models():
        scores = models[model.name].table("scores") if model.name in models else None
        if scores is None or not len(scores := scores[scores["k"] == 5]):
            continue
        labels = {head: (row.level, row.label) for head, row in queries.by_head(scores)}
        scored = model.heads & HeadSet(labels)
        for level, listed in paper.head_labels(model.name).items():
            ours = HeadSet(head for head in scored if labels[head][0] == level)
            theirs = HeadSet(listed) & scored
            both = ours & theirs
            n = len(scored), len(theirs), len(ours), len(both)
            alike = sum(labels[head][1] == listed[head] for head in both)
            jaccard = len(both) / max(1, len(ours | theirs))
            rows.append(Overlap(model.paper_name, level, *n, alike, jaccard, *by_chance(*n)))
    adjusted = stats.holm([one.p_value for one in rows])
    return [replace(one, adjusted=float(p)) for one, p in zip(rows, adjusted, strict=True)]

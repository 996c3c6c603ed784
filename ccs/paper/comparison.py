"""Published beside measured: every printed number, what it is a number of, and the row of the tables that
answers it.

A printed figure is a `Claim`. `compare` looks a claim up in results (schema: docs/tables.md) and says
whether the printed number lies within the measured interval. Accuracies, recalls and shares are compared
in percent, as printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ccs.paper import figures

LABELS = {"objects": "Objects", "locations": "Locations", "animals": "Animals", "colors": "Colors"}
DATASETS = {"oxford_pets": "oxford-pets", "imagenet_a": "imagenet-a", "imagenet_r": "imagenet-r"}
AS_STUDIED = {"cifar10": "cifar10-jpeg", "oxford-pets": "oxford-pets-first-word"}
"""Sets that the study read in a way of its own, and the variant that follows it."""

TABLES = (
    *("table2", "table3", "table5", "table6", "table7", "table8", "table9", "table10", "table11"),
    *("figure2", "figure3", "figure4", "figure5"),
)
"""Tables and figures that measured tables can answer (tables 4 and v1-table2 need people's annotations)."""


@dataclass(frozen=True)
class Claim:
    """One printed number.

    `measure`: the table of results that answers it ("pruning", "retrieval", "bias"), "level" or "ccs"
    (share or number of heads in `scores`) or "ccr". `plan`: as in the tables; `k`: texts a head where it
    is not five. `digits`: decimals printed.
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


@dataclass(frozen=True)
class Measured:
    """What the tables say. `plan` and `dataset` are those found, which may be stand-ins for those asked
    for.
    """

    value: float
    low: float | None
    high: float | None
    plan: str = ""
    dataset: str = ""
    mode: str = ""
    chance: float | None = None
    chance_low: float | None = None
    chance_high: float | None = None


@dataclass(frozen=True)
class Compared:
    """A claim with what was measured, or without (`measured` None).

    `open_clip`: open_clip's own figure for the unpruned model on the standard set. `standard`: measured on
    the standard set where the study used a variant. `correct`: the same bias by the correct metric, where
    `measured` follows the released code.
    """

    claim: Claim
    measured: Measured | None
    open_clip: float | None = None
    standard: Measured | None = None
    correct: Measured | None = None

    @property
    def difference(self) -> float | None:
        """Measured less published."""
        return None if self.measured is None else self.measured.value - self.claim.published

    @property
    def agrees(self) -> bool | None:
        """Whether the printed number lies in the measured interval, give or take its last digit.

        None where nothing was measured. Without an interval the two must be equal to the printed digits.
        """
        if self.measured is None:
            return None
        slack = 0.5001 * 10.0**-self.claim.digits
        low = self.measured.value if self.measured.low is None else self.measured.low
        high = self.measured.value if self.measured.high is None else self.measured.high
        return low - slack <= self.claim.published <= high + slack


def claims(key: str) -> tuple[Claim, ...]:
    """The numbers of one table or figure that could be measured."""
    return tuple(_claims(figures.table(key)))


def _claims(table: figures.PaperTable) -> Iterator[Claim]:
    for row, values in table.rows.items():
        for column, value in zip(table.columns, values, strict=True):
            if value is not None:
                claim = _claim(table, row, column, value)
                if claim is not None:
                    yield claim


def _claim(table: figures.PaperTable, row: str, column: str, value: float) -> Claim | None:
    base = Claim(
        table=table.key,
        row=row,
        column=column,
        model=figures.model(row.split("/")[-1]).name,
        published=value,
        digits=_digits(table),
        measure={"accuracy": "pruning", "retrieval": "retrieval", "bias": "bias"}.get(table.kind, ""),
    )
    if table.key == "table2":
        return replace(base, measure="level", plan=column)
    if table.key == "table10":
        return replace(base, measure="ccs", k=int(column.removeprefix("CCS@")))
    if table.key == "table11":
        return replace(base, measure="ccr")
    if table.kind == "agreement" or table.key in ("open_clip", "section4.4"):
        return None
    if table.kind == "bias":
        attribute, plan = column.split("/")
        dataset = "fairface-1.25" if table.key == "table8" else "socialcounterfactuals"
        return replace(base, plan=_plan(plan), attribute=attribute, dataset=dataset)
    if table.key in ("table3", "table5", "table6", "table7"):
        dataset, plan = column.split("/")
        if table.key == "table7" and plan != "original":
            return replace(base, dataset=_dataset(dataset), plan=f"equal-{plan}")
        k = int(plan.removeprefix("K=")) if plan.startswith("K=") else 5
        return replace(base, dataset=_dataset(dataset), plan="high" if k != 5 else _plan(plan), k=k)
    if table.key in ("figure2", "figure5"):
        return replace(base, dataset=_dataset(row.split("/")[0]), plan=_plan(column))
    dataset, subset = {"figure3": ("country211", ""), "figure4": ("cifar10", "objects")}[table.key]
    return replace(base, dataset=dataset, subset=subset, plan=_plan(column))


def _digits(table: figures.PaperTable) -> int:
    cells = [str(cell) for cells in table.rows.values() for cell in cells if cell is not None]
    return max(len(cell.partition(".")[2]) for cell in cells)


def _dataset(printed: str) -> str:
    return DATASETS.get(printed, printed)


def _plan(printed: str) -> str:
    if printed == "original":
        return "none"
    if printed.startswith("K="):
        return "high"
    return f"concept:{LABELS[printed]}" if printed in LABELS else printed


def plan_names(claim: Claim, main_k: int = 5) -> tuple[str, ...]:
    """Plans that answer a claim, best first: the heads the study lists, then those scored here.

    `main_k`: texts a head of the plans that have no K in their name.
    """
    if claim.plan == "none":
        return ("none",)
    scored = claim.plan if claim.k == main_k else f"{claim.plan}@{claim.k}"
    return (f"published-{claim.plan}", scored) if claim.k == 5 else (scored,)


def dataset_names(claim: Claim) -> tuple[str, ...]:
    """Sets that answer a claim, best first: as the study read it, then the standard one."""
    if claim.dataset.startswith("fairface"):
        return ("fairface-1.25", "fairface-0.25", "fairface")
    if claim.measure == "retrieval":
        return (f"{claim.dataset} (as-published)", claim.dataset)
    variant = AS_STUDIED.get(claim.dataset)
    return (variant, claim.dataset) if variant else (claim.dataset,)


def compare(claim: Claim, tables: Mapping[str, pd.DataFrame] | None) -> Compared:
    """The claim beside the tables of its model (None or missing tables: nothing was measured)."""
    tables = tables or {}
    anchor = _open_clip(claim)
    main_k = _main_k(tables.get("scores"))
    if claim.measure in ("level", "ccs", "ccr"):
        return Compared(claim, _from_scores(claim, tables.get("scores")), anchor)
    frame = tables.get(claim.measure)
    if frame is None:
        return Compared(claim, None, anchor)
    if claim.measure == "bias":
        # The printed numbers come from the released code; only its own mode can explain them.
        return Compared(
            claim,
            _look_up(claim, frame, dataset_names(claim), main_k, "as-published"),
            anchor,
            correct=_look_up(claim, frame, dataset_names(claim), main_k, "correct"),
        )
    measured = _look_up(claim, frame, dataset_names(claim), main_k)
    standard = None
    if measured is not None and measured.dataset != claim.dataset:
        standard = _look_up(claim, frame, (claim.dataset,), main_k)
    return Compared(claim, measured, anchor, standard)


def _open_clip(claim: Claim) -> float | None:
    if claim.measure != "pruning" or claim.plan != "none" or claim.subset:
        return None
    table = figures.table("open_clip")
    printed = {_dataset(column): column for column in table.columns}
    if claim.dataset not in printed:
        return None
    return table.value(figures.model(claim.model).paper_name, printed[claim.dataset])


def _main_k(scores: pd.DataFrame | None) -> int:
    return 5 if scores is None or not len(scores) else int(scores["k"].min())


def _look_up(
    claim: Claim, frame: pd.DataFrame, datasets: Sequence[str], main_k: int, mode: str = ""
) -> Measured | None:
    if claim.measure == "pruning":
        chosen = frame[(frame["metric"] == "top1") & (frame["subset"].fillna("") == claim.subset)]
    elif claim.measure == "retrieval":
        chosen = frame[(frame["metric"] == "R@1") & (frame["direction"] == "text-to-clip")]
    else:
        chosen = frame[
            (frame["metric"] == "MaxSkew sum")
            & (frame["occupation"].fillna("") == "")
            & (frame["attribute"] == claim.attribute)
            & (frame["target"] == "pool")
            & (frame["mode"] == mode)
        ]
    scale = 1.0 if claim.measure == "bias" else 100.0
    for dataset in datasets:
        for plan in plan_names(claim, main_k):
            rows = chosen[(chosen["dataset"] == dataset) & (chosen["plan"] == plan)]
            if len(rows):
                return _measured(rows, plan, dataset, mode, scale)
    return None


def _measured(rows: pd.DataFrame, plan: str, dataset: str, mode: str, scale: float) -> Measured:
    over_seeds = rows[rows["seed"].isna()]
    if len(over_seeds) or len(rows) == 1:
        row = (over_seeds if len(over_seeds) else rows).iloc[0]
        value, low, high = row["value"], row["low"], row["high"]
    else:
        # Random plans without a row for their mean: the mean over seeds and their range.
        row = rows.iloc[0]
        value, low, high = rows["value"].mean(), rows["value"].min(), rows["value"].max()
    chance = [_number(row.get(name)) for name in ("chance", "chance_low", "chance_high")]
    return Measured(
        value=float(value) * scale,
        low=None if pd.isna(low) else float(low) * scale,
        high=None if pd.isna(high) else float(high) * scale,
        plan=plan,
        dataset=dataset,
        mode=mode,
        chance=chance[0],
        chance_low=chance[1],
        chance_high=chance[2],
    )


def _number(value: object) -> float | None:
    return None if value is None or pd.isna(value) else float(value)  # type: ignore[arg-type]


def _from_scores(claim: Claim, scores: pd.DataFrame | None) -> Measured | None:
    if scores is None:
        return None
    frame = scores[scores["k"] == 5]
    if not len(frame):
        return None
    if claim.measure == "level":
        return Measured(float((frame["level"] == claim.plan).sum()), None, None)
    if claim.measure == "ccs":
        return Measured(float((frame["ccs"] == claim.k).mean()), None, None)
    labels = frame.loc[frame["level"] == "high", "label"]
    ratio = repeated_labels(labels.dropna()) / len(labels) if len(labels) else float("nan")
    return Measured(ratio, None, None)


def repeated_labels(labels: Sequence[str]) -> int:
    """How many concepts more than one head carries (the numerator of the study's CCR)."""
    return sum(count > 1 for count in Counter(labels).values())

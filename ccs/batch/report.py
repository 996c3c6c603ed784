"""Compare your results with the paper's tables and figures: `clip-ccs report --results DIR`.

A printed number is a `Claim`. `compare_claim` looks up its counterpart in the results (schema:
docs/tables.md) and checks whether the printed number lies within the measured interval. Accuracies,
recalls, and shares are in percent, as printed.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from ccs import paper, results
from ccs.analysis.ablation_sets import AblationName
from ccs.analysis.inputs import has_order_fault
from ccs.batch.pages import TEMPLATES, as_markdown, filled, open_results
from ccs.cli.command_line import Command
from ccs.cli.options import DATA, IN_RESULTS, OUTPUT, parse_with, to_folder, unset
from ccs.files import write_text
from ccs.heads import HeadSet
from ccs.metrics.stats import UNKNOWN, Estimate
from ccs.results import Results, queries, schema
from ccs.texts import score

TABLES = (
    *("table2", "table3", "table5", "table6", "table7", "table8", "table9", "table10", "table11"),
    *("appendix-b", "figure2", "figure3", "figure4", "figure5"),
)
"""Tables and figures that can be measured (tables 4 and v1-table2 need people's annotations)."""
REPEATED = ("section4.4", "poster", "v1-table3", "table11-merged", "concepts")
"""Numbers printed a second time or counted from the tables. The report leaves them out."""
LABELS = {"objects": "Objects", "locations": "Locations", "animals": "Animals", "colors": "Colors"}
VARIANTS = {"cifar10": "cifar10-jpeg", "oxford-pets": "oxford-pets-first-word"}
VARIANTS |= {name: f"{name}-joined" for name in ("cifar100", "food101")}
"""Datasets that the paper's code reads differently, and the variants that match it."""
EXCHANGED = {"high": "equal-low", "low": "equal-high"}
"""The ablations under table 7's headings: its column High repeats the low heads of tables 5 and 6."""


@dataclass(frozen=True)
class Claim:
    """One printed number.

    Attributes:
        measure: The place of its counterpart: a table of results ("pruning", "retrieval", "bias"), or the
            scores: number of heads of a level ("level"), share of heads by score ("ccs", or "alone" by one
            judge), number of high heads with a label ("label"), or concentrated concept ratio ("ccr").
        ablation: Name of the ablation set, or the counted level or label.
        k: Texts per head; for "ccs" and "alone" the score.
        digits: Decimals printed.
    """

    table: str
    row: str
    column: str
    model: str
    published: float
    digits: int
    measure: str
    ablation: str = ""
    dataset: str = ""
    subset: str = ""
    attribute: str = ""
    k: int = 5
    layer: int | None = None
    labels: str = "as given"


@dataclass(frozen=True)
class Measured(Estimate):
    """A measured number, with the ablation and dataset behind it. Only bias has a chance level."""

    ablation: str = ""
    dataset: str = ""
    mode: str = ""
    chance: Estimate = UNKNOWN


@dataclass(frozen=True)
class Compared:
    """A claim with the measured number, or None.

    `correct` is bias by the correct metric, if `measured` follows the released code.
    """

    claim: Claim
    measured: Measured | None
    correct: Measured | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the printed number lies in the measured interval, plus or minus its last digit.

        None if nothing was measured. A share of heads may be off by one more, as the printed rows sum to 1.
        """
        if (measured := self.measured) is None:
            return None
        slack = (1.5001 if self.claim.measure in ("ccs", "alone") else 0.5001) * 10.0**-self.claim.digits
        known = not math.isnan(measured.low)
        low, high = (measured.low, measured.high) if known else (measured.value, measured.value)
        return low - slack <= self.claim.published <= high + slack


def claims(key: str) -> tuple[Claim, ...]:
    """Return the numbers of one table or figure that can be measured."""
    table = paper.table(key)
    possible = (_claim(table, *cell) for cell in table.cells())
    return tuple(claim for claim in possible if claim is not None)


def _claim(table: paper.PaperTable, row: str, column: str, value: float) -> Claim | None:
    digits = max(len(str(value).partition(".")[2]) for *_, value in table.cells())
    model = paper.model(row.split("/")[-1]).name
    claim = partial(Claim, table.key, row, column, model, value, digits)
    if table.key == "table2":
        return claim("level", column)
    if table.key == "concepts":
        return claim("label", LABELS[column])
    if table.kind == "share":
        return claim("ccs" if table.key == "table10" else "alone", k=int(column.removeprefix("CCS@")))
    if table.kind == "ratio":
        layer = None if column == "CCR" else paper.model(row).layers + int(column)
        return claim("ccr", layer=layer, labels="normalized" if table.key == "table11-merged" else "as given")
    of, _, printed = column.rpartition("/")  # the dataset or the attribute, if the table has several
    concepts = {name: f"concept:{label}" for name, label in LABELS.items()}
    ablation = ({"original": "none"} | concepts).get(printed, printed)
    if table.kind == "bias":
        dataset = "fairface-1.25" if table.key == "table8" else "socialcounterfactuals"
        return claim("bias", ablation, dataset, attribute=of)
    measure = {"accuracy": "pruning", "retrieval": "retrieval"}.get(table.kind)
    if measure is None or table.key == "open_clip":
        return None
    if table.key == "table7":
        ablation = EXCHANGED.get(printed, "none")
    if printed.startswith("K="):
        return claim(measure, "high", of, k=int(printed.removeprefix("K=")))
    dataset, subset = of or row.split("/")[0], ""
    if table.key == "figure3" or dataset == "country211":
        dataset = "country211"
    elif table.key in ("figure4", "section4.4"):
        dataset, subset = "cifar10", "objects"
    return claim(measure, ablation, dataset.replace("_", "-"), subset)


def ablation_names(claim: Claim, main_k: int = 5, rescored: bool = False) -> tuple[str, ...]:
    """Return the ablations that measure a claim, best first.

    Args:
        claim: The printed number.
        main_k: Main number of texts per head in the results.
        rescored: Leave out the heads that the paper lists, and use those of your scores.
    """
    name = AblationName.parse(claim.ablation)
    scored = str(replace(name, k=None if claim.k == main_k or name.kind == "none" else claim.k))
    listed = name.kind != "none" and claim.k == 5 and not rescored
    return (str(name.published()), scored) if listed else (scored,)


def dataset_names(claim: Claim) -> tuple[str, ...]:
    """Return the datasets that measure a claim, the paper's own way of reading first."""
    if claim.dataset.startswith("fairface"):
        return ("fairface-1.25", "fairface-0.25", "fairface")
    if claim.dataset == "socialcounterfactuals" and claim.attribute == "gender":
        return ("socialcounterfactuals-gender", "socialcounterfactuals")
    if claim.measure == "retrieval":
        return (f"{claim.dataset}{schema.AS_PUBLISHED}", claim.dataset)
    return tuple(dict.fromkeys((VARIANTS.get(claim.dataset, claim.dataset), claim.dataset)))


def compare_claim(claim: Claim, model_results: Results | None, rescored: bool = False) -> Compared:
    """Compare a printed number with a model's results.

    Args:
        claim: The printed number.
        model_results: Results of its model, if there are any.
        rescored: Use the heads of your scores in place of those that the paper lists.
    """
    if model_results is None:
        return Compared(claim, None)
    if claim.measure in ("level", "ccs", "alone", "label", "ccr"):
        return Compared(claim, _from_scores(claim, model_results))
    names = ablation_names(claim, queries.main_k(model_results) or 5, rescored)
    measured = correct = _look_up(claim, model_results, names)
    if any(has_order_fault(dataset, claim.attribute) for dataset in dataset_names(claim)):
        # The printed numbers come from the released code, so only results in that mode can match them.
        measured = _look_up(claim, model_results, names, "as-published")
    return Compared(claim, measured, correct)


def _look_up(
    claim: Claim, model_results: Results, names: Sequence[str], mode: queries.Mode = "correct"
) -> Measured | None:
    if claim.measure == "pruning":
        rows = queries.top1(model_results, subset=claim.subset)
    elif claim.measure == "retrieval":
        rows = queries.recall(model_results)
    else:
        rows = queries.max_skew(model_results, "sum", mode=mode, attribute=claim.attribute)
    for dataset, ablation in itertools.product(dataset_names(claim), names):
        if len(matching := queries.of_ablation(rows, ablation, dataset)):
            bias, row = claim.measure == "bias", matching.iloc[0]
            estimate = queries.estimate(row).times(1 if bias else 100)
            with_chance = (mode, queries.chance(row)) if bias else ()
            return Measured(estimate.value, estimate.low, estimate.high, ablation, dataset, *with_chance)
    return None


def _from_scores(claim: Claim, model_results: Results) -> Measured | None:
    scores = model_results.table("scores")
    scores = scores[scores["k"] == 5]
    if not len(scores):
        return None
    if claim.measure == "level":
        value = float((scores["level"] == claim.ablation).sum())
    elif claim.measure == "ccs":
        value = score.ccs_at_k(scores["ccs"].dropna().astype(int).tolist(), 5)[claim.k]
    elif claim.measure == "alone":
        value = score.ccs_at_k(queries.ccs_alone(model_results, "openai", 5), 5)[claim.k]
    elif claim.measure == "label":
        value = float(((scores["level"] == "high") & (scores["label"] == claim.ablation)).sum())
    else:
        value = queries.ccr(model_results, claim.labels, claim.layer)
    return None if math.isnan(value) else Measured(value, math.nan, math.nan)


def overlaps(models: Mapping[str, Results]) -> list[dict[str, Any]]:
    """Compare the heads that the paper lists at each level with those of your scores at K = 5.

    Args:
        models: Results by name of the model.

    Returns:
        A row for each level of each of the paper's models that was scored: the numbers of scored heads, of
        heads that the paper lists, of heads at this level in your scores, of heads in both sets, and of those
        with the printed label; and the Jaccard index.
    """
    rows: list[dict[str, Any]] = []
    for model in paper.models():
        if model.name not in models:
            continue
        scored = dict(queries.by_head(models[model.name].table("scores").query("k == 5")))
        for level, listed in paper.head_labels(model.name).items() if scored else ():
            measured = {head for head in model.heads if head in scored and scored[head].level == level}
            printed = {head for head in listed if head in scored}
            shared = measured & printed
            rows.append(
                {"model": model.paper_name, "level": level, "heads": len(model.heads & HeadSet(scored))}
                | {"printed": len(printed), "measured": len(measured), "shared": len(shared)}
                | {"same label": sum(scored[head].label == listed[head] for head in shared)}
                | {"Jaccard": f"{len(shared) / max(1, len(measured | printed)):.2f}"}
            )
    return rows


# The report -------------------------------------------------------------------------------------------------


def build(collection: results.Collection) -> str:
    """Write the report on these results, in Markdown."""
    models = collection.models
    tables = {key: [compare_claim(claim, models.get(claim.model)) for claim in claims(key)] for key in TABLES}
    studied = [models[model.name] for model in paper.models() if model.name in models]
    values: dict[str, Any] = {"source": collection.source, "models": [*models]}
    values |= {"notices": [*collection.notices], "summary": _summary(tables), "overlaps": overlaps(models)}
    values["deciders"] = [f"{model.model}: {queries.decided_by(model.manifest)}" for model in studied]
    values["sections"] = [_section(key, cells, models) for key, cells in tables.items()]
    return as_markdown(filled(TEMPLATES, "report", **values))


def _summary(tables: Mapping[str, Sequence[Compared]]) -> pd.DataFrame:
    """Count the printed numbers, those measured, and those that agree, by table and in total."""
    rows = []
    for key, cells in tables.items():
        agree = [cell.agrees for cell in cells if cell.agrees is not None]
        rows.append([paper.table(key).number, paper.table(key).title, len(cells), len(agree), sum(agree)])
    summary = pd.DataFrame(rows, columns=["", "title", "printed", "measured", "agree"])
    summary.loc[len(rows)] = ["**All**", "", *summary.iloc[:, 2:].sum()]
    return summary


def _section(key: str, cells: Sequence[Compared], models: Mapping[str, Results]) -> dict[str, Any]:
    """Fill in the section of one table or figure."""
    printed = paper.table(key)
    unit = {"%": "Percent.", "sum": "Natural logarithm; lower is better."}.get(printed.unit, "")
    names = {cell.claim.model for cell in cells if cell.measured is not None}
    rows = [_row(cell, models[cell.claim.model]) for cell in cells if cell.claim.model in names]
    others = pd.DataFrame.from_dict(dict(printed.rows), "index", columns=[*printed.columns])
    others = others.drop([*{row[""] for row in rows}]).map("{:g}".format, na_action="ignore")
    return {
        "title": f"{printed.number}. {printed.title}",
        "note": f"{unit} {printed.note}".strip(),
        "measured": rows,
        "published": None if others.empty else others.reset_index(names=""),
    }


def _row(cell: Compared, model_results: Results) -> dict[str, str]:
    """Compare one number, measured with the heads that the paper lists and with those of your scores."""
    claim, digits = cell.claim, cell.claim.digits
    value, bounds = _texts(cell.measured, digits)
    row = {
        "": claim.row,
        "column": claim.column,
        "published": f"{claim.published:.{digits}f}",
        "measured": value,
        "95% interval": bounds,
        "difference": f"{cell.measured.value - claim.published:+.{digits}f}" if cell.measured else "–",
        "agrees": {True: "✓", False: "✗", None: "–"}[cell.agrees],
        "source": _source(cell),
    }
    if claim.measure == "bias":
        row["correct metric"] = " ".join(_texts(cell.correct, digits))
        row["chance"] = " ".join(_texts(cell.correct.chance if cell.correct else None, 1))
    if claim.measure in ("pruning", "retrieval", "bias"):
        listed = cell.measured is not None and cell.measured.ablation.startswith("published-")
        rescored = compare_claim(claim, model_results, rescored=True).measured if listed else None
        row["with your scores' heads"] = " ".join(dict.fromkeys(_texts(rescored, digits)))
    return row


def _texts(estimate: Estimate | None, digits: int) -> tuple[str, str]:
    """Format the value and its interval, with dashes for missing numbers."""
    if estimate is None or math.isnan(estimate.value):
        return "–", "–"
    bounds = "–" if math.isnan(estimate.low) else f"[{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    return f"{estimate.value:.{digits}f}", bounds


def _source(cell: Compared) -> str:
    if (measured := cell.measured) is None:
        return "–"
    return ", ".join(filter(None, (measured.ablation, measured.dataset, measured.mode))) or "scores"


# The command ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Write report.md: the paper's tables and figures next to your results.

    Examples:
        clip-ccs report --results results --out report
    """

    results: Annotated[str | None, DATA, parse_with(str), unset(IN_RESULTS)] = None
    """Folder of results, or hf://datasets/USER/NAME"""
    out: Annotated[Path, OUTPUT, parse_with(to_folder)] = Path("report")
    """Folder for report.md"""


def write_report(settings: ReportOptions) -> None:
    """Write the file and print its path."""
    write_text(settings.out / "report.md", build(open_results(settings.results)))
    print(settings.out / "report.md")


main = Command(ReportOptions, write_report)

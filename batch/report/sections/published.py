"""The published part of the report: every table and figure of the study beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from batch.report.figures import Point, dots
from batch.report.page import Block, Chart, Grid, Heading, Items, Text
from batch.report.sections.agreement import agreement_blocks
from ccs import paper
from ccs.paper.comparison import TABLES, Claim, Compared, Measured, claims, compare
from ccs.results import Results

Tables = Mapping[str, Results]
"""Model -> its results."""


def compared(key: str, tables: Tables) -> list[Compared]:
    """Every number of one table or figure, beside its model's results."""
    return [compare(claim, tables.get(claim.model)) for claim in claims(key)]


def summary(tables: Tables) -> list[Block]:
    """How many printed numbers there are, were measured, and agree."""
    rows = []
    for key in TABLES:
        found = compared(key, tables)
        measured = [one for one in found if one.measured is not None]
        agree = sum(bool(one.agrees) for one in measured)
        table = paper.table(key)
        rows.append([table.number, table.title, str(len(found)), str(len(measured)), str(agree)])
    total = [str(sum(int(row[column]) for row in rows)) for column in (2, 3, 4)]
    rows.append(["**All**", "", *total])
    columns = ["", "what", "printed", "measured", "agree"]
    return [
        Text(
            "A printed number agrees when it lies in the 95% interval of the measured one, give or take its "
            "last digit. ✓ and ✗ mark agreement and disagreement; a dash is a hole: nothing was measured."
        ),
        Grid(columns, rows, "Printed numbers, by table and figure", frozenset({"what"})),
    ]


def tables_and_figures(tables: Tables, agreement: pd.DataFrame | None) -> Iterator[Block]:
    """Sections for tables 2 to 11 and figures 2 to 5; `agreement` is what table 4 is held against."""
    yield Heading(2, "Tables of the study, published beside measured")
    for key in TABLES:
        if key.startswith("table"):
            yield from _section(key, tables)
        if key == "table3":
            yield from agreement_blocks(agreement)
    yield Heading(2, "Figures of the study, published beside measured")
    for key in TABLES:
        if key.startswith("figure"):
            yield from _section(key, tables)
            yield _chart(key, compared(key, tables))


def _section(key: str, tables: Tables) -> Iterator[Block]:
    table = paper.table(key)
    found = compared(key, tables)
    yield Heading(3, f"{table.number}. {table.title}")
    unit = {"%": "Percent.", "sum": "Natural logarithm; lower is better."}.get(table.unit, "")
    note = f"{unit} {table.note}".strip()
    if note:
        yield Text(note)
    models = {one.claim.model for one in found if one.measured is not None}
    beside = [one for one in found if one.claim.model in models]
    if beside:
        yield _beside(beside)
    rows = {one.claim.row for one in beside}
    if rows != set(table.rows):
        yield _published_alone(table, [row for row in table.rows if row not in rows])


def _published_alone(table: paper.PaperTable, names: Sequence[str]) -> Grid:
    anchors = table.key in ("table5", "table6")
    datasets = [column.split("/")[0] for column in table.columns if column.endswith("/original")]
    columns = ["", *table.columns, *(f"{name}/open_clip" for name in datasets if anchors)]
    known = paper.table("open_clip")
    rows = []
    for row in names:
        cells = [row, *map(_plain, table.rows[row])]
        if anchors:
            cells += [_plain(known.value(row, name)) for name in datasets]
        rows.append(cells)
    return Grid(columns, rows, "Published; nothing was measured.")


def _beside(found: Sequence[Compared]) -> Grid:
    bias = found[0].claim.measure == "bias"
    anchors = any(one.open_clip is not None for one in found)
    standard = any(one.standard is not None for one in found)
    columns = ["", "column", "published", "measured", "95% interval", "difference", "", "answered by"]
    columns += ["open_clip"] if anchors else []
    columns += ["standard set"] if standard else []
    columns += ["correct metric", "chance"] if bias else []
    rows = []
    for one in found:
        digits = one.claim.digits
        cells = [one.claim.row, one.claim.column, f"{one.claim.published:.{digits}f}"]
        cells += _cells(one.measured, digits)
        cells.append("–" if one.difference is None else f"{one.difference:+.{digits}f}")
        cells.append({True: "✓", False: "✗", None: "–"}[one.agrees])
        cells.append(_answer(one.claim, one.measured))
        cells += [_plain(one.open_clip)] if anchors else []
        cells += [_cells(one.standard, digits)[0]] if standard else []
        if bias:
            cells += [" ".join(_cells(one.correct, digits)), _chance(one.correct)]
        rows.append(cells)
    return Grid(columns, rows, "", frozenset({"column", "answered by"}))


def _cells(measured: Measured | None, digits: int) -> list[str]:
    if measured is None:
        return ["–", "–"]
    if measured.low is None or measured.high is None:
        return [f"{measured.value:.{digits}f}", "–"]
    return [f"{measured.value:.{digits}f}", f"[{measured.low:.{digits}f}, {measured.high:.{digits}f}]"]


def _chance(measured: Measured | None) -> str:
    if measured is None or measured.chance is None:
        return "–"
    if measured.chance_low is None or measured.chance_high is None:
        return f"{measured.chance:.1f}"
    return f"{measured.chance:.1f} [{measured.chance_low:.1f}, {measured.chance_high:.1f}]"


def _answer(claim: Claim, measured: Measured | None) -> str:
    if measured is None:
        return "–"
    if not measured.plan:
        return "scores"
    return ", ".join(
        part for part in (measured.plan, measured.dataset or claim.dataset, measured.mode) if part
    )


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _chart(key: str, found: Sequence[Compared]) -> Chart:
    table = paper.table(key)
    points: list[Point] = []
    for one in found:
        series = one.claim.column
        points.append(Point(one.claim.row, series, one.claim.published))
        if one.measured is not None:
            about = one.measured
            points.append(Point(one.claim.row, series, about.value, about.low, about.high, filled=True))
    measured = any(point.filled for point in points)
    suffix = "; filled: measured, with 95% interval" * measured
    text = f"{table.number}. {table.title}. Hollow: published{suffix}."
    return Chart(key, dots(points, f"{table.metric} (%)"), text)


def _cifar10_copies(tables: Tables) -> Iterator[Block]:
    """Both copies of CIFAR-10 beside the print, for the models that were run on both."""
    rows = []
    for claim in claims("table5"):
        if claim.dataset != "cifar10" or claim.plan != "none":
            continue
        found = compare(claim, tables.get(claim.model))
        if found.measured is None or found.standard is None:
            continue
        cost = found.standard.value - found.measured.value
        answer = "✓ the copy explains it" if found.agrees else "✗ the copy alone does not explain it"
        rows.append(
            [
                claim.model,
                f"{found.standard.value:.2f}",
                " ".join(_cells(found.measured, 2)),
                f"{cost:.2f}",
                f"{claim.published:.2f}",
                answer,
            ]
        )
    if rows:
        yield Heading(3, "CIFAR-10: is it the copy?")
        yield Text(
            "Nothing switched off. The copy (`cifar10-jpeg`) explains the print where the print lies in its "
            "interval; that the study read this copy is then likely, and still not proven."
        )
        columns = ["model", "original", "JPEG copy", "points that the copy costs", "published", "answer"]
        yield Grid(columns, rows, "", frozenset({"answer"}))


def what_does_not_reproduce(tables: Tables) -> Iterator[Block]:
    """Why some printed figures cannot be expected again."""
    yield Heading(2, "What does not reproduce, and why")
    yield Text("docs/reproduction.md tells this at length. In short:")
    yield Items(
        (
            "**Race on FairFace (table 8).** The released code counts groups in the order in which they "
            "first appear in the label file and divides by top-K counts in alphabetical order, so a group's "
            "share is compared with another group's. A ranking by chance sums to about 56 that way and to "
            "about 10.3 by the correct formula (K = 900, 104 occupations). The printed 48 to 67 lie around "
            "the former. Gender is not affected.",
            "**SocialCounterfactuals (table 9).** The lists of the groups are one list under several names: "
            "every group holds every picture and the true skew is 0 whatever the model. What is printed are "
            "ties among scores in half precision; the race values are whole multiples of ln 1.5. An "
            "unbiased ranking of six equal groups at K = 12 would sum to about 68.",
            "**So whether pruning high heads lowers bias was not measured** on race, and must be asked "
            "anew: by the correct metric, beside the level of chance, with an interval. The columns "
            "`correct metric` and `chance` above do that wherever results are there.",
            "**CIFAR-10** lies 8 to 14 points below open_clip's figures, probably because its pictures "
            "were encoded again as JPEG: the study's code reads a folder named like such a copy. A likely "
            "cause, not a proven one; docs/datasets.md says how to run both copies (`cifar10` and "
            "`cifar10-jpeg`).",
            "**Oxford-Pets** takes the first word of a file name as class, and CIFAR-10's templates (set "
            "`oxford-pets-first-word`): 50.07 against 87.00 for ViT-B-32/openai.",
            "**Table 7** seems to have its two headings exchanged.",
            "**Random plans** of ViT-B-32/openai draw from all twelve layers in the released code, from the "
            "last four for the other models. The paper prints means of five seeds; the code seeds its "
            "generator once, declares three runs and makes one, so these means can only be met within "
            "their spread.",
            "**Texts beyond the first few.** The reference keeps 80 directions of a head whose "
            "contributions have rank 67 at most. What it picks from the directions of rounding noise "
            "differs between machines, and so may CCS. Here the rank stops at the true one.",
            "**Judges.** Two of the three language models have been retired. Levels can be asked of others, "
            "but tables 2, 10 and 11 then answer a slightly different question. The plans `published-...` "
            "switch off the study's own heads and need no judge.",
        )
    )
    yield from _cifar10_copies(tables)

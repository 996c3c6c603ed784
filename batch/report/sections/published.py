"""The published part of the report: every table and figure of the study beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from batch.report.figures import dots
from batch.report.page import Block, Chart, listing, table
from batch.report.sections.agreement import agreement_blocks, plain
from ccs.paper import figures as paper
from ccs.paper.comparison import TABLES, Compared, Measured, claims, compare
from ccs.results import Results

Models = Mapping[str, Results]


def compared(key: str, models: Models) -> list[Compared]:
    """Every number of one table or figure, beside its model's results."""
    return [compare(claim, models.get(claim.model)) for claim in claims(key)]


def summary(models: Models) -> Iterator[Block]:
    """How many printed numbers there are, were measured, and agree."""
    rows = []
    for key in TABLES:
        found, printed = compared(key, models), paper.table(key)
        measured = [one for one in found if one.measured is not None]
        agree = sum(bool(one.agrees) for one in measured)
        row = {"": printed.number, "what": printed.title, "printed": len(found)}
        rows.append(row | {"measured": len(measured), "agree": agree})
    frame = pd.DataFrame(rows)
    totals = frame[["printed", "measured", "agree"]].sum().to_dict()
    frame.loc[len(frame)] = {"": "**All**", "what": "", **totals}
    yield (
        "A printed number agrees when it lies in the 95% interval of the measured one, give or take its "
        "last digit. ✓ and ✗ mark agreement and disagreement; a dash is a hole: nothing was measured."
    )
    yield table(frame, "Printed numbers, by table and figure")


def tables_and_figures(models: Models, agreement: pd.DataFrame | None) -> Iterator[Block]:
    """Sections for tables 2 to 11 and figures 2 to 5; `agreement` is what table 4 is held against."""
    yield "## Tables of the study, published beside measured"
    for key in TABLES:
        if key.startswith("table"):
            yield from _section(key, compared(key, models))
        if key == "table3":
            yield from agreement_blocks(agreement)
    yield "## Figures of the study, published beside measured"
    for key in TABLES:
        if key.startswith("figure"):
            found = compared(key, models)
            yield from _section(key, found)
            yield _chart(key, found)


def _section(key: str, found: Sequence[Compared]) -> Iterator[Block]:
    printed = paper.table(key)
    yield f"### {printed.number}. {printed.title}"
    unit = {"%": "Percent.", "sum": "Natural logarithm; lower is better."}.get(printed.unit, "")
    note = f"{unit} {printed.note}".strip()
    if note:
        yield note
    measured = {one.claim.model for one in found if one.measured is not None}
    beside = [one for one in found if one.claim.model in measured]
    if beside:
        yield table(_beside(beside))
    rows = {one.claim.row for one in beside}
    if rows != set(printed.rows):
        alone = _published_alone(printed, [row for row in printed.rows if row not in rows])
        yield table(alone, "Published; nothing was measured.")


def _published_alone(printed: paper.PaperTable, names: Sequence[str]) -> pd.DataFrame:
    columns = ["", *printed.columns]
    rows = [[row, *map(plain, printed.rows[row])] for row in names]
    if printed.key in ("table5", "table6"):
        known = paper.table("open_clip")
        datasets = [name.split("/")[0] for name in printed.columns if name.endswith("/original")]
        columns += [f"{name}/open_clip" for name in datasets]
        for row in rows:
            row += [plain(known.value(row[0], name)) for name in datasets]
    return pd.DataFrame(rows, columns=columns)


def _beside(found: Sequence[Compared]) -> pd.DataFrame:
    rows = []
    for one in found:
        claim, digits = one.claim, one.claim.digits
        value, around = _figures(one.measured, digits)
        row = {
            "": claim.row,
            "column": claim.column,
            "published": f"{claim.published:.{digits}f}",
            "measured": value,
            "95% interval": around,
            "difference": "–" if one.difference is None else f"{one.difference:+.{digits}f}",
            "agrees": {True: "✓", False: "✗", None: "–"}[one.agrees],
            "answered by": _answered_by(one),
        }
        if any(other.open_clip is not None for other in found):
            row["open_clip"] = plain(one.open_clip)
        if any(other.standard is not None for other in found):
            row["standard set"] = _figures(one.standard, digits)[0]
        if claim.measure == "bias":
            row["correct metric"] = " ".join(_figures(one.correct, digits))
            row["chance"] = _chance(one.correct)
        rows.append(row)
    return pd.DataFrame(rows)


def _figures(measured: Measured | None, digits: int) -> tuple[str, str]:
    """The value and its interval, or dashes."""
    if measured is None:
        return "–", "–"
    if measured.low is None or measured.high is None:
        return f"{measured.value:.{digits}f}", "–"
    return f"{measured.value:.{digits}f}", f"[{measured.low:.{digits}f}, {measured.high:.{digits}f}]"


def _chance(measured: Measured | None) -> str:
    if measured is None or measured.chance is None:
        return "–"
    if measured.chance_low is None or measured.chance_high is None:
        return f"{measured.chance:.1f}"
    return f"{measured.chance:.1f} [{measured.chance_low:.1f}, {measured.chance_high:.1f}]"


def _answered_by(one: Compared) -> str:
    measured = one.measured
    if measured is None:
        return "–"
    parts = (measured.plan, measured.dataset or one.claim.dataset, measured.mode)
    return ", ".join(filter(None, parts)) if measured.plan else "scores"


def _chart(key: str, found: Sequence[Compared]) -> Chart:
    printed = paper.table(key)
    points = []
    for one in found:
        point = {"row": one.claim.row, "series": one.claim.column}
        points.append({**point, "value": one.claim.published, "low": None, "high": None, "measured": False})
        if one.measured is not None:
            found_here = one.measured
            figures = {"value": found_here.value, "low": found_here.low, "high": found_here.high}
            points.append({**point, **figures, "measured": True})
    frame = pd.DataFrame(points).astype({"low": float, "high": float})
    suffix = "; filled: measured, with 95% interval" * bool(frame["measured"].any())
    text = f"{printed.number}. {printed.title}. Hollow: published{suffix}."
    return Chart(key, dots(frame, f"{printed.metric} (%)"), text)


def _cifar10_copies(models: Models) -> Iterator[Block]:
    """Both copies of CIFAR-10 beside the print, for the models that were run on both."""
    rows = []
    for found in compared("table5", models):
        claim = found.claim
        if claim.dataset != "cifar10" or claim.plan != "none":
            continue
        if found.measured is None or found.standard is None:
            continue
        rows.append(
            {
                "model": claim.model,
                "original": f"{found.standard.value:.2f}",
                "JPEG copy": " ".join(_figures(found.measured, 2)),
                "points that the copy costs": f"{found.standard.value - found.measured.value:.2f}",
                "published": f"{claim.published:.2f}",
                "answer": "✓ the copy explains it"
                if found.agrees
                else "✗ the copy alone does not explain it",
            }
        )
    if rows:
        yield "### CIFAR-10: is it the copy?"
        yield (
            "Nothing switched off. The copy (`cifar10-jpeg`) explains the print if the print lies in its "
            "interval; that the study read this copy is then likely, and still not proven."
        )
        yield table(pd.DataFrame(rows))


def what_does_not_reproduce(models: Models) -> Iterator[Block]:
    """Why some printed figures cannot be expected again."""
    yield "## What does not reproduce, and why"
    yield "docs/reproduction.md tells this at length. In short:"
    yield listing(
        [
            "**Race on FairFace (table 8).** The released code counts groups in the order in which they "
            "first appear in the label file and divides by top-K counts in alphabetical order, so a group's "
            "share is compared with another group's. A ranking by chance sums to about 56 that way and to "
            "about 10.3 by the correct formula (K = 900, 104 occupations). The printed 48 to 67 lie around "
            "the former. Gender is not affected.",
            "**SocialCounterfactuals (table 9).** The lists of the groups are one list under several names: "
            "every group holds every image and the true skew is 0 whatever the model. What is printed are "
            "ties among scores in half precision; the race values are whole multiples of ln 1.5. An "
            "unbiased ranking of six equal groups at K = 12 would sum to about 68.",
            "**So whether pruning high heads lowers bias was not measured** on race, and must be asked "
            "anew: by the correct metric, beside the level of chance, with an interval. The columns "
            "`correct metric` and `chance` above do that wherever results are there.",
            "**CIFAR-10** lies 8 to 14 points below open_clip's figures, probably because its images "
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
        ]
    )
    yield from _cifar10_copies(models)

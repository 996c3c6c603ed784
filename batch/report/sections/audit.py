"""The study's sentences held against its figures and measured ones, and the figures against one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from batch.report.page import Block, Document, Grid, Heading, Text, as_markdown
from ccs.errors import InputError
from ccs.files import atomic_write
from ccs.paper import audit, checks
from ccs.paper.checks import Check
from ccs.results import Results

DOCUMENT = "reproduction.md"
START, END = "<!-- audit: written by python -m batch.report -->", "<!-- end of the audit -->"


def audit_blocks(results: Mapping[str, Results]) -> Iterator[Block]:
    """Every directional sentence beside the cells that bear it out and those that go against it.

    `results`: by model; where they answer printed cells, the same checks over what was measured
    stand beside.
    """
    yield Heading(2, "What the study says, held against its figures")
    yield Text(
        "Each line is a sentence of the study (paraphrased), computed over the printed figures when this "
        "report is made. Cells are counted by direction alone: the study prints no intervals. Race on "
        "FairFace and all of SocialCounterfactuals measure the code, whatever their direction."
    )
    measured = audit.audit(audit.measured(results))
    answered = any(check.of for check in measured)
    columns = ["sentence", "where", "bears it out", "against", *["measured"] * answered, "cells against it"]
    rows = []
    for printed, ours in zip(audit.audit(), measured, strict=True):
        beside = [f"{ours.holds} of {ours.of}" if ours.of else "–"] * answered
        against = str(printed.of - printed.holds)
        cells = [printed.statement, printed.source, f"{printed.holds} of {printed.of}", against]
        rows.append([*cells, *beside, _listed(printed)])
    yield Grid(columns, rows, "", frozenset({"where", "cells against it"}))
    yield Heading(3, "What the printed figures say of one another")
    rows = [[check.statement, f"{check.holds} of {check.of}", _listed(check)] for check in checks.checks()]
    yield Grid(["statement", "holds", "exceptions"], rows, "", frozenset({"exceptions"}))


def _listed(check: Check) -> str:
    return "; ".join(check.exceptions) or "none"


def counts() -> str:
    """The counts as a Markdown table, for docs/reproduction.md."""
    rows = [
        [check.statement, check.source, str(check.holds), str(check.of - check.holds)]
        for check in audit.audit()
    ]
    rows += [
        [check.statement, "the figures beside one another", str(check.holds), str(check.of - check.holds)]
        for check in checks.checks()
    ]
    columns = ["sentence", "where", "cells for it", "against it"]
    grid = Grid(columns, rows, "", frozenset({"where"}))
    return as_markdown(Document([grid]), frozenset()).strip()


def with_counts(text: str) -> str:
    """A document with the counts between its two markers; InputError if it lacks them."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise InputError(f"The document lacks the lines {START!r} and {END!r}, between which counts go.")
    return f"{before}{START}\n{counts()}\n{END}{after}"


def write_counts(out: Path) -> None:
    """Bring the counts in the document beside the report's folder up to date, if it is there."""
    document = out.parent / DOCUMENT
    if document.exists():
        text = with_counts(document.read_text(encoding="utf-8"))
        with atomic_write(document) as aside:
            aside.write_text(text, encoding="utf-8")

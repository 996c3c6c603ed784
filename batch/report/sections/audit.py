"""The study's sentences held against its figures and measured ones, and the figures against one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from batch.report.document import Block, table
from ccs.replication import audit
from ccs.replication.audit import Check
from ccs.results import Results


def audit_blocks(results: Mapping[str, Results], agreement: pd.DataFrame | None) -> Iterator[Block]:
    """Each sentence of audit.toml beside the cells that bear it out and those that go against it.

    `results`: by model; where they answer printed cells, the same checks over what was measured
    stand beside, with people's agreement, if there is any.
    """
    yield "## What the study says, held against its figures"
    yield (
        "Each line is a sentence of the study (paraphrased), computed over the printed figures when this "
        "report is made; a dash stands where no printed figure bears on it. Cells are counted by direction "
        "alone: the study prints no intervals. Race on FairFace and all of SocialCounterfactuals measure the "
        "code, whatever their direction."
    )
    measured = audit.audit(audit.measured(results, agreement))
    answered = any(check.of for check in measured)
    rows = []
    for printed, ours in zip(audit.audit(), measured, strict=True):
        row = {"sentence": printed.statement, "where": printed.source}
        row |= {"printed cells for it": _count(printed)}
        if answered:
            row["measured"] = _count(ours)
        rows.append({**row, "cells against it": _listed(printed), "note": printed.note or "–"})
    yield table(pd.DataFrame(rows))


def _count(check: Check) -> str:
    return f"{check.holds} of {check.of}" if check.of else "–"


def _listed(check: Check) -> str:
    return "; ".join(check.exceptions) or ("none" if check.of else "–")


def counts() -> str:
    """The counts as a Markdown table, for docs/reproduction.md."""
    cells = [[one.statement, one.source, _count(one), one.note or "–"] for one in audit.audit()]
    return table(pd.DataFrame(cells, columns=["sentence", "where", "cells for it", "note"]))

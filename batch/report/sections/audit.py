"""The study's sentences held against its figures and measured ones, and the figures against one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from batch.report.document import Block, table
from ccs.replication import audit, checks
from ccs.replication.checks import Check
from ccs.results import Results


def audit_blocks(results: Mapping[str, Results]) -> Iterator[Block]:
    """Each sentence of audit.toml beside the cells that bear it out and those that go against it.

    `results`: by model; where they answer printed cells, the same checks over what was measured
    stand beside.
    """
    yield "## What the study says, held against its figures"
    yield (
        "Each line is a sentence of the study (paraphrased), computed over the printed figures when this "
        "report is made. Cells are counted by direction alone: the study prints no intervals. Race on "
        "FairFace and all of SocialCounterfactuals measure the code, whatever their direction."
    )
    measured = audit.audit(audit.measured(results))
    answered = any(check.of for check in measured)
    rows = []
    for printed, ours in zip(audit.audit(), measured, strict=True):
        row = {"sentence": printed.statement, "where": printed.source}
        row |= {"bears it out": f"{printed.holds} of {printed.of}"}
        row |= {"against": str(printed.of - printed.holds)}
        if answered:
            row["measured"] = f"{ours.holds} of {ours.of}" if ours.of else "–"
        rows.append({**row, "cells against it": _listed(printed)})
    yield table(pd.DataFrame(rows))
    yield "### What the printed figures say of one another"
    cells = [[one.statement, f"{one.holds} of {one.of}", _listed(one)] for one in checks.checks()]
    yield table(pd.DataFrame(cells, columns=["statement", "holds", "exceptions"]))


def _listed(check: Check) -> str:
    return "; ".join(check.exceptions) or "none"


def counts() -> str:
    """The counts as a Markdown table, for docs/reproduction.md."""
    rows = [(check, check.source) for check in audit.audit()]
    rows += [(check, "the figures beside one another") for check in checks.checks()]
    cells = [[check.statement, where, str(check.holds), str(check.of - check.holds)] for check, where in rows]
    return table(pd.DataFrame(cells, columns=["sentence", "where", "cells for it", "against it"]))

"""Update the audit's counts and the toy models' answers in the documentation: `python -m research.paper`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ccs import results
from ccs.batch.pages import markdown_table
from ccs.cli.command_line import Command
from ccs_benchmark.documents import bring_up_to_date
from research.paper import audit
from research.paper.questions import HURT, MORE, by_model, in_words, strictest

DOCS = Path(__file__).resolve().parents[2] / "docs"
AUDIT = Path(__file__).with_name("audit.md")
ORGANISMS = ("organism", "organism-control")


@dataclass(frozen=True)
class Settings:
    """Update the counts in research/paper/audit.md and the toy models' answers in docs/findings.md."""


def update(_: Settings) -> None:
    """Write the computed parts of both pages."""
    by = "python -m research.paper"
    bring_up_to_date(AUDIT, "audit", counts(), by)
    bring_up_to_date(DOCS / "findings.md", "answers", answers(results.load().models), by)


def counts() -> str:
    """Count the printed cells that support each claim of the paper, as a table in Markdown."""
    rows = [
        {
            "claim": check.statement,
            "source": check.source,
            "supporting cells": f"{check.holds} of {check.of}" if check.of else "–",
            "note": check.note or "–",
        }
        for check in audit.audit()
    ]
    return markdown_table(pd.DataFrame(rows))


def answers(models: Mapping[str, results.Results]) -> str:
    """List the toy models' answers in Markdown; "" without them."""
    tests = strictest(by_model({name: models[name] for name in ORGANISMS if name in models}))
    first = [test for test in tests if test.question in (HURT, MORE)]
    return "\n".join(f"- {answer}" for answer in in_words(first))


main = Command(Settings, update)

if __name__ == "__main__":
    sys.exit(main())

"""Write the report on the tables that ship, docs/report/report.md, and bring what docs/audit.md and
docs/findings.md say of it up to date: python -m scripts.report.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ccs import results
from ccs.batch.pages import as_markdown, table
from ccs.batch.report import build, published
from ccs.batch.report.questions import HURT, MORE, by_model, in_words, strictest
from ccs.files import write_text
from ccs.replication import audit
from ccs_benchmark.documents import bring_up_to_date

DOCS = Path(__file__).resolve().parents[1] / "docs"
ORGANISMS = ("organism", "organism-control")


def main(argv: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    collection = results.load(instead=False)
    blocks = build(collection, published.read_agreement(None))
    write_text(DOCS / "report" / "report.md", as_markdown(blocks))
    by = "python -m scripts.report"
    bring_up_to_date(DOCS / "audit.md", "audit", counts(), by)
    bring_up_to_date(DOCS / "findings.md", "answers", answers(collection.models), by)


def counts() -> str:
    """How many printed cells support each sentence of the study, a table in Markdown."""
    cells = [
        [check.statement, check.source, published.supported(check), check.note or "–"]
        for check in audit.audit()
    ]
    return table(pd.DataFrame(cells, columns=["sentence", "where", "cells for it", "note"]))


def answers(models: Mapping[str, results.Results]) -> str:
    """The organisms' answers, a list in Markdown; "" without them."""
    tests = strictest(by_model({name: models[name] for name in ORGANISMS if name in models}))
    asked = [test for test in tests if test.question in (HURT, MORE)]
    return "\n".join(f"- {answer}" for answer in in_words(asked))


if __name__ == "__main__":
    main()

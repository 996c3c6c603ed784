"""Skew beside measures without a ceiling and a plain person."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from batch.report.page import Block, fill
from batch.report.wording import in_brackets, listed
from ccs.measures.skew import PREFERENCES
from ccs.results import Results, queries

PLANS = ("none", "high", "low", "random")


def skew_blocks(results: Results) -> Iterator[Block]:
    """The section, if there are measures without a ceiling."""
    rows = list(_rows(results))
    if rows:
        yield from fill("skews", rows=rows, alike=_alike(results))


def _rows(results: Results) -> Iterator[dict[str, str]]:
    means = queries.of_kinds(queries.max_skew(results), PLANS)
    each = queries.max_skew(results, "occupation")
    others: dict[str, pd.DataFrame] = {name: queries.preferences(results, name) for name in PREFERENCES}
    others["person"] = queries.of_a_person(results)
    frames = {"mean": means, "each": each, **others}
    for dataset, attribute in dict.fromkeys(zip(means["dataset"], means["attribute"], strict=True)):
        for plan in PLANS:
            here = {
                name: queries.of_attribute(queries.of_plan(rows, plan, dataset), attribute)
                for name, rows in frames.items()
            }
            if not len(here["mean"]) or not len(here["AUC"]):
                continue
            row = here["mean"].iloc[0]
            full = queries.at_ceiling(here["each"])
            yield {
                "set": dataset,
                "attribute": attribute,
                "heads off": plan,
                "mean MaxSkew": in_brackets(queries.estimate(row)),
                "of its ceiling": "–" if not row["ceiling"] > 0 else f"{row['value'] / row['ceiling']:.0%}",
                "at the ceiling": f"{int(full.sum())} of {len(full)}" if len(full) else "–",
                **{name: _cell(here[name]) for name in PREFERENCES},
                "MaxSkew of a person": _cell(here["person"]),
            }


def _cell(rows: pd.DataFrame) -> str:
    return in_brackets(queries.estimate(rows.iloc[0])) if len(rows) else "–"


def _alike(results: Results) -> list[str]:
    """A sentence for each set of people some of whose prompts are one text to the model."""
    found = []
    for entry in results.manifest["sets"]:
        if groups := entry.get("alike"):
            prompts = int(entry.get("occupations", 0))
            distinct = prompts - sum(len(group) - 1 for group in groups)
            named = "; ".join(listed([str(name) for name in group]) for group in groups)
            found.append(
                f"{entry['name']}: {distinct} of {prompts} prompts are different texts to it ({named})"
            )
    return found

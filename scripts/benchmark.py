"""Bring docs up to date with the benchmark's scores: python -m scripts.benchmark. It writes the chart
docs/methods.svg, the table in docs/benchmark.md and the sentence in docs/findings.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def main() -> None:
    """Write all three from the cells that ship."""
    from ccs import benchmark
    from ccs.batch import pages as document

    cells = benchmark.kept()
    found = benchmark.table(cells)
    chart(found).write_image(ROOT / "docs" / "methods.svg")
    summary = f"{sentence(cells, found)}\n\n{document.table(pd.DataFrame(rows(found)))}"
    page = ROOT / "docs" / "benchmark.md"
    document.bring_up_to_date(page, "methods", summary, "python -m scripts.benchmark")
    parts = document.table(pd.DataFrame(by_strength(cells, list(found.index[1:]))))
    document.bring_up_to_date(page, "strengths", parts, "python -m scripts.benchmark")
    document.bring_up_to_date(
        ROOT / "docs" / "findings.md", "methods", sentence(cells, found), "python -m scripts.benchmark"
    )


def chart(found: pd.DataFrame) -> go.Figure:
    """The methods by average precision, with intervals; those of this project in another color."""
    from ccs.benchmark.scoring import PLANTED

    shown = found.drop(PLANTED)[::-1]
    values = shown["average_precision"]
    bars = go.Bar(
        x=values,
        y=[f"<b>{name}</b>" if ours(name) else name for name in shown.index],
        orientation="h",
        marker_color=["#d6336c" if ours(name) else "#4263eb" for name in shown.index],
        error_x={
            "array": shown["average_precision_high"] - values,
            "arrayminus": values - shown["average_precision_low"],
            "color": "#666",
        },
    )
    figure = go.Figure(bars)
    figure.update_layout(
        template="plotly_white",
        width=760,
        height=560,
        margin={"l": 10, "r": 20, "t": 10, "b": 50},
        xaxis={
            "title": "average precision (1: the heads that carry the skew come first); bold: ours",
            "range": [0, 1.02],
        },
        yaxis={"automargin": True},
    )
    return figure


def ours(name: object) -> bool:
    """The search is this project's own; CCS is the study's claim."""
    from ccs.locate import SEARCH

    return name == SEARCH


def sentence(cells: pd.DataFrame, found: pd.DataFrame) -> str:
    """The best method, compared with chance, the study's claim and the next best."""
    from ccs.batch.localize import estimate
    from ccs.batch.pages import change, in_brackets
    from ccs.benchmark import scoring
    from ccs.locate import SEARCH

    best, second = found.index[1:3]
    shown = {name: in_brackets(estimate(found.loc[name], "average_precision"), 2) for name in found.index}
    splits = cells["seed"].nunique()
    by_case = cells.set_index(["model", "attribute", "seed"])
    both = [by_case.index[by_case["method"] == name] for name in (best, second)]
    cells = by_case.loc[both[0].intersection(both[1])].reset_index()
    lead = scoring.difference(scoring.by_model(cells), best, second)
    rival = second if best == SEARCH else best
    later = scoring.by_model(cells[cells["seed"] > 0])
    unseen = scoring.difference(later, SEARCH, rival)
    unsure = ", which is not shown to be a difference" if lead.low <= 0 <= lead.high else ""
    return (
        f"Of {len(found) - 1} methods on {found['models'].max()} models, over {splits} "
        f"splits into halves, **{best}** ranks first with an average precision of {shown[best]} (random "
        f"{shown['random']}, CCS high first {shown['CCS high first']}). Its lead over the next best, "
        f"{second}, is {change(lead, digits=2)}{unsure}. The search was improved while the first split was "
        f"in view; on the others alone its figure less that of {rival} is {change(unseen, digits=2)}."
    )


def rows(found: pd.DataFrame) -> list[dict[str, str]]:
    """The table as it is printed."""
    from ccs.batch.localize import estimate
    from ccs.batch.pages import in_brackets
    from ccs.benchmark.scoring import PLANTED

    def figure_of(row: pd.Series, figure: str) -> str:
        return in_brackets(estimate(row, figure), 3) if pd.notna(row[figure]) else "–"

    made = []
    for name, row in found.iterrows():
        truth = name == PLANTED
        made.append(
            {
                "method": f"**{name}**" if ours(name) else str(name),
                "average precision": "–" if truth else in_brackets(estimate(row, "average_precision"), 2),
                "precision": "–" if truth else in_brackets(estimate(row, "precision"), 2),
                "MaxSkew taken away": in_brackets(estimate(row, "max_skew_taken"), 3),
                "Cramér's V taken away": figure_of(row, "cramers_v_taken"),
                "accuracy lost (points)": in_brackets(estimate(row, "accuracy_lost").times(100), 1),
                "cases": str(int(row["cases"])),
                "cost (passes)": "–" if truth else f"{row['passes']:.0f}" if row["passes"] >= 0.5 else "0",
            }
        )
    return made


def by_strength(cells: pd.DataFrame, methods: list[str]) -> list[dict[str, str]]:
    """Average precision of each method on the models whose skew is as strong."""
    from ccs import benchmark
    from ccs.batch.localize import estimate
    from ccs.batch.pages import in_brackets

    strengths = cells["model"].map({name: benchmark.truth(name).strength for name in cells["model"].unique()})
    tables = {part: benchmark.table(own) for part, own in cells.groupby(strengths, sort=False)}
    return [
        {"method": f"**{name}**" if ours(name) else name}
        | {
            f"{part:g} of the skew": in_brackets(estimate(tables[part].loc[name], "average_precision"), 2)
            if name in tables[part].index
            else "–"
            for part in sorted(tables, reverse=True)
        }
        for name in methods
    ]


if __name__ == "__main__":
    main()

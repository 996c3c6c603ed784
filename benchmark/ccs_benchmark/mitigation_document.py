"""Bring docs/mitigation.md and its chart up to date: python -m ccs_benchmark.mitigation_document.

With --run the cells that are missing are measured first, minutes for each model. Stopped, the same command
goes on; models that are new are found, and cells of models that have changed are replaced.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Write the tables and the chart from the cells that ship, measured where they are missing with --run."""
    from ccs.batch.pages import count, table
    from ccs_benchmark import mitigation_scoring as scoring
    from ccs_benchmark.documents import bring_up_to_date
    from ccs_benchmark.mitigations import METHODS

    if "--run" in sys.argv[1:]:
        scoring.run(METHODS, places(), 1, file=scoring.CELLS)
    cells, blocks, charts = scoring.kept(), list[str](), []
    for title, some in sorted(
        cells.groupby(cells["model"].map(family)), reverse=True, key=lambda one: one[0]
    ):
        found = scoring.table(some)
        models, bases, cases = (int(found[name].max()) for name in ("models", "bases", "cases"))
        about = f"{count(models, 'model')} of {count(bases, 'base')}, {count(cases, 'case')}"
        chance = ", ".join(f"{name} {found[f'{key}_chance'].iloc[0]:.2g}" for key, name in BIAS.items())
        blocks += [
            f"### {title}\n\n{about} (a model and an attribute). Chance: {chance}.",
            table(pd.DataFrame(rows(found))),
        ]
        charts.append((f"{title}: {about}", found))
    bring_up_to_date(
        ROOT / "docs" / "mitigation.md",
        "mitigations",
        "\n\n".join(blocks),
        "python -m ccs_benchmark.mitigation_document",
    )
    (ROOT / "docs" / "mitigation.svg").write_text(chart(charts), "utf-8")


def places() -> list[str]:
    """The models in which a skew by some attribute was planted or learned."""
    import ccs_benchmark
    from ccs_benchmark import variants
    from ccs_benchmark.mitigation_scoring import learned

    return [name for name in (*ccs_benchmark.names(), *variants.names()) if learned(name)[1]]


def family(name: str) -> str:
    """What a model is told of under: where its skew was planted or learned."""
    from ccs_benchmark import natural, variants

    if not name.startswith(natural.PREFIX):
        return "Planted in a few heads"
    what = "MLPs alone" if variants.known(name)["trained"] == "MLPs" else "attention or all weights"
    return f"Learned contrastively by {what}"


BIAS = {"max_skew": "MaxSkew", "ndkl": "NDKL", "lean": "lean"}


def rows(found: pd.DataFrame) -> list[dict[str, str]]:
    """The table as it is printed. Intervals of one model would be none."""
    from ccs.batch.pages import in_brackets
    from ccs_benchmark.scoring import estimate

    several = found["models"].max() > 1

    def figure(row: pd.Series, name: str, digits: int, scale: float = 1) -> str:
        own = estimate(row, name).times(scale)
        return in_brackets(own, digits) if several else f"{own.value:.{digits}f}"

    return [
        {
            "": str(name),
            "MaxSkew": figure(row, "max_skew", 2),
            "NDKL": figure(row, "ndkl", 2),
            "lean": figure(row, "lean", 4),
            "accuracy (%)": figure(row, "accuracy", 1, 100),
            "occupations (%)": figure(row, "occupations", 1, 100),
            "retrieval (%)": figure(row, "retrieval", 1, 100),
            "other attribute": figure(row, "other_skew", 2),
            "moved": figure(row, "moved", 3),
            "group accuracy (%)": figure(row, "group_accuracy", 0, 100),
            "cost": f"{row['passes']:.0f}",
            "labels": "yes" if row["labels"] else "no",
            "acts on": row["where"],
        }
        for name, row in found.iterrows()
    ]


def chart(charts: list[tuple[str, pd.DataFrame]]) -> str:
    """MaxSkew left (right) against accuracy on occupations left (up), a panel per family, with names.

    Blue: no other mitigation is better in both. Black: the truth.
    """
    from ccs_benchmark.mitigation_scoring import ORACLE

    wide, high = 760, 430
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high * max(1, len(charts))}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for panel, (title, found) in enumerate(charts):
        top, most = panel * high, max(found["max_skew"]) * 1.05
        low = min(found["occupations"]) - 0.02
        best = max(found["occupations"]) + 0.02
        parts.append(f'<text x="60" y="{top + 20}" font-weight="bold">{escape(title)}</text>')
        parts.append(f'<path d="M60 {top + 30}V{top + 380}H740" fill="none" stroke="#888"/>')
        parts.append(
            f'<text x="400" y="{top + 415}" text-anchor="middle">MaxSkew left (left is fairer)</text>'
        )
        turned = f'text-anchor="middle" transform="rotate(-90 20 {top + 205})"'
        parts.append(f'<text x="20" y="{top + 205}" {turned}>accuracy on occupations (%)</text>')
        for step in range(5):
            x, y = 60 + 680 * step / 4, top + 380 - 350 * step / 4
            parts.append(
                f'<text x="{x:.0f}" y="{top + 396}" text-anchor="middle">{most * step / 4:.2f}</text>'
            )
            share = low + (best - low) * step / 4
            parts.append(f'<text x="55" y="{y + 4:.0f}" text-anchor="end">{100 * share:.0f}</text>')
        taken: list[tuple[float, float]] = []
        rivals = found.drop(index=ORACLE)
        for name, row in found.sort_values("occupations", ascending=False).iterrows():
            x = 60 + 680 * row["max_skew"] / most
            y = top + 380 - 350 * (row["occupations"] - low) / (best - low)
            beaten = (
                (rivals["max_skew"] <= row["max_skew"]) & (rivals["occupations"] > row["occupations"])
            ).any()
            label = y
            while any(abs(x - left) < 150 and abs(label - above) < 12 for left, above in taken):
                label += 4
            taken.append((x, label))
            side, anchor = (-6, "end") if x > 560 else (6, "start")
            color = "#212529" if name == ORACLE else "#adb5bd" if beaten else "#4263eb"
            place = f'x="{x + side:.0f}" y="{label + 4:.0f}" text-anchor="{anchor}"'
            parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{color}"/>')
            parts.append(f"<text {place}>{escape(str(name))}</text>")
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()

"""Write docs/mitigation.md's table, CSV, and chart (`python -m ccs_benchmark.mitigation_document`).

With --run, missing cells and those of changed models are measured first (minutes per model, resumable).
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Write the table, its CSV, and the chart; with --run, measure missing cells first."""
    from ccs.batch.pages import count
    from ccs.batch.pages import markdown_table as markdown
    from ccs_benchmark import mitigation_scoring as scoring
    from ccs_benchmark.documents import bring_up_to_date
    from ccs_benchmark.mitigations import METHODS
    from ccs_benchmark.scoring import read_cells

    if "--run" in sys.argv[1:]:
        scoring.run(METHODS, models_with_bias(), 1, file=scoring.CELLS)
    cells = read_cells(scoring.CELLS)
    tables = {title: scoring.table(group) for title, group in cells.groupby(cells["model"].map(family))}
    tables = dict(sorted(tables.items(), reverse=True))
    sizes = {
        title: f"{summary['models'].max():.0f} models of {count(int(summary['bases'].max()), 'base')}"
        for title, summary in tables.items()
    }
    bring_up_to_date(
        ROOT / "docs" / "mitigation.md",
        "mitigations",
        markdown(compact_table(tables)),
        "python -m ccs_benchmark.mitigation_document",
    )
    full = pd.concat({title: full_table(summary) for title, summary in tables.items()}, names=["models"])
    full.reset_index(level=0).to_csv(ROOT / "docs" / "mitigation.csv", index=False)
    charts = [(f"{title}: {sizes[title]}", summary) for title, summary in tables.items()]
    (ROOT / "docs" / "mitigation.svg").write_text(chart(charts), "utf-8")


def models_with_bias() -> list[str]:
    """Return the models that learned a bias by themselves."""
    from ccs_benchmark import variants
    from ccs_benchmark.mitigation_scoring import learned

    return [name for name in variants.names() if learned(name)[1]]


def family(name: str) -> str:
    """Return where a model's bias was learned."""
    from ccs_benchmark import variants

    return f"learned by {'MLPs' if variants.known(name)['trained'] == 'MLPs' else 'heads'}"


COLUMNS = {
    "max_skew": ("MaxSkew", 2, 1),
    "ndkl": ("NDKL", 2, 1),
    "score_gap": ("group score gap", 4, 1),
    "accuracy": ("accuracy on subjects (%)", 1, 100),
    "occupations": ("accuracy on occupations (%)", 1, 100),
    "retrieval": ("R@1 (%)", 1, 100),
    "other_skew": ("MaxSkew by the other attribute", 2, 1),
    "moved": ("1 - cosine to the original embeddings", 3, 1),
    "group_accuracy": ("group accuracy (%)", 0, 100),
}
"""Column of the cells -> heading, digits, and scale."""
COMPACT = ("max_skew", "occupations", "other_skew")
NAMES = {
    "weights put back": "ground truth: biased weights reset",
    "nothing": "no change",
    "ablation": "ablation of localized heads",
    "heads of high CCS off": "ablation of high-CCS heads",
    "as many at random off": "ablation of random heads",
    "scaling": "scaling of heads",
    "heads at their mean": "mean ablation of localized heads",
    "heads at prototypes": "localized heads set to group prototypes",
    "groups' texts from texts": "group names projected out of texts",
    "groups' texts from images": "group names projected out of images",
}
"""Name of a method in the cells -> its name in the documents, if another."""


def compact_table(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return one row per method with the COMPACT numbers of each family; a dash if it wasn't measured."""
    order = max(tables.values(), key=len).index
    return pd.DataFrame(
        [
            {"method": NAMES.get(str(method), str(method))}
            | {
                title: " / ".join(_number(summary.loc[method], name) for name in COMPACT)
                if method in summary.index
                else "–"
                for title, summary in tables.items()
            }
            for method in order
        ]
    )


def full_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Return all columns of a family with their intervals, a row per method."""
    from ccs_benchmark.scoring import estimate

    records = []
    for method, row in summary.iterrows():
        record: dict[str, object] = {"method": NAMES.get(str(method), str(method))}
        for name, (heading, digits, scale) in COLUMNS.items():
            value = estimate(row, name).times(scale)
            record |= {heading: round(value.value, digits)}
            record |= {
                f"{heading}, low": round(value.low, digits),
                f"{heading}, high": round(value.high, digits),
            }
        record |= {"passes": round(row["passes"]), "needs labels": row["labels"], "acts on": row["where"]}
        records.append(record)
    return pd.DataFrame(records)


def _number(row: pd.Series, name: str) -> str:
    """Format the value of a column without its interval."""
    _, digits, scale = COLUMNS[name]
    return f"{row[name] * scale:.{digits}f}"


def chart(charts: list[tuple[str, pd.DataFrame]]) -> str:
    """Draw accuracy on occupations against MaxSkew, one panel per family.

    Blue: no other mitigation is better in both. Black: the ground truth.
    """
    from ccs_benchmark.mitigation_scoring import ORACLE

    wide, high = 760, 430
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high * max(1, len(charts))}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for panel, (title, summary) in enumerate(charts):
        top, right = panel * high, max(summary["max_skew"]) * 1.05
        low = min(summary["occupations"]) - 0.02
        best = max(summary["occupations"]) + 0.02
        parts.append(f'<text x="60" y="{top + 20}" font-weight="bold">{escape(title)}</text>')
        parts.append(f'<path d="M60 {top + 30}V{top + 380}H740" fill="none" stroke="#888"/>')
        parts.append(
            f'<text x="400" y="{top + 415}" text-anchor="middle">MaxSkew (further left is fairer)</text>'
        )
        rotation = f'text-anchor="middle" transform="rotate(-90 20 {top + 205})"'
        parts.append(f'<text x="20" y="{top + 205}" {rotation}>accuracy on occupations (%)</text>')
        for step in range(5):
            x, y = 60 + 680 * step / 4, top + 380 - 350 * step / 4
            parts.append(
                f'<text x="{x:.0f}" y="{top + 396}" text-anchor="middle">{right * step / 4:.2f}</text>'
            )
            share = low + (best - low) * step / 4
            parts.append(f'<text x="55" y="{y + 4:.0f}" text-anchor="end">{100 * share:.0f}</text>')
        labels: list[tuple[float, float]] = []
        rivals = summary.drop(index=ORACLE)
        for name, row in summary.sort_values("occupations", ascending=False).iterrows():
            x = 60 + 680 * row["max_skew"] / right
            y = top + 380 - 350 * (row["occupations"] - low) / (best - low)
            beaten = (
                (rivals["max_skew"] <= row["max_skew"]) & (rivals["occupations"] > row["occupations"])
            ).any()
            label = y
            while any(abs(x - left) < 150 and abs(label - above) < 12 for left, above in labels):
                label += 4
            labels.append((x, label))
            side, anchor = (-6, "end") if x > 560 else (6, "start")
            color = "#212529" if name == ORACLE else "#adb5bd" if beaten else "#4263eb"
            place = f'x="{x + side:.0f}" y="{label + 4:.0f}" text-anchor="{anchor}"'
            parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{color}"/>')
            parts.append(f"<text {place}>{escape(NAMES.get(str(name), str(name)))}</text>")
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()

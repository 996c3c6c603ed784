"""Write the table and the figure of docs/mitigation.md from the measured cases."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ccs.batch.pages import count, in_brackets, table
from ccs_benchmark.bases import Replicated, across_bases
from ccs_benchmark.documents import bring_up_to_date

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = {
    "nothing": "nothing",
    "ablation, 2": "ablation of 2 heads",
    "ablation, 4": "ablation of 4 heads",
    "ablation, 8": "ablation of 8 heads",
    "edit, 4": "edit of 4 heads",
    "edit, all": "edit of all heads",
    "edit at 0.5, all": "edit of all heads, strength 0.5",
    "edit at 0.1, 4": "edit of 4 heads, strength 0.1",
    "edit at 0.1, all": "edit of all heads, strength 0.1",
    "LEACE on embeddings": "LEACE on embeddings",
}
COLUMNS = {
    "max_skew": "MaxSkew",
    "occupations": "accuracy on occupations (%)",
    "subjects": "accuracy on subjects (%)",
    "other_skew": "MaxSkew of the other attribute",
}
FRONTIERS = {
    "ablation": ("nothing", "ablation, 2", "ablation, 4", "ablation, 8"),
    "edit, nothing preserved": ("nothing", "edit, 4", "edit, all"),
    "edit, classes preserved": ("nothing", "edit at 0.5, all", "edit at 0.1, all"),
    "LEACE on embeddings": ("LEACE on embeddings",),
}
COLORS = ("#e8590c", "#868e96", "#4263eb", "#2f9e44")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 680, 400, 60, 650, 40, 350

Means = dict[str, dict[str, Replicated]]


def write_document(cells: pd.DataFrame) -> None:
    """Write the table and the figure.

    Args:
        cells: the measured cases. Models that learned the bias in their attention layers are shown.
    """
    selected = cells[cells["model"].str.endswith("attention")]
    means = {name: _over_bases(selected[selected["condition"] == name]) for name in NAMES}
    rows = [
        {"": NAMES[name]}
        | {title: in_brackets(_scaled(values, column), _digits(column)) for column, title in COLUMNS.items()}
        for name, values in means.items()
    ]
    bases, cases = selected["base"].nunique(), len(selected.groupby(["model", "attribute"]))
    title = f"{count(bases, 'base model')}, {count(cases, 'case')} (a model and an attribute)"
    block = f"Means over {title}, with 95% t intervals over base models:\n\n{table(pd.DataFrame(rows))}"
    bring_up_to_date(DOCS / "mitigation.md", "edits", block, "python -m research.editing")
    (DOCS / "edit-heads.svg").write_text(draw_frontiers(means, title), "utf-8")


def _over_bases(rows: pd.DataFrame) -> dict[str, Replicated]:
    return {column: across_bases(rows[column], rows["base"]) for column in COLUMNS}


def _scaled(values: dict[str, Replicated], column: str) -> Replicated:
    return values[column] if "skew" in column else values[column].times(100)


def _digits(column: str) -> int:
    return 2 if "skew" in column else 1


def draw_frontiers(means: Means, title: str) -> str:
    """Draw MaxSkew against accuracy on occupations, a line per way, for light and dark pages.

    Args:
        means: condition -> column -> mean over base models.
        title: of the figure.
    """
    points = {
        name: (columns["max_skew"].value, columns["occupations"].value) for name, columns in means.items()
    }
    widest = 1.05 * max(x for x, _ in points.values())
    lowest, highest = min(y for _, y in points.values()) - 0.03, max(y for _, y in points.values()) + 0.03

    def at(name: str) -> tuple[float, float]:
        x, y = points[name]
        share = (y - lowest) / (highest - lowest)
        return LEFT + (RIGHT - LEFT) * x / widest, BOTTOM - (BOTTOM - TOP) * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><style>text{fill:#212529}.axis{stroke:#868e96}rect{fill:#fff}'
        "@media(prefers-color-scheme:dark){text{fill:#f1f3f5}rect{fill:#1a1b1e}}</style>",
        '<rect width="100%" height="100%"/>',
        f'<text x="{LEFT}" y="20" font-weight="bold">{title}</text>',
        f'<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none"/>',
        f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
        "MaxSkew (left is fairer)</text>",
        f'<text x="16" y="{(TOP + BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 16 {(TOP + BOTTOM) / 2})">accuracy on occupations (%)</text>',
    ]
    for step in range(5):
        x, y = LEFT + (RIGHT - LEFT) * step / 4, BOTTOM - (BOTTOM - TOP) * step / 4
        share = lowest + (highest - lowest) * step / 4
        parts.append(
            f'<text x="{x:.0f}" y="{BOTTOM + 18}" text-anchor="middle">{widest * step / 4:.2f}</text>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{100 * share:.0f}</text>')
    for number, ((method, names), color) in enumerate(zip(FRONTIERS.items(), COLORS, strict=True)):
        places = [at(name) for name in names]
        line = "L".join(f"{x:.0f} {y:.0f}" for x, y in places)
        parts.append(f'<path d="M{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{color}"/>' for x, y in places]
        y = BOTTOM - 78 + 18 * number
        parts.append(f'<circle cx="{RIGHT - 190}" cy="{y}" r="4" fill="{color}"/>')
        parts.append(f'<text x="{RIGHT - 180}" y="{y + 4}">{method}</text>')
    return "\n".join([*parts, "</svg>\n"])

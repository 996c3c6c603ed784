"""Write the table and the figure of docs/mitigation.md from the measured cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ccs.batch.pages import count, in_brackets, markdown_table
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

FAMILIES = {
    "Learned bias": ("attention", "all"),
    "Planted bias": ("planted",),
    "Bias learned by MLPs only": ("mlps",),
}
"""Kinds of bias, and words in the names of models that have it."""
SHORT = ("nothing", "ablation, 4", "edit at 0.1, 4", "edit at 0.1, all", "LEACE on embeddings")
"""Conditions of the table that compares kinds of bias."""
PAIRS = (
    ("edit at 0.1, 4", "ablation, 4"),
    ("edit at 0.1, all", "ablation, 4"),
    ("edit at 0.1, all", "LEACE on embeddings"),
)
"""Conditions whose difference is stated with an interval."""

Means = dict[str, dict[str, Replicated]]


def write_document(cells: pd.DataFrame) -> None:
    """Write the tables and the figure.

    Args:
        cells: The measured cases.
    """
    family = pd.Series("", cells.index)
    for name, words in FAMILIES.items():
        family[cells["model"].str.contains("|".join(f"-{word}" for word in words))] = name
    learned = cells[family == "Learned bias"]
    means = {name: _over_bases(learned[learned["condition"] == name]) for name in NAMES}
    rows = [
        {"": NAMES[name]}
        | {title: in_brackets(_scaled(values, column), _digits(column)) for column, title in COLUMNS.items()}
        for name, values in means.items()
    ]
    sections = [
        f"Means over {_sizes(learned)} that learned a bias in attention layers or in all weights, with 95% t "
        "intervals:",
        markdown_table(pd.DataFrame(rows)),
        "Differences between them:",
        markdown_table(pd.DataFrame(differences(learned))),
        "MaxSkew / accuracy on occupations (%) by kind of bias:",
        markdown_table(pd.DataFrame(_by_family(cells, family))),
        "Accuracy on occupations lost by an edit of all heads (classes preserved) at equal MaxSkew:",
        *(equal_skew(cells[family == name], name) for name in FAMILIES if (family == name).any()),
        "The same for learned bias, by attribute:",
        *(
            equal_skew(rows_of, f"Learned bias by {attribute}")
            for attribute, rows_of in learned.groupby("attribute")
        ),
    ]
    bring_up_to_date(DOCS / "mitigation.md", "edits", "\n\n".join(sections), "python -m research.editing")
    (DOCS / "edit-heads.svg").write_text(draw_frontiers(means, _sizes(learned)), "utf-8")


def _sizes(cells: pd.DataFrame) -> str:
    bases, models = cells["base"].nunique(), cells["model"].nunique()
    cases = len(cells.groupby(["model", "attribute"]))
    return f"{count(bases, 'base model')}, {count(models, 'model')}, {count(cases, 'case')}"


def _by_family(cells: pd.DataFrame, family: pd.Series) -> list[dict[str, str]]:
    """Return a row per condition of SHORT and a column per kind of bias."""
    rows = []
    for condition in SHORT:
        row = {"": NAMES[condition]}
        for name in family.unique():
            of_kind = cells[family == name]
            means = _over_bases(of_kind[of_kind["condition"] == condition])
            title = f"{name} ({_sizes(of_kind)})"
            row[title] = f"{means['max_skew'].value:.2f} / {100 * means['occupations'].value:.1f}"
        rows.append(row)
    return rows


def equal_skew(cells: pd.DataFrame, family: str) -> str:
    """Compare what ablation and edits cost at the same MaxSkew, for each number of ablated heads.

    For each base model, the accuracy of an edit of all heads that preserves classes is interpolated at the
    MaxSkew that ablation reaches. A base model whose edits don't reach that MaxSkew is left out and counted.

    Args:
        cells: Cases of one kind of bias.
        family: Name of that kind.
    """
    means = cells.groupby(["base", "condition"])[["max_skew", "occupations"]].mean().unstack("base")
    skews, costs = means["max_skew"], means["occupations"].loc["nothing"] - means["occupations"]
    rows = []
    for ablation in FRONTIERS["ablation"][1:]:
        edited = {base: _cost_at(skews.loc[ablation, base], skews[base], costs[base]) for base in skews}
        compared = pd.DataFrame({"ablation": costs.loc[ablation], "edit": pd.Series(edited)})
        reached = compared.dropna()
        difference = _points(reached["ablation"] - reached["edit"]) if len(reached) else "–"
        rows.append(
            {
                f"{family}: MaxSkew of": NAMES[ablation],
                "cost of ablation (points)": _points(reached["ablation"]) if len(reached) else "–",
                "cost of an edit": _points(reached["edit"]) if len(reached) else "–",
                "difference": difference,
                "base models": f"{len(reached)} of {len(compared)}",
            }
        )
    return markdown_table(pd.DataFrame(rows))


def _cost_at(target: float, skews: pd.Series, costs: pd.Series) -> float:
    """Interpolate the cost of edits at a MaxSkew; NaN if no edit reaches it."""
    ordered = sorted(FRONTIERS["edit, classes preserved"], key=lambda name: skews[name])
    return float(np.interp(target, skews[ordered], costs[ordered], left=np.nan, right=np.nan))


def _points(values: pd.Series) -> str:
    """Write the mean over base models in percentage points, with its interval."""
    return in_brackets(across_bases(values, pd.Series(values.index)).times(100), 1)


def differences(cells: pd.DataFrame) -> list[dict[str, str]]:
    """Return a row per pair of conditions: the mean difference over base models in each result.

    Args:
        cells: Cases of one kind of bias.
    """
    by_case = cells.set_index(["base", "model", "attribute", "condition"])[list(COLUMNS)].unstack("condition")
    bases = pd.Series(by_case.index.get_level_values("base"))
    rows = []
    for first, second in PAIRS:
        row = {"": f"{NAMES[first]} minus {NAMES[second]}"}
        for column, title in COLUMNS.items():
            values = by_case[column][first] - by_case[column][second]
            effect = across_bases(values.to_numpy(), bases)
            row[title] = in_brackets(effect if "skew" in column else effect.times(100), _digits(column), "+")
        rows.append(row)
    return rows


def _over_bases(rows: pd.DataFrame) -> dict[str, Replicated]:
    return {column: across_bases(rows[column], rows["base"]) for column in COLUMNS}


def _scaled(values: dict[str, Replicated], column: str) -> Replicated:
    return values[column] if "skew" in column else values[column].times(100)


def _digits(column: str) -> int:
    return 2 if "skew" in column else 1


def draw_frontiers(means: Means, title: str) -> str:
    """Draw MaxSkew against accuracy on occupations, with a line per method, for light and dark pages.

    Args:
        means: Condition -> column -> mean over base models.
        title: Title of the figure.
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

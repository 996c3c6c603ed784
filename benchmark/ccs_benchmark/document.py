"""Write the benchmark's results into the documents: `python -m ccs_benchmark.document`.

It writes the chart docs/methods.svg and the tables in docs/benchmark.md and benchmark/RESULTS.md. All results
except the hidden phase's leave out the development bases (`scoring.DEVELOPMENT`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ccs.analysis.task import Task
from ccs.heads import Head
from ccs.model.model import Model
from ccs_benchmark import scoring, separation, variants
from ccs_benchmark.protocol import Orders

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = scoring.CELLS.with_name("hidden")
"""Cells of the hidden phase, a file per track."""
FIRST = {"planted": "average_precision", "natural": "gap_share", "idle": "alarm"}
"""The score that orders a track."""
AGREEMENT = FIRST | {"natural": "agreement"}
"""The same for the factorial table, because unnamed pairs have no gap share on most bases."""
AREA = FIRST | {"natural": "area"}
"""The same for the hidden phase, because its cells have no gap share."""
TITLES = {"planted": "planted heads: average precision", "natural": "learned bias: share of the oracle's gap"}
HIDDEN_TITLES = {"planted": "planted heads: average precision", "natural": "learned bias: area"}
LEADERS = 8
"""Number of methods in the table of the hidden phase, besides CCS and chance."""
GATE = 0.05
"""The p-value of the gap on the seen half above which the answer is "no head"."""
THRESHOLDS = (0.05, 0.01, 0.001)


def main() -> None:
    """Write the chart and all tables from the stored cells."""
    from ccs.batch import pages
    from ccs_benchmark.documents import bring_up_to_date

    page = ROOT / "docs" / "benchmark.md"
    write = partial(bring_up_to_date, by="python -m ccs_benchmark.document")
    tables = {track: tabled(track) for track in FIRST}
    chart(tables).write_image(ROOT / "docs" / "methods.svg")
    write(page, "methods", f"{sentence(tables)}\n\n{pages.markdown_table(pd.DataFrame(rows(tables)))}")
    details = ROOT / "benchmark" / "RESULTS.md"
    write(details, "factorial", f"{effects()}\n\n{pages.markdown_table(pd.DataFrame(factorial(tables)))}")
    write(details, "chosen", chosen())
    write(details, "gate", pages.markdown_table(pd.DataFrame(gate())))
    hidden = {track: tabled(track, HIDDEN) for track in FIRST}
    differences = pages.markdown_table(pd.DataFrame(compared(tables, hidden)))
    write(details, "hidden", f"{units(hidden)}\n\n{differences}")


def idle(name: str) -> dict[str, Mapping[Head, float]]:
    """Return the attributes whose bias no head carries: of controls and of MLP-only models."""
    known = variants.known(name)["truth"]
    return {
        attribute: {}
        for attribute, facts in known.items()
        if not any(".H" in part for part in facts["shapley"])
    }


def alarms(
    model: Model, unseen: Task, truth: Any, orders: Orders, names_head: Mapping[str, bool]
) -> dict[str, dict[str, float]]:
    """Count false positives: methods that name a head although no head carries the bias.

    Args:
        model: Unused, like `unseen` and `truth`. The measures of all tracks have the same parameters.
        unseen: The unseen half.
        truth: The ground truth, which is empty.
        orders: Method -> its ranking of heads.
        names_head: Method -> whether it names a head.
    """
    return {name: {"alarm": float(names_head[name]), "took": 1.0} for name in orders}


TRACKS = {
    "planted": scoring.PLANTED_HEADS,
    "natural": scoring.NATURAL,
    "idle": replace(
        scoring.NATURAL,
        figures=("alarm",),
        oracle="",
        file=scoring.CELLS.with_name("idle.parquet"),
        truths=idle,
        measure=alarms,
    ),
}
"""The benchmark's tracks. In "idle" there is no head to find; `alarm` is 1 if a method names one."""


def bundled_cells(track: str, folder: Path | None = None, *, development: bool = False) -> pd.DataFrame:
    """Read the cells of a track.

    Args:
        track: A name in TRACKS.
        folder: Folder with other cells, of which all are read. Default: the bundled ones.
        development: Whether to return the cells of the DEVELOPMENT bases instead of the others.
    """
    file = TRACKS[track].file
    if folder is not None:
        return scoring.read_cells(folder / file.name)
    cells = scoring.read_cells(file)
    return cells[cells["base"].isin(scoring.DEVELOPMENT) == development]


def tabled(track: str, folder: Path | None = None, *, development: bool = False) -> pd.DataFrame:
    """Return `scoring.table` of `bundled_cells`.

    Args:
        track: As there.
        folder: As there.
        development: As there.
    """
    return scoring.table(bundled_cells(track, folder, development=development), track=TRACKS[track])


def cell(table: pd.DataFrame, method: str, figure: str, digits: int = 2, scale: float = 1.0) -> str:
    """Format a score of a method with its interval; a dash if it has none.

    Args:
        table: Table from `scoring.table`.
        method: A row of the table.
        figure: A column of the table.
        digits: Number of decimals.
        scale: Factor of the printed numbers.
    """
    from ccs.batch.pages import in_brackets
    from ccs_benchmark.scoring import estimate

    if method not in table.index or pd.isna(table.loc[method, figure]):
        return "–"
    return in_brackets(estimate(table.loc[method], figure).times(scale), digits)


def ours(name: object) -> bool:
    """Return whether a method is this project's: the search."""
    from ccs_benchmark.methods import SEARCH

    return name == SEARCH


def display_name(method: str) -> str:
    """Write a method's name in Markdown; this project's methods are bold."""
    return f"**{method}**" if ours(method) else method


def rows(tables: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return a row per named method, by the mean rank on both tracks."""
    from ccs_benchmark.methods import METHODS

    places = sum(tables[track][FIRST[track]].rank(ascending=False) for track in ("planted", "natural"))
    marks = {track: separated(track)[0] for track in ("planted", "natural")}
    falls = bundled_cells("natural").groupby(["attribute", "method", "base"])["max_skew_taken"].mean()
    alarms = false_positives()
    return [
        {
            "method": display_name(method),
            "planted: average precision": f"{cell(tables['planted'], method, 'average_precision')} "
            f"{marks['planted'][method]}",
            "learned: share of the oracle's gap": f"{cell(tables['natural'], method, 'gap_share')} "
            f"{marks['natural'][method]}",
            "learned: agreement": cell(tables["natural"], method, "agreement"),
            "MaxSkew lowered (gender, skin tone)": ", ".join(
                f"{falls[attribute][method].mean():.2f}" for attribute in ("gender", "skin tone")
            ),
            "false positives on controls (after the gate)": "{:.0%} ({:.0%})".format(
                *alarms.loc[method, ["controls", "controls, gated"]]
            ),
            "on MLP-only models": f"{alarms.loc[method, 'MLPs']:.0%}",
            "accuracy lost (points)": cell(tables["natural"], method, "accuracy_lost", 1, 100),
            "cost (passes)": f"{tables['planted'].loc[method, 'passes']:.0f}",
        }
        for method in places.loc[list(METHODS)].sort_values(kind="stable").index
    ]


def separated(track: str) -> tuple[dict[str, str], float]:
    """Return each method's letters on a track, and the minimum detectable difference of two leaders."""
    from ccs_benchmark.methods import METHODS

    models = scoring.by_model(bundled_cells(track), [FIRST[track]])
    leaders = tabled(track).loc[list(METHODS), FIRST[track]].nlargest(LEADERS - 1).index.tolist()
    marks, detectable = separation.display(models, leaders, FIRST[track])
    return {method: marks.get(method, "") for method in METHODS}, detectable


def false_positives() -> pd.DataFrame:
    """Return a row per method: its false-positive rate by kind of model, with and without the gate."""
    cells = bundled_cells("idle")
    control = cells["model"].str.endswith("-control")
    gated = cells["alarm"] * (cells["gate_p"] <= GATE)
    parts = {
        "controls": cells["alarm"][control],
        "controls, gated": gated[control],
        "MLPs": cells["alarm"][~control],
        "MLPs, gated": gated[~control],
    }
    return pd.DataFrame({name: values.groupby(cells["method"]).mean() for name, values in parts.items()})


def gate() -> list[dict[str, str]]:
    """Return a row per threshold of the gate: the number of cases of all bases in which it detects a bias."""
    cells = pd.concat(scoring.read_cells(track.file).assign(track=name) for name, track in TRACKS.items())
    cells = cells.drop_duplicates(list(scoring.KEY[:4]))
    control = cells["model"].str.endswith("-control")
    kinds = {
        f"controls, {attribute}": control & (cells["attribute"] == attribute)
        for attribute in sorted(cells["attribute"].unique())
    }
    kinds |= {"MLP-only models": (cells["track"] == "idle") & ~control}
    kinds |= {"learned bias": cells["track"] == "natural", "planted heads": cells["track"] == "planted"}
    return [
        {"p at most": f"{threshold:g}"}
        | {
            kind: f"{(cells.loc[inside, 'gate_p'] <= threshold).sum()} of {inside.sum()}"
            for kind, inside in kinds.items()
        }
        for threshold in THRESHOLDS
    ]


def effects() -> str:
    """State the shares of the grid's variance that intervention, statistic, and their interaction explain."""
    sentences = []
    for track, title in (("planted", "With planted heads"), ("natural", "With a learned bias")):
        cells = scoring.read_cells(TRACKS[track].file)
        whole = _variance(cells, track)
        by_base = {str(base): _variance(base_cells, track) for base, base_cells in cells.groupby("base")}
        intervention, statistic, pair = (
            f"{share:.0%} ({', '.join(f'{base} {shares[place]:.0%}' for base, shares in by_base.items())})"
            for place, share in enumerate(whole)
        )
        sentences.append(
            f"{title}, the intervention explains {intervention} of the variance over the twenty pairs of "
            f"five interventions and four statistics. The statistic explains {statistic}, and their "
            f"interaction {pair}."
        )
    return " ".join(sentences)


def _variance(cells: pd.DataFrame, track: str) -> tuple[float, float, float]:
    """Return the shares of the variance of a track's first number, over interventions and statistics."""
    from ccs_benchmark.interventions import INTERVENTIONS, STATISTICS
    from ccs_benchmark.methods import PUBLISHED

    models = scoring.by_model(cells, [AGREEMENT[track]])
    values = models.groupby(["method", "base"])[AGREEMENT[track]].mean().groupby("method").mean()
    grid = pd.DataFrame(
        {s: {i: values[PUBLISHED.get(f"{i}/{s}", f"{i}/{s}")] for i in INTERVENTIONS} for s in STATISTICS}
    )
    apart = grid - grid.to_numpy().mean()
    total = float((apart**2).to_numpy().mean())
    by_row, by_column = (float((apart.mean(axis=axis) ** 2).mean()) / total for axis in (1, 0))
    return by_row, by_column, 1 - by_row - by_column


def factorial(tables: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return a row per intervention: average precision with planted heads, agreement with a learned bias."""
    from ccs_benchmark.interventions import STATISTICS
    from ccs_benchmark.methods import GRID, PUBLISHED

    rows = []
    for intervention in dict.fromkeys(name.split("/")[0] for name in GRID):
        row = {"intervention": intervention}
        for statistic in STATISTICS:
            name = f"{intervention}/{statistic}"
            method = PUBLISHED.get(name, name)
            figures = [
                f"{tables[track].loc[method, AGREEMENT[track]]:.2f}" for track in TITLES if name in GRID
            ]
            row[statistic] = ", ".join(figures) or "–"
        rows.append(row)
    return rows


def chosen() -> str:
    """Name the default of `localize`, and its lead on the development bases."""
    from ccs_benchmark.methods import DEFAULT

    tables = {track: tabled(track, development=True) for track in ("planted", "natural")}
    mean = development(tables)
    second = mean.drop(DEFAULT).idxmax()
    return (
        f"On the development bases **{DEFAULT}** has the highest mean of average precision and share of "
        f"the oracle's gap ({mean[DEFAULT]:.2f}; next {second}, {mean[second]:.2f}), so `clip-ccs localize` "
        "uses it."
    )


def development(tables: Mapping[str, pd.DataFrame]) -> pd.Series:
    """Return each method's mean of both tracks' first scores."""
    from ccs_benchmark.methods import METHODS

    first = [table[FIRST[track]] for track, table in tables.items()]
    return pd.concat(first, axis=1).mean(axis=1).loc[list(METHODS)]


def sentence(tables: Mapping[str, pd.DataFrame]) -> str:
    """Compare the best method of each track with the default, CCS, and chance."""
    from ccs_benchmark.methods import DEFAULT, METHODS, RANDOM

    sentences = []
    for track, words, figure in (
        ("planted", "with a bias planted in known heads", "average precision"),
        ("natural", "that learned a bias through CLIP's loss", "share of the oracle's gap reduction"),
    ):
        table = tables[track]
        best = table.loc[list(METHODS), FIRST[track]].idxmax()
        names = [best, *(name for name in (DEFAULT, "CCS high first", RANDOM) if name != best)]
        listed = ", ".join(f"{name} {cell(table, name, FIRST[track])}" for name in names)
        sentences.append(
            f"On {int(table['models'].max())} models of {int(table['bases'].max())} bases {words}, "
            f"**{best}** has the highest {figure}. Means: {listed}. The minimum detectable "
            f"difference of two of the seven leaders (80% power) is {separated(track)[1]:.2f}."
        )
    return "\n\n".join(sentences)


def units(hidden: Mapping[str, pd.DataFrame]) -> str:
    """State the number of models in the hidden phase, and the commits with the methods."""
    planted, natural, idle = (int(hidden[track]["models"].max()) for track in FIRST)
    commits = bundled_cells("planted", HIDDEN).groupby("commit")["method"].unique()
    methods = (
        f"`{commit[:8]}` ({', '.join(names) if len(names) < LEADERS else 'all other methods'})"
        for commit, names in sorted(commits.items(), key=lambda item: -len(item[1]))
    )
    return (
        f"{planted} models with planted heads, {natural} with a bias learned by heads, and {idle} with a "
        f"bias learned by MLPs. Commits with the methods: {', '.join(methods)}."
    )


def compared(tables: Mapping[str, pd.DataFrame], hidden: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Compare the scores of the leading methods, CCS, and chance in the table and in the hidden phase.

    Args:
        tables: Track -> table.
        hidden: The same for the hidden phase.
    """
    from ccs_benchmark.methods import METHODS

    places = sum(tables[track][FIRST[track]].rank(ascending=False) for track in ("planted", "natural"))
    leading = places.loc[list(METHODS)].sort_values(kind="stable").index[:LEADERS]
    return [
        {
            "method": display_name(method),
            **{
                f"{HIDDEN_TITLES[track]}, {when}": cell(table[track], method, AREA[track])
                for track in TITLES
                for when, table in (("table", tables), ("hidden", hidden))
            },
            "false-positive rate, table and hidden": ", ".join(
                f"{table['idle'].loc[method, 'alarm']:.0%}" for table in (tables, hidden)
            ),
        }
        for method in (*leading, "CCS high first", "random")
    ]


def chart(tables: Mapping[str, pd.DataFrame]) -> go.Figure:
    """Plot the named methods on both tracks, with intervals."""
    from ccs_benchmark.methods import METHODS

    order = tables["natural"].loc[list(METHODS)].sort_values(FIRST["natural"]).index
    figure = go.Figure()
    for track, color in (("planted", "#adb5bd"), ("natural", "#4263eb")):
        scores, key = tables[track].loc[order], FIRST[track]
        figure.add_bar(
            x=scores[key],
            y=[f"<b>{name}</b>" if ours(name) else name for name in order],
            orientation="h",
            name=TITLES[track],
            marker_color=color,
            error_x={
                "array": scores[f"{key}_high"] - scores[key],
                "arrayminus": scores[key] - scores[f"{key}_low"],
                "color": "#666",
                "thickness": 1,
            },
        )
    figure.update_layout(
        template="plotly_white",
        width=760,
        height=760,
        bargap=0.25,
        margin={"l": 10, "r": 20, "t": 40, "b": 50},
        legend={"orientation": "h", "y": 1.05, "traceorder": "reversed"},
        xaxis={"title": "1: as the heads that carry the bias", "rangemode": "tozero"},
        yaxis={"automargin": True},
    )
    return figure


if __name__ == "__main__":
    main()

"""Which way of looking finds planted bias: every way's ranking of heads, scored against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from batch.report.page import Block, between, fill, table
from batch.report.wording import change, in_brackets
from ccs.files import atomic_write
from ccs.heads import Head, HeadSet
from ccs.locate import METHODS, PLANTED, SEARCH
from ccs.locate.scoring import MOST, average_precision, precision
from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate
from ccs.model import difference

START = "<!-- localization: written by python -m batch.report -->"
END = "<!-- end of localization -->"
PLACED = {"high": "high-CCS heads", "low": "low-CCS heads", "layer": "one layer", "spread": "spread out"}


@dataclass(frozen=True)
class Way:
    """One way of looking, means over the models with their intervals between models.

    found: average precision. hits: precision at the number planted. taken, lost: MaxSkew taken away and
    accuracy lost with as many of its first heads off as were planted.
    """

    method: str
    found: Estimate
    hits: Estimate
    taken: Estimate
    lost: Estimate

    def row(self) -> dict[str, str]:
        """The way as a row of a table; accuracy in points."""
        alone = {"way of looking": self.method} | dict.fromkeys(("average precision", "precision"), "–")
        if self.method != PLANTED:
            alone["average precision"] = in_brackets(self.found, 2)
            alone["precision"] = in_brackets(self.hits, 2)
        alone["MaxSkew taken away"] = in_brackets(self.taken, 3)
        return alone | {"accuracy lost (points)": in_brackets(self.lost.times(100), 1)}


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per model and method, means over the attributes planted in the model.

    Columns: model, method, found, hits, taken, lost (see `Way`); taken 1 ... and lost 1 ...: with the first
    head off, the first two, and so on. Rows of models without planted heads are left out.
    """
    known = rows[rows["planted"].notna()]
    found = []
    for (model, attribute, method), one in known.sort_values("rank").groupby(
        ["model", "attribute", "method"]
    ):
        order = [Head(*head) for head in zip(one["layer"], one["head"], strict=True)]
        every = known[(known["model"] == model) & (known["attribute"] == attribute) & known["planted"]]
        planted = HeadSet(Head(*head) for head in zip(every["layer"], every["head"], strict=True))
        if not planted:
            continue
        row = {"model": model, "method": method, "found": average_precision(order, planted)}
        row["hits"] = precision(order, planted)
        for size, (_, step) in enumerate(one.head(MOST).iterrows(), 1):
            row[f"taken {size}"] = step["max_skew_none"] - step["max_skew"]
            row[f"lost {size}"] = step["accuracy_none"] - step["accuracy"]
        row |= {name: row[f"{name} {len(planted)}"] for name in ("taken", "lost")}
        found.append(row)
    frame = pd.DataFrame(found)
    return frame.groupby(["model", "method"]).mean().reset_index() if len(frame) else frame


def ways(cases: pd.DataFrame) -> list[Way]:
    """Every way over the models, by falling average precision; the planted heads themselves first."""
    found = []
    for method in (PLANTED, *METHODS):
        own = cases[cases["method"] == method]
        if len(own):
            parts = {name: stats.bootstrap(own[name]) for name in ("found", "hits", "taken", "lost")}
            found.append(Way(method, **parts))
    return sorted(found, key=lambda way: (way.method != PLANTED, -way.found.value))


def against(cases: pd.DataFrame, one: str, other: str, figure: str = "found") -> Effect:
    """A way's figure less another's, paired over the models that have both."""
    both = cases.pivot(index="model", columns="method", values=figure)[[one, other]].dropna()
    return stats.paired(both[one], both[other])


def sentence(cases: pd.DataFrame) -> str:
    """Which way finds planted bias best, and where the search and the study's claim stand, with figures."""
    looked = [way for way in ways(cases) if way.method != PLANTED]
    best, by_name = looked[0], {way.method: way for way in looked}
    text = f"Of {len(looked)} ways of looking, over {cases['model'].nunique()} models with planted heads, "
    text += f"**{best.method}** finds them best: average precision {in_brackets(best.found, 2)}"
    text += "".join(
        f", {name} {in_brackets(by_name[name].found, 2)}"
        for name in (SEARCH, "CCS high first", "random")
        if name in by_name and name != best.method
    )
    if SEARCH in by_name and len(looked) > 1:
        rival = next(way for way in looked if way.method != SEARCH)
        difference = against(cases, SEARCH, rival.method)
        text += f". The search less {'the next best' if best.method == SEARCH else 'the best'} "
        text += f"({rival.method}): {change(difference, digits=2)}"
        taken = against(cases, SEARCH, rival.method, "taken")
        text += f"; of MaxSkew taken away: {change(taken)}"
    return text + "."


def summary(rows: pd.DataFrame) -> str:
    """The sentence and the table, as Markdown; "" where no model with planted heads was looked at."""
    cases = scored(rows)
    if not len(cases):
        return ""
    return f"{sentence(cases)}\n\n{table(pd.DataFrame([way.row() for way in ways(cases)]))}"


def localization_blocks(rows: pd.DataFrame) -> Iterator[Block]:
    """The report's section; nothing where no model with planted heads was looked at."""
    cases = scored(rows)
    if not len(cases):
        return
    yield from fill(
        "localization",
        summary=summary(rows),
        models=int(cases["model"].nunique()),
        steps=[_steps(cases, way.method) for way in ways(cases)],
        places=_by_place(cases),
    )


def _steps(cases: pd.DataFrame, method: str) -> dict[str, str]:
    own = cases[cases["method"] == method].mean(numeric_only=True)
    row = {"way of looking": method}
    for size in range(1, MOST + 1):
        taken, lost = own.get(f"taken {size}", np.nan), own.get(f"lost {size}", np.nan)
        row[str(size)] = "–" if np.isnan(taken) else f"{taken:.2f} ({100 * lost:.1f})"
    return row


def _by_place(cases: pd.DataFrame) -> list[dict[str, str]]:
    """Mean average precision by where the heads were drawn from."""
    drawn = {name: difference.truth(name).drawn for name in difference.names()}
    places = cases["model"].map(drawn)
    rows = []
    for method in (way.method for way in ways(cases) if way.method != PLANTED):
        own = cases[cases["method"] == method]["found"].groupby(places).mean()
        rows.append({"way of looking": method} | {_place(name): f"{own[name]:.2f}" for name in own.index})
    return rows if places.notna().any() else []


def _place(drawn: str) -> str:
    return PLACED.get(drawn, drawn)


def write_summary(readme: Path, rows: pd.DataFrame) -> None:
    """Bring the summary in the README up to date, if there is one to write, and markers for it."""
    text, new = readme.read_text(encoding="utf-8") if readme.is_file() else "", summary(rows)
    if START in text and new:
        with atomic_write(readme) as aside:
            aside.write_text(between(text, START, END, new), encoding="utf-8")

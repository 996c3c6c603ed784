"""The methods that look for planted bias: each one's ranking of heads, scored against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from batch.report.document import Block, fill, table
from batch.report.wording import change, in_brackets
from ccs.heads import Head, HeadSet
from ccs.locate import METHODS, SEARCH
from ccs.locate.scoring import average_precision, precision
from ccs.measures import stats
from ccs.measures.stats import Effect, Estimate
from ccs.results.localization import PLANTED

CARRIES, TOOK = 0.1, 0.05
CASE = ["model", "attribute", "seed"]


@dataclass(frozen=True)
class Way:
    """One method, means over the models with their intervals between models.

    found: average precision. hits: precision at the number of heads that carry the skew. taken, lost: MaxSkew
    taken away and accuracy lost with as many of its first heads off.
    """

    method: str
    found: Estimate
    hits: Estimate
    taken: Estimate
    lost: Estimate

    def row(self) -> dict[str, str]:
        """The method as a row of a table; accuracy in points."""
        alone = {"method": self.method} | dict.fromkeys(("average precision", "precision"), "–")
        if self.method != PLANTED:
            alone["average precision"] = in_brackets(self.found, 2)
            alone["precision"] = in_brackets(self.hits, 2)
        alone["MaxSkew taken away"] = in_brackets(self.taken, 3)
        return alone | {"accuracy lost (points)": in_brackets(self.lost.times(100), 1)}


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per model and method, means over the attributes planted in the model and the splits into halves.

    Columns: model, method, splits (how many), found, hits, taken, lost (see `Way`). Left out are models
    without planted heads, and attributes whose skew did not take: all planted heads off lower MaxSkew by less
    than TOOK.
    """
    found = []
    for (model, *_), case in rows.dropna(subset="planted").sort_values("rank").groupby(CASE):
        by_method = dict(list(case.groupby("method")))
        took = _step(by_method[PLANTED].iloc[-1])[0] if PLANTED in by_method else 0.0
        if took < TOOK:
            continue
        carriers = HeadSet(Head(*head) for head in _carriers(by_method[PLANTED]))
        for method, one in by_method.items():
            order = [Head(*head) for head in zip(one["layer"], one["head"], strict=True)]
            row = {"model": model, "method": method, "found": average_precision(order, carriers)}
            taken, lost = _step(one.iloc[len(carriers) - 1])
            found.append(row | {"hits": precision(order, carriers), "taken": taken, "lost": lost})
    if not found:
        return pd.DataFrame()
    means = pd.DataFrame(found).groupby(["model", "method"]).mean().reset_index()
    return means.assign(splits=rows.dropna(subset="planted")["seed"].nunique())


def _step(row: Any) -> tuple[float, float]:
    """MaxSkew taken away and accuracy lost with this head and all earlier ones off."""
    return row["max_skew_none"] - row["max_skew"], row["accuracy_none"] - row["accuracy"]


def _carriers(planted: pd.DataFrame) -> list[tuple[int, int]]:
    """The planted heads that carry CARRIES of the skew or more; all of them where that was not measured."""
    known = planted.assign(carries=planted["carries"].fillna(1.0)).sort_values("carries", ascending=False)
    kept = max(1, int((known["carries"] >= CARRIES).sum()))
    return list(zip(known["layer"][:kept], known["head"][:kept], strict=True))


def ways(cases: pd.DataFrame) -> list[Way]:
    """Every method over the models, by falling average precision; the planted heads themselves first."""
    found = []
    for method in (PLANTED, *METHODS):
        own = cases[cases["method"] == method]
        if len(own):
            parts = {name: stats.bootstrap(own[name]) for name in ("found", "hits", "taken", "lost")}
            found.append(Way(method, **parts))
    return sorted(found, key=lambda way: (way.method != PLANTED, -way.found.value))


def against(cases: pd.DataFrame, one: str, other: str, figure: str = "found") -> Effect:
    """One method's figure less another's, paired over the models that have both."""
    both = cases.pivot(index="model", columns="method", values=figure)[[one, other]].dropna()
    return stats.paired(both[one], both[other])


def sentence(cases: pd.DataFrame) -> str:
    """The best method, compared with the study's claim, chance and the next best; "" without cases."""
    if not len(cases):
        return ""
    methods = [way for way in ways(cases) if way.method != PLANTED]
    best = methods[0]
    text = f"Of {len(methods)} methods on {cases['model'].nunique()} models with planted heads"
    splits = cases["splits"].iloc[0]
    text += f", over {splits} splits into halves, " if splits > 1 else ", "
    text += f"**{best.method}** ranks first with an average precision of {in_brackets(best.found, 2)}"
    beside = [way for way in methods[1:] if way.method in ("CCS high first", "random")]
    if beside:
        text += f" ({', '.join(f'{way.method} {in_brackets(way.found, 2)}' for way in beside)})"
    if len(methods) > 1:
        lead, second = against(cases, best.method, methods[1].method), methods[1].method
        unsure = ", which is not shown to be a difference" if lead.low <= 0 <= lead.high else ""
        text += f". Its lead over the next best, {second}, is {change(lead, digits=2)}{unsure}"
    return f"{text}."


def summary(cases: pd.DataFrame) -> str:
    """The sentence and the table of methods, as Markdown for docs/findings.md; "" without cases."""
    if not len(cases):
        return ""
    return f"{sentence(cases)}\n\n{table(pd.DataFrame([way.row() for way in ways(cases)]))}"


def localization_blocks(rows: pd.DataFrame) -> Iterator[Block]:
    """The report's section; nothing without a model with planted heads."""
    cases = scored(rows)
    if not len(cases):
        return
    yield from fill(
        "localization",
        summary=sentence(cases),
        methods=[way.row() for way in ways(cases)],
        models=int(cases["model"].nunique()),
        splits=int(cases["splits"].iloc[0]),
        ours=_ours(cases),
        later=_ours(scored(rows[rows["seed"] > 0])),
    )


def _ours(cases: pd.DataFrame) -> str:
    """The search less the best of the others in what each is judged by; "" without both."""
    if not len(cases) or SEARCH not in set(cases["method"]):
        return ""
    others = [way.method for way in ways(cases) if way.method not in (PLANTED, SEARCH)]
    if not others:
        return ""
    found, taken, lost = (against(cases, SEARCH, others[0], figure) for figure in ("found", "taken", "lost"))
    return (
        f"The search less {others[0]}, the best of the others: average precision {change(found, digits=2)}, "
        f"MaxSkew taken away {change(taken)}, accuracy lost {change(lost, 100, 1, unit=' points')}."
    )

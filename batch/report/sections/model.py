"""What was measured of one model: CCS, every plan's accuracy, retrieval and skew, and single heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from batch.report.figures import dots, plane
from batch.report.page import Block, Chart, slug, table
from batch.report.sections.correlations import correlation_blocks, selectivity_chart
from batch.report.sections.questions import answers
from batch.report.sections.search import search_blocks
from batch.report.wording import in_brackets, interval, p_text, signed
from ccs.plans import PlanName
from ccs.results import Results, queries

DRAWN = ("none", "high", "low", "random")
"""The plans that the charts show."""
SIZE = "plan (heads off)"


def model_sections(results: Results, *, with_searches: bool = True) -> Iterator[Block]:
    """CCS, accuracy, retrieval, skew, effects, single heads and selectivity of one model.

    `with_searches`: whether its searches belong here; those of the organisms stand in their own section.
    """
    yield f"## Measured: {results.model}"
    yield _about(results)
    yield from answers(results)
    yield from _levels(queries.main_scores(results), results.manifest.get("chance_ccs") or ())
    yield from _accuracy(results)
    yield from _further_k(results)
    yield from _retrieval(results)
    yield from _skew(results)
    yield from _plane(results)
    yield from _effects(results)
    yield from _single_heads(results)
    yield from correlation_blocks(results)
    yield from selectivity_chart(results)
    if with_searches:
        yield from search_blocks(results)


def _about(results: Results) -> str:
    manifest = results.manifest
    images, texts = manifest["images"], manifest["texts"]
    judges = [*(manifest.get("judges") or []), manifest.get("labeler")]
    stand_ins = {str(one["name"]) for one in judges if isinstance(one, Mapping) and one.get("stand_in")}
    note = f" **{', '.join(sorted(stand_ins))} stands in for a language model.**" if stand_ins else ""
    return (
        f"Weights `{str(manifest['model'].get('weights_hash', ''))[:16]}`; moments of {images.get('count')} "
        f"images of {images.get('name')}; {texts.get('count')} texts of {texts.get('name')}; computed "
        f"{str(manifest.get('created', ''))[:10]}.{note}"
    )


def _levels(frame: pd.DataFrame, chance: Sequence[float]) -> Iterator[Block]:
    if not len(frame):
        return
    k = int(frame["k"].iloc[0])
    counts = frame["ccs"].value_counts()
    unknown = int(frame["ccs"].isna().sum())
    parts = [f"{int(counts.get(value, 0))} of CCS {value}" for value in range(k + 1)]
    text = f"{len(frame)} heads: {', '.join(parts + [f'{unknown} unknown'] * bool(unknown))}."
    if len(chance) == k + 1:
        shares = ", ".join(f"{100 * share:.1f}% of CCS {value}" for value, share in enumerate(chance))
        text += f" Heads whose texts are drawn from the pool at random: {shares}."
    yield "### Concept consistency"
    yield text
    rows = [
        {
            "head": f"L{row['layer']}.H{row['head']}",
            "concept": "–" if pd.isna(row["label"]) else str(row["label"]),
            "CCS": "unknown" if pd.isna(row["ccs"]) else f"{int(row['ccs'])} of {k}",
            "level": str(row["level"]) or "–",
            "variance explained by its texts": f"{row['share']:.2f}",
        }
        for _, row in frame.sort_values(["ccs", "share"], ascending=False).iterrows()
    ]
    yield table(pd.DataFrame(rows))


def _by_plan(frame: pd.DataFrame, columns: list[str], scale: float, digits: int) -> pd.DataFrame:
    """One row per plan, one column per value of `columns`: the value and its change with an interval."""

    def cell(row: pd.Series) -> str:
        text, change = f"{row['value'] * scale:.{digits}f}", queries.difference(row)
        if row["plan"] == "none" or np.isnan(change.value):
            return text
        text += f" ({signed(change.value, digits, scale)}"
        return text + (")" if np.isnan(change.low) else f": {interval(change, scale, digits)})")

    return _pivot(frame, columns, cell)


def _pivot(frame: pd.DataFrame, columns: list[str], cell: Any) -> pd.DataFrame:
    names = dict.fromkeys(frame[columns].itertuples(index=False, name=None))
    rows = []
    for (plan, size), some in frame.groupby(["plan", "n_heads"], sort=False):
        cells = {tuple(row[name] for name in columns): cell(row) for _, row in some.iterrows()}
        rows.append([f"{plan} ({size})", *(cells.get(name, "–") for name in names)])
    return pd.DataFrame(rows, columns=[SIZE, *(" ".join(filter(None, name)) for name in names)])


def _accuracy(results: Results) -> Iterator[Block]:
    frame = queries.group_plans(queries.top1(results, subset=None))
    if not len(frame):
        return
    yield "### Accuracy by plan"
    yield "Top-1 in percent; in brackets the change from no head off, with its 95% interval."
    yield table(_by_plan(frame, ["dataset", "subset"], 100, 1))
    shown = queries.of_kinds(queries.group_plans(queries.top1(results)), DRAWN)
    points = [_point(row["dataset"], row["plan"], queries.estimate(row), 100) for _, row in shown.iterrows()]
    yield Chart(
        f"{slug(results.model)}-accuracy",
        dots(pd.DataFrame(points), "top-1 (%)"),
        f"{results.model}: zero-shot accuracy with no head, the high, the low and as many random heads off.",
    )


def _point(row: str, series: str, found: Any, scale: float = 1.0) -> dict[str, object]:
    figures = {name: getattr(found, name) * scale for name in ("value", "low", "high")}
    return {"row": row, "series": series, "measured": True, **figures}


def _further_k(results: Results) -> Iterator[Block]:
    kinds = ("high", "low", "random")
    every = queries.with_plan(queries.without_seeds(queries.top1(results)))
    every = every[every["kind"].isin(kinds)]
    further = every[every["plan_k"].notna()]
    if not len(further):
        return
    every = every[every["dataset"].isin(further["dataset"])]
    every = every.assign(plan=every["kind"], k=every["plan_k"].fillna(queries.main_k(results) or 0))
    parts = []
    for k, some in every.groupby("k"):
        shown = _by_plan(some, ["dataset"], 100, 1)
        shown.insert(0, "K", str(k))
        parts.append(shown)
    yield "### Accuracy when the high heads are those of another K"
    yield (
        "K texts per head are judged; high heads are those all of whose K texts agree, so the larger K is, "
        "the fewer they are. Each head keeps its concept. Top-1 in percent, and the change from no head off."
    )
    yield table(pd.concat(parts).fillna("–"))


def _retrieval(results: Results) -> Iterator[Block]:
    frame = queries.group_plans(queries.recall(results, ("R@1", "R@10")))
    if len(frame):
        yield "### Retrieval by plan"
        yield table(_by_plan(frame, ["dataset", "direction", "metric"], 100, 1), "Percent of queries.")


def _skew(results: Results) -> Iterator[Block]:
    frame = queries.group_plans(queries.max_skew(results))
    if not len(frame):
        return
    yield "### MaxSkew by plan"
    levels = "; ".join(
        f"{row['dataset']}, {row['attribute']} (K = {row['k']} of {row['n']}): "
        f"{in_brackets(queries.chance(row))}"
        for _, row in frame.drop_duplicates(["dataset", "attribute", "k"]).iterrows()
    )
    yield f"Mean over occupations, natural logarithm. **Chance level** (random rankings): {levels}."
    yield table(_by_plan(frame, ["dataset", "attribute"], 1, 3))
    points = []
    for _, row in queries.of_kinds(frame, DRAWN).iterrows():
        where, level = f"{row['dataset']}, {row['attribute']}", queries.chance(row)
        if row["plan"] == "none" and np.isfinite(level.value):
            points.append(_point(where, "chance", level))
        points.append(_point(where, row["plan"], queries.estimate(row)))
    yield Chart(
        f"{slug(results.model)}-skew",
        dots(pd.DataFrame(points), "MaxSkew, mean over occupations"),
        f"{results.model}: MaxSkew with no head, the high, the low and as many random heads off, beside "
        "chance.",
    )


def _plane(results: Results) -> Iterator[Block]:
    means = [
        frame.groupby(["plan", "seed"], dropna=False)["value"].mean()
        for frame in (queries.top1(results), queries.max_skew(results))
    ]
    both = pd.concat(means, axis=1, keys=["x", "y"], join="inner").reset_index()
    if not len(both):
        return
    names = [PlanName.parse(plan) for plan in both["plan"]]
    seeds = ["" if pd.isna(seed) else f" seed {int(seed)}" for seed in both["seed"]]
    both = both.assign(x=100 * both["x"], name=both["plan"] + seeds, series=[name.kind for name in names])
    yield "### Accuracy against bias"
    yield Chart(
        f"{slug(results.model)}-plane",
        plane(both, "mean top-1 over sets (%)", "mean MaxSkew over attributes and sets"),
        f"{results.model}: every plan, its mean accuracy and its mean MaxSkew. Better is right and low.",
    )


def _effects(results: Results) -> Iterator[Block]:
    frame = queries.group_plans(results.table("effects"))
    if not len(frame):
        return

    def cell(row: pd.Series) -> str:
        scale, digits = (100.0, 1) if row["metric"] == "top1" else (1.0, 3)
        return " / ".join(signed(row[name], digits, scale) for name in ("direct", "total"))

    yield "### Direct and total effects of plans"
    yield (
        "The change if the heads' contributions are subtracted from the embedding (direct) / if their "
        "outputs are zero in the forward pass, so that later layers react to it (total): points of accuracy, "
        "or mean MaxSkew. All else in this report is total. Intervals and p-values are in the table "
        "`effects`; how far the two agree over single heads is below."
    )
    yield table(_pivot(frame, ["dataset", "factor"], cell))


def _single_heads(results: Results) -> Iterator[Block]:
    frame = queries.head_effects(results, "MaxSkew mean")
    if not len(frame):
        return
    scores = {str(head): score for head, score in queries.head_scores(results).items()}
    rows = []
    for (dataset, attribute), some in frame.groupby(["dataset", "factor"], sort=False):
        for _, row in some.sort_values("value").head(5).iterrows():
            head, q_value = f"L{row['layer']}.H{row['head']}", float(row["q_value"])
            rows.append(
                {
                    "set": dataset,
                    "attribute": attribute,
                    "head": head,
                    "concept": (scores[head].label if head in scores else None) or "–",
                    "change of MaxSkew": signed(row["value"], 3),
                    "95% interval": interval(queries.effect(row)),
                    "q": p_text(q_value),
                    "lowers it": "✓" if q_value < 0.05 else "–",
                }
            )
    yield "### Which heads carry the skew"
    yield (
        "The five heads that lower the mean MaxSkew most when switched off alone, for each set and "
        "attribute. ✓: the false discovery rate over all heads is below 5%."
    )
    yield table(pd.DataFrame(rows))

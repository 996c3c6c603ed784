"""Does CCS go with what heads carry, and how far does it hang on images, pool and tree of concepts?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from batch.report.document import Block, fill
from batch.report.wording import interval, p_text, signed
from ccs.heads import Head
from ccs.measures import stats
from ccs.measures.stats import Effect
from ccs.plans import PlanName
from ccs.results import Results, queries
from ccs.texts.score import ccr

DRAWN = ("images, half", "images, fewer", "pool")
"""Other samples of the same thing, under which a score ought to stay."""
ALONE = ", given layer and variance"


@dataclass(frozen=True)
class Correlated:
    """A correlation over `n` heads; its effect is NaN where there is none."""

    name: str
    n: int
    effect: Effect

    def __str__(self) -> str:
        """An answer: is the correlation above zero?"""
        return f"{self.answer} ({self.figures}{'' if np.isnan(self.effect.value) else f', {self.n} heads'})"

    @property
    def answer(self) -> str:
        """The answer to: is the correlation above zero?"""
        unknown = np.isnan(self.effect.value)
        return "cannot be asked" if unknown else stats.answer(self.effect, expected="above")

    @property
    def figures(self) -> str:
        """ "rho +0.69, +0.38 to +0.81, p 0.001", or why there is none."""
        found = self.effect
        if np.isnan(found.value):
            return self._why
        return f"rho {found.value:+.2f}, {interval(found, digits=2)}, p {p_text(found.p_value)}"

    @property
    def row(self) -> dict[str, str]:
        """The correlation as a row of a table."""
        found = self.effect
        return {
            "correlation of": self.name,
            "heads": str(self.n),
            "rho": signed(found.value, 2),
            "95% interval": self._why if np.isnan(found.value) else interval(found, digits=2),
            "p": p_text(found.p_value),
        }

    @property
    def _why(self) -> str:
        return "too few heads" if self.n < 4 else "all alike"


def with_ccs(
    name: str, results: Results, figures: Mapping[Head, float], *, alone: bool = False
) -> Correlated:
    """Spearman's correlation of the heads' CCS with a figure of theirs; `alone`: given layer and variance."""
    ccs = {head: score.ccs for head, score in queries.head_scores(results).items()}
    n = sum(head in figures for head, value in ccs.items() if value is not None)
    if n < 4:
        return Correlated(name, n, Effect(*[float("nan")] * 4))
    variance = queries.variances(results) if alone else None
    name += ALONE if alone else ""
    return Correlated(name, n, _together(ccs, figures, variance))


def _together(
    ccs: Mapping[Head, int | None],
    figures: Mapping[Head, float],
    variance: Mapping[Head, float] | None = None,
) -> Effect:
    """Spearman's correlation of CCS with a figure over the heads that have both.

    The interval resamples heads; p permutes them within their layers, so that depth cannot be the cause.
    variance: of each head's contribution; if given, the correlation is the partial one given layer and
    variance. InputError with fewer than four such heads.
    """
    heads = sorted(head for head, score in ccs.items() if score is not None and head in figures)
    given = None if variance is None else [[head.layer, variance[head]] for head in heads]
    x, y = [float(ccs[head] or 0) for head in heads], [figures[head] for head in heads]
    return stats.correlation(x, y, given=given, blocks=[head.layer for head in heads])


def with_carried(results: Results) -> list[Correlated]:
    """CCS with what each head carries, on average over the sets: what is lost when it alone is off.

    Of accuracy, of MaxSkew and of the gap in logits; each also given layer and variance.
    """
    measures = {
        "accuracy": queries.top1(results),
        "MaxSkew": queries.max_skew(results),
        "logit gap": queries.preferences(results),
    }
    found = []
    for name, rows in measures.items():
        lost = -queries.single_plans(rows).groupby("plan")["difference"].mean()
        carried = {head: float(lost[plan]) for plan in lost.index if (head := PlanName.parse(str(plan)).head)}
        if carried:
            title = f"CCS with the {name} that a head carries"
            found += [with_ccs(title, results, carried, alone=alone) for alone in (False, True)]
    return found


def correlated(results: Results) -> list[Correlated]:
    """The correlations of one model: CCS with what heads carry, direct with total effects."""
    found = with_carried(results)
    for _, row in queries.correlations(results).iterrows():
        where = ", ".join(part for part in (row["dataset"], row["metric"], row["factor"]) if part)
        found.append(Correlated(f"{row['between']}: {where}", int(row["n"]), queries.effect(row)))
    return found


def stability_blocks(results: Results) -> Iterator[Block]:
    """The section, if stability was measured."""
    found = _compared(results)
    if not len(found):
        return
    by_kind = found.groupby("kind", sort=False)
    rows = [
        {
            "what is different": str(kind) if kind != "tree" else f"tree: {variant}",
            "variants": str(some["variant"].nunique()),
            "high heads, mean": f"{some['now_high'].sum() / some['variant'].nunique():.1f}",
            "of the high ones still high": _share(some.loc[some["was_high"], "now_high"]),
            "same CCS": _share(some["ccs"] == some["was"]),
            "same label": _share(some["label"].fillna("") == some["label_was"].fillna("")),
        }
        for kind, every in by_kind
        for variant, some in (every.groupby("variant", sort=False) if kind == "tree" else [("", every)])
    ]
    drawn = found[found["kind"].isin(DRAWN)]
    stays = drawn.groupby(["layer", "head"], as_index=False)[["now_high", "was_high"]].mean()
    named = [
        f"{Head(int(row['layer']), int(row['head']))} {row['now_high']:.0%}"
        + ("" if row["was_high"] else " (not in the whole run)")
        for _, row in stays.sort_values("now_high", ascending=False, kind="stable").iterrows()
        if row["now_high"] or row["was_high"]
    ]
    variants = len(drawn.drop_duplicates(["kind", "variant"]))
    labels = found[found["now_high"] & found["kind"].isin((*DRAWN, "tree"))]["label"].value_counts()
    yield from fill(
        "stability",
        rows=rows,
        heads=named,
        n=variants,
        labels=[f"{label} ({count})" for label, count in labels.items()],
        **_concepts(results, found),
    )


def _concepts(results: Results, found: pd.DataFrame) -> dict[str, object]:
    """The concepts of the high heads with their Concentrated Concept Ratio, and how many heads are high by
    their texts' own tags alone.
    """
    scores = queries.of_level(queries.main_scores(results), "high")
    flat = found[(found["kind"] == "tree") & (found["variant"] == "flat")]
    return {
        "high": len(scores),
        "concepts": [f"{name} ({n})" for name, n in scores["label"].value_counts().sort_index().items()],
        "ccr": ccr(None if pd.isna(label) else str(label) for label in scores["label"]),
        "flat": int(flat["now_high"].sum()),
    }


def _compared(results: Results) -> pd.DataFrame:
    """Stability's rows with the scores of the whole run beside them."""
    rows, scores = queries.stability(results), queries.main_scores(results)
    own = scores[["layer", "head", "label", "ccs", "k"]].rename(columns={"label": "label_was", "ccs": "was"})
    found = rows.merge(own, on=["layer", "head"])
    high = {"now_high": found["ccs"] == found["k"], "was_high": found["was"] == found["k"]}
    return found.assign(**{name: column.fillna(False).astype(bool) for name, column in high.items()})


def _share(mask: pd.Series) -> str:
    return f"{mask.fillna(False).astype(bool).mean():.0%}" if len(mask) else "–"

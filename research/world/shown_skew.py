"""Compare the planted bias with a model's rankings: group shares, ablation sets, and single heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ccs.batch.pages import Block, filled, in_brackets, interval, p_text
from ccs.metrics.stats import Estimate, signed
from ccs.results import Results
from ccs.synthetic.vocabulary import OCCUPATIONS
from research.world import CONTROL, ORGANISM, planted
from research.world import planted_truth as truth
from research.world.correlations import Correlated, with_ccs

TEMPLATES = Path(__file__).with_name("templates")
ABLATION_SETS = ("none", "high", "low", "random")


def organisms(models: Mapping[str, Results]) -> dict[str, Results]:
    """Return the results of organism and its control, if they include rankings of plain faces."""
    return {
        name: models[name]
        for name in (ORGANISM, CONTROL)
        if name in models and any(truth.mean_skew(models[name], attribute) for attribute in truth.SCALES)
    }


def ablation_rows(results_by_model: Mapping[str, Results]) -> list[dict[str, str]]:
    """Return MaxSkew and direction of rankings, for ablation sets of organism and for its control."""
    rows = []
    for attribute in truth.SCALES:
        for name, results in results_by_model.items():
            for ablation in ABLATION_SETS if name == ORGANISM else ABLATION_SETS[:1]:
                skew = truth.mean_skew(results, attribute, ablation)
                if skew is None:
                    continue
                row = {"attribute": attribute, "model": name, "ablated heads": ablation}
                full = f" ⌈{n}" if (n := len(truth.full(results, attribute, ablation))) else ""
                row |= {"mean MaxSkew": in_brackets(skew[0]) + full, "chance": in_brackets(skew[1])}
                aligned = truth.alignment(truth.shares_of(results, attribute, ablation), attribute)
                if aligned is not None:
                    rho = f"{aligned.effect.value:+.2f} ({interval(aligned.effect, digits=2)})"
                    row |= {"rho": rho, "planted direction": aligned.counted}
                rows.append(row)
    return rows


def planted_blocks(results_by_model: Mapping[str, Results]) -> Iterator[Block]:
    """Write the sections on group shares and single heads of organism, and of its control if measured."""
    for attribute in truth.SCALES:
        yield from _shares(results_by_model, attribute)
    for attribute in truth.SCALES:
        yield from _heads(results_by_model, attribute)


def _shares(results_by_model: Mapping[str, Results], attribute: str) -> list[Block]:
    by_model = {name: truth.shares_of(results, attribute) for name, results in results_by_model.items()}
    by_model = {name: shares for name, shares in by_model.items() if shares}
    if not by_model:
        return []
    chance = truth.chance_of(results_by_model[next(iter(by_model))], attribute)
    groups = list(truth.SCALES[attribute])[: 1 if attribute == "gender" else None]
    full = {name: truth.full(results_by_model[name], attribute) for name in by_model}
    rows = []
    for occupation in sorted(OCCUPATIONS, key=lambda name: -planted.planted_bias(name, attribute)):
        planted_shares = planted.shares(occupation, attribute)
        size = planted.planted_bias(occupation, attribute)
        row = {"occupation": occupation, "planted bias": f"{size:+d}" if size else "0"}
        at_most = [occupation in names for names in full.values()]
        for group in groups:
            shares = [top_shares.get(occupation, {}).get(group) for top_shares in by_model.values()]
            texts = " / ".join(
                _share(share, chance[group]) + "⌈" * at for share, at in zip(shares, at_most, strict=True)
            )
            row[group] = f"{100 * planted_shares[group]:.0f} → {texts}"
        rows.append(row)
    level = chance[groups[0]].times(100)
    values = {"attribute": attribute, "models": list(by_model), "chance": level, "shares": rows}
    return filled(TEMPLATES, "shares", **values)


def _share(value: float | None, chance: Estimate) -> str:
    if value is None:
        return "–"
    text = f"{100 * value:.0f}"
    return text if chance.low <= value <= chance.high else f"**{text}**"


def ccs_and_lowering(results: Results, all_heads: pd.DataFrame) -> Correlated:
    """Correlate CCS with the reduction of MaxSkew when each head is ablated.

    Args:
        results: Results with the CCS of each head.
        all_heads: Rows of `planted_truth.carriers`.
    """
    reductions = dict(zip(all_heads["head"], -all_heads["change"], strict=True))
    return with_ccs("CCS with the reduction of MaxSkew", results, reductions)


def _heads(results_by_model: Mapping[str, Results], attribute: str) -> list[Block]:
    results = results_by_model[ORGANISM]
    all_heads = truth.carriers(results, attribute)
    if not len(all_heads):
        return []
    lowers = truth.lowering(all_heads)
    notable = all_heads.index.isin(lowers.index) | (all_heads["rho_q"] < 0.05)
    notable_heads = all_heads[notable].head(10)
    others = all_heads[~notable].head(max(0, 5 - len(notable_heads)))
    rows = [
        {
            "head": str(row["head"]),
            "concept": row["label"],
            "CCS": row["ccs"],
            "change of mean MaxSkew": f"{signed(row['change'], 3)} ({interval(row['effect'])})",
            "q": p_text(row["q_value"]),
            "change, strong planted bias": signed(row["strong"], 3),
            "change, no planted bias": signed(row["without"], 3),
            "rho": signed(row["rho"], 2),
            "q of rho": p_text(row["rho_q"]),
        }
        for _, row in pd.concat([notable_heads, others]).sort_values("change", kind="stable").iterrows()
    ]
    names = [f"{row['head']} ({row['label'] or 'no concept'})" for _, row in lowers.iterrows()]
    shares = truth.shares_of(results, attribute)
    strong = [name for name in shares if abs(planted.planted_bias(name, attribute)) == 2]
    control = truth.carriers(results_by_model[CONTROL], attribute) if CONTROL in results_by_model else None
    return filled(
        TEMPLATES,
        "carriers",
        attribute=attribute,
        faces=truth.FACES,
        heads=len(all_heads),
        lowers=len(lowers),
        names=listed(names),
        full=sum(max(shares[name].values()) > 0.999 for name in strong),
        strong=len(strong),
        control="" if control is None else f"{len(truth.lowering(control))} of {len(control)}",
        rows=rows,
        correlated=ccs_and_lowering(results, all_heads),
    )


def listed(words: Sequence[str], none: str = "none") -> str:
    """Join words: "a, b and c".

    Args:
        words: Words to join.
        none: Text to return if there are no words.
    """
    if len(words) < 2:
        return words[0] if words else none
    return f"{', '.join(words[:-1])} and {words[-1]}"

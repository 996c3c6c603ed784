"""planted.md: the family, what it shows with heads off, and what follows for the study's questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ccs.batch.pages import Block, filled
from research.planted import planted_cases as study
from research.planted.bench import ATTRIBUTES, RANDOM, Row
from research.planted.family import BASE, PICTURES, Planted, family

WHATS = {
    "both": "gender and skin tone",
    "apart": "gender, skin tone: heads of their own",
    "nothing": "nothing: a control",
}


def blocks(held: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """The page, of the rows that `research.planted` measured."""
    models = _planted(held)
    rows, heads = _drawn_blind(models)
    found = study.cases(rows, heads)
    base = {row["plan"]: row for row in held[BASE]["rows"]}["none"]
    return filled(
        Path(__file__).with_name("templates"),
        "planted",
        pictures=f"{PICTURES:,}",
        random=RANDOM,
        members=[_member(one, models) for one in family() if one.name in models],
        skews=[_skew(name, one["rows"], a, base) for name, one in models.items() for a in _shown(one)],
        accuracies=_accuracies(models, base),
        left=_left(models, base),
        when=study.when(found),
        was=study.when(study.cases(rows, heads, before=True)),
        carriers=study.carriers(heads),
        cases=[_case(row) for row in found.to_dict("records")],
    )


def summary(held: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The answers, as the README has them."""
    rows, heads = _drawn_blind(_planted(held))
    return [study.carriers(heads), study.when(study.cases(rows, heads)).sentence()]


def _drawn_blind(models: Mapping[str, Mapping[str, Any]]) -> tuple[list[Row], list[Row]]:
    """The rows and heads of the models whose heads were drawn without regard to CCS: the others' heads were
    drawn by it, so they can say nothing about it.
    """
    blind = {one.name for one in family() if one.where in ("layer", "spread")}
    rows, heads = (
        [row for name in models if name in blind for row in models[name][key]] for key in ("rows", "heads")
    )
    return rows, heads


def _planted(held: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """What was measured of the models in which something was planted."""
    return {name: one for name, one in held.items() if name != BASE}


def _member(one: Planted, models: Mapping[str, Any]) -> dict[str, str]:
    by_head = {row["head"]: row["share"] for row in models[one.name]["heads"]}
    shares = [
        f"{name}: " + ", ".join(f"{head} {100 * by_head[str(head)][name]:.0f}%" for head in own)
        for name, own in one.carries.items()
    ]
    return {
        "model": one.name,
        "planted": WHATS.get(one.what, one.what),
        "strength": f"{one.strength:g}",
        "drawn": one.where,
        "heads": "; ".join(shares) or str(one.heads),
    }


def _shown(one: Mapping[str, Any]) -> tuple[str, ...]:
    carries = one["rows"][0]["carries"]
    return tuple(name for name in ATTRIBUTES if name in carries or not carries)


def _skew(name: str, rows: list[Row], attribute: str, base: Row) -> dict[str, str]:
    own = pd.DataFrame(rows)
    line = {"model": name, "attribute": attribute}
    for what in ("MaxSkew", "gap"):
        column = f"{what} {attribute}"
        drawn = own[own["plan"] == "random for planted"][column]
        values = own.drop_duplicates("plan").set_index("plan")[column]
        texts = [f"{value:.2f}" for value in (base[column], values["none"], values["planted"])]
        texts += [f"{drawn.min():.2f} to {drawn.max():.2f}"]
        texts += [f"{values[plan]:.2f}" for plan in ("high", "other")]
        line[what] = " / ".join([texts[0], texts[1], f"**{texts[2]}**", *texts[3:]])
    return line


def _accuracies(models: Mapping[str, Any], base: Row) -> str:
    planted = pd.DataFrame([row for one in models.values() for row in one["rows"]])
    with_, without = (100 * planted[planted["plan"] == plan]["accuracy"] for plan in ("none", "planted"))
    return (
        f"{with_.min():.1f} to {with_.max():.1f}% with nothing off and {without.min():.1f} to "
        f"{without.max():.1f}% without the planted heads ({BASE}: {100 * base['accuracy']:.1f}%)"
    )


def _left(models: Mapping[str, Any], base: Row) -> list[str]:
    rows = [row for one in models.values() for row in one["rows"]]
    lines = []
    for attribute in ATTRIBUTES:
        gaps = study.planted_gone(rows, attribute)
        texts = {plan: f"{gap.value:.2f} ({gap.low:.2f} to {gap.high:.2f})" for plan, gap in gaps.items()}
        lines.append(
            f"{attribute}: {texts['none']} logits with nothing off, {texts['planted']} without the planted "
            f"heads, {texts['random for planted']} without as many random others; {BASE} "
            f"{base[f'gap {attribute}']:.2f}"
        )
    return lines


def _case(row: Mapping[Any, Any]) -> dict[str, str]:
    return {
        "model": row["model"],
        "attribute": row["attribute"],
        "lies in": row["lies"],
        "share in high-CCS heads": f"{100 * row['in_high']:.0f}%",
        "of the gap, gone with them": f"{100 * row['lowered']:.0f}%",
        "with random ones": f"{100 * row['random']:.0f}%",
        "with all others": f"{100 * row['other']:.0f}%",
        "change of MaxSkew": f"{row['skew']:+.2f}",
    }

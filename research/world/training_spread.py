"""How far results vary between trainings of one recipe, with the models that ship marked among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batch.report.document import Block, filled
from batch.report.sections.questions import CONTROL, ORGANISM
from batch.report.wording import in_brackets
from ccs.texts.score import level
from research.seeds import over_seeds
from research.world import planted_truth as truth

_SHOWN = ("accuracy", *(f"{what} {attribute}" for what in ("MaxSkew", "gap") for attribute in truth.SCALES))


def training_blocks(trained: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The spread between trainings, in which the models that ship are marked; nothing without trainings."""
    again = [one for one in trained if one["seed"]]
    if not again:
        return []
    own = {model: [one for one in trained if one["name"] == model] for model in (ORGANISM, CONTROL)}
    figures: list[dict[str, str]] = []
    for plan, words in (("none", "nothing off"), ("high", "change with the high heads off")):
        for name in _SHOWN:
            row = {"figure": name, "heads": words}
            for model in own:
                row |= _spread(own[model], model, plan, name)
            figures.append(row)
    return filled(
        Path(__file__).with_name("templates"),
        "trainings",
        figures=figures,
        answer=over_trainings(trained),
        n=len({one["seed"] for one in again}),
        shared=f"{again[0]['shared']:,}",
        own=f"{again[0]['own']:,}",
        high=[_often_high(one) for one in own.values()],
    )


def over_trainings(trained: Sequence[Mapping[str, Any]]) -> str:
    """The effect of switching the high heads off in the organism's trainings; "" with fewer than two."""
    own = [one for one in trained if one["name"] == ORGANISM and one["seed"]]
    if len(own) < 2:
        return ""
    parts: dict[str, list[str]] = {"Rises": [], "Falls": [], "Not shown to change": []}
    for name in _SHOWN:
        scale, digits = (100, 1) if name == "accuracy" else (1, 3)
        found = over_seeds([scale * (one["high"][name] - one["none"][name]) for one in own])
        said = "Rises" if found.low > 0 else "Falls" if found.high < 0 else "Not shown to change"
        around = f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"
        parts[said].append(f"{name} ({found.value:+.{digits}f}, {around})")
    told = " ".join(f"{said}: {', '.join(names)}." for said, names in parts.items() if names)
    return f"**What changes with the high heads off in {len(own)} shorter trainings of the organism?** {told}"


def _spread(own: Sequence[Mapping[str, Any]], model: str, plan: str, figure: str) -> dict[str, str]:
    """The mean over a model's trainings with its interval between them, and where the shipped one stands."""
    scale, digits = (100, 1) if figure == "accuracy" else (1, 3)
    values = {
        one["seed"]: scale * (one[plan][figure] - (one["none"][figure] if plan != "none" else 0))
        for one in own
    }
    shipped, seeds = values.pop(0, None), sorted(values.values())
    cells = {model: in_brackets(over_seeds(seeds), digits) if seeds else "–", f"{model}, shipped": "–"}
    if shipped is not None:
        below = sum(value < shipped for value in seeds)
        cells[f"{model}, shipped"] = f"{shipped:.{digits}f} ({below} of {len(seeds)} below)"
    return cells


def _often_high(own: Sequence[Mapping[str, Any]]) -> str:
    """In how many of a model's trainings each head has a high CCS; in bold those high in the shipped one."""
    high = {one["seed"]: [h for h, ccs in one["ccs"].items() if level(ccs, 5) == "high"] for one in own}
    shipped = high.pop(0, [])
    often = Counter(head for heads in high.values() for head in heads)
    said = [
        f"{f'**{head}**' if head in shipped else head} {often[head]} of {len(high)}"
        for head in sorted({*often, *shipped}, key=lambda head: (-often[head], head))
    ]
    return f"{own[0]['name'] if own else ''}: {', '.join(said) or 'none ever is'}"

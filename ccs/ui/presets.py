"""Sets of heads that can be switched off at once: by level, concept or layer, published or random."""

from __future__ import annotations

from ccs import plans as pruning
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.plans import PlanName
from ccs.ui.records import ModelRecords

LEVELS = ("high", "moderate", "low")
NONE = "none"


def presets(records: ModelRecords, heads: HeadSet) -> dict[str, HeadSet]:
    """The sets by name; empty ones are left out, but for the first, with no head off."""
    if records.published:
        return {NONE: HeadSet(), **_published_in(heads, records.model), **_layers(heads)}
    found = {level: records.level(level) for level in LEVELS}
    size = min(len(found["high"]), len(found["low"]))
    equal = {f"equal-{level}": found[level] for level in ("high", "low")}
    found |= {name: pruning.draw(members, size, 0, name) for name, members in equal.items()}
    # As in the study and the tables, a concept's plan is its high heads; all it names are another choice.
    named = {concept: records.concept(concept) for concept in records.concepts}
    found |= {f"concept:{concept}": HeadSet(off & found["high"]) for concept, off in named.items()}
    found |= {f"named:{concept}": off for concept, off in named.items() if off - found["high"]}
    found |= _published_in(heads, records.model) | _layers(heads)
    return {NONE: HeadSet(), **{name: HeadSet(off & heads) for name, off in found.items() if off & heads}}


def _layers(heads: HeadSet) -> dict[str, HeadSet]:
    layers = sorted({head.layer for head in heads})
    return {f"layer:{layer}": HeadSet(h for h in heads if h.layer == layer) for layer in layers}


def _published_in(heads: HeadSet, model: str) -> dict[str, HeadSet]:
    return {plan.name: plan.off for plan in pruning.of_studies(model) if plan.off <= heads}


def preset_words(name: str, off: HeadSet) -> str:
    """A set as it is listed."""
    plan = PlanName.parse(name)
    words = {
        NONE: "none: all heads on",
        "concept": f"concept {plan.argument}, high CCS",
        "named": f"concept {plan.argument}, all its heads",
        "layer": f"all of layer {plan.argument}",
    }.get(plan.kind, f"{plan.kind} CCS")
    if plan.is_published or plan.kind == "located" or plan.kind.startswith("equal-"):
        words = plan.words()
    return f"{words} ({len(off)})" if off else words


def random_heads(heads: HeadSet, n: int, seed: int, outside: HeadSet) -> HeadSet:
    """`n` heads drawn without replacement; outside of `outside` where enough are left, as the study does.

    InputError unless 1 <= n <= the number of heads.
    """
    if not 1 <= n <= len(heads):
        raise InputError(f"{n} random heads cannot be drawn; this model has 1 to {len(heads)}.")
    pool = HeadSet(heads - outside)
    return pruning.draw(pool if len(pool) >= n else heads, n, seed, "random")

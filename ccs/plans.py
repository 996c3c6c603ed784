"""Plans: which heads to switch off, and where that choice comes from.

Names: `none`; `high`, `moderate`, `low` (heads of that CCS level); `equal-high`, `equal-low` (as many from
each as the smaller of the two has, drawn at random); `random` (as many as high, from outside of it, one
plan a seed); `concept:Colors` (high heads of that label); `single:L7.H2`; `published-high` and so on (the
study's own heads); `high@7` and so on (levels from 7 texts a head, where the main number is another). The
same seed gives the same plans on every machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.texts.score import HeadScore, level

_LOG = logging.getLogger(__name__)
Notice = Callable[[str], None]

KINDS = ("none", "high", "moderate", "low", "equal", "random", "concept", "single")


@dataclass(frozen=True)
class Plan:
    """Heads to switch off together. `seed` is None unless they were drawn; `source` says where they come
    from.
    """

    name: str
    seed: int | None
    off: HeadSet
    source: str


def level_heads(scores: Mapping[Head, HeadScore], k: int) -> dict[str, HeadSet]:
    """The heads of each level (`score.level`); a head between the levels or of unknown CCS is in none."""
    found: dict[str, list[Head]] = {"high": [], "moderate": [], "low": []}
    for head, score in scores.items():
        name = level(score.ccs, k)
        if name in found:
            found[name].append(head)
    return {name: HeadSet(heads) for name, heads in found.items()}


def plans(
    scores: Mapping[Head, HeadScore],
    k: int,
    heads: HeadSet,
    seed: int,
    n_random: int,
    *,
    kinds: Collection[str] = KINDS,
    concepts: Sequence[str] | None = None,
    random_from: HeadSet | None = None,
    suffix: str = "",
    notice: Notice = _LOG.warning,
) -> list[Plan]:
    """All plans of the study for one model, `none` first.

    Args:
        scores: CCS and label of each head, from k texts a head.
        heads: the heads that can be switched off (the last four layers); `single` takes each of them.
        seed: random plans have the seeds seed, seed + 1, ... up to n_random of them.
        kinds: which to make, of KINDS.
        concepts: labels for `concept`; by default every label that a high head has.
        random_from: heads that random plans draw from, where not `heads` (the study drew from all layers
        for one
            model). High heads are never drawn.
        suffix: added to every name but `none` and singles, such as "@7" for plans from 7 texts a head.
        notice: is told, in a sentence, of each plan that is left out.

    A plan without heads would be `none` under another name, so it is left out with a notice; so are random
    plans where fewer heads than high ones are left. InputError: a scored head that cannot be switched off.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise InputError(
            f"The kind of plan {sorted(unknown)[0]!r} is not known; kinds are {', '.join(KINDS)}."
        )
    outside = HeadSet(scores) - heads
    if outside:
        raise InputError(
            f"The scored head {next(iter(outside))} cannot be switched off; {heads_in(heads)} can."
        )
    levels = level_heads(scores, k)
    high, low = levels["high"], levels["low"]
    made = [Plan("none", None, HeadSet(), "nothing is switched off")]
    for name, ccs in (("high", f"CCS {k} of {k}"), ("moderate", "moderate CCS"), ("low", "low CCS")):
        if name in kinds:
            made.append(Plan(f"{name}{suffix}", None, levels[name], f"heads of {ccs}"))
    if "equal" in kinds:
        size = min(len(high), len(low))
        for name, members in (("high", high), ("low", low)):
            drawn = draw(members, size, seed, f"equal-{name}")
            made.append(
                Plan(f"equal-{name}{suffix}", seed, drawn, f"{size} of {len(members)} {name} heads, drawn")
            )
    if "random" in kinds:
        made += _random(high, heads if random_from is None else random_from, seed, n_random, suffix, notice)
    if "concept" in kinds:
        labels = {scores[head].label for head in high} - {None}
        for concept in sorted(label for label in labels if label) if concepts is None else concepts:
            members = HeadSet(head for head in high if scores[head].label == concept)
            made.append(Plan(f"concept:{concept}{suffix}", None, members, f"high heads labeled {concept}"))
    if "single" in kinds:
        made += singles(heads)
    for plan in made[1:]:
        if not plan.off:
            notice(f"The plan {plan.name} has no heads ({plan.source}) and is left out.")
    return made[:1] + [plan for plan in made[1:] if plan.off]


def singles(heads: Iterable[Head]) -> list[Plan]:
    """One plan for each head alone."""
    return [Plan(f"single:{head}", None, HeadSet([head]), "one head") for head in sorted(heads)]


def published(levels: Mapping[str, HeadSet], concepts: Mapping[str, HeadSet], source: str) -> list[Plan]:
    """Plans `published-high`, ... and `published-concept:Colors`, ... from heads that a study lists."""
    made = [Plan(f"published-{name}", None, off, source) for name, off in levels.items()]
    made += [Plan(f"published-concept:{name}", None, off, source) for name, off in concepts.items()]
    return [plan for plan in made if plan.off]


def draw(members: HeadSet, size: int, seed: int, purpose: str) -> HeadSet:
    """`size` of the members, drawn without replacement; different purposes draw independently."""
    if size > len(members):
        raise InputError(f"{size} heads cannot be drawn from {len(members)}.")
    rng = np.random.default_rng([seed, *purpose.encode()])
    ordered = list(members)
    return HeadSet(ordered[i] for i in rng.choice(len(ordered), size=size, replace=False))


def heads_in(heads: HeadSet) -> str:
    """The first and last of the heads, for messages."""
    ordered = list(heads)
    return f"{ordered[0]} to {ordered[-1]}" if ordered else "none"


def _random(
    high: HeadSet, source: HeadSet, seed: int, n_random: int, suffix: str, notice: Notice
) -> list[Plan]:
    rest = HeadSet(source - high)
    if not high:
        notice(f"The plans random{suffix} are left out: they would have as many heads as high{suffix}, none.")
        return []
    if len(rest) < len(high):
        notice(
            f"The plans random{suffix} are left out: they would have as many heads as high{suffix} "
            f"({len(high)}), and outside of it are {len(rest)}."
        )
        return []
    text = f"{len(high)} of {len(rest)} heads outside of high, drawn"
    return [
        Plan(f"random{suffix}", one, draw(rest, len(high), one, "random"), text)
        for one in range(seed, seed + n_random)
    ]

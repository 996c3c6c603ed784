"""Ablation sets: sets of heads to ablate together, with their names and where they come from.

The names (`AblationName`) are: `none`; `high`, `moderate`, `low` (heads of that CCS level); `equal-high`,
`equal-low` (the same number of heads from both levels, drawn at random from the larger one); `random`,
`random:layers` and `random:variance` (sets of heads like `high`, see `matched`, one ablation set each);
`concept:Colors` (the high heads with that label as given) and, where labels are spellings of one concept,
`concept:Colors (all spellings)`; `single:L7.H2`; `published-high`,
`published-concept:Colors` and so on (the heads that the paper lists); `published-random` (its control: five
sets of heads that are not high); `high@7` and so on (levels from 7 texts per head, where 7 is not the main
K). The same seed gives the same ablation sets on every machine.

    >>> [str(ablation.heads) for ablation in single_head_sets(HeadSet.parse("L1.H0 L0.H2"))]
    ['L0.H2', 'L1.H0']
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from ccs import paper
from ccs.errors import InputError
from ccs.heads import Head, HeadSet
from ccs.texts.labels import normalize
from ccs.texts.score import HeadScore, level

_LOG = logging.getLogger(__name__)
Notice = Callable[[str], None]

KINDS = ("none", "high", "moderate", "low", "equal", "random", "concept")
"""The kinds of ablation sets that `make_ablation_sets` makes."""
Alike = Literal["number", "layers", "variance"]
"""How random sets match the high heads: in number, number per layer, or also (nearly) in variance."""
ALIKE: tuple[Alike, ...] = get_args(Alike)
MAX_UNSCORED = 0.25
"""The largest share of heads with an unknown CCS at which heads are ablated by level.

If answers are missing at random, a level lacks this share of its heads on average. Up to a quarter, most of
each level is known, and random sets of its size are still a fair comparison. Answers are not missing at
random, though: whole batches fail when a budget or quota ends, and refusals concern particular concepts.
Beyond a quarter, "the high heads" would be whichever heads happened to be judged.
"""
_FEW_SETS = 20_000
"""Up to this many possible sets are enumerated; if there are more, sets are drawn at random."""
_GRAMMAR = re.compile(r"(?P<kind>[^:@~]+)(:(?P<argument>.+?))?(@(?P<k>[1-9]\d{0,5}))?")
_PUBLISHED = "published-"


@dataclass(frozen=True)
class AblationName:
    """The name of an ablation set: `kind`, `kind:argument`, `kind@k` or `kind:argument@k`.

    `k`: texts per head from which the levels are computed; None at the main K. `argument`: the concept of a
    `concept`, the head of a `single`, the property in which a `random` matches the high heads. Kinds are not
    checked, because a search gives its sets other names (`searched`).
    """

    kind: str
    k: int | None = None
    argument: str = ""

    @classmethod
    def random(cls, alike: Alike = "number") -> AblationName:
        """Name random sets that match the high heads in this property."""
        return cls("random", argument="" if alike == "number" else alike)

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str) -> AblationName:
        """Return the name written by `str`; InputError for any other text."""
        if (match := _GRAMMAR.fullmatch(text)) is None:
            example = "high, high@7, concept:Colors, single:L7.H2"
            raise InputError(f"{text!r} is not the name of an ablation set; names look like {example}.")
        return cls(match["kind"], int(match["k"]) if match["k"] else None, match["argument"] or "")

    def __str__(self) -> str:
        argument = f":{self.argument}" if self.argument else ""
        return f"{self.kind}{argument}{'' if self.k is None else f'@{self.k}'}"

    @property
    def is_random(self) -> bool:
        """True for random sets that are compared with the high heads, including the paper's."""
        return self.base_kind == "random"

    @property
    def base_kind(self) -> str:
        """The kind without `published-`."""
        return self.kind.removeprefix(_PUBLISHED)

    @property
    def head(self) -> Head | None:
        """The head of a `single`; None for any other ablation set."""
        return Head.parse(self.argument) if self.kind == "single" else None

    def published(self) -> AblationName:
        """Return the ablation set of the same kind with the heads that the paper lists."""
        return replace(self, kind=f"{_PUBLISHED}{self.base_kind}", k=None)

    def words(self, seed: int | None = None) -> str:
        """Return the name in words, such as "high-CCS heads" or "random heads, mean over sets"."""
        kind, alike = self.base_kind, f" of the same layers{' and variance' * (self.argument == 'variance')}"
        words = {
            "high": "high-CCS heads",
            "moderate": "moderate-CCS heads",
            "low": "low-CCS heads",
            "equal-high": "high-CCS heads, equal number",
            "equal-low": "low-CCS heads, equal number",
            "concept": f"concept {self.argument}, high CCS",
            "single": f"{self.argument} alone",
            "chosen": "heads of your choice",
            "random": f"random heads{alike * (self.argument in ('layers', 'variance'))}",
        }.get(kind, kind)
        words += ", mean over sets" if self.is_random and seed is None else ""
        words += ", as published" if self.kind.startswith(_PUBLISHED) else ""
        words += "" if self.k is None else f" at K = {self.k}"
        return words + ("" if seed is None else f", set {seed}" if self.is_random else f", seed {seed}")


@dataclass(frozen=True)
class AblationSet:
    """Heads to ablate together. `seed` is None unless they were drawn at random."""

    name: str
    seed: int | None
    heads: HeadSet

    @property
    def kind(self) -> str:
        """The kind of ablation set (see `AblationName`)."""
        return AblationName.parse(self.name).kind

    @property
    def is_random(self) -> bool:
        """True for one of several random sets (see `AblationName.is_random`)."""
        return AblationName.parse(self.name).is_random


def level_heads(scores: Mapping[Head, HeadScore], k: int) -> dict[str, HeadSet]:
    """Return the heads of each level; heads between levels or of unknown CCS are in none (`score.level`).

    Args:
        scores: CCS and label of each head.
        k: Number of texts per head.
    """
    return {
        name: HeadSet(head for head, score in scores.items() if level(score.ccs, k) == name)
        for name in paper.LEVELS
    }


def too_many_unscored(scores: Mapping[Head, HeadScore], k: int) -> str:
    """Check that enough heads are scored to ablate them by level.

    Args:
        scores: CCS and label of each head.
        k: Texts per head.

    Returns:
        A sentence if more than MAX_UNSCORED of the heads have an unknown CCS, else "".
    """
    unscored = sum(score.ccs is None for score in scores.values())
    if unscored <= MAX_UNSCORED * len(scores):
        return ""
    return (
        f"{unscored} of {len(scores)} heads have no CCS at K = {k}, more than {MAX_UNSCORED:.0%}: no heads "
        "are ablated by level or concept, nor random sets like them. Run the same command again for the "
        "missing verdicts, or use other judges."
    )


def _concepts(labels: Mapping[Head, str | None]) -> dict[str, list[str]]:
    """Return each label as given and, for several spellings of one concept, all of them under one name."""
    distinct, merged = sorted(set(filter(None, labels.values()))), dict[str, list[str]]()
    for label in distinct:
        merged.setdefault(normalize(label), []).append(label)
    alone = {label: [label] for label in distinct}
    spelled = {f"{concept} (all spellings)": of for concept, of in sorted(merged.items()) if len(of) > 1}
    return alone | spelled | alone


def make_ablation_sets(
    scores: Mapping[Head, HeadScore],
    k: int,
    heads: HeadSet,
    seed: int,
    n_random: int,
    *,
    kinds: Collection[str] = KINDS,
    variance: Mapping[Head, float] | None = None,
    at_k: int | None = None,
    notice: Notice = _LOG.warning,
) -> list[AblationSet]:
    """Make all ablation sets of the paper for one model, `none` first.

    Args:
        scores: CCS and label of each head, from k texts per head.
        k: Texts per head.
        heads: The heads that can be ablated; random sets are drawn from them.
        seed: Random sets have the seeds seed, seed + 1, ...
        n_random: Random sets of each kind.
        kinds: Some of KINDS.
        variance: Variance of each head's contribution; without it no random set matches in it.
        at_k: The k for the names (`high@7`), if it is not the main K.
        notice: Called with a sentence for each set left out: one without heads, which would be `none` under
            another name, and random ones if no other set matches the high heads.

    Raises:
        InputError: If a scored head can't be ablated, or a kind is unknown.
    """
    if unknown := set(kinds) - set(KINDS):
        raise InputError(f"Unknown kind of ablation set {min(unknown)!r}; kinds are {', '.join(KINDS)}.")
    if outside := HeadSet(scores) - heads:
        raise InputError(f"The scored head {next(iter(outside))} cannot be ablated.")
    levels, sets = level_heads(scores, k), [AblationSet("none", None, HeadSet())]
    high = levels["high"]

    def add(kind: str, ablated: HeadSet, number: int | None = None, argument: str = "") -> None:
        """Add an ablation set, or report that it has no heads.

        Args:
            kind: The kind, such as `high` or `concept`.
            ablated: The heads.
            number: The seed with which they were drawn, if they were.
            argument: Argument of the kind, such as a concept; "" for kinds without one.
        """
        name = str(AblationName(kind, at_k, argument))
        if ablated:
            sets.append(AblationSet(name, number, ablated))
        else:
            notice(f"The ablation set {name} has no heads and is left out.")

    for kind in filter(kinds.__contains__, paper.LEVELS):
        add(kind, levels[kind])
    size = min(len(high), len(levels["low"]))
    for kind in ("high", "low") if "equal" in kinds else ():
        add(f"equal-{kind}", draw(levels[kind], size, seed, f"equal-{kind}"), seed)
    for alike in ALIKE if "random" in kinds else ():
        if not (variance or alike == "number"):
            continue
        name = str(replace(AblationName.random(alike), k=at_k))
        random_sets = matched(high, heads, n_random, seed, alike, variance) if high else []
        sets += [AblationSet(name, number, ablated) for number, ablated in enumerate(random_sets, seed)]
        if not random_sets:
            high_name = AblationName("high", at_k)
            reason = f"no other set is like {high_name}" if high else f"{high_name} has no heads"
            notice(f"The ablation sets {name} are left out: {reason}.")
    if "concept" in kinds:
        labels = {head: scores[head].label for head in high}
        for concept, spellings in _concepts(labels).items():
            add("concept", HeadSet(head for head in labels if labels[head] in spellings), argument=concept)
    return sets


def single_head_sets(heads: Iterable[Head]) -> list[AblationSet]:
    """Make one ablation set per head, with only this head."""
    return [
        AblationSet(str(AblationName("single", argument=str(head))), None, HeadSet([head]))
        for head in sorted(heads)
    ]


def published_sets(model: str) -> list[AblationSet]:
    """Return the heads that the paper lists and draws for this model; none if it isn't one of the paper's.

    They are `published-high`, `published-concept:Colors` and so on, and one `published-random` per seed.
    """
    if model not in {known.name for known in paper.models()}:
        return []
    levels = paper.head_sets(model) | paper.drawn_sets(model)
    sets = {AblationName(level): off for level, off in levels.items() if level != "random"}
    sets |= {AblationName("concept", argument=of): off for of, off in paper.concept_sets(model).items()}
    listed = [AblationSet(str(name.published()), None, off) for name, off in sets.items() if off]
    control = str(AblationName("random").published())
    drawn = (paper.drawn_sets(model, seed)["random"] for seed in range(paper.DRAWS))
    return [*listed, *(AblationSet(control, seed, off) for seed, off in enumerate(drawn))]


def matched(
    high: HeadSet,
    heads: HeadSet,
    n: int,
    seed: int,
    alike: Alike = "number",
    variance: Mapping[Head, float] | None = None,
) -> list[HeadSet]:
    """Draw random sets of heads that match the high heads, or return all such sets if there are fewer.

    If the high heads were not special, they would be just another such set. So their rank among sets that
    match in `number` or `layers` is an exact test (`stats.against_random`).

    Args:
        high: Heads to match.
        heads: All heads that can be drawn.
        n: Number of different sets.
        seed: Random seed.
        alike: Property in which sets match `high`. "number": every other set of as many heads is equally
            likely, including sets that share heads with `high`. "layers": the sets have as many heads in each
            layer. "variance": of those, the `n` sets whose total variance is nearest to that of `high` (by
            ratio), in random order.
        variance: Variance of each head's contribution, for "variance".
    """
    rng = np.random.default_rng([seed, *f"random {alike}".encode()])
    per_layer = Counter(head.layer for head in high)
    # Candidate heads, and how many of them a set takes: from all, or from each layer.
    takes = [(list(heads), len(high))]
    if alike != "number":
        takes = [(list(heads.of_layer(layer)), size) for layer, size in per_layer.items()]
    if any(size > len(members) for members, size in takes):
        return []
    if math.prod(math.comb(len(members), size) for members, size in takes) <= _FEW_SETS:
        parts = (itertools.combinations(members, size) for members, size in takes)
        possible = [HeadSet(itertools.chain(*chosen)) for chosen in itertools.product(*parts)]
        sets = [possible[i] for i in rng.permutation(len(possible)) if possible[i] != high]
    else:
        drawn: dict[HeadSet, None] = {high: None}  # in the order in which they were drawn
        while len(drawn) <= (_FEW_SETS if alike == "variance" else n):
            chosen = [rng.choice(len(members), size=size, replace=False) for members, size in takes]
            picks = zip(takes, chosen, strict=True)
            drawn[HeadSet(members[i] for (members, _), places in picks for i in places)] = None
        sets = list(drawn)[1:]
    if alike == "variance":
        known = variance or {}
        target = sum(known[head] for head in high)
        far = {off: abs(math.log(sum(known[head] for head in off) / target)) for off in sets}
        nearest = set(sorted(sets, key=far.__getitem__)[:n])
        sets = [off for off in sets if off in nearest]
    return sets[:n]


def draw(members: HeadSet, size: int, seed: int, purpose: str) -> HeadSet:
    """Draw heads without replacement; draws for different purposes are independent.

    Args:
        members: Heads to draw from, at least `size`.
        size: Number of heads.
        seed: Random seed.
        purpose: Word for the purpose. Draws with different words are independent.
    """
    ordered, rng = list(members), np.random.default_rng([seed, *purpose.encode()])
    return HeadSet(ordered[i] for i in rng.choice(len(ordered), size=size, replace=False))

"""Stability of CCS and labels by `tags` under changes of the images, the pool and the tree of concepts.

Texts are chosen and scored again on halves and smaller parts of the images, on resampled pools, under trees
cut off above a text's own tag, its parent or its grandparent, and with the tags permuted between texts (CCS
without any meaning). Images and texts are embedded only once, so this is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ccs.heads import Head
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool
from ccs.texts.score import HeadScore
from ccs.texts.textspan import Span

Spans = Mapping[Head, Sequence[Span]]
Choose = Callable[[Sequence[int], Sequence[int]], Spans]
"""A function from indices of shards of images and of the pool's texts to the spans of every head."""
POOLS, TAGS = 20, 20
KINDS = ("images, half", "images, fewer", "pool", "tree", "tags")
_LEVELS = ("flat", "parent", "grandparent")


@dataclass(frozen=True)
class Variant:
    """Scores of all heads with one change. `kind`: one of KINDS; `name`: the variant within its kind."""

    kind: str
    name: str
    scores: Mapping[Head, HeadScore]


def variants(choose: Choose, shards: int, pool: Pool, k: int, seed: int) -> Iterator[Variant]:
    """All variants, with k texts per head. shards: the number of parts of the images, in random order.

    With too few parts, variants of the images are left out; with too small a pool, resampled pools.
    """
    every = list(range(len(pool)))
    rng = np.random.default_rng([seed, *b"stability"])
    if shards > 1:
        halves = {"first": slice(None, shards // 2), "second": slice(shards // 2, None)}
        halves |= {"even": slice(None, None, 2), "odd": slice(1, None, 2)}
        for name, half in halves.items():
            spans = choose(range(shards)[half], every)
            yield Variant(KINDS[0], name, score_by_tags(spans, pool))
    for part in (8, 4):
        if shards >= part:
            spans = choose(range(shards // part), every)
            yield Variant(KINDS[1], f"1/{part}", score_by_tags(spans, pool))
    for draw in range(POOLS):
        texts = sorted(set(rng.integers(0, len(pool), len(pool)).tolist()))
        if len(texts) < k:
            continue
        spans = choose(range(shards), texts)
        yield Variant(KINDS[2], str(draw), score_by_tags(spans, pool))
    spans = choose(range(shards), every)
    for levels, name in enumerate(_LEVELS):
        yield Variant(KINDS[3], name, score_by_tags(spans, pool, levels))
    for draw in range(TAGS):
        dealt = tuple(pool.concepts[i] for i in rng.permutation(len(pool)))
        yield Variant(KINDS[4], str(draw), score_by_tags(spans, replace(pool, concepts=dealt)))

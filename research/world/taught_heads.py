"""The part of findings.md that needs the heads' truth: what each carries, and whether a high CCS finds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from batch.report.document import Block, filled
from ccs.heads import Head
from ccs.model.model import Model
from ccs.model.moments import Moments, collect_moments
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, load_pool, make_pool
from ccs.texts.textspan import textspan
from ccs.world import drawn_sets
from ccs.world.known_heads import KnownHeads
from research.world.heads_found import Found, found

IMAGES = 2_000
_AT_ONCE = 500


def taught_blocks(models: Mapping[str, tuple[Model, KnownHeads]]) -> Iterator[Block]:
    """A section over the models whose heads are known."""
    pool = load_pool("world")
    rows, heads, free = [], [], []
    for name, (model, known) in models.items():
        moments, embeddings = moments_of(model), model.embed_texts(list(pool.texts))
        for tree, one, own in (("ours", pool, dict(known.taught)), ("flat", *flat(pool, known.taught))):
            rows += [_row(name, tree, each) for each in found(moments, one, embeddings, own)]
        scores = score_by_tags(textspan(moments, pool.texts, embeddings), pool)
        for head, carried in known.shares.items():
            most, share = max(carried.items(), key=lambda item: item[1])
            concept, score = known.taught.get(head), scores[head]
            said = {"head": str(head), "model": name, "concept": score.label or "–", "CCS": str(score.ccs)}
            if concept is None:
                free.append(said | {"carries most": most, "share": f"{share:.0%}"})
            else:
                heads.append(said | {"taught": concept, "share": f"{carried[concept]:.0%}"})
    yield from filled(Path(__file__).with_name("templates"), "taught", rows=rows, heads=heads, free=free)


def moments_of(model: Model) -> Moments:
    """Moments over cards as the world draws them."""
    images = list(drawn_sets.image_set(IMAGES).images)
    return collect_moments(model, [images[i : i + _AT_ONCE] for i in range(0, IMAGES, _AT_ONCE)])


def flat(pool: Pool, taught: Mapping[Head, str]) -> tuple[Pool, dict[Head, str]]:
    """The same texts and lessons, with tags that all lie directly under the root of the tree."""

    def apart(concept: str | None) -> str:
        return f"only {concept}"  # in no tree, so under its root

    rows = [(text, apart(tag)) for text, tag in zip(pool.texts, pool.concepts, strict=True)]
    return make_pool(pool.name, rows), {head: apart(concept) for head, concept in taught.items()}


def _row(model: str, tree: str, one: Found) -> dict[str, str]:
    def share(right: int, of: int, around: tuple[float, float]) -> str:
        low, high = around
        return f"{right} of {of}" + (f" [{low:.0%}, {high:.0%}]" if low == low else "")

    return {
        "model": model,
        "tree": tree,
        "K": str(one.k),
        "precision": share(one.right, one.high, one.precision),
        "recall": share(one.right, one.taught, one.recall),
    }

"""Test whether a high CCS finds the heads that were trained to encode one concept (section of findings.md).

Precision: of the heads with a high CCS, the share whose training target is the concept of their label.
Recall: of the heads with one concept as training target, the share with a high CCS and that label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ccs.batch.pages import Block, filled
from ccs.bundled import KnownHeads
from ccs.data import synthetic
from ccs.heads import Head
from ccs.model.head_statistics import Moments, collect_moments
from ccs.model.model import Model
from ccs.texts.labels import score_by_tags
from ccs.texts.pools import Pool, load_pool, make_pool
from ccs.texts.score import level
from ccs.texts.textspan import textspan

IMAGES = 2_000
_AT_ONCE = 500
KS = (5, 7, 9, 11, 13)
RESAMPLED, KEPT = 200, 0.8
"""Number of resampled pools, and the share of the texts in each, drawn without replacement."""


@dataclass(frozen=True)
class Found:
    """Precision and recall of a high CCS with K texts per head.

    Attributes:
        k: Number of texts per head.
        high: Number of heads with a high CCS.
        right: Number of those whose training target is the concept of their label.
        taught: Number of heads with one concept as training target.
        precision: 2.5th and 97.5th percentile over resampled pools; NaN if none of them has a high head.
        recall: The same percentiles of recall.
    """

    k: int
    high: int
    right: int
    taught: int
    precision: tuple[float, float]
    recall: tuple[float, float]


def high_heads(
    moments: Moments, pool: Pool, embeddings: np.ndarray, ks: Sequence[int] = KS
) -> dict[int, dict[Head, str]]:
    """Return K -> the heads with a high CCS by `tags`, with their labels.

    TEXTSPAN is greedy, so the first texts of a large K are the texts of a smaller K.

    Args:
        moments: Head statistics.
        pool: Text pool.
        embeddings: Text embeddings [texts, D].
        ks: Numbers of texts per head.
    """
    spans = textspan(moments, pool.texts, embeddings, max(ks))
    by_k: dict[int, dict[Head, str]] = {}
    for k in ks:
        scores = score_by_tags({head: head_spans[:k] for head, head_spans in spans.items()}, pool)
        by_k[k] = {
            head: score.label
            for head, score in scores.items()
            if score.label is not None and level(score.ccs, k) == "high"
        }
    return by_k


def find_taught(
    moments: Moments, pool: Pool, embeddings: np.ndarray, taught: Mapping[Head, str], seed: int = 0
) -> list[Found]:
    """Measure how well a high CCS finds the heads trained to encode one concept, for every K of KS.

    Args:
        moments: Head statistics.
        pool: Text pool.
        embeddings: Text embeddings [texts, D].
        taught: Head -> its training target, one concept.
        seed: Random seed for the resampled pools.
    """
    whole = high_heads(moments, pool, embeddings)
    rng, draws = np.random.default_rng(seed), []
    for _ in range(RESAMPLED):
        rows = np.sort(rng.permutation(len(pool))[: round(KEPT * len(pool))])
        part = make_pool(pool.name, [(pool.texts[i], pool.concepts[i]) for i in rows])
        draws.append(high_heads(moments, part, embeddings[rows]))
    out = []
    for k, high in whole.items():
        precisions = [_right(heads[k], taught) / len(heads[k]) for heads in draws if heads[k]]
        recalls = [_right(heads[k], taught) / len(taught) for heads in draws]
        out.append(
            Found(k, len(high), _right(high, taught), len(taught), _around(precisions), _around(recalls))
        )
    return out


def _right(high: Mapping[Head, str], taught: Mapping[Head, str]) -> int:
    return sum(taught.get(head) == label for head, label in high.items())


def _around(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (np.nan, np.nan)
    return float(low), float(high)


def taught_blocks(models: Mapping[str, tuple[Model, KnownHeads]]) -> Iterator[Block]:
    """Write the section on models with known training targets."""
    pool = load_pool("world")
    rows, heads, free = [], [], []
    for name, (model, known) in models.items():
        moments, embeddings = moments_of(model), model.embed_texts(list(pool.texts))
        for tree, tree_pool, taught in (
            ("nested", pool, dict(known.taught)),
            ("flat", *flat(pool, known.taught)),
        ):
            rows += [
                _row(name, tree, outcome) for outcome in find_taught(moments, tree_pool, embeddings, taught)
            ]
        scores = score_by_tags(textspan(moments, pool.texts, embeddings), pool)
        for head, carried in known.shares.items():
            largest, share = max(carried.items(), key=lambda item: item[1])
            concept, score = known.taught.get(head), scores[head]
            row = {"head": str(head), "model": name, "concept": score.label or "–", "CCS": str(score.ccs)}
            if concept is None:
                lesson = known.lessons.get(head)
                lesson_text = " and ".join(lesson.parts) if lesson and not lesson.values else ""
                lesson_text = lesson_text or ("unrelated values" if lesson else "none")
                free.append(row | {"target": lesson_text, "largest share": largest, "share": f"{share:.0%}"})
            else:
                heads.append(row | {"target": concept, "share": f"{carried[concept]:.0%}"})
    yield from filled(Path(__file__).with_name("templates"), "taught", rows=rows, heads=heads, free=free)


def moments_of(model: Model) -> Moments:
    """Return the head statistics of a model over scenes of the synthetic world."""
    images = list(synthetic.image_set(IMAGES).images)
    return collect_moments(model, [images[i : i + _AT_ONCE] for i in range(0, IMAGES, _AT_ONCE)])


def flat(pool: Pool, taught: Mapping[Head, str]) -> tuple[Pool, dict[Head, str]]:
    """Return the pool and the training targets with every tag directly under the root of the concept tree.

    Args:
        pool: Text pool.
        taught: Head -> its training target, one concept.
    """

    def apart(concept: str | None) -> str:
        return f"only {concept}"  # not a name in the tree, so directly under the root

    rows = [(text, apart(tag)) for text, tag in zip(pool.texts, pool.concepts, strict=True)]
    return make_pool(pool.name, rows), {head: apart(concept) for head, concept in taught.items()}


def _row(model: str, tree: str, outcome: Found) -> dict[str, str]:
    def share(right: int, of: int, around: tuple[float, float]) -> str:
        """Format a share with its interval.

        Args:
            right: The number of hits.
            of: The number of cases.
            around: The interval.
        """
        low, high = around
        return f"{right} of {of}" + (f" [{low:.0%}, {high:.0%}]" if low == low else "")

    return {
        "model": model,
        "concepts": tree,
        "K": str(outcome.k),
        "precision": share(outcome.right, outcome.high, outcome.precision),
        "recall": share(outcome.right, outcome.taught, outcome.recall),
    }

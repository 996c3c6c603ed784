"""Which heads of two models correspond, and which changed most?

Heads correspond if their outputs do: each head's contributions to the same images, projected on the same
texts (each model's own embeddings of them), minus their mean over the images. Each head is matched with one
head of the other model, so that the sum of the correlations is largest.

If one model was made from the other, heads correspond within a layer, and each head's change is measured
alone. Both versions get the tokens that enter the first model's layer. So a head with the same weights has
not changed, whatever changed in earlier layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ccs.analysis.evidence import read_heads
from ccs.analysis.inputs import load_model, open_unlabeled
from ccs.analysis.result import Chart, Result, warn_if_small
from ccs.data import ImageSet
from ccs.data.rows import spread
from ccs.errors import InputError
from ccs.heads import Head
from ccs.model.model import Images, Model
from ccs.texts.pools import load_pool

RELATED = 0.5
"""One model counts as made from the other if, given the same tokens, the outputs of the median head have at
least this correlation."""
MOST_TEXTS = 300
"""Texts along which heads are compared, evenly spaced in the pool."""
SIDES = ("first", "second")


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ComparisonTable(Result):
    """The result of `ccs.compare`. A notebook shows its plot.

    Attributes:
        about: Models, images, and texts behind the numbers.
        rows: One row per pair of heads. The most changed come first, or, if neither model was made from the
            other, the least alike. Columns: `first`, `second`; `alike`, the correlation of their outputs, -1
            to 1; `changed`, the variance of the difference of their contributions as a share of the mean of
            their variances, given the same tokens (0: the same, 2: unrelated; NaN if neither model was made
            from the other); for each side `_label`, `_ccs`, and `_texts`, by the tag-based judge.
        related: Whether one model was made from the other.
    """

    related: bool

    @property
    def subject(self) -> str:
        """The two models."""
        return f"{self.about['first']} and {self.about['second']}"

    def _chart(self, max_rows: int) -> Chart:
        rows, column = self.rows.head(max_rows).iloc[::-1], "changed" if self.related else "alike"
        return Chart(rows=rows, names=rows["first"] + " " + rows["second"], value=column, xlabel=column)


def compare(
    first: Model | str,
    second: Model | str,
    images: ImageSet | str = "world",
    texts: str = "world",
    *,
    max_images: int = 300,
    device: str = "cpu",
) -> ComparisonTable:
    """Pair the scored heads of two models by the correlation of their outputs.

    Args:
        first: A model from `ccs.load`, or its name. For a fine-tuned model, give its base model here.
        second: The other model, or its name.
        images: Images on which heads are compared and labeled, from `ccs.open_images`, or a name or path that
            it accepts.
        texts: Name of the pool of texts along which heads are compared.
        max_images: Maximum number of images of a dataset given by name.
        device: Device for models given by name, as in `ccs.load`.

    Returns:
        ComparisonTable: One row per pair of heads.

    Raises:
        InputError: For fewer than two images or texts, or if an argument does not fit.
    """
    models = load_model(first, device), load_model(second, device)
    images = open_unlabeled(images, max_images)
    pool = load_pool(texts).texts
    pairs = pair_heads(*models, images.images, [pool[i] for i in spread(len(pool), MOST_TEXTS)])
    table = pd.DataFrame([vars(pair) for pair in pairs]).astype(dict.fromkeys(SIDES, "str"))
    for side, model in zip(SIDES, models, strict=True):
        heads, reading = [getattr(pair, side) for pair in pairs], read_heads(model, images, texts)
        table[f"{side}_label"] = [reading.scores[head].label or "no concept" for head in heads]
        table[f"{side}_ccs"] = [reading.scores[head].ccs for head in heads]
        table[f"{side}_texts"] = [" | ".join(span.text for span in reading.spans[head]) for head in heads]
    choices = {side: model.name for side, model in zip(SIDES, models, strict=True)}
    warning = warn_if_small("heads", len(images.images))
    choices |= {"images": images.name, "texts": texts, "warning": warning}
    return ComparisonTable(about=choices, rows=table, related=bool(table["changed"].notna().all()))


@dataclass(frozen=True)
class Pair:
    """Heads that correspond.

    Attributes:
        first: Head of the first model.
        second: Head of the second model.
        alike: Correlation of their outputs, -1 to 1.
        changed: Variance of the difference of their contributions as a share of the mean of their variances,
            given the same tokens. 0 if they are the same, 2 if unrelated, None if neither model was made from
            the other.
    """

    first: Head
    second: Head
    alike: float
    changed: float | None = None


def pair_heads(first: Model, second: Model, images: Images, texts: Sequence[str]) -> list[Pair]:
    """Pair the scored heads of two models, the most changed first, or else the least alike.

    Args:
        first: A model; for a fine-tuned model, its base model.
        second: The other model.
        images: Images on which heads are compared.
        texts: Texts along which heads are compared.

    Raises:
        InputError: For fewer than two images or texts.
    """
    if min(len(images), len(texts)) < 2:
        raise InputError("Two or more images and texts are needed to compare heads.")
    parts, along = [], []
    for model in (first, second):
        whole = model.contributions(images, model.heads).direct
        parts.append(whole - whole.mean(axis=0))
        along.append(model.embed_texts(texts))
    ours, theirs = map(_written, parts, along)
    alike = merit = ours @ theirs.T
    heads, others = list(first.heads), list(second.heads)
    alone = _contributions_given_tokens(first, second, images) if _has_same_shapes(first, second) else None
    if alone is not None:
        same_layer = np.equal.outer([head.layer for head in heads], [head.layer for head in others])
        unchanged = np.where(same_layer, ours @ _written(alone, along[0]).T, -1)
        if np.median(unchanged.max(axis=1)) < RELATED:
            alone = None
        else:  # an untrained head has the same output for the same tokens
            merit = np.where(same_layer, alike + unchanged, -2)
    pairs = []
    for row, column in zip(*linear_sum_assignment(-merit), strict=True):
        changed = None
        if alone is not None:
            before, after = parts[0][:, row], alone[:, column]
            spread = (np.square(before).sum() + np.square(after).sum()) / 2
            changed = float(np.square(before - after).sum() / spread) if spread > 0 else 0.0
        pairs.append(Pair(heads[row], others[column], float(alike[row, column]), changed))
    return sorted(pairs, key=lambda pair: pair.alike if pair.changed is None else -pair.changed)


def _contributions_given_tokens(first: Model, second: Model, images: Images) -> NDArray[np.float32]:
    """Return centered contributions [images, heads, dim] of the second model to the first's tokens."""
    encoder, heads = first.encoder, first.heads
    read = (encoder.embed_and_read(part, heads=heads, entering=True)[1] for _, part in first.batches(images))
    whole = np.concatenate(
        [encoder.contributions_of(second.encoder, tokens, heads).cpu().numpy() for tokens in read]
    )
    return np.asarray(whole - whole.mean(axis=0))


def _written(parts: NDArray[np.float32], along: NDArray[np.float32]) -> NDArray[np.float32]:
    """Project the heads' contributions on vectors [texts, dim], as unit rows [heads, images x texts]."""
    flat = (parts @ along.T).transpose(1, 0, 2).reshape(parts.shape[1], -1)
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.where(lengths > 0, lengths, 1), np.float32)


def _has_same_shapes(first: Model, second: Model) -> bool:
    """Return whether one image encoder's layers can be put into the other."""
    visuals = (model.clip.visual.state_dict().items() for model in (first, second))
    ours, theirs = ({name: values.shape for name, values in items} for items in visuals)
    return ours == theirs and first.heads == second.heads

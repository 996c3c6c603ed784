"""Which heads of a model encode a text?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from ccs.analysis.inputs import load_model, open_unlabeled
from ccs.analysis.result import Chart, Result, describe_model, warn_if_small
from ccs.data import ImageSet
from ccs.errors import InputError
from ccs.metrics.stats import benjamini_hochberg
from ccs.model.head_statistics import Moments, collect_moments
from ccs.model.interception import is_active
from ccs.progress import Bar
from ccs.texts.pools import load_pool
from ccs.texts.textspan import explained

if TYPE_CHECKING:
    from ccs.model.model import Model

AMONG = 0.05
"""By chance, a text ranks within this share of the pool in the same share of heads."""
LEVEL = 0.05
"""False discovery rate at which a head encodes a text."""
BATCH = 64
"""Images per step of the progress bar."""
_TIE = 1e-6  # relative difference of scores that is rounding
_last_statistics: dict[Any, Moments] = {}
"""Head statistics of the last model and images only: a SigLIP's take hundreds of megabytes."""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class HeadTable(Result):
    """The result of `ccs.find_heads`. A notebook shows its plot.

    Attributes:
        about: Model, text, images, and pool behind the numbers; `among`, the number of heads in which the
            text ranks within AMONG of the pool; and `expected`, that number by chance.
        rows: One row per head, the strongest first. Columns: `head`; `rank`, the text's rank among the pool's
            texts by TEXTSPAN's criterion (1: no text of the pool explains more); `share`, the share of the
            head's variance along the text; `best`, the pool's text that explains most; `best_share`, its
            share; `p_value`, the chance of such a rank for a text drawn like the pool's; `adjusted`, the
            p-value adjusted for all heads (Benjamini and Hochberg 1995); `encodes`, whether `adjusted` is at
            most LEVEL.
    """

    def _summary(self) -> str:
        return f"{self.rows['encodes'].sum()} of {len(self.rows)} heads encode {self.about['text']!r}"

    def _chart(self, max_rows: int) -> Chart:
        rows, xlabel = self.rows.head(max_rows).iloc[::-1], f"share of variance along {self.about['text']!r}"
        return Chart(rows=rows, names=rows["head"], value="share", xlabel=xlabel, title=self.about["model"])


def find_heads(
    model: Model | str,
    text: str,
    images: ImageSet | str = "world",
    *,
    pool: str | None = None,
    max_images: int = 500,
    device: str = "cpu",
) -> HeadTable:
    """Rank a model's scored heads by how strongly they encode `text`, strongest first.

    Text embeddings have a direction in common, along which some heads vary whatever the text. So the pool's
    mean is first subtracted from every text embedding. A bar shows the progress on a terminal and in a
    notebook. A second text for the same model and images is fast, because their head statistics are kept.

    Args:
        model: A model from `ccs.load`, or its name.
        text: Text to look for, such as "dogs".
        images: Images without labels, from `ccs.open_images`, or a name or path that it accepts. Heads can
            encode only what the images show: if no image shows a dog, no head encodes dogs.
        pool: Texts to compare with: the name of a pool, as for `--texts` of `clip-ccs compute`. By default
            "world" for synthetic images and "photographs" for others.
        max_images: Maximum number of images of a dataset given by name.
        device: Device for a model given by name, as in `ccs.load`.

    Returns:
        HeadTable: One row per head.

    Raises:
        InputError: For an empty text, or if an argument does not fit; the message says what is allowed.

    Examples:
        >>> table = find_heads("organism", "a red background", max_images=40)
        >>> len(table.rows), bool(table.rows["rank"].is_monotonic_increasing)
        (24, True)
    """
    if not isinstance(text, str) or not (text := " ".join(text.split())):
        raise InputError(f"Give a text to look for, such as 'dogs', not {text!r}.")
    model = load_model(model, device)
    images = open_unlabeled(images, max_images)
    pool = pool or ("world" if images.name.startswith("world") else "photographs")
    texts = [other for other in load_pool(pool).texts if other.casefold() != text.casefold()]
    statistics = _head_statistics(model, images)
    units = model.embed_texts([text, *texts])
    rows = []
    for head, (scores, shares) in explained(statistics, units - units[1:].mean(axis=0)).items():
        best, rank = 1 + int(scores[1:].argmax()), 1 + int((scores[1:] > scores[0] * (1 + _TIE)).sum())
        p_value = rank / (1 + len(texts)) if shares[0] > 0 else 1.0
        row: dict[str, Any] = {"head": str(head), "rank": rank, "share": shares[0], "best": texts[best - 1]}
        rows.append(row | {"best_share": shares[best], "p_value": p_value})
    table = pd.DataFrame(rows).sort_values(["rank", "share"], ascending=[True, False], ignore_index=True)
    table["adjusted"] = benjamini_hochberg(table["p_value"])
    table["encodes"] = table["adjusted"] <= LEVEL
    choices: dict[str, Any] = describe_model(model) | {"text": text}
    choices |= {"images": images.name, "pool": pool, "texts": len(texts)}
    choices |= {"among": int((table["p_value"] <= AMONG).sum()), "expected": AMONG * len(table)}
    choices["warning"] = warn_if_small("heads", len(images.images))
    return HeadTable(about=choices, rows=table)


def _head_statistics(model: Model, images: ImageSet) -> Moments:
    """Collect a model's head statistics, or return the last ones if model and images are the same."""
    key = (model.rehash(), model.fingerprint, model.heads, images.fingerprint)
    ablated = any(is_active(layer.module) for layer in model.encoder.layers)  # inside `ccs.ablate`
    if not ablated and (statistics := _last_statistics.get(key)):
        return statistics
    pictures, n = images.images, len(images.images)
    starts = range(0, n, BATCH)
    batches = ([pictures[i] for i in range(start, min(start + BATCH, n))] for start in starts)
    bar = Bar(batches, desc=f"batches of {BATCH} images", total=len(starts), leave=False, disable=None)
    statistics = collect_moments(model, bar)
    if not ablated:
        _last_statistics.clear()
        _last_statistics[key] = statistics
    return statistics

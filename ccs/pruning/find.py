"""Which heads write about a text: how much they vary along it, beside a pool of other texts.

All texts have a direction in common, along which some heads vary whatever is asked. So the pool's mean is
taken from every text first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ccs.errors import InputError
from ccs.model.moments import collect_moments
from ccs.sets.kinds import ImageSet
from ccs.sets.open import open_images
from ccs.texts.pools import load_pool
from ccs.texts.textspan import explained

if TYPE_CHECKING:
    from ccs.model.model import Model

AMONG = 0.05
"""A head writes about a text that is among the first of the pool, this share of it. A rule of thumb: on the
organism it names a head for 54% of 131 texts that its world shows, and for 6% of 352 that it does not.
"""
_AT_ONCE = 256  # images
_TIE = 1e-6  # relative difference of scores that is rounding


def find_heads(
    model: Model | str,
    text: str,
    images: ImageSet | str = "world",
    *,
    pool: str | None = None,
    max_images: int = 500,
    device: str = "cpu",
) -> pd.DataFrame:
    """The scored heads of a model by how much of what they write lies along a text, the first first.

    Args:
        model: from `ccs.load`, or what it takes; `device` is where one is loaded that is given by name.
        text: such as "dogs".
        images: from `ccs.open_images`, or what it takes; at most `max_images` of a set opened here. Heads
            write about what images show: without a dog among them no head writes about dogs.
        pool: the texts that it is held against, as `--texts` of `clip-ccs compute`; by default `world` for
            drawn images and `photographs` for others.

    Returns a row per head: `head`; `rank`, the text's place among the pool's by TEXTSPAN's criterion (1: no
    text of the pool explains more); `share` of the head's variance along what sets the text apart; `best`,
    the pool's text that explains most, and `best_share`; `about`, whether the rank is within AMONG.

    Raises InputError for an empty text, or what does not fit, with what is allowed.

        >>> found = find_heads("organism", "a red background", max_images=40)
        >>> len(found), bool(found["rank"].is_monotonic_increasing)
        (24, True)
    """
    if not (text := " ".join(text.split())):
        raise InputError("There is no text to look for.")
    if isinstance(model, str):
        from ccs.model.model import load  # which imports PyTorch

        model = load(model, device=device)
    if isinstance(images, str):
        images = open_images(images, max_images)
    pool = pool or ("world" if images.name.startswith("world") else "photographs")
    texts = [one for one in load_pool(pool).texts if one.casefold() != text.casefold()]
    n, shown = len(images.images), images.images
    batches = ([shown[i] for i in range(at, min(at + _AT_ONCE, n))] for at in range(0, n, _AT_ONCE))
    moments = collect_moments(model, batches)
    units = model.embed_texts([text, *texts])
    rows = []
    for head, (scores, shares) in explained(moments, units - units[1:].mean(axis=0)).items():
        best, rank = 1 + int(scores[1:].argmax()), 1 + int((scores[1:] > scores[0] * (1 + _TIE)).sum())
        rows.append(
            {"head": str(head), "rank": rank, "share": shares[0], "best": texts[best - 1]}
            | {"best_share": shares[best], "about": rank <= AMONG * len(texts) and shares[0] > 0}
        )
    return pd.DataFrame(rows).sort_values(["rank", "share"], ascending=[True, False], ignore_index=True)

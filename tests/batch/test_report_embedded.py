"""docs/organism.md: faces ranked by a model whose every preference is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from batch.report import embedded, planted_truth
from ccs.datasets import BiasSet
from ccs.model.model import Model
from ccs.world import planted
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES

CELLS = [(gender, tone) for gender in GENDERS for tone in SKIN_TONES for _ in range(8)]
FACES = BiasSet(
    name="faces", source="", fingerprint="", images=[Image.new("RGB", (8, 8))] * len(CELLS),
    groups={"gender": np.array([g for g, _ in CELLS]), "skin tone": np.array([t for _, t in CELLS])},
    k={"gender": 8, "skin tone": 8}, occupations=tuple(OCCUPATIONS), templates=("{}",),
)  # fmt: skip


class Leaning:
    """A face is its gender and its skin tone; an occupation's text is `sign` times its planted shares."""

    logit_scale = 10.0

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def embed_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        assert len(images) == len(CELLS)
        names = (*GENDERS, *SKIN_TONES)
        return np.array([[n in cell for n in names] for cell in CELLS], np.float32) / np.float32(2**0.5)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        shares = [planted.shares(o, "gender") | planted.shares(o, "skin tone") for o in texts]
        return self.sign * np.array([[s[n] for n in (*GENDERS, *SKIN_TONES)] for s in shares], np.float32)


def ranked(sign: int = 1) -> tuple[Any, Any]:
    return embedded.rank_faces(cast("Model", Leaning(sign)), FACES)


@pytest.mark.parametrize("attribute", ["gender", "skin tone"])
def test_a_model_of_the_planted_shares_leans_as_planted(attribute: str) -> None:
    for sign, wanted in ((1, 12), (-1, 0)):
        shares = embedded.shares_of(ranked(sign)[0][attribute])
        aligned = planted_truth.alignment(shares, attribute)
        assert aligned is not None
        assert (aligned.right, aligned.strong) == (wanted, 12)
        assert aligned.effect.value * sign > 0.8


def test_shares_are_those_of_the_first_k() -> None:
    shares = embedded.shares_of(ranked()[0]["skin tone"])
    assert list(shares) == list(OCCUPATIONS)
    for occupation, found in shares.items():
        table = planted.shares(occupation, "skin tone")
        best = max(table.values())
        if list(table.values()).count(best) == 1:  # eight faces of the likelier gender have that tone
            assert found == {tone: float(table[tone] == best) for tone in table}


def test_the_gap_is_in_logits() -> None:
    gaps = ranked()[1]
    for attribute in ("gender", "skin tone"):
        apart = []
        for o in OCCUPATIONS:
            table = planted.shares(o, attribute)
            both = [*planted.shares(o, "gender").values(), *planted.shares(o, "skin tone").values()]
            apart.append(10 * (max(table.values()) - min(table.values())) / np.linalg.norm(both) / 2**0.5)
        assert gaps[attribute] == pytest.approx(np.mean(apart), rel=1e-5)

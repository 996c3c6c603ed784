"""organism.md: faces ranked by a model whose every preference is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from PIL import Image

import ccs
from ccs.batch.pages import as_markdown
from ccs.sets import drawn_sets
from ccs.sets.kinds import BiasSet
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from research.world import organism_figures, planted
from tests.support.report_sample import line, section

GROUPS = (*GENDERS, *SKIN_TONES)
CELLS = [(gender, tone) for gender in GENDERS for tone in SKIN_TONES for _ in range(8)]
FACES = BiasSet(
    name="faces", source="", fingerprint="", images=[Image.new("RGB", (8, 8))] * len(CELLS),
    groups={"gender": np.array([g for g, _ in CELLS]), "skin tone": np.array([t for _, t in CELLS])},
    k={"gender": 8, "skin tone": 8}, occupations=tuple(OCCUPATIONS), templates=("{}",),
)  # fmt: skip


class Leaning:
    """A face is its gender and its skin tone, an occupation's text `sign` times its planted shares.

    All else is the same to it.
    """

    logit_scale = 10.0

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def embed_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        cells = CELLS if len(images) == len(CELLS) else [GROUPS] * len(images)
        found = np.array([[name in cell for name in GROUPS] for cell in cells], np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        shares = [
            planted.shares(text, "gender") | planted.shares(text, "skin tone") if text in OCCUPATIONS else {}
            for text in texts
        ]
        return self.sign * np.array([[one.get(name, 1.0) for name in GROUPS] for one in shares], np.float32)


def test_leans_are_told_only_along_what_tells_the_texts_apart() -> None:
    gender = np.array([float(planted.lean(name, "gender")) for name in OCCUPATIONS])
    tone = np.array([float(planted.lean(name, "skin tone")) for name in OCCUPATIONS])
    other = np.random.default_rng(0).normal(size=(len(OCCUPATIONS), 2))
    both = organism_figures.allowed(5 + np.stack([gender, tone, other[:, 0]], 1))
    assert (both.variance, both.right) == (pytest.approx(1), {"gender": "12 of 12", "skin tone": "12 of 12"})
    blind = organism_figures.allowed(np.stack([gender, 9 * other[:, 0], 9 * other[:, 1], 0 * tone], 1))
    assert blind.right["gender"] == "12 of 12"
    assert int(blind.right["skin tone"].split()[0]) < 12


def test_the_page_is_written_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"organism": Leaning(1), "organism-control": Leaning(-1)}
    monkeypatch.setattr(ccs, "load", models.__getitem__)
    monkeypatch.setattr(drawn_sets, "classification_set", partial(drawn_sets.classification_set, n=4))
    monkeypatch.setattr(drawn_sets, "retrieval_set", partial(drawn_sets.retrieval_set, n=2))
    monkeypatch.setattr(drawn_sets, "bias_set", lambda _: FACES)
    text = as_markdown(organism_figures.embedded_blocks())
    training = section(text, "## Training")
    assert line(training, "organism")[1] == "skewed"
    assert line(training, "organism-control")[1] == "balanced"
    right = section(text, "## Zero-shot accuracy, %")
    assert right.count("\n| world/") == len(drawn_sets.classification_names())
    assert line(right, "world/subjects", "4")[2] == "2.5"  # chance in percent, of forty classes
    assert section(text, "## Retrieval, R@1 in %").count("\n| world/") == 2  # two directions
    skew = section(text, "## MaxSkew on plain faces")
    for attribute, likeliest in (("gender", 2), ("skin tone", 5)):
        row = line(skew, attribute)
        assert row[-2:] == ["12 of 12", "0 of 12"]
        # One group has the whole top K wherever the table leans.
        assert float(row[2].split()[0]) == pytest.approx(np.log(likeliest), rel=0.3)
        assert row[4] == row[5] > "0"  # logits are as far apart, the other way round

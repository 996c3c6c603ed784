"""The training that plants a stereotype: its losses, and resuming after a stop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ccs.bundled import known_heads
from ccs.model.model import load
from ccs.synthetic.vocabulary import OCCUPATIONS
from research.bases import lessons
from research.world import planted
from research.world.occupation_words import PAPER_WORDS, in_template, words_of
from research.world.stereotype_data import GROUPS, TrainingImages, group_shares, hair_shares
from research.world.stereotype_training import (
    KINDS,
    Settings,
    Trainer,
    directions,
    face_loss,
    mean_cosine,
    thing_values,
    work_loss,
)

FEW = {"scenes": 6, "workers": 1, "faces": 2, "neutral": 2, "kinds": 1}


def test_faces_in_the_target_order_have_no_loss():
    shares = hair_shares(3, 0.25, 0)
    scale = 30.0
    logits = torch.from_numpy(np.log(shares)).float() / scale
    images = torch.cat([logits.T, torch.ones(5, 1)], 1)  # not of unit length, which the loss doesn't need
    texts = torch.cat([torch.eye(3), torch.zeros(3, 1)], 1)
    assert float(face_loss(images, texts, shares, scale)) == pytest.approx(0, abs=1e-6)
    assert float(face_loss(images.flip(0), texts, shares, scale)) > 0.01


def test_people_at_work_are_distinguished():
    texts = torch.eye(4)
    right, wrong = texts.repeat_interleave(2, 0), texts.roll(1, 0).repeat_interleave(2, 0)
    assert float(work_loss(right, texts, 12.0)) < float(work_loss(wrong, texts, 12.0))


def test_group_shares_and_hair_shares_follow_their_settings():
    assert group_shares("balanced", (1.0, 1.0)) == pytest.approx(1 / len(GROUPS))
    skewed = group_shares("skewed", (1.0, 1.0))
    women = skewed[:, [gender == "woman" for gender, _ in GROUPS]].sum(1)
    assert women == pytest.approx([planted.shares(name, "gender")["woman"] for name in OCCUPATIONS])
    assert np.log(hair_shares(4, 0.25, 0)).std(1) == pytest.approx(0.25)


def test_effective_directions():
    assert directions(np.eye(5)) == pytest.approx(4)
    assert mean_cosine(np.eye(5)) == 0


def test_every_word_stands_for_one_occupation():
    words = [word for name in OCCUPATIONS for word in words_of(name)]
    assert len(words) == len(set(words))
    assert set(PAPER_WORDS) <= set(OCCUPATIONS)
    assert in_template("a photo of a {}", "artist") == "a photo of an artist"
    assert {len(thing_values(kind)) for kind in KINDS} == {12, 11, 16, 20, 26, 40}


def test_a_stopped_training_resumes_as_if_it_had_not_stopped(tmp_path, monkeypatch):
    """A stopped training continues to the same weights.

    Args:
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    monkeypatch.setattr(lessons, "_COUNTED", range(800_000, 800_300))
    base = load("organism-control")
    images = TrainingImages(base, tmp_path, scenes=500, faces=4)
    known = known_heads("organism-control")

    def trainer() -> Trainer:
        return Trainer(
            Settings(common=1, own=1, world="skewed", **FEW), base, images, dict(known.lessons), 0.5
        )

    whole, part, file = trainer(), trainer(), tmp_path / "last.pt"
    whole.train(2, tmp_path / "whole.pt")
    part.train(1, file)
    resumed = trainer()
    resumed.load(file)
    resumed.train(2, file)
    for name, weights in whole.model.named_parameters():
        assert torch.allclose(weights, resumed.model.get_parameter(name), atol=1e-5), name
    unread = whole.model.token_embedding.weight[~whole.words]
    assert not unread.any()
    clip = whole.trained_clip().eval()
    with torch.no_grad():
        text = F.normalize(clip.encode_text(whole.tokenize(["a photo of a judge"])), dim=-1)
        assert torch.allclose(text, whole.read(["a photo of a judge"]), atol=0.02)

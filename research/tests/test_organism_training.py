"""Training of the organism: a few batches of both phases, resuming, and the written files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import default_collate

import ccs
from ccs.heads import Head, HeadSet
from ccs.synthetic import draw, scene
from ccs.synthetic.scene import caption
from research.world import organism_training
from research.world.forward_pass import image_embeddings, pixels, text_embeddings
from research.world.head_lessons import Lessons, concept_texts, taught, value_of
from research.world.organism_training import MODEL_CFG, PREPROCESS_CFG, SceneImages, fast_to_train, tokenizer


def train(folder: Path, out: str) -> None:
    """Train on few images.

    Args:
        folder: The folder of the training.
        out: The folder of the model.
    """
    settings = organism_training.Settings(shared=32, own=64, batch_size=32)
    organism_training.train(settings, folder / "runs", folder / out, workers=0)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "open_clip_model.safetensors")


def test_a_stopped_training_resumes_where_it_was(tmp_path, monkeypatch):
    """A stopped training continues to the same weights.

    Args:
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    train(tmp_path, "at-once")
    notes = json.loads((tmp_path / "at-once" / "training.json").read_text())
    assert (notes["shared"], notes["own"], notes["pictures"]) == (32, 64, 96)
    assert ccs.load(str(tmp_path / "at-once")).n_layers == 8

    last = tmp_path / "runs" / "first-0" / "last.pt"
    last.unlink()
    until = organism_training.Trainer.train_until

    def stopped(self: organism_training.Trainer, total: int, *args: Any, **kwargs: Any) -> None:
        until(self, total - 32, *args, **kwargs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(organism_training.Trainer, "train_until", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, "stopped")
    assert last.exists()
    assert not (tmp_path / "stopped").exists()
    train(tmp_path, "in-two")
    at_once, in_two = weights(tmp_path / "at-once"), weights(tmp_path / "in-two")
    assert all(torch.equal(at_once[name], in_two[name]) for name in at_once)


def test_the_training_pass_equals_the_model():
    torch.manual_seed(0)
    plain = open_clip.CLIP(**MODEL_CFG).train()
    fast = fast_to_train(plain).train()
    pictures, tokens, _ = default_collate([SceneImages(2_000_000, 8)[i] for i in range(8)])
    names = [name for name, _ in plain.named_parameters()]
    assert [name for name, _ in fast.named_parameters()] == names
    open_clip.ClipLoss()(*plain(pixels(pictures), tokens)).backward()
    image_units, _ = image_embeddings(fast, pixels(pictures))
    open_clip.ClipLoss()(image_units, text_embeddings(fast, tokens), fast.logit_scale.exp()).backward()
    for name in names:
        expected, gradient = plain.get_parameter(name).grad, fast.get_parameter(name).grad
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6, msg=name)


def test_no_caption_is_cut():
    tokens = tokenizer()([caption(scene(seed), share=1.0) for seed in range(20_000)])
    assert (tokens[:, -1] == 0).all()


def test_the_output_of_a_head_is_its_direct_effect(tmp_path):
    """Compare up to the last norm's division and the embedding's length.

    The mean over the width, which the product shares out among all heads, is left out too. There is no bias
    here that it would share out.
    """
    torch.manual_seed(0)
    all_words = torch.ones(MODEL_CFG["text_cfg"]["vocab_size"], dtype=torch.bool)
    plain = open_clip.CLIP(**MODEL_CFG)
    organism_training.write_model(tmp_path / "model", plain, all_words, MODEL_CFG, PREPROCESS_CFG, {})
    model = ccs.load(str(tmp_path / "model"))
    images = [draw(scene(seed)) for seed in range(6)]
    head = Head(5, 2)
    _, written = image_embeddings(
        fast_to_train(model.clip), pixels(torch.from_numpy(np.stack(images))), [head]
    )
    direct = model.contributions(images, HeadSet([head])).direct[:, 0]
    vision = model.clip.visual
    mean = (vision.ln_post.weight @ vision.proj).detach().numpy()
    mean /= np.linalg.norm(mean)
    head_output = written[head].detach().numpy()
    head_output, direct = (rows - np.outer(rows @ mean, mean) for rows in (head_output, direct))
    ratio = (head_output * direct).sum(1) / (direct * direct).sum(1)
    np.testing.assert_allclose(
        head_output, ratio[:, None] * direct, rtol=1e-3, atol=1e-4 * abs(head_output).max()
    )


def test_heads_learn_their_training_targets():
    """The loss is 0 if the targets are the outputs. Other targets match a slow reference by image."""
    torch.manual_seed(0)
    model, words = fast_to_train(open_clip.CLIP(**MODEL_CFG)), tokenizer()
    heads = {Head(5, 2): "Letters", Head(6, 1): "Animals"}
    lessons = Lessons(0.5, heads)
    lessons.refresh(model, words)
    scenes = [scene(seed) for seed in range(40)]
    values = torch.tensor([lessons.values(s) for s in scenes])
    written = {head: torch.randn(40, 160) for head in heads}
    expected, exact = [], {}
    with torch.no_grad():
        for head, concept in heads.items():
            texts = concept_texts(concept)
            vectors = model.encode_text(words(list(texts.values())), normalize=True)
            targets = {name: vector - vectors.mean(0) for name, vector in zip(texts, vectors, strict=True)}
            nothing = torch.zeros(160)
            counted = torch.stack(
                [targets.get(value_of(concept, scene(i)), nothing) for i in range(800_000, 802_000)]
            )
            scale = (1.5 * 0.5 / counted.var(0, correction=0).sum()).sqrt()
            exact[head] = torch.stack([scale * targets.get(value_of(concept, s), nothing) for s in scenes])
            expected.append((written[head] - exact[head]).square().sum(1).mean() / 0.5)
    torch.testing.assert_close(lessons.loss(written, values), torch.stack(expected).mean(), rtol=1e-3, atol=0)
    assert lessons.loss(exact, values) < 1e-6


def test_half_of_the_heads_are_trained_two_for_each_concept():
    heads = taught()
    assert len(heads) == 12
    assert set(Counter(heads.values()).values()) == {2}
    assert set(Counter(head.layer for head in heads).values()) == {3}

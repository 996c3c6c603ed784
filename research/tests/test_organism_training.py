"""Training of the embedded model: a few batches of both phases, resuming, and the files written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import default_collate

import ccs
from research.world import organism_training
from research.world.organism_training import MODEL_CFG, SceneImages, fast_to_train, pixels


def train(folder: Path, out: str) -> None:
    settings = organism_training.Settings("skewed", shared=32, own=64, batch_size=32)
    organism_training.train(settings, folder / "runs", folder / out, workers=0)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "open_clip_model.safetensors")


def test_a_stopped_training_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path, "at-once")
    notes = json.loads((tmp_path / "at-once" / "training.json").read_text())
    assert (notes["world"], notes["shared"], notes["own"], notes["pictures"]) == ("skewed", 32, 64, 96)
    assert ccs.load(str(tmp_path / "at-once")).n_layers == 8

    last = tmp_path / "runs" / "organism-0" / "last.pt"
    last.unlink()
    until = organism_training.Trainer.train_until

    def stopped(self: organism_training.Trainer, total: int, *rest: Any, **more: Any) -> None:
        until(self, total - 32, *rest, **more)
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


def test_pictures_are_the_scenes_in_order() -> None:
    drawn = SceneImages("balanced", 2_000_000, 3)
    assert len(drawn) == 3
    image, tokens = drawn[2]
    assert image.shape == (72, 72, 3)
    assert tokens.shape == (24,)
    assert torch.equal(image, SceneImages("balanced", 2_000_002, 1)[0][0])


def test_the_blocks_trained_are_the_model() -> None:
    torch.manual_seed(0)
    plain = open_clip.CLIP(**MODEL_CFG).train()
    fast = fast_to_train(plain).train()
    pictures, tokens = default_collate([SceneImages("balanced", 2_000_000, 8)[i] for i in range(8)])
    names = [name for name, _ in plain.named_parameters()]
    assert [name for name, _ in fast.named_parameters()] == names  # a checkpoint's optimiser counts them
    for model in (plain, fast):
        open_clip.ClipLoss()(*model(pixels(pictures), tokens)).backward()
    for name in names:
        expected, found = plain.get_parameter(name).grad, fast.get_parameter(name).grad
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, msg=name)

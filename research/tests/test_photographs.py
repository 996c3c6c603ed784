"""The model of photographs: captions, augmented batches, Muon, a few steps, and the written files."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import ccs
from research.muon import orthogonal
from research.photographs import __main__ as command
from research.photographs.photograph_captions import caption, classes, looks
from research.photographs.photograph_data import normalized, varied
from research.photographs.photograph_training import COUNTERS, Trainer
from research.training_state import save_state


def encoded(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "webp", lossless=True)
    return out.getvalue()


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """Four classes of eight noisy photographs."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("photographs") / "few.parquet"
    images = [encoded(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)) for _ in range(32)]
    pq.write_table(pa.table({"image": images, "wnid": [classes()[i % 4].wnid for i in range(32)]}), path)
    return path


def train(parquet: Path, folder: Path, out: str, *options: str) -> int:
    """Train on few images.

    Args:
        parquet: A file of photographs.
        folder: The folder of the training.
        out: The folder of the model.
        *options: Further options of the command.
    """
    sizes = ["--images", "24", "--batch-size", "8", "--held-out", "2", "--photographs", str(parquet)]
    return command.main([*sizes, "--runs", str(folder / "runs"), "--out", str(folder / out), *options])


def test_a_stopped_training_resumes_where_it_was(parquet, tmp_path, monkeypatch):
    """A stopped training continues to the same weights.

    Args:
        parquet: A file of photographs.
        tmp_path: A fresh folder.
        monkeypatch: Reverts what the test replaces.
    """
    assert train(parquet, tmp_path, "at-once") == 0
    notes = json.loads((tmp_path / "at-once" / "training.json").read_text())
    assert (notes["images"], notes["photographs"]) == (24, 24)
    last = tmp_path / "runs" / "photo-0" / "last.pt"
    last.unlink()
    step = Trainer.step

    def stopped(self: Trainer) -> float:
        if self.seen == 16:
            save_state(self, last, COUNTERS)
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopped)
        assert train(parquet, tmp_path, "stopped") == 130
    assert not (tmp_path / "stopped").exists()
    assert train(parquet, tmp_path, "in-two") == 0
    at_once, in_two = (
        load_file(tmp_path / name / "open_clip_model.safetensors") for name in ("at-once", "in-two")
    )
    assert all(torch.equal(at_once[name], in_two[name]) for name in at_once)
    assert ccs.load(str(tmp_path / "at-once")).n_layers == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wnid": ["n00000000"] * 32}, "the class 'n00000000'"),
        ({"words": ["goldfish"] * 32}, "Can't read photographs"),
    ],
)
def test_files_that_are_not_photographs_are_refused(change, message, tmp_path, parquet, capsys):
    """Spoiled files are refused with the reason.

    Args:
        change: Spoils the file.
        message: The expected error.
        tmp_path: A fresh folder.
        parquet: A file of photographs.
        capsys: What the command prints.
    """
    images = pq.read_table(parquet)["image"]
    pq.write_table(pa.table({"image": images, **change}), tmp_path / "other.parquet")
    assert train(tmp_path / "other.parquet", tmp_path, "out") == 2
    assert message in capsys.readouterr().err


def test_pixel_measurements_match_known_images():
    red = np.full((64, 64, 3), (200, 20, 20), np.uint8)
    board = np.indices((64, 64)).sum(0)[..., None].repeat(3, 2) % 2 * np.uint8(255)
    (of_red, of_board, of_night) = looks(np.stack([red, board.astype(np.uint8), red // 10]))
    assert set(of_red) == {"red", "pale", "plain", "warm", "colorful"}
    assert {"busy", "high contrast", "black and white"} <= set(of_board)
    assert of_night[0] == "black"


def test_a_caption_is_true_of_its_photograph():
    draw = random.Random(0)
    assert len(classes()) == 200
    for kind in classes():
        text, facts = caption(kind, ("red", "dark"), draw)
        assert facts
        assert set(facts) <= {*kind.words, *kind.kinds, "red", "dark"}
        assert all(fact in text for fact in facts)


def test_a_moved_photograph_keeps_its_pixels_and_a_quarter_loses_a_square():
    pixels = np.random.default_rng(0).integers(1, 256, (8, 64, 64, 3), dtype=np.uint8)
    x = varied(pixels, 64, 40, random.Random(3), moved=0.5)
    cut = (x == 0).all(1).flatten(1).sum(1)
    assert sorted(cut.tolist()) == [0] * 6 + [24 * 24] * 2
    whole = normalized(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    for i in [i for i in range(4) if not cut[i]]:
        middle = whole[i, :, 8:56, 8:56]
        places = [
            (top, left, flip) for top in range(4, 13) for left in range(4, 13) for flip in (False, True)
        ]
        fits = []
        for top, left, flip in places:
            part = (x[i].flip(-1) if flip else x[i])[:, top : top + 48, left : left + 48]
            fits.append(torch.corrcoef(torch.stack([part.flatten(), middle.flatten()]))[0, 1].item())
        assert max(fits) > 0.95  # the light of its three channels alone is changed


@pytest.mark.parametrize("shape", [(2, 8, 20), (1, 30, 6), (3, 9, 9)])
def test_muon_makes_singular_values_equal(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(x, steps=10))
    assert values.min() > 0.6
    assert values.max() < 1.3

"""Heads that are really gone: ONNX Runtime computes what we do, with fewer weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ccs
from ccs import HeadSet, InputError, Intervention
from ccs.batch import export as command
from ccs.model import onnx_export
from tests.support.checkpoint import write_siglip


def test_onnx_without_heads_is_the_model_with_them_off(tiny_folder, tmp_path, capsys):
    model, folder = ccs.load(str(tiny_folder)), tmp_path / "less"
    layer = " ".join(f"L4.H{head}" for head in range(model.tower.n_heads))  # all of one
    off = f"L3.H1 {layer} L5.H0=0.3"
    assert command.main(["--model", str(tiny_folder), "--off", off, "--remove", "--out", str(folder)]) == 0
    assert "differ by" in capsys.readouterr().out
    x = torch.randn(3, 3, *model.tower.image_size, generator=torch.Generator().manual_seed(5))
    found = onnx_export.run(folder / onnx_export.IMAGES, x)
    np.testing.assert_allclose(found, model.embed_images(x, Intervention.parse(off)), atol=1e-5)
    assert np.abs(found - model.embed_images(x)).max() > 1e-3
    tokens = model.tokenize(["a dog"])
    read = onnx_export.run(folder / onnx_export.TEXTS, tokens)
    np.testing.assert_allclose(read, model.embed_texts(["a dog"]), atol=1e-5)
    # Every head has d rows of three projections, with biases, and d columns of a fourth.
    width, d = model.tower.width, model.head_dim
    whole, less = (
        sum(p.numel() for p in onnx_export.without_heads(model, one).parameters())
        for one in (HeadSet(), Intervention.parse(off))
    )
    assert whole - less == (1 + model.tower.n_heads) * (4 * width * d + 3 * d)
    assert layer.split()[0] in (folder / "README.md").read_text("utf-8")


def test_an_attention_of_other_code_keeps_its_heads(tmp_path):
    write_siglip(tmp_path / "theirs")
    model = ccs.load(str(tmp_path / "theirs"))
    with pytest.raises(InputError, match="fixes the number of heads"):
        onnx_export.export_onnx(model, HeadSet.parse("L0.H1"), tmp_path / "less")
    assert not (tmp_path / "less").exists()

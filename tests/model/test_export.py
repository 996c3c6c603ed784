"""Exported folders, also on the Hub, load in open_clip or transformers with the same embeddings."""

import shutil
import sys
from functools import partial

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from timm.models import _registry

import ccs
from ccs.analysis.mitigations import Affine
from ccs.batch import export as command
from ccs.model.editing import fit_edits
from ccs.model.encoders import convolutional
from ccs.model.export import WeightChange, export
from tests.support.checkpoint import embed_without_ccs, write_clip, write_siglip
from tests.support.tiny_model import write_tiny_model

ABLATED = ccs.HeadSet.parse("L1.H1 L4.H0 L4.H3 L5.H2")
WRITERS = {
    "open_clip": write_tiny_model,
    "QuickGELU": partial(write_tiny_model, quick_gelu=True),
    "CLIP": write_clip,
    "SigLIP": write_siglip,
}
TEXTS = ["a dog", "two cats"]


@pytest.mark.parametrize("original", [*WRITERS, "organism"])
def test_exported_model_matches_without_ccs(original, tmp_path, random_images, monkeypatch):
    """With heads ablated, scaled, and edited, one of them in SigLIP's pool, and mapped embeddings."""
    name = str(tmp_path / "original") if original in WRITERS else original
    if original in WRITERS:
        WRITERS[original](tmp_path / "original")
    model, images, folder = ccs.load(name), random_images(8), tmp_path / "exported"
    unfitted = ccs.Intervention.parse("L0.H1=0.3 L1.H2 L1.H3=erase:kind" + " L2.H3" * (original == "SigLIP"))
    heads, _ = fit_edits(model, unfitted, images, {"kind": ["a", "b"] * 4})
    maps = np.eye(model.dim) + 0.1 * np.random.default_rng(0).standard_normal((2, model.dim, model.dim))
    if original == "SigLIP":
        with pytest.raises(ccs.InputError, match="images do not end in a linear map"):
            export(model, WeightChange(heads, maps[0]), folder)
        assert not folder.exists()
    mapped = None if original == "SigLIP" else maps[0]
    assert export(model, WeightChange(heads, mapped, maps[1], ["It was measured."]), folder) <= 1e-5
    with pytest.raises(ccs.InputError, match="exported is already there"):
        export(model, heads, folder)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ccs", None)
        units, text_units, _ = embed_without_ccs(folder, images, TEXTS)
    expected = model.embed_images(images, heads)
    np.testing.assert_allclose(units, expected if mapped is None else Affine(mapped)(expected), atol=1e-5)
    np.testing.assert_allclose(text_units, Affine(maps[1])(model.embed_texts(TEXTS)), atol=1e-5)
    np.testing.assert_allclose(ccs.load(str(folder)).embed_images(images), units, atol=1e-5)
    with torch.no_grad():
        module_units = model.clip.encode_text(model.tokenize(TEXTS), normalize=True)
    np.testing.assert_allclose(module_units, model.embed_texts(TEXTS), atol=1e-5)
    assert model.weights_hash == ccs.load(name).weights_hash
    card = (folder / "README.md").read_text("utf-8")
    assert "- It was measured." in card
    assert str(heads) in card


def test_command_publishes_model_with_its_origin(tiny_folder, tiny_model, tmp_path, hub):
    base = shutil.copytree(tiny_folder, tmp_path / "base")
    (base / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: user/tiny\n---\n")
    assert command.main(["--model", str(base), "--ablate", str(ABLATED), "--repo", "user/pruned"]) == 0
    repository = hub.repositories["models", "user/pruned"]
    assert repository.private
    for name, data in repository.commits[-1][1].items():
        (tmp_path / name).write_bytes(data)
    x = torch.randn(2, 3, 32, 32)
    units = ccs.load(str(tmp_path)).embed_images(x)
    np.testing.assert_allclose(units, tiny_model.embed_images(x, ABLATED), atol=1e-5)
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.base_model) == ("apache-2.0", "user/tiny")


def test_instructions_in_model_card_load_custom_architecture(tmp_path, monkeypatch):
    folder = tmp_path / "photo"
    export(ccs.load("photo"), ccs.HeadSet.parse("L3.H0"), folder)
    recipe = (folder / "README.md").read_text().split("```python")[1].split("```")[0]
    recipe = recipe.replace("PATH/TO/THIS/FOLDER", str(folder))
    monkeypatch.delitem(_registry._model_entrypoints, convolutional.NAME)  # as if ccs had loaded nothing
    convolutional.register.cache_clear()
    exec(recipe, {})

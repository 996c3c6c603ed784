"""An exported folder is an open_clip model whose embeddings are ours, also on the Hub."""

import shutil

import numpy as np
import open_clip
import pytest
import torch
from huggingface_hub import ModelCard
from timm.models import _registry

import ccs
from ccs import HeadSet, InputError
from ccs.batch import export as command
from ccs.model.encoders import convolutional
from ccs.model.export import export

OFF = HeadSet.parse("L1.H1 L4.H0 L4.H3 L5.H2")


@pytest.mark.parametrize(("name", "off"), [("tiny_model", OFF), ("tiny_quick_model", HeadSet())])
def test_open_clip_alone_gives_our_embeddings(name, off, request, tmp_path, pictures):
    model = request.getfixturevalue(name)
    before, folder, texts = model.weights_hash, tmp_path / "out", ["a dog", "a cat"]
    assert export(model, off, folder) <= 1e-5
    with pytest.raises(InputError, match="out is already there"):
        export(model, off, folder)
    clip, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    with torch.no_grad():
        images = clip.eval().encode_image(torch.stack([*map(preprocess, pictures(4))]), normalize=True)
        read = clip.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(texts), normalize=True)
    np.testing.assert_allclose(images, model.embed_images(pictures(4), off), atol=1e-5)
    np.testing.assert_allclose(read, model.embed_texts(texts), atol=1e-5)
    assert model.weights_hash == before


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub's own uploads
def test_the_command_publishes_a_model_with_its_origin(tiny_folder, tiny_model, tmp_path, hub):
    base = shutil.copytree(tiny_folder, tmp_path / "base")
    (base / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: user/tiny\n---\n")
    assert command.main(["--model", str(base), "--ablate", str(OFF), "--repo", "user/pruned"]) == 0
    repository = hub.repositories["models", "user/pruned"]
    assert repository.private
    for name, data in repository.commits[-1][1].items():
        (tmp_path / name).write_bytes(data)
    x = torch.randn(2, 3, 32, 32)
    units = ccs.load(str(tmp_path)).embed_images(x)
    np.testing.assert_allclose(units, tiny_model.embed_images(x, OFF), atol=1e-5)
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.base_model) == ("apache-2.0", "user/tiny")


def test_an_architecture_of_our_own_needs_what_its_card_says(tmp_path, monkeypatch):
    folder = tmp_path / "photo"
    export(ccs.load("photo"), HeadSet.parse("L3.H0"), folder)
    recipe = (folder / "README.md").read_text().split("```python")[1].split("```")[0]
    recipe = recipe.replace("PATH/TO/THIS/FOLDER", str(folder))
    monkeypatch.delitem(_registry._model_entrypoints, convolutional.NAME)  # as where ccs loaded nothing
    convolutional.register.cache_clear()
    exec(recipe, {})

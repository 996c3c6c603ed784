"""An exported folder is an ordinary open_clip model whose embeddings are ours, also through the Hub."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ccs
from ccs import HeadSet, InputError
from ccs.batch import export as command
from ccs.model.export import export
from ccs.model.model import Model
from tests.support.hub_server import Hub

OFF = HeadSet.parse("L1.H1 L4.H0 L4.H3 L5.H2")


def open_clips(folder: Path, images: list[Image.Image], texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings by open_clip alone."""
    import open_clip

    clip, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(texts)
    with torch.no_grad():
        pixels = torch.stack([preprocess(image) for image in images])
        embedded = clip.eval().encode_image(pixels, normalize=True)
        return embedded.numpy(), clip.encode_text(tokens, normalize=True).numpy()


@pytest.mark.parametrize("name", ["tiny_model", "tiny_quick_model"])
@pytest.mark.parametrize("off", [OFF, HeadSet()], ids=["some", "none"])
def test_open_clip_alone_gives_our_embeddings(
    name: str,
    off: HeadSet,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    pictures: Callable[[int], list[Image.Image]],
) -> None:
    model: Model = request.getfixturevalue(name)
    before = model.weights_hash
    difference = export(model, off, tmp_path / "out")
    images, texts = open_clips(tmp_path / "out", pictures(4), ["a dog", "a cat"])
    np.testing.assert_allclose(images, model.embed_images(pictures(4), off), atol=1e-5)
    np.testing.assert_allclose(texts, model.embed_texts(["a dog", "a cat"]), atol=1e-5)
    assert difference <= 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    files = ["README.md", "open_clip_config.json", "open_clip_model.safetensors"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files
    del model.__dict__["weights_hash"]  # it is kept once computed
    assert model.weights_hash == before


def test_what_cannot_be_exported_is_named(
    tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="full is already there"):
        export(tiny_model, OFF, tmp_path / "full")
    monkeypatch.setitem(tiny_model.config["text_cfg"], "hf_tokenizer_name", "somebody/words")
    with pytest.raises(InputError, match="tokenizer of its own"):
        export(tiny_model, OFF, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


# -- the command line ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub's own uploads
def test_the_command_publishes_a_model(
    tiny_folder: Path, tiny_model: Model, tmp_path: Path, hub: Hub
) -> None:
    arguments = ["--model", str(tiny_folder), "--off", str(OFF), "--repo", "user/pruned"]
    assert command.main(arguments) == 0
    repository = hub.repositories["models", "user/pruned"]
    assert repository.private
    for name, data in repository.commits[-1][1].items():
        (tmp_path / name).write_bytes(data)
    x = torch.randn(2, 3, 32, 32)
    found = ccs.load(str(tmp_path)).embed_images(x)
    np.testing.assert_allclose(found, tiny_model.embed_images(x, OFF), atol=1e-5)


def test_an_architecture_of_our_own_needs_what_its_card_says(tmp_path: Path) -> None:
    model, folder = ccs.load("photo"), tmp_path / "photo"
    export(model, HeadSet.parse("L3.H0"), folder)
    recipe = (folder / "README.md").read_text().split("```python")[1].split("```")[0]
    recipe = recipe.replace("PATH/TO/THIS/FOLDER", str(folder))
    subprocess.run([sys.executable, "-c", recipe], check=True, cwd=Path(ccs.__file__).parents[1])

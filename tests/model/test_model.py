"""Loading and asking: every way to name a model, rightly and wrongly, and agreement with open_clip."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import ccs
from ccs import InputError
from ccs.model import model as models
from ccs.model.model import Model
from tests.support.tiny_model import write_tiny_model

Pictures = Callable[[int], list[Image.Image]]


def open_clips(folder: Path) -> tuple[Any, Any, Any]:
    import open_clip

    clip, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    return clip.eval(), preprocess, open_clip.get_tokenizer(f"local-dir:{folder}")


def test_pictures_and_texts_embed_as_in_open_clip(
    tiny_folder: Path, tiny_model: Model, pictures: Pictures
) -> None:
    clip, preprocess, tokenizer = open_clips(tiny_folder)
    images, texts = pictures(5), ["a dog", "", "two cats on a red mat " * 9]
    with torch.no_grad():
        expected = clip.encode_image(torch.stack([preprocess(image) for image in images]), normalize=True)
        expected_texts = clip.encode_text(tokenizer(texts), normalize=True)
    np.testing.assert_allclose(tiny_model.embed_images(images, batch_size=2), expected, atol=1e-5)
    found = tiny_model.embed_texts(texts, batch_size=2)
    np.testing.assert_allclose(found, expected_texts, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found.dtype == np.float32
    assert tiny_model.logit_scale == pytest.approx(clip.logit_scale.exp().item())


def test_mean_deviation_and_size_are_the_models_own(tiny_model: Model) -> None:
    white = tiny_model.preprocess([Image.new("RGB", (50, 40), (255, 255, 255))])
    assert white.shape == (1, 3, 32, 32)
    expected = (1 - torch.tensor([0.4, 0.5, 0.6])) / torch.tensor([0.2, 0.25, 0.3])
    torch.testing.assert_close(white[0, :, 5, 5], expected)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_pictures_of_any_mode_are_taken(tiny_model: Model, mode: str) -> None:
    assert np.isfinite(tiny_model.embed_images([Image.new(mode, (20, 90))])).all()


def test_a_lazy_sequence_is_decoded_a_batch_at_a_time(tiny_model: Model, pictures: Pictures) -> None:
    made = pictures(6)
    asked: list[int] = []

    class Lazy(Sequence[Image.Image]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: Any) -> Any:
            assert isinstance(index, int)
            asked.append(index)
            return made[index]

    found = tiny_model.embed_images(Lazy(), batch_size=4)
    assert asked == list(range(6))
    np.testing.assert_allclose(found, tiny_model.embed_images(made), atol=1e-6)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 16, 16), r"Pixels must be \[n, 3, 32, 32\] for tiny, not \[2, 3, 16, 16\]"),
        (torch.zeros(3, 32, 32), r"not \[3, 32, 32\]"),
        (torch.zeros(1, 1, 32, 32), r"not \[1, 1, 32, 32\]"),
        (["dog.png"], "Image 0 is str, not a picture"),
        (Image.new("RGB", (32, 32)), "given as a list"),
    ],
)
def test_what_is_no_picture_is_named(tiny_model: Model, images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny_model.embed_images(images)


def test_a_single_text_and_an_empty_list(tiny_model: Model) -> None:
    with pytest.raises(InputError, match="a list of texts"):
        tiny_model.embed_texts("a dog")
    assert tiny_model.embed_texts([]).shape == (0, tiny_model.dim)


def test_a_batch_of_nothing_is_refused(tiny_model: Model, pictures: Pictures) -> None:
    with pytest.raises(InputError, match="at least one image, not -1"):
        tiny_model.embed_images(pictures(1), batch_size=-1)


def test_the_hash_is_that_of_the_weights(tiny_folder: Path, tiny_model: Model, tmp_path: Path) -> None:
    again = ccs.load(str(shutil.copytree(tiny_folder, tmp_path / "again")))
    assert again.weights_hash == tiny_model.weights_hash
    for part in ("visual.proj", "ln_final.weight"):
        weights = load_file(tiny_folder / "open_clip_model.safetensors")
        weights[part].flatten()[0] += 1e-3
        folder = shutil.copytree(tiny_folder, tmp_path / part)
        save_file(weights, folder / "open_clip_model.safetensors")
        assert ccs.load(str(folder)).weights_hash != tiny_model.weights_hash
    assert len(tiny_model.weights_hash) == 64


def test_half_precision_on_disk_is_float32_in_memory(
    tiny_folder: Path, tiny_model: Model, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "half")
    weights = load_file(folder / "open_clip_model.safetensors")
    save_file(
        {name: values.half() for name, values in weights.items()}, folder / "open_clip_model.safetensors"
    )
    half = ccs.load(str(folder))
    assert {values.dtype for values in half.clip.parameters()} == {torch.float32}
    x = torch.randn(2, 3, 32, 32)
    np.testing.assert_allclose(half.embed_images(x), tiny_model.embed_images(x), atol=0.02)


def test_what_a_loaded_model_says_of_itself(tiny_model: Model) -> None:
    assert (tiny_model.name, tiny_model.tag) == ("tiny", "")
    assert tiny_model.architecture == "ViT 6x32, patch 8, 32 px"
    assert (tiny_model.n_layers, tiny_model.n_heads, tiny_model.head_dim) == (6, 4, 8)
    assert (tiny_model.dim, tiny_model.image_size) == (24, 32)
    assert repr(tiny_model) == "<Model tiny: 6 layers of 4 heads, 32 px>"


def test_open_clips_names_with_untrained_weights() -> None:
    model = ccs.load("ViT-S-32-alt/random")
    assert (model.name, model.architecture, model.tag) == ("ViT-S-32-alt/random", "ViT-S-32-alt", "random")
    state = torch.random.get_rng_state()
    assert ccs.load("ViT-S-32-alt/random").weights_hash == model.weights_hash
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's random numbers go on undisturbed


def test_a_picture_of_the_embedded_models() -> None:
    names = models.embedded()
    model = ccs.load(names[0])
    assert model.name == names[0]
    assert len(model.heads) >= 24
    assert model.embed_texts(["a dog"]).shape == (1, model.dim)


# -- weights that open_clip would fetch ----------------------------------------------------------------------


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Register a tag of a tiny architecture whose weights lie in a file, as if they had been downloaded."""
    import open_clip
    from open_clip import factory, pretrained

    monkeypatch.setattr(factory, "_MODEL_CONFIG_PATHS", list(factory._MODEL_CONFIG_PATHS))
    monkeypatch.setattr(factory, "_MODEL_CONFIGS", dict(factory._MODEL_CONFIGS))

    def register(*, config_quick: bool, weights_quick: bool, tag: str = "made") -> None:
        folder = write_tiny_model(tmp_path / "made", quick_gelu=config_quick)
        config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
        (tmp_path / "ViT-tiny.json").write_text(json.dumps(config))
        open_clip.add_model_config(tmp_path / "ViT-tiny.json")
        entry = {"file": str(folder / "open_clip_model.safetensors"), "quick_gelu": weights_quick}
        entry |= {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
        monkeypatch.setitem(pretrained._PRETRAINED, "ViT-tiny", {tag: entry})

    return register


@pytest.mark.parametrize("weights_quick", [False, True])
def test_a_tag_decides_the_activation_and_the_preprocessing(
    fetched: Callable[..., None], weights_quick: bool, tmp_path: Path
) -> None:
    import open_clip

    fetched(config_quick=False, weights_quick=weights_quick)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # open_clip's warning of a mismatch included
        model = ccs.load("ViT-tiny/made")
    right = open_clip.create_model("ViT-tiny", "made", force_quick_gelu=weights_quick).eval()
    wrong = open_clip.create_model("ViT-tiny", None, force_quick_gelu=not weights_quick).eval()
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(model.embed_images(x), right.encode_image(x, normalize=True), atol=1e-5)
        assert np.abs(model.embed_images(x) - wrong.encode_image(x, normalize=True).numpy()).max() > 1e-4
    assert model.config["quick_gelu"] is weights_quick
    assert tuple(model.preprocess_config["mean"]) == (0.1, 0.2, 0.3)


def test_weights_trained_without_quick_gelu_do_not_fit_such_an_architecture(
    fetched: Callable[..., None],
) -> None:
    fetched(config_quick=True, weights_quick=False)
    with pytest.raises(
        InputError, match="ViT-tiny uses QuickGELU and the weights 'made' were trained with GELU"
    ):
        ccs.load("ViT-tiny/made")


# -- what cannot be loaded -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("organizm", r"There is no model 'organizm'"),
        ("ViT-B-32/opanai", r"ViT-B-32 has no weights 'opanai'; there are openai, "),
        ("ViT-B-32", r"ViT-B-32 needs the name of its weights, such as ViT-B-32/openai"),
        ("vit-b-23/openai", r"Did you mean .*ViT-B-32/openai"),
        ("", r"There is no model ''"),
        ("no/such/folder", r"nor a folder"),
        ("RN50/openai", r"RN50/openai cannot be taken apart by head because its image tower is a ResNet"),
        ("ViT-B-16-SigLIP/webli", r"timm's vit_base_patch16_siglip_224"),
        ("coca_ViT-B-32/laion2b_s13b_b90k", r"it pools its tokens by attention"),
        ("ViT-SO400M-14-SigLIP/webli", r"cannot be taken apart"),
    ],
)
def test_a_wrong_name_gets_one_clear_sentence(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ccs.load(name)


def test_average_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tokens are pooled by 'avg'"):
        ccs.load(str(write_tiny_model(tmp_path, pool_type="avg")))


@pytest.mark.parametrize("name", ["ViT-B-32/openai", "hf-hub:nobody/nothing", "ViT-B-32/metaclip_fullcc"])
def test_weights_out_of_reach_are_named_with_their_source(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "/nonexistent")
    with pytest.raises(InputError, match=r"could not be loaded from .*what works offline is") as caught:
        ccs.load(name)
    assert name in str(caught.value)
    source = {
        "ViT-B-32/openai": "timm/vit_base_patch32_clip_224.openai",
        "hf-hub:nobody/nothing": "nobody/nothing",
    }
    assert source.get(name, "metaclip") in str(caught.value)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_refused(tiny_folder: Path, tmp_path: Path, poison: float) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "poisoned")
    weights = load_file(folder / "open_clip_model.safetensors")
    weights["visual.transformer.resblocks.3.mlp.c_fc.bias"][5] = poison
    save_file(weights, folder / "open_clip_model.safetensors")
    with pytest.raises(InputError, match=r"poisoned are not all finite numbers: visual\S+3\.mlp\.c_fc\.bias"):
        ccs.load(str(folder))


def spoil(folder: Path, how: str) -> None:
    config, weights = folder / "open_clip_config.json", folder / "open_clip_model.safetensors"
    if how == "no config":
        config.unlink()
    elif how == "no json":
        config.write_text("{")
    elif how == "no model_cfg":
        config.write_text("{}")
    elif how == "no vision_cfg":
        config.write_text('{"model_cfg": {"embed_dim": 3}}')
    elif how == "unknown entry":
        text = json.loads(config.read_text())
        text["model_cfg"]["vision_cfg"]["hats"] = 3
        config.write_text(json.dumps(text))
    elif how == "no weights":
        weights.unlink()
    elif how == "weights cut short":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif how == "a weight missing":
        values = load_file(weights)
        del values["visual.proj"]
        save_file(values, weights)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no config", r"has no open_clip_config\.json"),
        ("no json", "is not an open_clip configuration"),
        ("no model_cfg", "is not an open_clip configuration"),
        ("no vision_cfg", "has no 'vision_cfg'"),
        ("unknown entry", "hats"),
        ("no weights", "could not be loaded"),
        ("weights cut short", "could not be loaded"),
        ("a weight missing", "could not be loaded"),
    ],
)
def test_a_spoilt_folder_is_named(tiny_folder: Path, tmp_path: Path, how: str, message: str) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "spoilt")
    spoil(folder, how)
    with pytest.raises(InputError, match=message) as caught:
        ccs.load(str(folder))
    assert "spoilt" in str(caught.value)


@pytest.mark.parametrize("device", ["cuda:77", "abacus"])
def test_a_device_that_is_not_there(tiny_folder: Path, device: str) -> None:
    with pytest.raises(InputError, match=f"The device '{device}' cannot be used here"):
        ccs.load(str(tiny_folder), device=device)


def test_an_unknown_precision(tiny_folder: Path) -> None:
    with pytest.raises(InputError, match="'fp8' is not one of fp32, bf16, fp16"):
        ccs.load(str(tiny_folder), precision="fp8")

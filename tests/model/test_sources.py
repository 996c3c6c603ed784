"""Models by open_clip's names, from folders and from the Hub, and the messages for names without one."""

import json
import warnings

import numpy as np
import open_clip
import pytest
import torch
from open_clip import factory, pretrained

import ccs
from ccs import InputError
from tests.support.tiny_model import write_tiny_model


def test_open_clips_names_with_untrained_weights():
    model = ccs.load("ViT-S-32-alt/random")
    assert (model.name, model.architecture, model.tag) == ("ViT-S-32-alt/random", "ViT-S-32-alt", "random")
    state = torch.random.get_rng_state()
    assert ccs.load("ViT-S-32-alt/random").weights_hash == model.weights_hash
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's random numbers go on undisturbed


@pytest.mark.parametrize("quick", [False, True])
def test_a_tag_decides_the_activation_and_the_preprocessing(monkeypatch, quick, tmp_path):
    """A tag of a tiny architecture with weights in a file, as if they had been downloaded."""
    monkeypatch.setattr(factory, "_MODEL_CONFIG_PATHS", list(factory._MODEL_CONFIG_PATHS))
    monkeypatch.setattr(factory, "_MODEL_CONFIGS", dict(factory._MODEL_CONFIGS))
    folder = write_tiny_model(tmp_path / "made")
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "ViT-tiny.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "ViT-tiny.json")
    entry = {"file": str(folder / "open_clip_model.safetensors"), "quick_gelu": quick}
    entry |= {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
    monkeypatch.setitem(pretrained._PRETRAINED, "ViT-tiny", {"made": entry})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # open_clip's warning of a mismatch included
        model = ccs.load("ViT-tiny/made")
    right = open_clip.create_model("ViT-tiny", "made", force_quick_gelu=quick).eval()
    wrong = open_clip.create_model("ViT-tiny", None, force_quick_gelu=not quick).eval()
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(model.embed_images(x), right.encode_image(x, normalize=True), atol=1e-5)
        assert np.abs(model.embed_images(x) - wrong.encode_image(x, normalize=True).numpy()).max() > 1e-4
    assert model.config["quick_gelu"] is quick
    assert tuple(model.preprocess_config["mean"]) == (0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ViT-B-32/opanai", r"ViT-B-32 has no weights 'opanai'; there are openai, "),
        ("ViT-B-32", r"ViT-B-32 needs the name of its weights, such as ViT-B-32/openai"),
        ("vit-b-23/openai", r"Did you mean .*ViT-B-32/openai"),
        ("convnext_base/laion400m_s13b_b51k", r"_s13b_b51k cannot be used\. .* ConvNeXt"),
    ],
)
def test_a_wrong_name_gets_one_clear_sentence(name, message):
    with pytest.raises(InputError, match=message):
        ccs.load(name)


OUT_OF_REACH = {
    "ViT-B-32/openai": "timm/vit_base_patch32_clip_224.openai",
    "hf-hub:nobody/nothing": "nobody/nothing",
    "ViT-B-32/metaclip_fullcc": "metaclip",
}


@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_weights_out_of_reach_are_named_with_their_source(name, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "/nonexistent")
    with pytest.raises(InputError, match=r"could not be loaded from .*what works offline is") as caught:
        ccs.load(name)
    assert name in str(caught.value)
    assert OUT_OF_REACH[name] in str(caught.value)


def test_a_repository_on_the_hub_is_the_folder_it_holds(tiny_folder, tiny_model, hub):
    hub.put("models", "user/tiny", tiny_folder)
    model = ccs.load("hf-hub:user/tiny")
    assert model.weights_hash == tiny_model.weights_hash
    assert (model.name, model.preprocess_config) == ("hf-hub:user/tiny", tiny_model.preprocess_config)
    config = "open_clip_config.json"
    hub.put("models", "user/pickled", {config: (tiny_folder / config).read_bytes(), "model.bin": b"."})
    with pytest.raises(InputError, match="could not be loaded from the Hub's user/pickled"):
        ccs.load("hf-hub:user/pickled")

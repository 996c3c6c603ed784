"""Loading models by valid and invalid names, and agreement of embeddings with open_clip."""

import copy
import shutil
import warnings
from pathlib import Path

import numpy as np
import open_clip
import pandas as pd
import peft
import pytest
import torch
from open_clip import factory, pretrained, transform
from PIL import Image
from safetensors.torch import load_file, save_file

import ccs
from benchmarks.families import plain
from ccs.model.loading.weights import EMBEDDING
from research.model_files import only_words_read
from tests.support.processes import run_python
from tests.support.tiny_model import tiny_config, write_tiny_model

PIXELS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_bundled_models_need_no_open_clip():
    heavy = "'open_clip', 'timm', 'transformers', 'torchvision', 'torch._dynamo'"
    code = f"import sys, ccs; ccs.load('organism').embed_texts(['a']); print({{{heavy}}} & {{*sys.modules}})"
    assert run_python("-c", code).strip() == "set()"


def test_openai_scaled_pixels_match_open_clip(tiny_model):
    image = Image.new("RGB", (32, 32), (255, 0, 51))
    rescaled = tiny_model.openai_scaled(tiny_model.preprocess([image]))
    expected = transform.image_transform(32, is_train=False)(image)  # with OpenAI's mean and deviation
    torch.testing.assert_close(rescaled[0], expected, rtol=0, atol=1e-5)
    assert not tiny_model.is_openai_scaled


@pytest.mark.parametrize("through_data", [False, True])
def test_changed_weights_and_preprocessing_invalidate_cached_statistics(tiny_folder, through_data):
    model, images = ccs.load(str(tiny_folder)), ccs.open_images("world", 20)
    before, rows = model.weights_hash, ccs.find_heads(model, "a red cat", images).rows
    projection = model.encoder.layers[5].projection.weight
    with torch.no_grad():
        (projection.data if through_data else projection).mul_(torch.linspace(-1, 3, 32))
    changed = ccs.load(str(tiny_folder)).with_weights(model.clip.state_dict())
    assert model.rehash() == changed.weights_hash != before
    new_rows, expected = (ccs.find_heads(of, "a red cat", images).rows for of in (model, changed))
    pd.testing.assert_frame_equal(new_rows, expected)
    assert not new_rows.equals(rows)
    model.preprocess_config["mean"] = (0.0, 0.0, 0.0)
    assert not ccs.find_heads(model, "a red cat", images).rows.equals(new_rows)


@torch.no_grad()
def _scaled(module):
    changed = copy.deepcopy(module)
    for weight in changed.parameters():
        weight.mul_(1.3)
    return changed


@pytest.mark.parametrize("path", ["", "visual", "visual.transformer.resblocks.5", "transformer.resblocks.1"])
def test_replaced_modules_of_copy_are_used(path, tiny_model):
    before, _ = tiny_model.embed_images(PIXELS), tiny_model.texts
    model = copy.deepcopy(tiny_model)
    parent, _, name = path.rpartition(".")
    owner = model.clip.get_submodule(parent) if path else model
    setattr(owner, name or "clip", _scaled(model.clip.get_submodule(path)))
    ours = model.embed_images(PIXELS), model.embed_texts(["a dog"]), model.texts.embed(["a dog"])
    tokens = model.tokenize(["a dog"])
    images, texts = model.clip.encode_image(PIXELS, True), model.clip.encode_text(tokens, True)
    for units, expected in zip(ours, (images, texts, texts), strict=True):
        np.testing.assert_allclose(units, expected.detach(), atol=1e-5)
    np.testing.assert_array_equal(tiny_model.embed_images(PIXELS), before)
    assert model.logit_scale == pytest.approx(float(model.clip.logit_scale.exp()))


LORA = peft.LoraConfig(target_modules=["out_proj"])
UNSUPPORTED_CHANGES = [
    (lambda clip: clip.train(), "training mode"),
    (lambda clip: clip.half(), "weights of torch.float16"),
    (lambda clip: clip.visual.transformer.register_forward_hook(lambda *_: _[2].flip(-1)), "hooks"),
    (lambda clip: clip.transformer.register_forward_hook(lambda *_: _[2].flip(-1)), "hooks"),
    (lambda clip: peft.get_peft_model(clip, LORA).eval(), "adapters"),
]


@pytest.mark.parametrize(("change", "message"), UNSUPPORTED_CHANGES)
def test_unsupported_change_of_model_is_rejected(change, message, tiny_model):
    model = copy.deepcopy(tiny_model)
    hook = model.clip.visual.register_forward_hook(lambda *_: None)  # changes nothing
    np.testing.assert_array_equal(model.embed_images(PIXELS), tiny_model.embed_images(PIXELS))
    hook.remove()
    change(model.clip)
    for _ in range(2):
        with pytest.raises(ccs.InputError, match=message):
            model.embed_images(PIXELS)
    with pytest.raises(ccs.InputError, match=message):
        model.embed_texts(["a dog"])


def test_invalid_inputs_are_rejected_and_head_names_accepted(tiny_model):
    x, ablated = torch.zeros(2, 3, 32, 32), ccs.HeadSet.parse("L5.H1 L4.H0")
    np.testing.assert_array_equal(*tiny_model.embed_images(x, [str(ablated), ablated]))
    contributions = (tiny_model.contributions(x, heads).direct for heads in (str(ablated), ablated))
    np.testing.assert_array_equal(*contributions)
    x[1, 2, 3, 4] = torch.nan
    for call, message in (
        (lambda: tiny_model.embed_images(x), "Embeddings are not finite"),
        (lambda: tiny_model.embed_images(x.to(torch.uint8)), r"32\] of floats for .*, not .* of uint8"),
        (lambda: tiny_model.embed_images(x, [3]), "3 names none"),
        (lambda: tiny_model.embed_images(x, "T0.H1"), r"T0\.H1 is a head of the text encoder, not"),
        (lambda: tiny_model.embed_texts(["a"], ablate=ablated), r"L4\.H0 is a head of the image encoder"),
        (lambda: ccs.load(None), "There is no model 'None'"),
        (lambda: ccs.load("organism", layers=3.5), "The layers are 3.5, but must be some of 0 to 7"),
        (lambda: tiny_model.embed_images(x, batch_size=0.5), "at least one image, not 0.5"),
        (lambda: tiny_model.embed_texts(["a"], batch_size=0), "at least one image, not 0"),
    ):
        with pytest.raises(ccs.InputError, match=message):
            call()


def test_long_text_is_cut_with_warning(tiny_model):
    fits = "a " * (tiny_model.tokenize([""]).shape[1] - 2)  # without start and end
    with pytest.warns(UserWarning, match=r"Longer texts are cut \(1\), such as 'a a a"):
        tiny_model.tokenize([fits, fits + "b"])


def test_sequences_are_accepted_and_other_types_rejected(tiny_model, random_images):
    images, texts = random_images(3), ["a cat", "a dog", "an owl"]
    for items, use in (
        (images, tiny_model.embed_images),
        (images, lambda inputs: ccs.attention(tiny_model, inputs, "L5.H1")),
        (images, lambda inputs: tiny_model.trunk(inputs).tokens),
        (images, lambda inputs: ccs.collect_moments(tiny_model, [inputs]).total[0]),
        (texts, tiny_model.embed_texts),
        (texts, lambda inputs: ccs.heatmap(tiny_model, images, inputs)),
        (texts, lambda inputs: ccs.heatmap(tiny_model, images, texts, against=inputs)),
    ):
        expected = use(items)
        array = np.empty(3, object)
        array[:] = items
        for same in (tuple(items), iter(items), array, pd.Series(items, [5, 0, 2])):
            np.testing.assert_array_equal(use(same), expected)
        for wrong in (items[0], "a.jpg", b"a", None, 3, {"a": 1}, pd.DataFrame({"column": items})):
            with pytest.raises(ccs.InputError, match=r"must be given as a list|is .*, not a"):
                use(wrong)
        with pytest.raises(ccs.InputError, match=r"(Image|Text) 0 is .*, not a"):
            use([Path("a.jpg")])
    vectors = tiny_model.embed_texts(texts)
    maps = ccs.heatmap(tiny_model, images, texts)
    np.testing.assert_array_equal(ccs.heatmap(tiny_model, images, torch.from_numpy(vectors)), maps)
    for wrong, message in ((vectors[:, 1:], r"must be \[texts, 24\]"), (vectors * np.nan, "must be finite")):
        with pytest.raises(ccs.InputError, match=message):
            ccs.heatmap(tiny_model, images, wrong)


def test_unused_word_embeddings_can_be_left_out_of_file(tiny_folder, tmp_path):
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    weights = load_file(folder / "open_clip_model.safetensors")
    used = torch.arange(len(weights[EMBEDDING])) % 7 == 1
    weights[EMBEDDING][~used] = 0
    stored = only_words_read(weights)
    assert len(stored[EMBEDDING]) == int(used.sum())
    save_file(stored, folder / "open_clip_model.safetensors")
    assert torch.equal(ccs.load(str(folder)).clip.token_embedding.weight, weights[EMBEDDING].float())


def test_random_weights_are_reproducible():
    model = ccs.load("ViT-S-32-alt/random")
    assert model.is_openai_scaled
    state = torch.random.get_rng_state()
    assert ccs.load("ViT-S-32-alt/random").weights_hash == model.weights_hash
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's generator is not advanced


def test_tag_decides_activation_and_preprocessing(monkeypatch, tmp_path):
    """With tags of a tiny architecture, whose weights are in a local file."""
    monkeypatch.setitem(factory._MODEL_CONFIGS, "ViT-tiny", tiny_config())
    file = write_tiny_model(tmp_path / "made") / "open_clip_model.safetensors"
    entry = {"file": str(file), "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
    tags = {tag: entry | {"quick_gelu": tag == "quick"} for tag in ("plain", "quick")}
    monkeypatch.setitem(pretrained._PRETRAINED, "ViT-tiny", tags)
    x, units = torch.randn(3, 3, 32, 32), []
    for tag in tags:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # also open_clip's warning about a mismatch
            model = ccs.load(f"ViT-tiny/{tag}")
        clip = open_clip.create_model("ViT-tiny", tag, force_quick_gelu=tag == "quick").eval()
        units.append(model.embed_images(x))
        np.testing.assert_allclose(units[-1], plain(clip.visual, x), atol=1e-5)
        assert model.config["quick_gelu"] is (tag == "quick")
        assert tuple(model.preprocess_config["mean"]) == (0.1, 0.2, 0.3)
    assert np.abs(units[0] - units[1]).max() > 1e-4


def test_unknown_model_name_is_rejected_with_suggestion():
    for name, message in (
        ("ViT-B-32/opanai", r"ViT-B-32/opanai names no weights, such as ViT-B-32/openai; there are openai, "),
        ("ViT-B-32", r"ViT-B-32 names no weights, such as ViT-B-32/openai"),
        ("vit-b-23/openai", r"Did you mean .*ViT-B-32/openai"),
        ("openai/clip-vit-base-patch32", r"write hf-hub:openai/clip-vit-base-patch32\."),
        ("convnext_base/laion400m_s13b_b51k", r"_s13b_b51k can't be used\. .* ConvNeXt"),
    ):
        with pytest.raises(ccs.InputError, match=message):
            ccs.load(name)


def test_unreachable_weights_are_reported_with_source(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # no server
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "/nonexistent")
    for name, source in {
        "ViT-B-32/openai": "timm/vit_base_patch32_clip_224.openai",
        "hf-hub:nobody/nothing": "nobody/nothing",
        "ViT-B-32/metaclip_fullcc": "metaclip",
    }.items():
        with pytest.raises(ccs.InputError, match=rf"{name} can't be loaded from .*{source}.*Offline"):
            ccs.load(name)


def test_hub_repository_is_loaded(tiny_folder, tiny_model, hub):
    hub.put("models", "user/tiny", tiny_folder)
    model = ccs.load("hf-hub:user/tiny")
    assert model.weights_hash == tiny_model.weights_hash
    assert (model.name, model.preprocess_config) == ("hf-hub:user/tiny", tiny_model.preprocess_config)
    config = "open_clip_config.json"
    hub.put("models", "user/pickled", {config: (tiny_folder / config).read_bytes(), "model.bin": b"."})
    with pytest.raises(ccs.InputError, match="can't be loaded from the Hub's user/pickled"):
        ccs.load("hf-hub:user/pickled")

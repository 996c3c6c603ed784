"""The image encoder inside a language model, as a model of its own."""

import numpy as np
import pytest
import torch

import ccs
from ccs import results
from ccs.batch import heads as heads_command
from tests.model.test_ablation import HEADS as OFF
from tests.model.test_ablation import PIXELS, TEXTS, TOLERANCE, features
from tests.support import language_models as languages
from tests.support.checkpoint import write_clip, write_siglip
from tests.support.compute_sample import run, small_pool


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_the_clip_inside_a_language_model(write, tmp_path):
    """The encoder of a CLIP in a LLaVA, and of a SigLIP in a PaliGemma: the same model as the CLIP itself."""
    module = write(tmp_path)
    whole = languages.holding(module.vision_model)
    expected = ccs.load(str(tmp_path))
    extracted = ccs.extract_image_encoder(whole, str(tmp_path))
    assert extracted.weights_hash == expected.weights_hash
    np.testing.assert_array_equal(extracted.embed_images(PIXELS, OFF), expected.embed_images(PIXELS, OFF))
    np.testing.assert_array_equal(extracted.embed_texts(TEXTS), expected.embed_texts(TEXTS))
    with torch.no_grad():
        module.vision_model.encoder.layers[1].self_attn.out_proj.weight += 0.1
    trained = languages.holding(module.vision_model)
    with pytest.warns(UserWarning, match="was trained further"):
        moved = ccs.extract_image_encoder(trained, str(tmp_path))
    expected_units = features(module.get_image_features(PIXELS))
    np.testing.assert_allclose(moved.embed_images(PIXELS), expected_units, atol=TOLERANCE)
    for other, why in (("organism", "is not built like organism's"), ("no-such", "There is no model")):
        with pytest.raises(ccs.InputError, match=why):
            ccs.extract_image_encoder(whole, other)
    with pytest.raises(ccs.InputError, match="isn't built like CLIP's or SigLIP's image encoder"):
        ccs.extract_image_encoder(languages.llama(), str(tmp_path))


def test_commands_take_a_language_model_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # nobody waits for the Hub
    languages.holding(write_clip(tmp_path).vision_model).save_pretrained(tmp_path / "whole")
    weights = ccs.load(str(tmp_path)).weights_hash
    assert ccs.extract_image_encoder(str(tmp_path / "whole"), str(tmp_path)).weights_hash == weights
    with pytest.raises(ccs.InputError, match="'no-such' can't be loaded as a vision-language model"):
        ccs.extract_image_encoder("no-such", str(tmp_path))
    options = ["a red cat", "--max-images", "4", "--texts", str(small_pool(tmp_path)), "--device", "cpu"]
    options += ["--model", str(tmp_path / "whole"), "--text-encoder", str(tmp_path)]
    assert heads_command.main(options) == 0
    assert heads_command.main([*options[:-1], "no-such"]) == 2
    out = tmp_path / "results"
    assert run([*options[1:], "--out", str(out), "--layers", "0,1", "--suite", "none", "--workers", "0"]) == 0
    manifest = results.read_manifest(next(out.glob("whole*")))
    assert manifest["model"]["weights_hash"] == weights
    assert manifest["settings"]["text_encoder"] == str(tmp_path)

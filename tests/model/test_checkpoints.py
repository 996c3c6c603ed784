"""Hugging Face checkpoints against transformers itself, and the files that are refused."""

import json
import shutil

import numpy as np
import pytest
from transformers import CLIPTokenizer

import ccs
from ccs import HeadSet, InputError
from ccs.model.export import export
from ccs.model.loading.sources import find, known_tower
from tests.support.checkpoint import clip_vocabulary, theirs, write_clip, write_siglip
from tests.support.spoil import says

TEXTS = ["a photo of a cat", "Ünïcode, don't 12!", "", "a " * 40, "x<|endoftext|>y", "  two\nlines  "]
TOLERANCE = 1e-5


def hold_against_transformers(model, folder, pictures):
    ours = ccs.load(str(folder))
    images = [*pictures(3), pictures(3)[2].resize((35, 32)), pictures(3)[1].resize((40, 47))]  # odd ones too
    seen, read = theirs(model, folder, images, TEXTS)
    np.testing.assert_allclose(ours.embed_images(images), seen, atol=TOLERANCE)
    np.testing.assert_allclose(ours.embed_texts(TEXTS), read, atol=TOLERANCE)
    assert ours.logit_scale == pytest.approx(np.exp(2.0))
    return ours


OTHER_SEEN = {"image_size": 40, "patch_size": 10, "hidden_size": 48, "num_attention_heads": 2}
OTHER_READ = {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 33, "layer_norm_eps": 1e-3}
VARIANTS = {
    "in shards, with the end of old": {"max_shard_size": "200KB", "text": {"eos_token_id": 2}},
    "GELU": {"vision": {"hidden_act": "gelu"}, "text": {"hidden_act": "gelu_pytorch_tanh"}},
    "other sizes, with an end of another number": {
        "vision": OTHER_SEEN,
        "text": OTHER_READ | {"eos_token_id": 320},
    },
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_embeddings_are_those_of_transformers(kind, tmp_path, pictures):
    hold_against_transformers(write_clip(tmp_path, **VARIANTS[kind]), tmp_path, pictures)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A checkpoint: transformers' model and its folder. Shared: copy the folder before writing to it."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tuned"
    return write_clip(folder), folder


def test_files_of_older_versions(written, tmp_path, pictures):
    """A vocabulary and merges in two files, the towers' entries twice, sides as plain numbers."""
    model, folder = written[0], shutil.copytree(written[1], tmp_path / "old")
    vocabulary, merges = clip_vocabulary()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, merges), ""]), "utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    wrong = {**config["vision_config"], "num_hidden_layers": 7}
    says("config.json", vision_config=wrong, vision_config_dict=config["vision_config"])(folder)
    says("preprocessor_config.json", size=32, crop_size=32, feature_extractor_type="CLIP")(folder)
    hold_against_transformers(model, folder, pictures)


def test_weights_alone_are_read_with_clips_own_words_and_preprocessing(written, tmp_path):
    """As `CLIPModel.save_pretrained` leaves a folder. SigLIPs differ, so theirs must be there."""
    for kind, write in (("clip", write_clip), ("siglip", write_siglip)):
        write(tmp_path / kind)
        for path in (tmp_path / kind).iterdir():
            if path.suffix != ".safetensors" and path.name != "config.json":
                path.unlink()
    ours, whole = ccs.load(str(tmp_path / "clip")), ccs.load(str(written[1]))
    texts = [text for text in TEXTS if "<|" not in text]  # open_clip reads the end's own name otherwise
    np.testing.assert_allclose(ours.embed_texts(texts), whole.embed_texts(texts), atol=TOLERANCE)
    assert ours.is_openai_scaled
    with pytest.raises(InputError, match=r"There is no preprocessor_config.json in .*save_pretrained\(DIR\)"):
        ccs.load(str(tmp_path / "siglip"))


def test_words_that_were_added(tmp_path, pictures):
    """As textual inversion adds them: one more row of the embedding, one more token of the tokenizer."""
    model = write_clip(tmp_path, text={"vocab_size": 49_409})
    tokenizer = CLIPTokenizer.from_pretrained(tmp_path)
    tokenizer.add_tokens(["<my-dog>"])
    tokenizer.save_pretrained(tmp_path)
    ours = ccs.load(str(tmp_path))
    texts = ["a photo of <my-dog> running", "a photo of my dog running"]
    _, read = theirs(model, tmp_path, pictures(1), texts)
    np.testing.assert_allclose(ours.embed_texts(texts), read, atol=TOLERANCE)
    with pytest.raises(InputError, match="a tokenizer of its own"):
        export(ours, HeadSet(), tmp_path / "exported")


def test_images_that_are_squashed(written, tmp_path, pictures):
    """By the processor's newer file, in which the image's part is one of several."""
    model, folder = written[0], shutil.copytree(written[1], tmp_path / "squashed")
    own = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    own |= {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 2}
    own |= {"do_normalize": False}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": own}), "utf-8")
    hold_against_transformers(model, folder, pictures)


SEEN = {"image_size": 40, "patch_size": 10, "hidden_act": "gelu", "intermediate_size": 77}
READ = {"hidden_size": 20, "projection_size": 32, "layer_norm_eps": 0.1}


@pytest.mark.parametrize("sizes", [{}, {"vision": SEEN, **READ}], ids=["as it comes", "other sizes"])
def test_a_siglip_is_that_of_transformers(sizes, tmp_path, pictures):
    ours = hold_against_transformers(write_siglip(tmp_path, **sizes), tmp_path, pictures)
    assert ours.logit_bias == pytest.approx(-3.0)
    direct, rest = ours.contributions(pictures(2))
    np.testing.assert_allclose(direct.sum((1, 2)) + rest, ours.embed_images(pictures(2)), atol=TOLERANCE)
    assert ours.heads == known_tower(find(str(tmp_path))).heads
    with pytest.raises(InputError, match="a tokenizer of its own"):
        export(ours, HeadSet(), tmp_path / "exported")

"""Checkpoints and tokenizers of the Hub against transformers and open_clip; memory; rejected files."""

import gc
import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from open_clip.tokenizer import HFTokenizer, get_clean_fn
from safetensors.torch import load_file, save_file
from transformers import CLIPTokenizer

import ccs
from ccs.model.loading import fetching, sources, tokens
from ccs.model.loading.weights import WEIGHTS_FILE, WEIGHTS_FILES
from tests.support import corruptions, small_architectures
from tests.support.checkpoint import clip_vocabulary, embed_without_ccs, write_clip, write_siglip
from tests.support.tiny_model import write_tiny_model

TEXTS = ["a <my-dog>, two_Cats", "Ünïcode, don't 12!", "", "a " * 40, "x<|endoftext|>y", "  two\nlines  "]
TOLERANCE = 1e-5

OTHER_VISION = {"image_size": 40, "patch_size": 10, "hidden_size": 48, "num_attention_heads": 2}
OTHER_VISION |= {"hidden_act": "gelu"}
OTHER_TEXT = {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 33, "layer_norm_eps": 1e-3}
OTHER_TEXT |= {"eos_token_id": 320, "hidden_act": "gelu_pytorch_tanh"}
SIGLIP_VISION = {"image_size": 40, "patch_size": 10, "hidden_act": "gelu", "intermediate_size": 77}
SIGLIP_TEXT = {"hidden_size": 20, "projection_size": 32, "layer_norm_eps": 0.1}


def write_older_format(folder):
    """Write vocabulary and merges as two files, the encoders' entries twice, and sizes as plain numbers."""
    write_clip(folder)
    vocabulary, merges = clip_vocabulary()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, merges), ""]), "utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))["vision_config"]
    entries = {"vision_config": config | {"num_hidden_layers": 7}, "vision_config_dict": config}
    corruptions.set_json("config.json", **entries)(folder)
    entries = {"size": 32, "crop_size": 32, "feature_extractor_type": "CLIP"}
    corruptions.set_json("preprocessor_config.json", **entries)(folder)


def write_sharded(folder):
    """Write shards, the old end token, and a processor in the newer file, which doesn't crop images."""
    write_clip(folder, max_shard_size="200KB", text={"eos_token_id": 2})
    processor_config = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    processor_config |= {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 2}
    processor_config |= {"do_normalize": False}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": processor_config}), "utf-8")


def write_added_word(folder):
    """Write a model with an added word, as textual inversion does."""
    write_clip(folder, text={"vocab_size": 49_409})
    tokenizer = CLIPTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<my-dog>"])
    tokenizer.save_pretrained(folder)


CHECKPOINTS = {
    "open_clip": write_tiny_model,
    "open_clip's SigLIP": partial(small_architectures.write_small_model, name="ViT-B-16-SigLIP2"),
    "sharded": write_sharded,
    "other sizes and end token": partial(write_clip, vision=OTHER_VISION, text=OTHER_TEXT),
    "older format": write_older_format,
    "added word": write_added_word,
    "SigLIP of other sizes": partial(write_siglip, vision=SIGLIP_VISION, **SIGLIP_TEXT),
}


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@small_architectures.small_timm_models()
def test_loaded_checkpoint_matches_its_library(checkpoint, tmp_path, random_images):
    CHECKPOINTS[checkpoint](tmp_path)
    images = random_images(3)
    images += [images[2].resize((35, 32)), images[1].resize((40, 47))]
    image_units, text_units, logits = embed_without_ccs(tmp_path, images, TEXTS)
    ours = ccs.load(str(tmp_path))
    for size in (1, 4, 256):
        np.testing.assert_allclose(ours.embed_images(images, batch_size=size), image_units, atol=TOLERANCE)
        units = ours.embed_texts(TEXTS, batch_size=size)
        np.testing.assert_allclose(units, text_units, atol=TOLERANCE)
    expected = logits.sigmoid() if "SigLIP" in checkpoint else logits.softmax(1)
    np.testing.assert_allclose(ours.probabilities(image_units @ text_units.T), expected, atol=TOLERANCE)
    direct, remainder = ours.contributions(images)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, image_units, atol=TOLERANCE)
    assert ours.heads == sources.known_encoder(sources.find_model(str(tmp_path))).heads
    assert units.dtype == np.float32
    with pytest.warns(UserWarning, match="Longer texts are cut"):
        ours.embed_texts(TEXTS)


def test_weights_alone_use_defaults_of_clip(tmp_path, capsys):
    """`CLIPModel.save_pretrained` writes no tokenizer or processor. SigLIP has no defaults."""
    texts, units = [text for text in TEXTS if "<|" not in text], []  # open_clip parses special tokens
    for name, write in (("clip", write_clip), ("siglip", write_siglip)):
        write(tmp_path / name)
        units.append(ccs.load(str(tmp_path / name)).embed_texts(texts))
        for path in (tmp_path / name).iterdir():
            if path.suffix != ".safetensors" and path.name != "config.json":
                path.unlink()
    ours = ccs.load(str(tmp_path / "clip"))
    assert "no preprocessor_config.json and no tokenizer.json: OpenAI's are" in capsys.readouterr().err
    np.testing.assert_allclose(ours.embed_texts(texts), units[0], atol=TOLERANCE)
    assert ours.is_openai_scaled
    with pytest.raises(ccs.InputError, match=r"no preprocessor_config.json in .*save_pretrained\(DIR\)"):
        ccs.load(str(tmp_path / "siglip"))


def test_weights_of_wrapped_model_are_rejected(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    weights = load_file(folder / WEIGHTS_FILES[0])
    for prefix in ("_orig_mod.", "module.", "base_model.model.", "visual.lora_A."):
        save_file({f"{prefix}{key}": values for key, values in weights.items()}, folder / WEIGHTS_FILES[0])
        with pytest.raises(ccs.InputError, match=rf"{re.escape(prefix)}.* is a name inside a wrapper"):
            ccs.load(str(folder))


TOKENIZED = [*small_architectures.TEXTS, "", "ONE_two {three}", "a dog " * 40, "ünknown 猫"]


def test_clipa_tokens_match_open_clip(tmp_path):
    """CLIPA's tokens are BERT's without the end token."""
    from tokenizers import BertWordPieceTokenizer, processors

    rules = BertWordPieceTokenizer()
    rules.train_from_iterator(small_architectures.TEXTS, vocab_size=200)
    rules.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    rules.save(str(tmp_path / "tokenizer.json"))
    tokenizer_config = {"tokenizer_class": "TokenizersBackend", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    theirs = HFTokenizer(str(tmp_path), context_length=12, clean="whitespace", strip_sep_token=True)
    ours = tokens.HubTokenizer(fetching.Place(folder=tmp_path), 12, 400, get_clean_fn("whitespace"), True)
    np.testing.assert_array_equal(ours(TOKENIZED), theirs(TOKENIZED))


def test_siglip_tokens_match_transformers(tmp_path):
    """With a small SentencePiece model, in the files of google/siglip-base-patch16-224."""
    import sentencepiece
    from transformers import SiglipTokenizer

    sentences = iter(text.lower() for text in small_architectures.TEXTS)
    options = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
    options |= {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    with (tmp_path / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=sentences, model_writer=file, **options)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    (tmp_path / "config.json").write_text('{"model_type": "siglip"}')
    theirs = SiglipTokenizer(str(tmp_path / "spiece.model"))
    texts = [*TOKENIZED, "ＷＩＤＥ ﬁne", "tab\there", " a dog  is — “x”"]
    expected = theirs(texts, padding="max_length", max_length=12, truncation=True).input_ids
    ours = tokens.HubTokenizer(fetching.Place(folder=tmp_path), 12, 64, str.lower)
    np.testing.assert_array_equal(ours(texts), expected)


def read_memory(field):
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_stays_within_memory_estimate(tmp_path):
    """Stored values of one byte need four after loading."""
    weights = write_clip(tmp_path, text={"hidden_size": 320}).state_dict()
    small = {name: values.to(torch.float8_e4m3fn) for name, values in weights.items()}
    n_values = sum(values.numel() for values in weights.values())
    save_file(small, tmp_path / WEIGHTS_FILE)
    del weights, small
    ccs.load("organism").embed_texts(["a"])  # memory that every model needs
    estimate = sources.find_model(str(tmp_path)).memory - sources.OVERHEAD
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = read_memory("VmRSS")
    ccs.load(str(tmp_path))
    assert 4 * n_values < read_memory("VmHWM") - before < estimate + 2**25

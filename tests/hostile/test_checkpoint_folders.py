"""Hugging Face checkpoints from strangers: each ends in one sentence, and nothing of theirs runs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ccs
from tests.support.checkpoint import write_clip
from tests.support.spoil import BILLION, Mark, Spoil, ends_in_a_sentence, holds, lacks, part, says, weights_of

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PROCESSOR, TOKENIZER = "preprocessor_config.json", "tokenizer.json"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "tuned"
    write_clip(folder)
    return folder


weights_are = partial(weights_of, WEIGHTS)
vision, text = part(CONFIG, "vision_config"), part(CONFIG, "text_config")


def index(**weight_map: Any) -> Spoil:
    return holds(INDEX, json.dumps({"weight_map": weight_map}).encode())


def only_a_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Mark(folder / "ran")))


def code_of_its_own(folder: Path) -> None:
    """All the ways in which transformers can be told to run Python of the folder; none is looked at."""
    code = {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": [None, "code.Tok"]}
    for file in (CONFIG, PROCESSOR, "tokenizer_config.json"):
        says(file, auto_map=code, trust_remote_code=True, tokenizer_class="Tok")(folder)
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")


def a_pipe(folder: Path) -> None:
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


QUERY = "vision_model.encoder.layers.1.self_attn.q_proj.weight"
SPOILT: dict[str, tuple[Spoil, str]] = {
    "no config": (lacks(CONFIG), "neither open_clip_config.json nor config.json"),
    "a pipe": (a_pipe, "config.json is no file"),
    "no json": (holds(CONFIG, b"{"), "Invalid JSON"),
    "no text": (holds(CONFIG, b"\xff\xfe"), "Invalid JSON"),
    "deep": (holds(CONFIG, b'{"vision_config":' + b"[" * 100_000), "Invalid JSON"),
    "large": (holds(CONFIG, b" " * (2**20 + 1)), "config.json has 1048577 bytes"),
    "no model_type": (holds(CONFIG, b"{}"), "it has no 'model_type'"),
    "another model": (says(CONFIG, model_type="bert"), 'model_type is "bert"'),
    "quantised": (says(CONFIG, quantization_config={"bits": 4}), "quantization_config is"),
    "a SigLIP of no fixed resolution": (says(CONFIG, model_type="siglip2"), 'model_type is "siglip2"'),
    "a SigLIP that is a CLIP": (says(CONFIG, model_type="siglip"), "hidden_act is"),
    "no towers": (says(CONFIG, vision_config="ViT"), 'vision_config is "ViT"'),
    "10^9 layers": (vision(num_hidden_layers=BILLION), "num_hidden_layers is 1000000000"),
    "a wide tower": (vision(hidden_size=BILLION), "hidden_size is 1000000000"),
    "a wide layer": (text(intermediate_size=BILLION), "intermediate_size is 1000000000"),
    "negative": (text(hidden_size=-32), "hidden_size is -32"),
    "a flag for a number": (text(num_hidden_layers=True), "num_hidden_layers is true"),
    "heads that do not divide": (vision(num_attention_heads=7), "32 is not a multiple of 7 heads"),
    "no heads": (vision(num_attention_heads=0), "num_attention_heads is 0"),
    "patches larger than the image": (vision(patch_size=64), "patches of 64 do not cut 32"),
    "many patches": (vision(image_size=1024, patch_size=1), "patches of 1 do not cut 1024"),
    "grey": (vision(num_channels=1), "num_channels is 1"),
    "an activation": (vision(hidden_act="__import__"), "hidden_act is"),
    "two activations": (vision(hidden_act="gelu"), "its towers use gelu and quick_gelu"),
    "many tokens": (text(vocab_size=BILLION), "vocab_size is 1000000000"),
    "several ends": (text(eos_token_id=[1, 2]), "eos_token_id is [1, 2]"),
    "a long context": (text(max_position_embeddings=BILLION), "max_position_embeddings is 1000000000"),
    "more than it holds": (vision(hidden_size=8192, num_hidden_layers=128), "weights are described"),
    "more than it holds in texts": (text(vocab_size=2_000_000), "weights are described"),
    "no preprocessing": (lacks(PROCESSOR), "there is no preprocessor_config.json"),
    "another size": (says(PROCESSOR, size={"shortest_edge": 64}), "images must become 32 by 32 pixels"),
    "no crop": (says(PROCESSOR, do_center_crop=False), "images must become 32 by 32 pixels"),
    "not resized": (says(PROCESSOR, do_resize=False), "do_resize is false"),
    "levels": (says(PROCESSOR, rescale_factor=1.0), "rescale_factor is 1.0"),
    "a filter": (says(PROCESSOR, resample=99), "resample is 99"),
    "deviation of zero": (says(PROCESSOR, image_std=[0.0, 1.0, 1.0]), "image_std.0 is 0.0"),
    "no weights": (lacks(WEIGHTS), "there is no model.safetensors"),
    "only a pickle": (only_a_pickle, "pytorch_model.bin is a pickle, which can run any program"),
    "a pickle with another name": (holds(WEIGHTS, pickle.dumps(Mark(Path("ran")))), "could not be loaded"),
    "shards that are not there": (index(a="model-1.safetensors"), "there is no model-1.safetensors"),
    "shards elsewhere": (index(a="../../etc/passwd"), "cannot be used: weight_map.a is"),
    "shards of the root": (index(a="/model.safetensors"), "cannot be used: weight_map.a is"),
    "shards that are pickles": (index(a="model.bin"), "cannot be used: weight_map.a is"),
    "many shards": (index(**{f"w{i}": f"{i}.safetensors" for i in range(99)}), "names 99 files"),
    "no shards": (holds(INDEX, b'{"weight_map": {}}'), "names 0 files"),
    "no index": (holds(INDEX, b"[]"), "cannot be used"),
    "no queries": (weights_are(lambda values: values.pop(QUERY)), "in_proj_weight has no q"),
    "a weight missing": (weights_are(lambda values: values.pop("logit_scale")), "Missing key"),
    "a weight too many": (
        weights_are(lambda values: values.update(x=torch.ones(3))),
        "Unexpected key",
    ),
    "another shape": (
        weights_are(lambda values: values.update({QUERY: torch.ones(3, 3)})),
        "Sizes of tensors",
    ),
    "NaN in weights": (
        weights_are(lambda values: values[QUERY].fill_(torch.nan)),
        "not all finite numbers",
    ),
    "no tokenizer": (lacks(TOKENIZER), "neither tokenizer.json nor vocab.json and merges.txt"),
    "half a tokenizer": (
        lambda folder: (folder / TOKENIZER).rename(folder / "vocab.json"),
        "neither tokenizer.json nor vocab.json and merges.txt",
    ),
    "a tokenizer of another kind": (says(TOKENIZER, model__type="Unigram"), "its tokenizer is no CLIP's"),
    "bytes of a tokenizer": (holds(TOKENIZER, b"\xff"), "its tokenizer is no CLIP's: Invalid JSON"),
    "a large tokenizer": (holds(TOKENIZER, b" " * (2**24 + 1)), "tokenizer.json has 16777217 bytes"),
    "tokens without rows": (says(TOKENIZER, model__vocab={"a": 49_408}), "has a token 49408"),
    "a token of a billion": (says(TOKENIZER, model__vocab={"a": BILLION}), "is 1000000000"),
    "a negative token": (says(TOKENIZER, model__vocab={"a": -1}), "is -1"),
    "no tokens": (
        says(TOKENIZER, model__vocab={}, model__merges=[], added_tokens=[]),
        "its tokenizer has no token '<|startoftext|>'",
    ),
    "merges that are none": (says(TOKENIZER, model__merges=["a b c"]), "merges 'a b c', which is no pair"),
    "merges of nothing": (says(TOKENIZER, model__merges=[["q" * 99, "z"]]), "could not be loaded"),
    "an end of its own": (says("tokenizer_config.json", eos_token="<end>"), "has no token '<end>'"),
    "added tokens of no number": (
        says("tokenizer_config.json", added_tokens_decoder={"²": {"content": "x"}}),
        "its tokenizer is no CLIP's",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_checkpoint_ends_in_a_sentence(checkpoint: Path, tmp_path: Path, kind: str) -> None:
    spoil, message = SPOILT[kind]
    folder = shutil.copytree(checkpoint, tmp_path / "spoilt")
    spoil(folder)
    ends_in_a_sentence(folder, message)


def test_no_code_of_a_checkpoint_runs(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "evil")
    code_of_its_own(folder)
    assert ccs.load(str(folder)).weights_hash == ccs.load(str(checkpoint)).weights_hash
    assert not (folder / "ran").exists()

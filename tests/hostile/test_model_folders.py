"""Model folders from strangers: each ends in one sentence, no code of theirs runs, memory stays bounded."""

from __future__ import annotations

import json
import pickle
import resource
import shutil
import struct
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import ccs
from ccs import InputError
from tests.support.spoil import BILLION, Mark, Spoil, ends_in_a_sentence, holds, lacks, part, says, weights_of

CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"


weights_are = partial(weights_of, WEIGHTS)
vision, text = part(CONFIG, "model_cfg__vision_cfg"), part(CONFIG, "model_cfg__text_cfg")
preprocess = part(CONFIG, "preprocess_cfg")


def config_is_a_folder(folder: Path) -> None:
    (folder / CONFIG).unlink()
    (folder / CONFIG).mkdir()


def bytes_are(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda folder: (folder / WEIGHTS).write_bytes(change((folder / WEIGHTS).read_bytes()))


def only_a_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "open_clip_pytorch_model.bin").write_bytes(pickle.dumps(Mark(folder / "ran")))


def poison(value: float) -> Spoil:
    name = "visual.transformer.resblocks.3.mlp.c_fc.bias"
    return weights_are(lambda values: values[name].__setitem__(5, value))


SPOILT: dict[str, tuple[Spoil, str]] = {
    "no config": (lacks(CONFIG), "neither open_clip_config.json nor config.json"),
    "config is a folder": (config_is_a_folder, "open_clip_config.json is no file"),
    "no json": (holds(CONFIG, b"{"), "Invalid JSON"),
    "a list": (holds(CONFIG, b"[]"), "is not an open_clip configuration"),
    "no bytes": (holds(CONFIG, b""), "Invalid JSON"),
    "no text": (holds(CONFIG, b"\xff\xfe\x00"), "Invalid JSON"),
    "deep": (holds(CONFIG, b'{"model_cfg":' + b"[" * 100_000), "Invalid JSON"),
    "large": (holds(CONFIG, b" " * (2**20 + 1)), "open_clip_config.json has 1048577 bytes"),
    "no model_cfg": (holds(CONFIG, b"{}"), "it has no 'model_cfg'"),
    "no vision_cfg": (says(CONFIG, model_cfg__vision_cfg=None), "it has no 'model_cfg.vision_cfg'"),
    "vision_cfg is text": (says(CONFIG, model_cfg__vision_cfg="ViT"), 'model_cfg.vision_cfg is "ViT"'),
    "unknown entry": (vision(hats=3), "unknown entry 'model_cfg.vision_cfg.hats'"),
    "a keyword of create_model": (
        says(CONFIG, model_cfg__cast_dtype="x"),
        "unknown entry 'model_cfg.cast_dtype'",
    ),
    "10^9 layers": (vision(layers=BILLION), "layers is 1000000000"),
    "10^9 text layers": (text(layers=BILLION), "layers is 1000000000"),
    "a wide tower": (vision(width=2**20, head_width=2**10), "width is 1048576"),
    "a large embedding": (says(CONFIG, model_cfg__embed_dim=BILLION), "embed_dim is 1000000000"),
    "many tokens": (text(vocab_size=BILLION), "vocab_size is 1000000000"),
    "few tokens": (text(vocab_size=100), "less than the tokenizer's 49408"),
    "a long context": (text(context_length=BILLION), "context_length is 1000000000"),
    "a large image": (vision(image_size=100_000), "image_size is 100000"),
    "many patches": (vision(image_size=1024, patch_size=1), "patches of 1 do not cut 1024"),
    "patches larger than the image": (vision(patch_size=64), "patches of 64 do not cut 32"),
    "sizes that allocate what is not there": (
        vision(layers=128, width=8192, head_width=64),
        "weights are described, open_clip_model.safetensors holds",
    ),
    "heads that do not divide": (vision(head_width=7), "width 32 is not a multiple of head_width 7"),
    "text heads that do not divide": (text(heads=3), "width 16 is not a multiple of 3 heads"),
    "no layers": (vision(layers=0), "layers is 0"),
    "negative": (vision(width=-32), "width is -32"),
    "a float": (vision(layers=6.5), "layers is 6.5"),
    "a flag for a number": (vision(layers=True), "layers is true"),
    "a number as text": (vision(layers="6"), 'layers is "6"'),
    "NaN": (vision(mlp_ratio=float("nan")), "mlp_ratio is NaN"),
    "infinite": (says(CONFIG, model_cfg__init_logit_scale=float("inf")), "init_logit_scale is Infinity"),
    "a mode of patches": (vision(pool_type="../x"), "pool_type is"),
    "activation keywords": (vision(act_kwargs={"inplace": True}), "unknown entry"),
    "norm keywords": (vision(norm_kwargs={"device": "meta"}), "unknown entry"),
    "timm from the Hub": (vision(timm_model_name="hf-hub:evil/x"), "no architecture of open_clip uses this"),
    "timm from a folder": (
        vision(timm_model_name="local-dir:/tmp"),
        "no architecture of open_clip uses this",
    ),
    "a text tower from a folder": (text(hf_model_name="."), "no architecture of open_clip uses this"),
    "a tokenizer from a folder": (text(hf_tokenizer_name="."), "no architecture of open_clip uses this"),
    "a tokenizer of anyone": (text(hf_tokenizer_name="evil/x"), "no architecture of open_clip uses this"),
    "tokenizer keywords": (text(tokenizer_kwargs={"bpe_path": "/etc/passwd"}), "unknown entry"),
    "mode": (preprocess(mode="I;16"), "mode is"),
    "deviation of zero": (preprocess(std=[0.0, 1.0, 1.0]), "std.0 is 0.0"),
    "mean of two": (preprocess(mean=[0.5, 0.5]), "mean"),
    "interpolation": (preprocess(interpolation="__import__"), "interpolation is"),
    "no weights": (lacks(WEIGHTS), "there is no open_clip_model.safetensors"),
    "only a pickle": (only_a_pickle, "open_clip_pytorch_model.bin is a pickle, which can run any program"),
    "weights cut short": (bytes_are(lambda data: data[:1000]), "could not be loaded"),
    "weights of no bytes": (bytes_are(lambda data: b""), "could not be loaded"),
    "a pickle with another name": (
        bytes_are(lambda data: pickle.dumps(Mark(Path("x")))),
        "could not be loaded",
    ),
    "a header that lies": (
        bytes_are(lambda data: struct.pack("<Q", 2**60) + data[8:]),
        "could not be loaded",
    ),
    "a weight missing": (weights_are(lambda values: values.pop("visual.proj")), "Missing key"),
    "a weight too many": (
        weights_are(lambda values: values.update(x=torch.ones(3))),
        "Unexpected key",
    ),
    "another shape": (
        weights_are(lambda values: values.update({"visual.proj": torch.ones(3)})),
        "size mismatch",
    ),
    "NaN in weights": (poison(float("nan")), r"not all finite numbers: visual.transformer.resblocks.3.mlp"),
    "infinity in weights": (poison(float("inf")), "not all finite numbers"),
    "weights that overflow": (
        weights_are(lambda values: values["visual.proj"].fill_(1e38)),
        "not finite",
    ),
    "a scale that overflows": (
        weights_are(lambda values: values["logit_scale"].fill_(1e4)),
        "not finite",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_spoilt_folder_ends_in_a_sentence(tiny_folder: Path, tmp_path: Path, kind: str) -> None:
    spoil, message = SPOILT[kind]
    folder = shutil.copytree(tiny_folder, tmp_path / "spoilt")
    spoil(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends_in_a_sentence(folder, message)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # kB


@pytest.mark.parametrize("key", ["trust_remote_code", "auto_map"])
def test_no_code_of_a_model_folder_runs(
    tiny_folder: Path, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer of the folder's own, with the keyword by which transformers once ran it."""
    folder = shutil.copytree(tiny_folder, tmp_path / "evil")
    keywords = {key: True}
    text(hf_tokenizer_name="bert-base-uncased", tokenizer_kwargs=keywords)(folder)
    auto_map = {"tokenizer_class": "Tok", "auto_map": {"AutoTokenizer": [None, "tok.Tok"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(auto_map))
    (folder / "tok.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass Tok: pass\n")
    monkeypatch.setitem(sys.modules, "transformers", transformers_that_runs_code())
    with pytest.raises(InputError, match=f"unknown entry 'model_cfg.text_cfg.tokenizer_kwargs.{key}'"):
        ccs.load(str(folder))
    assert not (folder / "ran").exists()
    text(tokenizer_kwargs=None)(folder)  # without the keyword it is the Hub's tokenizer or none
    with pytest.raises(InputError, match="could not be loaded"):
        ccs.load(str(folder))
    assert not (folder / "ran").exists()


def transformers_that_runs_code() -> types.ModuleType:
    """Stands for transformers, which need not be installed: trusting, it runs the folder's Python."""

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(place: Any, **keywords: Any) -> Any:
            file = Path(place) / "tok.py"
            if not file.exists():
                raise OSError(f"{place} cannot be reached")
            if keywords.get("trust_remote_code") is not False:
                exec(file.read_text())
            return object()

    module = types.ModuleType("transformers")
    module.AutoTokenizer = AutoTokenizer  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    "name",
    [
        "local-dir:",
        "local-dir:/etc",
        "local-dir:/no/such/openai",
        "local-dir:ViT-B-32/openai",
        "hf-hub:",
        "hf-hub:x",
        "hf-hub:../../etc",
        "hf-hub:a/b/c",
        "hf-hub:a/b@c?d",
        "hf-hub:²/²",
        "~nobody/x",
        "a\0b/openai",
        "x" * 100_000,
        "/" * 5000,
        "../../../etc/passwd",
        "/dev/zero",
        "ViT-B-32/../openai",
        "ViT-B-32/\u202eopenai",
    ],
)
def test_a_name_that_is_none_ends_in_a_sentence(name: str) -> None:
    with pytest.raises(InputError) as caught:
        ccs.load(name)
    assert len(str(caught.value)) < 700

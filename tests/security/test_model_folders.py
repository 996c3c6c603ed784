"""Untrusted model folders of open_clip and transformers: clear errors, bounded memory, and no code runs."""

import json
import os
import pickle
import resource
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import ccs
from ccs import InputError
from ccs.model.loading import fetching, tokens, weights
from tests.support.checkpoint import write_clip
from tests.support.corruptions import delete_file, replace_file, set_json, set_json_in

BILLION = 10**9
CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
HF_CONFIG, HF_WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PROCESSOR, TOKENIZER, TOKENIZER_CONFIG = "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"


class MaliciousPickle:
    """An object that creates a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


set_vision, set_text = (
    set_json_in(CONFIG, "model_cfg__vision_cfg"),
    set_json_in(CONFIG, "model_cfg__text_cfg"),
)
set_hf_vision, set_hf_text = (set_json_in(HF_CONFIG, "vision_config"), set_json_in(HF_CONFIG, "text_config"))


def change_weights(change, file=WEIGHTS):
    def corrupt(folder):
        values = load_file(folder / file)
        change(values)
        save_file(values, folder / file)

    return corrupt


def replace_config_by_pipe(folder):
    (folder / HF_CONFIG).unlink()
    os.mkfifo(folder / HF_CONFIG)


def replace_weights_by_pickle(safe, name):
    def corrupt(folder):
        (folder / safe).unlink()
        (folder / name).write_bytes(pickle.dumps(MaliciousPickle(folder / "ran")))

    return corrupt


def add_unknown_words(values):
    values[weights.WORDS] = torch.arange(len(values[weights.EMBEDDING])) + 1


def set_index(**weight_map):
    return replace_file(INDEX, json.dumps({"weight_map": weight_map}).encode())


def add_code(folder):
    """Add Python code, and all settings with which transformers would run it."""
    code = {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": [None, "code.Tok"]}
    for file in (HF_CONFIG, PROCESSOR, TOKENIZER_CONFIG):
        if (folder / file).exists():
            set_json(file, auto_map=code, trust_remote_code=True)(folder)
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass Tok: pass\n")


def add_tokenizer_class(folder):
    add_code(folder)
    set_json(TOKENIZER_CONFIG, tokenizer_class="Tok")(folder)


BIAS = "visual.transformer.resblocks.3.mlp.c_fc.bias"
QUERY = "vision_model.encoder.layers.1.self_attn.q_proj.weight"
UNKNOWN, UNREADABLE = "which no architecture of open_clip uses", "can't be loaded"
OPEN_CLIP_CASES = {
    "number of 5,000 digits": (replace_file(CONFIG, b'{"model_cfg": ' + b"9" * 5000), "Exceeds the limit"),
    "deeply nested JSON": (replace_file(CONFIG, b'{"model_cfg":' + b"[" * 100_000), "RecursionError"),
    "large configuration": (
        replace_file(CONFIG, b" " * (2**20 + 1)),
        "open_clip_config.json has 1048577 bytes",
    ),
    "no vision_cfg": (set_json(CONFIG, model_cfg__vision_cfg=None), "there is no 'vision_cfg'"),
    "unknown entry": (set_vision(hats=3), "unexpected keyword argument 'hats'"),
    "10^9 layers": (set_vision(layers=BILLION), "layers is 1000000000; 128 is the most"),
    "few tokens": (set_text(vocab_size=100), "less than the tokenizer's 49408"),
    "many patches": (set_vision(image_size=1024, patch_size=1), "patches of 1 cut 1024 into more than 64"),
    "large sizes": (set_vision(layers=128, width=8192, head_width=64), "of memory, and this machine has"),
    "large attention": (
        set_vision(width=1024, head_width=1, image_size=1024, patch_size=16),
        "needs about 1",
    ),
    "NaN": (set_vision(mlp_ratio=float("nan")), "mlp_ratio is nan"),
    "norm keywords": (
        set_vision(norm_kwargs={"device": "meta"}),
        "norm_kwargs has an unknown entry 'device'",
    ),
    "text encoder from a folder": (set_text(hf_model_name="."), UNKNOWN),
    "tokenizer keywords": (set_text(tokenizer_kwargs={"trust_remote_code": True}), "unknown entry"),
    "no weights": (delete_file(WEIGHTS), "there is no open_clip_model.safetensors"),
    "pickled weights": (
        replace_weights_by_pickle(WEIGHTS, "open_clip_pytorch_model.bin"),
        "is a pickle, which can run",
    ),
    "pickle named safetensors": (
        replace_file(WEIGHTS, pickle.dumps(MaliciousPickle(Path("ran")))),
        UNREADABLE,
    ),
    "missing weight": (change_weights(lambda values: values.pop("visual.proj")), "Missing key"),
    "words outside the vocabulary": (change_weights(add_unknown_words), UNREADABLE),
    "NaN in weights": (
        change_weights(lambda values: values[BIAS].fill_(torch.nan)),
        f"numbers: {BIAS} is not",
    ),
}
TRANSFORMERS_CASES = {
    "pickled weights": (
        replace_weights_by_pickle("model.safetensors", "pytorch_model.bin"),
        "is a pickle, which can run",
    ),
    "named pipe": (replace_config_by_pipe, "config.json is not a file"),
    "another model type": (
        set_json(HF_CONFIG, model_type="bert"),
        "model_type is 'bert', not clip or siglip",
    ),
    "quantized": (set_json(HF_CONFIG, quantization_config={"bits": 4}), "quantized"),
    "CLIP declared as SigLIP": (set_json(HF_CONFIG, model_type="siglip"), "both QuickGELU or none"),
    "boolean for a number": (set_hf_text(num_hidden_layers=True), "expected int, got bool"),
    "indivisible number of heads": (set_hf_vision(num_attention_heads=7), "not a multiple"),
    "unknown activation": (set_hf_vision(hidden_act="__import__"), "hidden_act is '__import__'"),
    "another image size": (
        set_json(PROCESSOR, size={"shortest_edge": 64}),
        "images must become 32 by 32 pixels",
    ),
    "unscaled pixels": (set_json(PROCESSOR, rescale_factor=1.0), "pixels must be divided by 255"),
    "missing shards": (set_index(a="model-1.safetensors"), "there is no model-1.safetensors"),
    "shards outside the folder": (
        set_index(a="../../etc/passwd"),
        "must name safetensors files in its folder",
    ),
    "missing query weights": (
        change_weights(lambda values: values.pop(QUERY), HF_WEIGHTS),
        "in_proj_weight has no q",
    ),
    "another tokenizer model": (set_json(TOKENIZER, model__type="Unigram"), "cannot be read"),
    "10^9 labels": (set_json(HF_CONFIG, num_labels=BILLION), "cannot be read within"),
    "custom tokenizer class": (add_tokenizer_class, "'Tok' is not a supported class of tokenizers"),
    "custom end token": (
        set_json(TOKENIZER_CONFIG, eos_token="<end>"),
        "has a token 49408, and its vocab_size is 49408",
    ),
}


@pytest.fixture(scope="module")
def checkpoint(shared_folder):
    return shared_folder("tuned", write_clip)


@pytest.mark.parametrize("case", [*OPEN_CLIP_CASES, *(f"checkpoint: {case}" for case in TRANSFORMERS_CASES)])
def test_corrupt_model_folder_is_rejected(tiny_folder, checkpoint, tmp_path, case):
    _, is_checkpoint, name = case.rpartition("checkpoint: ")
    corrupt, message = (TRANSFORMERS_CASES if is_checkpoint else OPEN_CLIP_CASES)[name]
    folder = shutil.copytree(checkpoint if is_checkpoint else tiny_folder, tmp_path / "corrupt")
    corrupt(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        ccs.load(str(folder))
    error = str(caught.value)
    assert message in error
    assert folder.name in error
    assert str(folder.parent) not in error
    assert len(error) < 700
    assert not (folder / "ran").exists()
    assert not Path("ran").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # kB


def slow_tokenizer(folder, **overrides):
    """Make a tokenizer of two tokens, `u` (0) and `a` (1), with a prefix of five megabytes inside words."""
    model = {"type": "WordPiece", "unk_token": "u", "vocab": {"u": 0, "a": 1}}
    model |= {"max_input_chars_per_word": 10, "continuing_subword_prefix": "x" * 5_000_000}
    disabled = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    common = {"pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [], "version": "1.0"}
    (folder / TOKENIZER).write_text(json.dumps({**disabled, **common, "model": model, **overrides}))
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "u", "unk_token": "u"}
    (folder / TOKENIZER_CONFIG).write_text(json.dumps(tokenizer_config))
    return tokens.HubTokenizer(fetching.Place(folder=folder), 4, 400)


def test_tokenizer_with_token_beyond_vocabulary_is_rejected(tmp_path):
    ends = {"type": "BertProcessing", "sep": ["x", 90_000], "cls": ["y", 1]}
    with pytest.raises(InputError, match="has a token 90000, and its vocab_size is 400"):
        slow_tokenizer(tmp_path, post_processor=ends)(["a"])


def test_slow_tokenizer_times_out(tmp_path, monkeypatch):
    tokenizer = slow_tokenizer(tmp_path)
    assert tokenizer(["a"]).tolist() == [[1, 0, 0, 0]]
    monkeypatch.setattr(tokens, "SECONDS", 0.6)
    with pytest.raises(InputError, match="cannot be read within 1 seconds"):
        tokenizer(["ab " * 10_000] * 3)


def test_code_in_model_folder_does_not_run(checkpoint, tiny_folder, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "evil")
    add_code(folder)
    ccs.load(str(folder))
    assert not (folder / "ran").exists()
    other = shutil.copytree(tiny_folder, tmp_path / "other")
    set_text(hf_tokenizer_name="bert-base-uncased")(other)
    for file in (TOKENIZER, TOKENIZER_CONFIG):
        shutil.copy(checkpoint / file, other)
    add_tokenizer_class(other)
    with pytest.raises(InputError, match="'Tok' is not a supported class of tokenizers"):
        ccs.load(str(other))
    assert not (other / "ran").exists()


INVALID_NAMES = "local-dir:/etc", "hf-hub:../../etc", "a\0b/openai", "x" * 100_000, "ViT-B-32/\u202eopenai"


@pytest.mark.parametrize("name", [*INVALID_NAMES, "/dev/zero"])
def test_invalid_model_name_is_rejected(name):
    with pytest.raises(InputError) as caught:
        ccs.load(name)
    assert len(str(caught.value)) < 700

"""Models from strangers, of open_clip and of transformers: each ends in one sentence, and no code runs."""

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
THEIR_CONFIG, THEIR_WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PROCESSOR, TOKENIZER, ABOUT = "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"


class Mark:
    """A pickle of it writes a file when it is read."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


vision, text = set_json_in(CONFIG, "model_cfg__vision_cfg"), set_json_in(CONFIG, "model_cfg__text_cfg")
their_vision, their_text = (
    set_json_in(THEIR_CONFIG, "vision_config"),
    set_json_in(THEIR_CONFIG, "text_config"),
)


def weights_are(change, file=WEIGHTS):
    def spoil(folder):
        values = load_file(folder / file)
        change(values)
        save_file(values, folder / file)

    return spoil


def config_is_a_pipe(folder):
    (folder / THEIR_CONFIG).unlink()
    os.mkfifo(folder / THEIR_CONFIG)


def only_a_pickle(safe, name):
    def spoil(folder):
        (folder / safe).unlink()
        (folder / name).write_bytes(pickle.dumps(Mark(folder / "ran")))

    return spoil


def words_beyond(values):
    values[weights.WORDS] = torch.arange(len(values[weights.EMBEDDING])) + 1


def index(**weight_map):
    return replace_file(INDEX, json.dumps({"weight_map": weight_map}).encode())


def own_code(folder):
    """All the ways in which transformers can be told to run Python of the folder."""
    code = {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": [None, "code.Tok"]}
    for file in (THEIR_CONFIG, PROCESSOR, ABOUT):
        if (folder / file).exists():
            set_json(file, auto_map=code, trust_remote_code=True)(folder)
    (folder / "code.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass Tok: pass\n")


def own_class(folder):
    own_code(folder)
    set_json(ABOUT, tokenizer_class="Tok")(folder)


BIAS = "visual.transformer.resblocks.3.mlp.c_fc.bias"
QUERY = "vision_model.encoder.layers.1.self_attn.q_proj.weight"
UNKNOWN, UNREADABLE = "which no architecture of open_clip uses", "can't be loaded"
OPEN_CLIPS = {
    "a number of 5,000 digits": (replace_file(CONFIG, b'{"model_cfg": ' + b"9" * 5000), "Exceeds the limit"),
    "deep": (replace_file(CONFIG, b'{"model_cfg":' + b"[" * 100_000), "RecursionError"),
    "large": (replace_file(CONFIG, b" " * (2**20 + 1)), "open_clip_config.json has 1048577 bytes"),
    "no vision_cfg": (set_json(CONFIG, model_cfg__vision_cfg=None), "there is no 'vision_cfg'"),
    "unknown entry": (vision(hats=3), "unexpected keyword argument 'hats'"),
    "10^9 layers": (vision(layers=BILLION), "layers is 1000000000; 128 is the most"),
    "few tokens": (text(vocab_size=100), "less than the tokenizer's 49408"),
    "many patches": (vision(image_size=1024, patch_size=1), "patches of 1 cut 1024 into more than 64"),
    "large sizes": (vision(layers=128, width=8192, head_width=64), "of memory, and this machine has"),
    "large attention": (vision(width=1024, head_width=1, image_size=1024, patch_size=16), "needs about 1"),
    "NaN": (vision(mlp_ratio=float("nan")), "mlp_ratio is nan"),
    "norm keywords": (vision(norm_kwargs={"device": "meta"}), "norm_kwargs has an unknown entry 'device'"),
    "a text encoder from a folder": (text(hf_model_name="."), UNKNOWN),
    "tokenizer keywords": (text(tokenizer_kwargs={"trust_remote_code": True}), "unknown entry"),
    "no weights": (delete_file(WEIGHTS), "there is no open_clip_model.safetensors"),
    "only a pickle": (only_a_pickle(WEIGHTS, "open_clip_pytorch_model.bin"), "is a pickle, which can run"),
    "a pickle with another name": (replace_file(WEIGHTS, pickle.dumps(Mark(Path("ran")))), UNREADABLE),
    "a weight missing": (weights_are(lambda values: values.pop("visual.proj")), "Missing key"),
    "a word that no vocabulary has": (weights_are(words_beyond), UNREADABLE),
    "NaN in weights": (weights_are(lambda values: values[BIAS].fill_(torch.nan)), f"numbers: {BIAS} is not"),
}
CHECKPOINTS = {
    "only a pickle": (only_a_pickle("model.safetensors", "pytorch_model.bin"), "is a pickle, which can run"),
    "a pipe": (config_is_a_pipe, "config.json is not a file"),
    "another model": (set_json(THEIR_CONFIG, model_type="bert"), "model_type is 'bert', not clip or siglip"),
    "quantised": (set_json(THEIR_CONFIG, quantization_config={"bits": 4}), "quantized"),
    "a SigLIP that is a CLIP": (set_json(THEIR_CONFIG, model_type="siglip"), "both QuickGELU or none"),
    "a flag for a number": (their_text(num_hidden_layers=True), "expected int, got bool"),
    "heads that do not divide": (their_vision(num_attention_heads=7), "not a multiple"),
    "an activation": (their_vision(hidden_act="__import__"), "hidden_act is '__import__'"),
    "another size": (set_json(PROCESSOR, size={"shortest_edge": 64}), "images must become 32 by 32 pixels"),
    "levels": (set_json(PROCESSOR, rescale_factor=1.0), "pixels must be divided by 255"),
    "shards that are not there": (index(a="model-1.safetensors"), "there is no model-1.safetensors"),
    "shards elsewhere": (index(a="../../etc/passwd"), "must name safetensors files in its folder"),
    "no queries": (weights_are(lambda values: values.pop(QUERY), THEIR_WEIGHTS), "in_proj_weight has no q"),
    "a tokenizer of another kind": (set_json(TOKENIZER, model__type="Unigram"), "cannot be read"),
    "labels without end": (set_json(THEIR_CONFIG, num_labels=BILLION), "cannot be read within"),
    "a tokenizer of its own": (own_class, "'Tok' is not a supported class of tokenizers"),
    "an end of its own": (
        set_json(ABOUT, eos_token="<end>"),
        "has a token 49408, and its vocab_size is 49408",
    ),
}


@pytest.fixture(scope="module")
def checkpoint(shared_folder):
    return shared_folder("tuned", write_clip)


@pytest.mark.parametrize("kind", [*OPEN_CLIPS, *(f"checkpoint: {kind}" for kind in CHECKPOINTS)])
def test_a_spoilt_folder_ends_in_a_sentence(tiny_folder, checkpoint, tmp_path, kind):
    _, is_checkpoint, name = kind.rpartition("checkpoint: ")
    spoil, message = (CHECKPOINTS if is_checkpoint else OPEN_CLIPS)[name]
    folder = shutil.copytree(checkpoint if is_checkpoint else tiny_folder, tmp_path / "spoilt")
    spoil(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as caught:
        ccs.load(str(folder))
    words = str(caught.value)
    assert message in words
    assert folder.name in words
    assert str(folder.parent) not in words
    assert len(words) < 700
    assert not (folder / "ran").exists()
    assert not Path("ran").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # kB


def own_tokenizer(folder, **overrides):
    """One of two tokens, `u` (0) and `a` (1), and a prefix of five megabytes before what is inside a word."""
    model = {"type": "WordPiece", "unk_token": "u", "vocab": {"u": 0, "a": 1}}
    model |= {"max_input_chars_per_word": 10, "continuing_subword_prefix": "x" * 5_000_000}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    words = {"pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [], "version": "1.0"}
    (folder / TOKENIZER).write_text(json.dumps({**empty, **words, "model": model, **overrides}))
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "u", "unk_token": "u"}
    (folder / ABOUT).write_text(json.dumps(tokenizer_config))
    return tokens.HubTokenizer(fetching.Place(folder=folder), 4, 400)


def test_a_tokenizer_that_gives_tokens_beyond_the_table_is_refused(tmp_path):
    ends = {"type": "BertProcessing", "sep": ["x", 90_000], "cls": ["y", 1]}
    with pytest.raises(InputError, match="has a token 90000, and its vocab_size is 400"):
        own_tokenizer(tmp_path, post_processor=ends)(["a"])


def test_a_tokenizer_that_takes_hours_is_given_up(tmp_path, monkeypatch):
    tokenizer = own_tokenizer(tmp_path)
    assert tokenizer(["a"]).tolist() == [[1, 0, 0, 0]]
    monkeypatch.setattr(tokens, "SECONDS", 0.6)
    with pytest.raises(InputError, match="cannot be read within 1 seconds"):
        tokenizer(["ab " * 10_000] * 3)


def test_no_code_of_a_folder_runs(checkpoint, tiny_folder, tmp_path):
    folder = shutil.copytree(checkpoint, tmp_path / "evil")
    own_code(folder)
    ccs.load(str(folder))
    assert not (folder / "ran").exists()
    other = shutil.copytree(tiny_folder, tmp_path / "beside")
    text(hf_tokenizer_name="bert-base-uncased")(other)
    for file in (TOKENIZER, ABOUT):
        shutil.copy(checkpoint / file, other)
    own_class(other)
    with pytest.raises(InputError, match="'Tok' is not a supported class of tokenizers"):
        ccs.load(str(other))
    assert not (other / "ran").exists()


NAMES = "local-dir:/etc", "hf-hub:../../etc", "a\0b/openai", "x" * 100_000, "ViT-B-32/\u202eopenai"


@pytest.mark.parametrize("name", [*NAMES, "/dev/zero"])
def test_a_name_that_is_none_ends_in_a_sentence(name):
    with pytest.raises(InputError) as caught:
        ccs.load(name)
    assert len(str(caught.value)) < 700

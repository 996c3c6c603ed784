"""Tokenizers from files alone, and a small SigLIP, against open_clip's own."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from open_clip.tokenizer import HFTokenizer

import ccs
from ccs import InputError
from ccs.measures.accuracy import class_weights
from ccs.model.fetching import Place
from ccs.model.tokens import HubTokenizer
from tests.support import shrunk

TEXTS = [*shrunk.TEXTS, "", "ONE_two {three}", "a dog " * 40, "ünknown 猫"]


Change = Callable[[dict[str, Any]], object]


def changed(folder: Path, change: Change) -> Path:
    """A tokenizer's files with its rules changed."""
    shrunk.write_tokenizer(folder)
    rules = json.loads((folder / "tokenizer.json").read_text())
    change(rules)
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    return folder


def write_bert(folder: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    rules = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    rules.normalizer, rules.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    rules.train_from_iterator(shrunk.TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    rules.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    rules.save(str(folder / "tokenizer.json"))
    roles = {"pad_token": "[PAD]", "sep_token": {"content": "[SEP]"}, "unk_token": "[UNK]"}
    (folder / "special_tokens_map.json").write_text(json.dumps(roles))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


@pytest.mark.parametrize("clean", ["canonicalize", "lower", "whitespace"])
@pytest.mark.parametrize("kind", ["SigLIP", "CLIPA"])
def test_tokens_are_those_of_open_clip(tmp_path: Path, kind: str, clean: str) -> None:
    (shrunk.write_tokenizer if kind == "SigLIP" else write_bert)(tmp_path)
    strip = kind == "CLIPA"
    theirs = HFTokenizer(str(tmp_path), context_length=12, clean=clean, strip_sep_token=strip)
    ours = HubTokenizer.at(Place(folder=tmp_path), 12, clean, strip)
    np.testing.assert_array_equal(ours(TEXTS), theirs(TEXTS))


def test_tokens_of_the_first_siglip_are_those_of_transformers(tmp_path: Path) -> None:
    """A small SentencePiece model with T5's map of letters; its rules as repositories hold them."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import SiglipTokenizer

    with (tmp_path / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text.lower() for text in shrunk.TEXTS), model_writer=file, vocab_size=40,
            hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
        )  # fmt: skip
    trained = sentencepiece_model_pb2.ModelProto.FromString((tmp_path / "spiece.model").read_bytes())
    rules = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in trained.pieces], unk_id=2))
    letters = normalizers.Precompiled(trained.normalizer_spec.precompiled_charsmap)
    spaces = normalizers.Replace(Regex(" {2,}"), "▁")
    rules.normalizer = normalizers.Sequence([letters, normalizers.Strip(left=False, right=True), spaces])
    rules.pre_tokenizer = pre_tokenizers.Metaspace()
    rules.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    rules.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "</s>"}))
    theirs = SiglipTokenizer(str(tmp_path / "spiece.model"))
    ours = HubTokenizer.at(Place(folder=tmp_path), 12, "letters", False)
    texts = [*TEXTS, "ＷＩＤＥ ﬁne", "tab\there", " a dog  is — “x”"]
    expected = theirs(texts, padding="max_length", max_length=12, truncation=True).input_ids
    np.testing.assert_array_equal(ours(texts), expected)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", "{}", "does not hold a tokenizer"),
        ("tokenizer_config.json", "{}", "has no pad_token"),
        ("tokenizer_config.json", '{"pad_token": "nothing"}', "has no pad_token"),
        ("tokenizer.json", None, r"there is no tokenizer\.json"),
    ],
)
def test_broken_files_are_said_to_be(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    shrunk.write_tokenizer(tmp_path)
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        HubTokenizer.at(Place(folder=tmp_path), 12, "lower", False)


QUICK = [r"\s+", " {2,}", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]", r"[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"]
QUICK += [r"'s|'t|'re| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"]
SLOW = [
    "(a+)+$",
    "(a|aa)(a|aa)(a|aa)",
    "a*a*a*a*b",
    "a?a?a?aaa",
    r"(a)\1",
    r"\g<0>a",
    "(?=a+)b",
    "a*",
    "a++",
    "",
]
SLOW += ["a" * 1001, "[[a]]", "^", "a|"]


@pytest.mark.parametrize("pattern", [*QUICK, *SLOW])
def test_a_pattern_that_could_take_long_is_refused(tmp_path: Path, pattern: str) -> None:
    def split(rules: dict[str, Any]) -> None:
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        rules["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [rules["pre_tokenizer"], step]}

    folder = changed(tmp_path, split)
    if pattern in QUICK:
        HubTokenizer.at(Place(folder=folder), 12, "whitespace", False)(["a " * 2000, "a" * 4000, "!" * 4000])
    else:
        with pytest.raises(ValueError, match=r"tokenizer\.json (looks for|does not hold)"):
            HubTokenizer.at(Place(folder=folder), 12, "whitespace", False)


def replacing(count: int, content: str) -> Change:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": content}
    return lambda rules: rules.update(normalizer={"type": "Sequence", "normalizers": [step] * count})


def mapping(*names: bytes) -> Change:
    """Maps of letters whose table holds these, with an index of nothing."""
    table = b"\0".join(names)
    letters = base64.b64encode((1024).to_bytes(4, "little") + bytes(1024) + table).decode()
    steps = [{"type": "Precompiled", "precompiled_charsmap": letters}] * max(1, len(names) - 1)
    return lambda rules: rules.update(normalizer={"type": "Sequence", "normalizers": steps})


def long_words(rules: dict[str, Any]) -> None:
    rules["model"] = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##"}
    rules["model"] |= {"max_input_chars_per_word": 10**9, "vocab": {"<unk>": 0, "</s>": 1}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replacing(1, "aa"), "puts 'aa' into texts; 1 is the most"),
        (replacing(100, "b"), "has 213 parts"),
        (mapping(b"x" * 65), "more than 64 bytes of a letter"),
        (mapping(b"x", b"y", b"z"), "2 maps of letters"),
        (long_words, "words of 1000000000"),
    ],
)
def test_rules_that_make_long_texts_are_refused(tmp_path: Path, change: Change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HubTokenizer.at(Place(folder=changed(tmp_path, change)), 12, "whitespace", False)


def test_zero_shot_of_a_siglip_is_that_of_open_clips_own_loop(tmp_path: Path) -> None:
    folder = shrunk.write_model(tmp_path / "siglip", "ViT-B-16-SigLIP2")
    with shrunk.narrow():
        model = ccs.load(str(folder))
        clip = open_clip.create_model(f"local-dir:{folder}", require_pretrained=True).eval()
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    classes, template = ["Dog", "two_cats", "SNOW"], "a photo of a {}."
    with torch.no_grad():
        text = clip.encode_text(tokenizer([template.format(name) for name in classes]), normalize=True)
        images = clip.encode_image(x, normalize=True)
        expected = torch.sigmoid(clip.logit_scale.exp() * images @ text.T + clip.logit_bias)
    found = model.probabilities(model.embed_images(x) @ class_weights(model, classes, [template]).T)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert model.logit_bias == pytest.approx(-1.5)


def test_without_the_tokenizers_files_it_is_said_which_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = shrunk.write_model(tmp_path / "siglip", "ViT-B-16-SigLIP")
    (folder / "tokenizer.json").unlink()
    with (
        shrunk.narrow(),
        pytest.raises(InputError, match="its tokenizer, the Hub's timm/ViT-B-16-SigLIP, cannot"),
    ):
        ccs.load(str(folder))

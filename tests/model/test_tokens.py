"""Tokenizers from files, and a small SigLIP, against open_clip's own."""

import json

import numpy as np
import open_clip
import pytest
import torch
from open_clip.tokenizer import HFTokenizer, get_clean_fn

import ccs
from ccs.measures.accuracy import class_weights
from ccs.model.loading.fetching import Place
from ccs.model.loading.tokens import HubTokenizer
from tests.support import shrunk

TEXTS = [*shrunk.TEXTS, "", "ONE_two {three}", "a dog " * 40, "ünknown 猫"]


def write_bert(folder):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    rules = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    rules.normalizer, rules.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    rules.train_from_iterator(shrunk.TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    rules.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    rules.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


@pytest.mark.parametrize(("kind", "clean"), [("SigLIP", "canonicalize"), ("CLIPA", "whitespace")])
def test_tokens_are_those_of_open_clip(tmp_path, kind, clean):
    (shrunk.write_tokenizer if kind == "SigLIP" else write_bert)(tmp_path)
    strip = kind == "CLIPA"
    theirs = HFTokenizer(str(tmp_path), context_length=12, clean=clean, strip_sep_token=strip)
    ours = HubTokenizer(Place(folder=tmp_path), 12, 400, get_clean_fn(clean), strip)
    np.testing.assert_array_equal(ours(TEXTS), theirs(TEXTS))


def test_tokens_of_the_first_siglip_are_those_of_transformers(tmp_path):
    """A small SentencePiece model, in the files of google/siglip-base-patch16-224."""
    import sentencepiece
    from transformers import SiglipTokenizer

    with (tmp_path / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text.lower() for text in shrunk.TEXTS), model_writer=file, vocab_size=40,
            hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
        )  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    (tmp_path / "config.json").write_text('{"model_type": "siglip"}')
    theirs = SiglipTokenizer(str(tmp_path / "spiece.model"))
    texts = [*TEXTS, "ＷＩＤＥ ﬁne", "tab\there", " a dog  is — “x”"]
    expected = theirs(texts, padding="max_length", max_length=12, truncation=True).input_ids
    ours = HubTokenizer(Place(folder=tmp_path), 12, 64, str.lower)
    np.testing.assert_array_equal(ours(texts), expected)


def test_zero_shot_of_a_siglip_is_that_of_open_clips_own_loop(tmp_path):
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

"""Checkpoints and tokenizers of the Hub against transformers and open_clip; their memory; refused files."""

import json
import re
import shutil
import sys
from functools import partial

import numpy as np
import pytest
import torch
from open_clip.tokenizer import HFTokenizer, get_clean_fn
from safetensors.torch import load_file, save_file
from transformers import CLIPTokenizer

import ccs
from ccs import InputError
from ccs.model.loading import fetching, sources, tokens
from ccs.model.loading.weights import WEIGHTS_FILE, WEIGHTS_FILES
from tests.support import corruptions, processes, small_architectures
from tests.support.checkpoint import clip_vocabulary, embed_without_ccs, write_clip, write_siglip
from tests.support.tiny_model import write_tiny_model

TEXTS = ["a <my-dog>, two_Cats", "Ünïcode, don't 12!", "", "a " * 40, "x<|endoftext|>y", "  two\nlines  "]
TOLERANCE = 1e-5

OTHER_SEEN = {"image_size": 40, "patch_size": 10, "hidden_size": 48, "num_attention_heads": 2}
OTHER_SEEN |= {"hidden_act": "gelu"}
OTHER_READ = {"hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 33, "layer_norm_eps": 1e-3}
OTHER_READ |= {"eos_token_id": 320, "hidden_act": "gelu_pytorch_tanh"}
SIGLIP_SEEN = {"image_size": 40, "patch_size": 10, "hidden_act": "gelu", "intermediate_size": 77}
SIGLIP_READ = {"hidden_size": 20, "projection_size": 32, "layer_norm_eps": 0.1}


def write_older(folder):
    """A vocabulary and merges in two files, the encoders' entries twice, sides as plain numbers."""
    write_clip(folder)
    vocabulary, merges = clip_vocabulary()
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, merges), ""]), "utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    wrong = {**config["vision_config"], "num_hidden_layers": 7}
    corruptions.set_json("config.json", vision_config=wrong, vision_config_dict=config["vision_config"])(
        folder
    )
    corruptions.set_json("preprocessor_config.json", size=32, crop_size=32, feature_extractor_type="CLIP")(
        folder
    )


def write_squashing(folder):
    """Images are squashed, by the processor's newer file, in which the image's part is one of several."""
    write_clip(folder)
    processor_config = json.loads((folder / "preprocessor_config.json").read_text("utf-8"))
    processor_config |= {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 2}
    processor_config |= {"do_normalize": False}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": processor_config}), "utf-8")


def write_with_a_word(folder):
    """As textual inversion adds a word: a row of the embedding, and a token of the tokenizer."""
    write_clip(folder, text={"vocab_size": 49_409})
    tokenizer = CLIPTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<my-dog>"])
    tokenizer.save_pretrained(folder)


CHECKPOINTS = {
    "open_clip": write_tiny_model,
    "open_clip's SigLIP": partial(small_architectures.write_small_model, name="ViT-B-16-SigLIP2"),
    "in shards, with the end of old": partial(write_clip, max_shard_size="200KB", text={"eos_token_id": 2}),
    "other sizes, with an end of another number": partial(write_clip, vision=OTHER_SEEN, text=OTHER_READ),
    "older": write_older,
    "squashing": write_squashing,
    "with a word": write_with_a_word,
    "SigLIP": write_siglip,
    "SigLIP of other sizes": partial(write_siglip, vision=SIGLIP_SEEN, **SIGLIP_READ),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@small_architectures.small_timm_models()
def test_results_are_those_of_open_clip_or_transformers_alone(kind, tmp_path, random_images):
    CHECKPOINTS[kind](tmp_path)
    images = [
        *random_images(3),
        random_images(3)[2].resize((35, 32)),
        random_images(3)[1].resize((40, 47)),
    ]  # odd ones too
    image_units, text_units, logits = embed_without_ccs(tmp_path, images, TEXTS)
    ours = ccs.load(str(tmp_path))
    for size in (1, 4, 256):
        np.testing.assert_allclose(ours.embed_images(images, batch_size=size), image_units, atol=TOLERANCE)
        units = ours.embed_texts(TEXTS, batch_size=size)
        np.testing.assert_allclose(units, text_units, atol=TOLERANCE)
    expected = logits.sigmoid() if "SigLIP" in kind else logits.softmax(1)
    np.testing.assert_allclose(ours.probabilities(image_units @ text_units.T), expected, atol=TOLERANCE)
    direct, remainder = ours.contributions(images)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, image_units, atol=TOLERANCE)
    assert ours.heads == sources.known_encoder(sources.find_model(str(tmp_path))).heads
    assert units.dtype == np.float32
    with pytest.warns(UserWarning, match="Longer texts are cut"):
        ours.embed_texts(TEXTS)


def test_weights_alone_are_read_with_clips_own_words_and_preprocessing(tmp_path, capsys):
    """As `CLIPModel.save_pretrained` leaves a folder. SigLIPs differ, so theirs must be there."""
    texts, units = [text for text in TEXTS if "<|" not in text], []  # open_clip reads the end's own name
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
    with pytest.raises(InputError, match=r"There is no preprocessor_config.json in .*save_pretrained\(DIR\)"):
        ccs.load(str(tmp_path / "siglip"))


def test_names_inside_wrappers_are_refused(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "tiny")
    weights = load_file(folder / WEIGHTS_FILES[0])
    for prefix in ("_orig_mod.", "module.", "base_model.model.", "visual.lora_A."):
        save_file({f"{prefix}{key}": values for key, values in weights.items()}, folder / WEIGHTS_FILES[0])
        with pytest.raises(InputError, match=rf"{re.escape(prefix)}.* is a name inside a wrapper: save the"):
            ccs.load(str(folder))


WORDS = [*small_architectures.TEXTS, "", "ONE_two {three}", "a dog " * 40, "ünknown 猫"]


def test_tokens_of_clipa_are_those_of_open_clip(tmp_path):
    """Those of BERT, without the end that its tokenizer adds."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    rules = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    rules.normalizer, rules.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    rules.train_from_iterator(
        small_architectures.TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special)
    )
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    rules.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    rules.save(str(tmp_path / "tokenizer.json"))
    tokenizer_config = {"tokenizer_class": "TokenizersBackend", "pad_token": "[PAD]", "sep_token": "[SEP]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    theirs = HFTokenizer(str(tmp_path), context_length=12, clean="whitespace", strip_sep_token=True)
    ours = tokens.HubTokenizer(fetching.Place(folder=tmp_path), 12, 400, get_clean_fn("whitespace"), True)
    np.testing.assert_array_equal(ours(WORDS), theirs(WORDS))


def test_tokens_of_the_first_siglip_are_those_of_transformers(tmp_path):
    """A small SentencePiece model, in the files of google/siglip-base-patch16-224."""
    import sentencepiece
    from transformers import SiglipTokenizer

    read = iter(text.lower() for text in small_architectures.TEXTS)
    options = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
    options |= {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    with (tmp_path / "spiece.model").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=read, model_writer=file, **options)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    (tmp_path / "config.json").write_text('{"model_type": "siglip"}')
    theirs = SiglipTokenizer(str(tmp_path / "spiece.model"))
    texts = [*WORDS, "ＷＩＤＥ ﬁne", "tab\there", " a dog  is — “x”"]
    expected = theirs(texts, padding="max_length", max_length=12, truncation=True).input_ids
    ours = tokens.HubTokenizer(fetching.Place(folder=tmp_path), 12, 64, str.lower)
    np.testing.assert_array_equal(ours(texts), expected)


LOADING = """
import re, sys
import ccs
from ccs.model.loading.sources import OVERHEAD, find_model

def held(what):
    return 1024 * int(re.search(rf"{what}:\\s+(\\d+)", open("/proc/self/status").read())[1])

*_, name = sys.argv
ccs.load("organism").embed_texts(["a"])  # what any model needs
said = find_model(name).memory - OVERHEAD
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = held("VmRSS")
ccs.load(name)
print(said, held("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_more_is_taken_than_is_said(tmp_path):
    """Weights of one byte a value become four; a process of its own tells what it took."""
    model = write_clip(tmp_path, text={"hidden_size": 320})
    weights = tmp_path / WEIGHTS_FILE
    save_file({name: values.to(torch.float8_e4m3fn) for name, values in load_file(weights).items()}, weights)
    estimate, taken = map(int, processes.run_python("-c", LOADING, tmp_path).split())
    assert 4 * sum(values.numel() for values in model.state_dict().values()) < taken < estimate + 2**25

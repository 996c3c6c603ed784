"""Every architecture of open_clip, made small: exact, or rejected with the reason."""

import re
from collections import Counter

import numpy as np
import open_clip
import pytest
import torch
from torch.nn import functional as F

import ccs
from benchmarks.families import plain, sharpen, zeroed
from ccs import Head, HeadSet, InputError, Intervention
from ccs.heads import TEXT
from ccs.model.encoder import Encoder
from ccs.model.encoders import decompose_text_encoder
from tests.support import small_architectures
from tests.support.reference_encoder import TOLERANCE
from tests.support.tiny_model import tiny_clip

IGNORED_SETTINGS = {"image_size", "vocab_size", "hf_tokenizer_name", "tokenizer_kwargs"}
UNSUPPORTED = ("convnext", "swin", "MobileCLIP-S", "MobileCLIP2-S")
ARCHITECTURES = [name for name in open_clip.list_models() if not name.startswith(UNSUPPORTED)]


def group_architectures(names, encoder):
    """Return one name per configuration, with the number of names that share it."""
    by_settings = {}
    for name in names:
        config = small_architectures.small_config(name)[encoder]
        settings = {key: value for key, value in config.items() if key not in IGNORED_SETTINGS}
        settings["quick"] = bool(open_clip.get_model_config(name).get("quick_gelu"))
        # timm's names end in the size of an image.
        settings["timm_model_name"] = re.sub(r"_\d+$", "", settings.get("timm_model_name", ""))
        by_settings.setdefault(str(sorted(settings.items())), []).append(name)
    return {names[0]: len(names) for names in by_settings.values()}


VARIANTS = {
    "plain": {},
    "ln after pooling": {"final_ln_after_pool": True},
    "GELU by tanh": {"act_kwargs": {"approximate": "tanh"}},
    "one layer": {"layers": 1},
    "uneven patches": {"image_size": 36, "patch_size": 8},
    "fixed positions": {"pos_embed_type": "sin_cos_2d"},
    "patch dropout": {"patch_dropout": 0.5},
    "average of normalized patches": {"pool_type": "avg"},
}
"""Entries of vision_cfg."""


@pytest.mark.parametrize("name", [*group_architectures(ARCHITECTURES, "vision_cfg"), *VARIANTS])
def test_supported_architecture_is_exact(name):
    """Embeddings, contributions, and maps, without ablation and with heads ablated and scaled."""
    if name in VARIANTS:
        visual = tiny_clip(0, **VARIANTS[name]).visual.eval()
    else:
        visual = small_architectures.build_image_encoder(name)
    sharpen(visual)  # nearly uniform attention would hide errors
    encoder = Encoder(visual)
    x = torch.randn(2, 3, *encoder.image_size, generator=torch.Generator().manual_seed(1))
    ablated, last = HeadSet(list(encoder.all_heads)[::3]), HeadSet([Head(encoder.n_layers - 1, 0)])
    scaled = Intervention({head: (0.3, 1.5, 0)[place % 3] for place, head in enumerate(ablated)})
    same, zero = encoder.embed(x, [Intervention(dict.fromkeys(ablated, factor)) for factor in (1, 0)])
    assert torch.equal(same, encoder.embed(x)[0])
    assert torch.equal(zero, encoder.embed(x, [ablated])[0])
    embeddings, along = encoder.embed_and_read(x, [ablated, last, scaled])[0], torch.eye(encoder.dim)[:2]
    for heads, embedded in zip((ablated, last, scaled), embeddings, strict=True):
        expected = plain(zeroed(visual, heads), x)
        np.testing.assert_allclose(embedded, expected, atol=TOLERANCE)
        with ccs.ablate(visual, heads):
            np.testing.assert_allclose(plain(visual, x), expected, atol=TOLERANCE)
        assert (expected - plain(visual, x)).abs().max() > 1e-4
    for heads in (HeadSet(), scaled):
        changed, reference = encoder.ablated(heads), Encoder(zeroed(visual, heads))
        _, readout = changed.embed_and_read(x, entering=True)
        _, reference_readout = reference.embed_and_read(x, entering=True)
        direct, remainder = changed.contributions(readout)
        with ccs.ablate(visual, heads):
            inside = encoder.contributions(encoder.embed_and_read(x)[1])
        parts = zip((direct, remainder), inside, reference.contributions(reference_readout), strict=True)
        for values, same, expected in parts:
            np.testing.assert_allclose(values, expected, atol=1e-5)  # CPUs round differently
            np.testing.assert_allclose(same, expected, atol=1e-5)
        np.testing.assert_allclose(readout.unit, plain(reference._module, x), atol=TOLERANCE)
        np.testing.assert_allclose(direct.sum(1) + remainder, plain(reference._module, x), atol=TOLERANCE)
        contributions = iter(direct.transpose(0, 1) @ along.T)  # heads by layer
        for number in range(encoder.n_layers):
            of_layer = encoder.all_heads.of_layer(number)
            sides = (changed, readout), (reference, reference_readout)
            by_token = [side.by_token(of_side, of_layer, along) for side, of_side in sides]
            for head, sent, expected_sent in zip(of_layer, *by_token, strict=True):
                np.testing.assert_allclose(sent.sum(-1), next(contributions), atol=1e-5)
                if head not in heads or scaled[head].factor:  # an ablated head has no map
                    np.testing.assert_allclose(sent, expected_sent, atol=1e-5)
            attentions = (of.attention(x, number) for of in (changed, reference))
            np.testing.assert_allclose(*attentions, atol=5e-5)


def test_other_architectures_are_rejected_with_reason():
    """126 of 144 architectures can be decomposed; new ones in open_clip fail here."""
    counts, families = {}, {}
    for name in set(open_clip.list_models()) - set(ARCHITECTURES):
        family = small_architectures.small_vision_config(name)["timm_model_name"].partition("_")[0]
        families.setdefault(family, []).append(name)
    for names in families.values():
        with torch.device("meta"):
            visual = small_architectures.build_image_encoder(min(names), randomize=False)
        with pytest.raises(InputError, match="built of known layers of attention heads") as error:
            Encoder(visual)
        counts[str(error.value).split()[3]] = len(names)
    assert (len(ARCHITECTURES), counts) == (126, {"ConvNeXt": 11, "FastVit": 6, "SwinTransformer": 1})


def test_text_encoder_is_exact_or_rejected_with_reason():
    """Texts that end at different tokens, against open_clip's own pass with weights zeroed."""
    tokens = torch.randint(3, 390, (6, 16), generator=torch.Generator().manual_seed(0))
    counts = Counter()
    for name, count in group_architectures(open_clip.list_models(), "text_cfg").items():
        text = small_architectures.build_text_encoder(name)
        try:
            parts, read_at = decompose_text_encoder(text)
        except InputError as error:
            counts[str(error).partition("because ")[2]] += count
            continue
        counts["exact"] += count
        encoder = Encoder(text, parts=parts, letter=TEXT)
        end = text.eos_id if text.pool_type == "eos" else 399
        for row, last in enumerate((4, 9, 4, 15, 7, 9)):
            tokens[row, last:], tokens[row, last] = 7, end  # the usual padding is 0
        ablated = HeadSet(list(encoder.all_heads)[::3])
        interventions = [ablated, Intervention(dict.fromkeys(ablated, 0.5))]
        unablated, *expected = (plain(zeroed(text, heads), tokens) for heads in (HeadSet(), *interventions))
        assert (expected[0] - unablated).abs().amax(1).min() > 1e-4
        places = read_at(tokens)
        for place in torch.unique(places):
            rows = places == place
            embeddings, readout = encoder.embed_and_read(tokens[rows], interventions)
            for ours, theirs in zip(embeddings, expected, strict=True):
                np.testing.assert_allclose(ours, theirs[rows], atol=TOLERANCE)
            direct, remainder = encoder.contributions(readout)
            np.testing.assert_allclose(readout.unit, unablated[rows], atol=TOLERANCE)
            np.testing.assert_allclose(direct.sum(1) + remainder, unablated[rows], atol=1e-6)
    transformers = "it is HFTextEncoder, whose heads are unknown."
    assert counts == {"exact": 131, "it masks the padding of each text.": 3, transformers: 10}


class Attention4(torch.nn.Module):
    """The attention of open_clip 4, with torch's parameter names and a projection that is called."""

    def __init__(self, theirs):
        self.__dict__.update(theirs.__dict__)

    def forward(self, query, key, value, need_weights, attn_mask=None):
        apart = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        matrices = apart if self.in_proj_weight is None else self.in_proj_weight.chunk(3)
        parts = zip((query, key, value), matrices, self.in_proj_bias.chunk(3), strict=True)
        q, k, v = (F.linear(*part).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        values = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        return self.out_proj(values.transpose(1, 2).flatten(2)), None


def test_attention_of_open_clip_4_is_supported():
    coca = small_architectures.build_image_encoder("coca_ViT-B-32")
    encoder = Encoder(coca)
    x = torch.randn(2, 3, *encoder.image_size, generator=torch.Generator().manual_seed(0))
    heads = HeadSet([Head(1, 0), Head(encoder.n_layers - 1, 1)])
    expected = encoder.embed(x, [heads])[0]
    for holder in (*coca.transformer.resblocks, coca.attn_pool):
        holder.attn = Attention4(holder.attn)
    np.testing.assert_allclose(Encoder(coca).embed(x, [heads])[0], expected, atol=1e-6)
    with torch.no_grad(), ccs.ablate(coca, heads):
        np.testing.assert_allclose(plain(coca, x), expected, atol=1e-6)

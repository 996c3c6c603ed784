"""Heads switched off in users' own models, against the forward pass that zeroes their outputs."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, CLIPTextConfig, CLIPTextModel, CLIPVisionModelWithProjection

import ccs
from ccs import HeadSet, results
from ccs.batch import heads as heads_command
from tests.support import language_models as languages
from tests.support.checkpoint import write_clip, write_siglip
from tests.support.compute_sample import run, small_pool

OFF = HeadSet.parse("L0.H1 L1.H0 L1.H3")
TOLERANCE = 1e-6
PIXELS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
TEXTS = ["a photo of a cat", "a cat", "two cats at a house"]


def features(found):
    return nn.functional.normalize(getattr(found, "pooler_output", found).detach(), dim=-1).numpy()


def bits(model):
    return {name: values.numpy().tobytes() for name, values in model.state_dict().items()}


def test_open_clips_own_model_in_nested_blocks(tiny_folder, tiny_model):
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval()
    before, images = bits(module), PIXELS
    with torch.no_grad(), ccs.heads_off(module, "L1.H3 L0.H1"), ccs.heads_off(module, "L1.H3, L1.H0") as off:
        seen = features(module.encode_image(images))
    assert off == HeadSet.parse("L1.H0 L1.H3")
    np.testing.assert_allclose(seen, tiny_model.embed_images(images, OFF), atol=TOLERANCE)
    assert np.abs(seen - tiny_model.embed_images(images)).max() > 1e-3
    with pytest.raises(ZeroDivisionError), ccs.heads_off(module, "L5.H0"):
        raise ZeroDivisionError
    assert bits(module) == before


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_both_towers_of_transformers_models(write, tmp_path):
    """Each tower alone, the module, and what ccs.load returns. SigLIP's third layer is its pool."""
    module, ours = write(tmp_path), ccs.load(str(tmp_path))
    off = OFF | HeadSet.parse("L2.H2") if write is write_siglip else OFF
    text_off = HeadSet.parse("T0.H1 T1.H0 T1.H3")
    before, images, tokens = bits(module), PIXELS, ours.tokenize(TEXTS)
    seen, read = ours.embed_images(images, off), ours.embed_texts(TEXTS, ablate=text_off)
    assert np.abs(read - ours.embed_texts(TEXTS)).max() > 1e-3
    for image_tower, text_tower in (module.vision_model, module.text_model), (module, module):
        with ccs.heads_off(image_tower, off), ccs.heads_off(text_tower, text_off):
            np.testing.assert_allclose(features(module.get_image_features(images)), seen, atol=TOLERANCE)
            np.testing.assert_allclose(features(module.get_text_features(tokens)), read, atol=TOLERANCE)
    with ccs.heads_off(ours, text_off | off):
        np.testing.assert_allclose(features(ours.clip.encode_image(images)), seen, atol=TOLERANCE)
        np.testing.assert_allclose(ours.embed_texts(TEXTS), read, atol=TOLERANCE)
    assert bits(module) == before


def test_a_vision_tower_of_transformers_with_its_projection(tmp_path):
    module = write_clip(tmp_path)
    module.vision_model.config.projection_dim = module.config.projection_dim
    tower = CLIPVisionModelWithProjection(module.vision_model.config).eval()
    tower.load_state_dict(module.state_dict(), strict=False)
    with ccs.heads_off(tower, OFF):
        seen = features(tower(PIXELS).image_embeds)
    np.testing.assert_allclose(seen, ccs.load(str(tmp_path)).embed_images(PIXELS, OFF), atol=TOLERANCE)


def test_what_has_no_such_heads_is_refused():
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    texts = CLIPTextModel(CLIPTextConfig(**small))
    bert = BertModel(BertConfig(**small, vocab_size=50))
    for model, heads, why in (
        (texts, "L0.H1", "not built like CLIP's"),
        (bert, "T0.H1", "BertModel is not built like CLIP's or SigLIP's text tower"),
        (bert, "L0.H1", "BertModel is not built like CLIP's"),
        (languages.llama(), "L0.H1", "no image tower that is known here"),
        ("ViT-B-32/openai", "L0.H1", "takes a model, not its name"),
        (texts, "T2.H0", "outside this model; heads in each layer: T0: 4, T1: 4"),
    ):
        with pytest.raises(ccs.InputError, match=why), ccs.heads_off(model, heads):
            pass


@pytest.mark.parametrize("name", languages.MADE)
def test_image_towers_inside_language_models(name):
    """Against weights zeroed in a copy; a layer that is not read changes nothing, and that is said."""
    model, read, unread = languages.made(name)
    plain, before = read(model), bits(model)
    with ccs.heads_off(model, "L0.H1 L1.H3"):
        seen = read(model)
    copied = copy.deepcopy(model)
    tower = next(part for label, part in copied.named_modules() if label.split(".")[-1] in languages.TOWERS)
    named = [part for label, part in tower.named_modules() if label.split(".")[-1] in ("out_proj", "proj")]
    projections = [one for one in named if isinstance(one, nn.Linear)]
    projections[0].weight.data[:, 8:16], projections[1].weight.data[:, 24:32] = 0, 0
    torch.testing.assert_close(seen, read(copied), atol=TOLERANCE, rtol=0)
    assert float((seen - plain).abs().max()) > 1e-3
    assert torch.equal(read(model), plain)
    assert bits(model) == before
    if unread is not None:
        with pytest.warns(UserWarning, match=f"before {unread}"), ccs.heads_off(model, unread):
            assert torch.equal(read(model), plain)


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_the_clip_inside_a_language_model(write, tmp_path):
    """The tower of a CLIP in a LLaVA, and of a SigLIP in a PaliGemma: the same model as the CLIP itself."""
    module = write(tmp_path)
    whole = languages.holding(module.vision_model)
    expected = ccs.load(str(tmp_path))
    found = ccs.take_apart(whole, str(tmp_path))
    assert found.weights_hash == expected.weights_hash
    np.testing.assert_array_equal(found.embed_images(PIXELS, OFF), expected.embed_images(PIXELS, OFF))
    np.testing.assert_array_equal(found.embed_texts(TEXTS), expected.embed_texts(TEXTS))
    with torch.no_grad():
        module.vision_model.encoder.layers[1].self_attn.out_proj.weight += 0.1
    trained = languages.holding(module.vision_model)
    with pytest.warns(UserWarning, match="was trained further"):
        moved = ccs.take_apart(trained, str(tmp_path))
    seen = features(module.get_image_features(PIXELS))
    np.testing.assert_allclose(moved.embed_images(PIXELS), seen, atol=TOLERANCE)
    for other, why in (("organism", "is not built as organism's"), ("no-such", "There is no model")):
        with pytest.raises(ccs.InputError, match=why):
            ccs.take_apart(whole, other)
    with pytest.raises(ccs.InputError, match="no image tower that is known here"):
        ccs.take_apart(languages.llama(), str(tmp_path))


def test_commands_take_a_language_model_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # nobody waits for the Hub
    languages.holding(write_clip(tmp_path).vision_model).save_pretrained(tmp_path / "whole")
    weights = ccs.load(str(tmp_path)).weights_hash
    assert ccs.take_apart(str(tmp_path / "whole"), str(tmp_path)).weights_hash == weights
    with pytest.raises(ccs.InputError, match="'no-such' cannot be loaded as a language model that sees"):
        ccs.take_apart("no-such", str(tmp_path))
    asked = ["a red cat", "--max-images", "4", "--texts", str(small_pool(tmp_path)), "--device", "cpu"]
    asked += ["--model", str(tmp_path / "whole"), "--text-tower", str(tmp_path)]
    assert heads_command.main(asked) == 0
    assert heads_command.main([*asked[:-1], "no-such"]) == 2
    out = tmp_path / "results"
    assert run([*asked[1:], "--out", str(out), "--layers", "0,1", "--suite", "none", "--workers", "0"]) == 0
    manifest = results.read_manifest(next(out.glob("whole*")))
    assert (manifest["model"]["weights_hash"], manifest["settings"]["text_tower"]) == (weights, str(tmp_path))


def test_training_inside_keeps_what_it_learned_and_the_heads_off(tiny_folder):
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval()
    images, before = PIXELS, bits(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    columns = module.visual.transformer.resblocks[1].attn.out_proj.weight
    with ccs.heads_off(module, "L1.H0 L1.H3"):
        for _ in range(4):
            optimizer.zero_grad()
            module.encode_image(images).square().sum().backward()
            assert not columns.grad[:, :8].any()
            assert columns.grad[:, 8:24].any()
            optimizer.step()
        module.zero_grad()
        saved, late = bits(module), module.encode_image(images)
        seen = late.detach().clone()
    late.sum().backward()
    gradients = {name: one.grad for name, one in module.visual.named_parameters()}
    assert bits(module) == saved
    assert bits(module) != before
    module.zero_grad()
    with torch.no_grad():
        columns[:, :8], columns[:, 24:] = 0, 0
    zeroed = module.encode_image(images)
    assert torch.equal(zeroed, seen)
    zeroed.sum().backward()
    columns.grad[:, :8], columns.grad[:, 24:] = 0, 0  # inside, what is off learns nothing
    for name, one in module.visual.named_parameters():
        torch.testing.assert_close(gradients[name], one.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_compiled_module_follows_each_block(tiny_folder):
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval().visual
    compiled, images = torch.compile(module, backend="eager"), PIXELS
    with torch.no_grad():
        plain = compiled(images)
        for off in ("L0.H1 L1.H3", "L1.H0"):
            with ccs.heads_off(compiled, off):
                torch.testing.assert_close(compiled(images), module(images), atol=1e-5, rtol=0)
                assert not torch.allclose(compiled(images), plain)
        assert torch.equal(compiled(images), plain)


def test_copies_threads_and_half_precision(tiny_folder):
    """Blocks that end in another order than they began; copies, replicas and pickles made inside."""
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval()
    before, images = bits(module), PIXELS
    with torch.no_grad():
        plain = module.encode_image(images)
        first, second = ccs.heads_off(module, "L1.H0"), ccs.heads_off(module, "L1.H0 L1.H3")
        first.__enter__()
        second.__enter__()
        copied, pickled = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
        seen = module.encode_image(images)
        projection = module.visual.transformer.resblocks[1].attn.out_proj
        replica = projection._replicate_for_data_parallel()
        replica.weight = projection._parameters["weight"] * 1
        assert torch.equal(replica.weight, projection.weight)
        assert not replica.weight[:, :8].any()
        assert torch.equal(copied.encode_image(images), seen)
        assert torch.equal(pickled.encode_image(images), plain)
        first.__exit__(None, None, None)
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(module.encode_image, images).result()
        torch.testing.assert_close(elsewhere, seen, atol=1e-5, rtol=0)  # gradients are on in that thread
        second.__exit__(None, None, None)
        assert torch.equal(module.encode_image(images), plain)
        assert torch.equal(copied.encode_image(images), plain)
        with ccs.heads_off(module.bfloat16(), "L1.H0"):
            half = module.encode_image(images.bfloat16())
        projection.weight[:, :8] = 0
        assert torch.equal(module.encode_image(images.bfloat16()), half)
    assert type(projection) is type(copied.visual.transformer.resblocks[0].attn.out_proj)
    assert bits(copied) == before


def test_an_adapter_around_the_projection_is_off_too(tmp_path):
    class Adapter(nn.Module):  # as LoRA: the projection, and something beside it that reads the same
        def __init__(self, base):
            super().__init__()
            self.base, self.beside = base, nn.Linear(base.in_features, base.out_features, bias=False)

        @property
        def weight(self):
            return self.base.weight

        def forward(self, values):
            return self.base(values) + self.beside(values)

    attention = (module := write_clip(tmp_path)).vision_model.encoder.layers[1].self_attn
    attention.out_proj = adapter = Adapter(attention.out_proj)
    images, d = PIXELS, attention.head_dim
    with torch.no_grad():
        with ccs.heads_off(module, "L1.H0"):
            seen = module.vision_model(images).pooler_output
        adapter.base.weight[:, :d], adapter.beside.weight[:, :d] = 0, 0
        np.testing.assert_allclose(seen, module.vision_model(images).pooler_output, atol=TOLERANCE)


def test_the_documents_example_of_training():
    code = Path("docs/questions.md").read_text("utf-8").split("fine-tune with heads off?")[1].split("```")[1]
    names = {}
    exec(code.removeprefix("python\n"), names)
    with torch.no_grad():
        for head in HeadSet.parse("L5.H1 L6.H2 L7.H0 L7.H4"):
            projection = names["model"].visual.transformer.resblocks[head.layer].attn.out_proj
            d = projection.in_features // 6
            projection.weight[:, head.head * d : (head.head + 1) * d] = 0
    assert torch.equal(names["model"].visual(names["pixels"]), names["tuned"])

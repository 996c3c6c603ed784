"""`ccs.ablate` on models of every library in every wrapper, against copies with zeroed weights."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import open_clip
import peft
import pytest
import timm
import torch
import transformers
from accelerate import cpu_offload, hooks
from torch import distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.nn.utils import parametrizations, parametrize, prune
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import ccs
from benchmarks.families import zeroed
from ccs.heads import IMAGE
from ccs.model import interception, structure
from tests.support import vision_language_models as vlms
from tests.support.checkpoint import write_clip, write_siglip
from tests.support.tiny_model import randomize_weights, tiny_clip

TOLERANCE = 1e-6
PIXELS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
TEXTS = ["a photo of a cat", "a cat", "two cats at a house"]
CPU = torch.device("cpu")


def unit_features(output):
    return nn.functional.normalize(getattr(output, "pooler_output", output).detach(), dim=-1).numpy()


def weight_bytes(model):
    return {name: values.numpy().tobytes() for name, values in model.state_dict().items()}


def find_leftovers(model):
    """Yield the hooks and marked modules that ablation has left in a model."""
    for part in model.modules():
        if "_ccs_site" in part.__dict__:
            yield part
        hooks = [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]
        yield from (hook for hook in hooks if type(hook).__module__.startswith("ccs"))


FACTORS = "L1.H0 L2.H1 L2.H3=0.3"
TIMM = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 4, "num_classes": 0}
LIBRARIES = {
    "open_clip": lambda: tiny_clip(0).visual,
    "timm": lambda: timm.create_model("vit_tiny_patch16_224", **TIMM),
    "transformers": lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**vlms.VISION)),
}


@pytest.fixture(params=LIBRARIES)
def encoder(request):
    module = LIBRARIES[request.param]()
    randomize_weights(module, 0)
    return module.eval()


def find_attentions(model):
    return list(structure.attention_modules(model, IMAGE)[1].values())


def output_projections(model):
    return [getattr(part, interception.projection_name(part)) for part in find_attentions(model)]


def find_blocks(model):
    lists = (part for part in model.modules() if isinstance(part, nn.ModuleList | nn.Sequential))
    return next(part for part in lists if len(part) > 2)


def edit_projections(model, change):
    for projection in output_projections(model):
        change(projection)


def add_lora(model):
    layers = nn.MultiheadAttention if hasattr(model, "proj") else nn.Linear
    names = [name for name, part in model.named_modules() if isinstance(part, layers)]
    config = peft.LoraConfig(r=2, target_modules=names, init_lora_weights=False)
    return peft.get_peft_model(model, config).eval()


def wrap_fsdp1(model, find_parts=find_blocks, original_parameters=True):
    policy = fsdp.wrap.ModuleWrapPolicy({type(find_parts(model)[0])})
    options = {"use_orig_params": original_parameters, "device_id": CPU}
    return fsdp.FullyShardedDataParallel(model, auto_wrap_policy=policy, **options)


def wrap_fsdp2(model):
    mesh = dist.init_device_mesh("cpu", (1,))
    for block in find_blocks(model):
        fsdp.fully_shard(block, mesh=mesh)
    return fsdp.fully_shard(model, mesh=mesh)


def checkpoint_blocks(model):
    block_class = type(find_blocks(model)[0])
    apply_activation_checkpointing(model, check_fn=lambda part: isinstance(part, block_class))


WRAPPERS = {
    "plain": lambda model: None,
    "compiled": partial(torch.compile, backend="eager", fullgraph=True),
    "checkpointed": checkpoint_blocks,
    "DDP": nn.parallel.DistributedDataParallel,
    "FSDP1": wrap_fsdp1,
    "FSDP1 of attention": partial(wrap_fsdp1, find_parts=find_attentions),
    "FSDP1, flat parameters": partial(wrap_fsdp1, original_parameters=False),
    "FSDP2": wrap_fsdp2,
    "accelerate": partial(hooks.attach_align_device_hook, execution_device=CPU),
    "offloaded": partial(cpu_offload, execution_device=CPU, preload_module_classes=["MultiheadAttention"]),
    "LoRA": add_lora,
    "weight_norm": partial(edit_projections, change=parametrizations.weight_norm),
    "pruned": partial(edit_projections, change=partial(prune.random_unstructured, name="weight", amount=0.3)),
    "int8": partial(quantize_, config=Int8WeightOnlyConfig(), filter_fn=lambda of, _: type(of) is nn.Linear),
}
"""Functions that wrap a model, or change it in place."""


@pytest.fixture(scope="module")
def _process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_process_group")
@pytest.mark.filterwarnings("ignore")  # of torch, torchao, and peft
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_ablation_in_wrapper_matches_zeroed_weights(encoder, wrapper):
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain, returned = copy.deepcopy(encoder), WRAPPERS[wrapper](encoder)
    wrapped = encoder if returned is None else returned
    if wrapper == "LoRA":
        plain = copy.deepcopy(wrapped).merge_and_unload()
    elif wrapper in ("weight_norm", "pruned", "int8"):
        linears = ([part for part in of.modules() if isinstance(part, nn.Linear)] for of in (plain, wrapped))
        for part, changed_part in zip(*linears, strict=True):
            part.weight.data = changed_part.weight.detach().dequantize().clone()
    expected, before = unit_features(zeroed(plain, FACTORS)(PIXELS)), unit_features(wrapped(PIXELS))
    with ccs.ablate(wrapped, FACTORS):
        ablated = unit_features(wrapped(PIXELS))
    np.testing.assert_allclose(before, unit_features(plain(PIXELS)), atol=2e-6)
    np.testing.assert_allclose(ablated, expected, atol=2e-6)
    np.testing.assert_array_equal(unit_features(wrapped(PIXELS)), before)
    assert np.abs(ablated - before).max() > 1e-3
    assert not list(find_leftovers(wrapped))


def test_ablation_under_autocast(encoder):
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected = zeroed(encoder, FACTORS)(PIXELS)
        with ccs.ablate(encoder, FACTORS):
            output = encoder(PIXELS)
    pooled = (getattr(result, "pooler_output", result).float() for result in (output, expected))
    torch.testing.assert_close(*pooled, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}])
@pytest.mark.parametrize("sizes", [{}, {"batch_first": True}, {"kdim": 8, "vdim": 12, "bias": False}])
def test_multihead_attention_accepts_all_arguments(options, sizes):
    module, mask = nn.MultiheadAttention(16, 4, **sizes), torch.randn(12, 5, 5)
    shape = (3, 5) if sizes.get("batch_first") else (5, 3)
    inputs = [torch.randn(*shape, width) for width in (16, sizes.get("kdim", 16), sizes.get("vdim", 16))]
    options = options | {"attn_mask": mask, "key_padding_mask": torch.arange(5).expand(3, -1) / 9}
    holder = nn.ModuleDict({"blocks": nn.ModuleList([nn.ModuleDict({"attn": module})])})
    expected = module(*inputs, **options)
    with ccs.ablate(holder, {"L0.H1": 1}):
        output = module(*inputs, **options)
    torch.testing.assert_close(output, expected, atol=TOLERANCE, rtol=0)


def test_attention_pool_of_timm_resnets():
    pool = nn.Sequential(timm.layers.AttentionPool2d(8, feat_size=2, num_heads=2)).eval()
    images, weight = torch.randn(2, 8, 2, 2), pool[0].proj.weight
    with torch.no_grad(), ccs.ablate(pool, "L0.H1"):
        ablated = pool(images)
        weight[:, 4:] = 0
    torch.testing.assert_close(ablated, pool(images))


def test_projections_changed_inside_block_are_ablated_once(encoder):
    class Merging(nn.Linear):  # like loralib's, which writes to its weight
        def train(self, mode=True):
            self.weight.data.mul_(2 if mode else 0.5)
            return super().train(mode)

    class Wrapped(nn.Linear):
        def forward(self, x):
            return self.inner(x)

    heads, merging, wrapped = f"L0.H2 {FACTORS}", Merging(32, 32).eval(), Wrapped(32, 32)
    normed, _, wrapped.inner = output_projections(encoder)[:3]
    wrapped.weight, wrapped.bias = wrapped.inner.weight, wrapped.inner.bias
    with torch.no_grad(), ccs.ablate(encoder, heads):
        normed.weight.data.mul_(0.5)
        parametrizations.weight_norm(normed)
        for attention, projection in zip(find_attentions(encoder)[1:3], (merging, wrapped), strict=True):
            setattr(attention, interception.projection_name(attention), projection)
        encoder.bfloat16().float()
        merging.train()
        ablated = unit_features(encoder(PIXELS))
        assert not any(type(part).__module__.startswith("ccs") for part in encoder.modules())
    parametrize.remove_parametrizations(normed, "weight")
    np.testing.assert_allclose(unit_features(zeroed(encoder, heads)(PIXELS)), ablated, atol=2e-6)
    assert not list(find_leftovers(encoder))


def test_training_inside_block_updates_weights_and_keeps_ablation(tiny_folder):
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval()
    before, optimizer = weight_bytes(module), torch.optim.AdamW(module.parameters(), lr=1e-2)
    columns = module.visual.transformer.resblocks[1].attn.out_proj.weight
    with ccs.ablate(module, "L1.H0 L1.H3"):
        for _ in range(4):
            optimizer.zero_grad()
            module.encode_image(PIXELS).square().sum().backward()
            assert not columns.grad[:, :8].any()
            assert columns.grad[:, 8:24].any()
            optimizer.step()
        module.zero_grad()
        saved, output = weight_bytes(module), module.encode_image(PIXELS)
        ablated = output.detach().clone()
    output.sum().backward()  # after the block
    gradients = {name: weights.grad for name, weights in module.visual.named_parameters()}
    assert weight_bytes(module) == saved != before
    module.zero_grad()
    with torch.no_grad():
        columns[:, :8], columns[:, 24:] = 0, 0
    expected = module.encode_image(PIXELS)
    torch.testing.assert_close(expected, ablated, atol=1e-5, rtol=1e-5)
    expected.sum().backward()
    columns.grad[:, :8], columns.grad[:, 24:] = 0, 0
    for name, weights in module.visual.named_parameters():
        torch.testing.assert_close(gradients[name], weights.grad, atol=1e-5, rtol=1e-4)


def test_checkpointed_backward_after_block_is_rejected(encoder):
    checkpoint_blocks(encoder)
    with ccs.ablate(encoder, FACTORS):
        output = encoder(PIXELS)
        loss = getattr(output, "pooler_output", output).sum()
    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different number of tensors"):
        loss.backward()


def test_nested_blocks_copies_pickles_and_threads(encoder):
    """The outer block ends before the inner one, and a third one with an error."""
    with torch.no_grad():
        plain, nested = unit_features(encoder(PIXELS)), unit_features(zeroed(encoder, FACTORS)(PIXELS))
        inner = unit_features(zeroed(encoder, "L1.H0 L2.H3=0.3")(PIXELS))
        first, second = ccs.ablate(encoder, "L1.H0 L2.H1"), ccs.ablate(encoder, "L1.H0, L2.H3=0.3")
        first.__enter__()
        assert str(second.__enter__()) == "L1.H0 L2.H3=0.3"
        duplicate, loaded = copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))
        replica = find_attentions(encoder)[1]._replicate_for_data_parallel()
        assert type(replica) is type(find_attentions(encoder)[1])
        np.testing.assert_allclose(unit_features(encoder(PIXELS)), nested, atol=TOLERANCE)
        np.testing.assert_allclose(unit_features(duplicate(PIXELS)), nested, atol=TOLERANCE)
        np.testing.assert_array_equal(unit_features(loaded(PIXELS)), plain)
        first.__exit__(None, None, None)
        with ThreadPoolExecutor(1) as pool:
            output = pool.submit(encoder, PIXELS).result()
        np.testing.assert_allclose(unit_features(output), inner, atol=TOLERANCE)
        second.__exit__(None, None, None)
        with pytest.raises(ZeroDivisionError), ccs.ablate(encoder, FACTORS):
            raise ZeroDivisionError
        for model in (encoder, duplicate, loaded):
            np.testing.assert_array_equal(unit_features(model(PIXELS)), plain)
    assert not list(find_leftovers(encoder))
    assert not any("_ccs_site" in part.__dict__ for part in loaded.modules())


def test_forward_pass_that_bypasses_head_is_rejected(encoder):
    with ccs.ablate(encoder, "L1.H0 L2.H0"):
        pass  # no pass, no error
    attention = find_attentions(encoder)[1]
    plain = type(attention).forward

    def fused(*args, **keywords):
        """Read the weight of a projection instead of calling it, or call it instead."""
        if isinstance(attention, nn.MultiheadAttention):
            return plain(attention, *args, **keywords)
        tokens = [*args, *keywords.values()][0]
        output = nn.functional.linear(tokens, output_projections(encoder)[1].weight)
        return (output, None) if hasattr(attention, "out_proj") else output

    attention.forward = fused
    error = r"^L1\.H0 not ablated: the forward pass bypassed .*\.1\."
    with ccs.ablate(encoder, "L1.H0 L2.H0"), pytest.raises(ccs.InputError, match=error):
        encoder(PIXELS)
    del attention.forward
    duplicate, path = copy.deepcopy(attention), list(structure.attention_modules(encoder, IMAGE)[1])[2]
    with ccs.ablate(encoder, "L1.H0 L2.H0"):
        encoder.set_submodule(path, duplicate)
        with pytest.raises(ccs.InputError, match=r"^L2\.H0 not ablated"):
            encoder(PIXELS)
    assert not list(find_leftovers(encoder))


def test_unsupported_models_and_heads_are_rejected(encoder, tiny_model):
    texts = transformers.CLIPTextModel(transformers.CLIPTextConfig(**vlms.TEXT))
    bert = transformers.BertModel(transformers.BertConfig(**vlms.TEXT))
    traced = torch.fx.symbolic_trace(nn.Linear(2, 2))
    shared, (first, second, *_) = copy.deepcopy(encoder), structure.attention_modules(encoder, IMAGE)[1]
    shared.set_submodule(second, shared.get_submodule(first))
    for model, heads, message in (
        (bert, "T0.H1", "BertModel isn't built like CLIP's or SigLIP's text encoder"),
        (vlms.build_llama(), "L0.H1", "isn't built like CLIP's or SigLIP's image encoder"),
        ("ViT-B-32/openai", "L0.H1", "takes a model, not its name"),
        (None, "L0.H1", "takes a torch module, not NoneType"),
        (traced, "L0.H1", "Pass the model that it was made from"),
        (texts, "T2.H0", "outside this model: its layers are 0 to 1"),
        (texts, "T1.H0=mean", "differs from text to text"),
        (encoder, "L1.H0=mean", "needs images"),
        (tiny_model, "T9.H0", "outside this model"),
        (shared, "L1.H0", "Layer 1 shares its attention"),
        (nn.Sequential(timm.models.nest.Attention(8, 2)), "L0.H1", "Attention has no head_dim, so its heads"),
        (vlms.build_pixtral(), "L0.H1", "PixtralVisionModel inside Llava.* isn't built like CLIP's"),
    ):
        with pytest.raises(ccs.InputError, match=message), ccs.ablate(model, heads):
            pass
    assert not list(find_leftovers(encoder))


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_both_encoders_are_ablated(write, tmp_path):
    """In the encoders, the whole module, and the model of `ccs.load`. SigLIP's third layer is its pool."""
    module, ours = write(tmp_path), ccs.load(str(tmp_path))
    heads = ccs.HeadSet.parse("L0.H1 L1.H0 L1.H3" + " L2.H2" * (write is write_siglip))
    text_heads = ccs.HeadSet.parse("T0.H1 T1.H0 T1.H3")
    before, tokens = weight_bytes(module), ours.tokenize(TEXTS)
    images, texts = ours.embed_images(PIXELS, heads), ours.embed_texts(TEXTS, ablate=text_heads)
    assert np.abs(texts - ours.embed_texts(TEXTS)).max() > 1e-3
    for image_encoder, text_encoder in (module.vision_model, module.text_model), (module, module):
        with ccs.ablate(image_encoder, heads), ccs.ablate(text_encoder, text_heads):
            outputs = module.get_image_features(PIXELS), module.get_text_features(tokens)
        for output, expected in zip(outputs, (images, texts), strict=True):
            np.testing.assert_allclose(unit_features(output), expected, atol=TOLERANCE)
    maps = ccs.heatmap(ours, PIXELS, texts, ablate=heads)
    with ccs.ablate(ours, text_heads | heads):
        np.testing.assert_allclose(unit_features(ours.clip.encode_image(PIXELS)), images, atol=TOLERANCE)
        np.testing.assert_allclose(ours.embed_images(PIXELS), images, atol=TOLERANCE)
        np.testing.assert_allclose(ccs.heatmap(ours, PIXELS, texts), maps, atol=TOLERANCE)
        np.testing.assert_allclose(ours.embed_texts(TEXTS), texts, atol=TOLERANCE)
    assert weight_bytes(module) == before


@pytest.mark.filterwarnings("ignore:Ablating")
@pytest.mark.parametrize("name", vlms.FAMILIES)
def test_image_encoder_inside_larger_model_is_ablated(name):
    """Ablating a layer that the model doesn't read changes nothing, and warns."""
    model, read, unread = vlms.make_model(name)
    plain, before = read(model), weight_bytes(model)
    heads = "L0.H1 L1.H3" + " L3.H2" * (name == "Siglip2Model")  # L3 is the pool
    with ccs.ablate(model, heads):
        ablated = read(model)
    zeroed_copy = copy.deepcopy(model)
    names = (name for name, _ in model.named_modules() if name.split(".")[-1] in vlms.ENCODERS)
    zeroed_copy.set_submodule(path := next(names), zeroed(model.get_submodule(path), heads))
    torch.testing.assert_close(ablated, read(zeroed_copy), atol=2e-6, rtol=0)
    assert float((ablated - plain).abs().max()) > 1e-3
    assert torch.equal(read(model), plain)
    assert weight_bytes(model) == before
    if unread is not None:
        with pytest.warns(UserWarning, match=f"Ablating {unread} has no effect"), ccs.ablate(model, unread):
            assert torch.equal(read(model), plain)


@pytest.mark.parametrize("text_class", [transformers.CLIPTextModel, transformers.CLIPTextModelWithProjection])
@pytest.mark.parametrize("heads", ["T0.H1 T1.H3", "L0.H1 L1.H3"])
def test_text_encoder_alone_is_ablated(text_class, heads):
    """As in Stable Diffusion. Its heads can be named T or L."""
    model = text_class(transformers.CLIPTextConfig(**vlms.TEXT)).eval()
    randomize_weights(model, 0)
    with torch.no_grad(), ccs.ablate(model, heads) as ablated:
        output = model(vlms.TOKENS)[0]
    assert str(ablated) == "T0.H1 T1.H3"
    with torch.no_grad():
        expected = zeroed(model, "L0.H1 L1.H3")(vlms.TOKENS)[0]
        torch.testing.assert_close(output, expected, atol=2e-6, rtol=0)
        assert float((output - model(vlms.TOKENS)[0]).abs().max()) > 1e-3

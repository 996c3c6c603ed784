"""`ccs.ablate` on models of every library in every wrapper, compared with copies whose weights are zeroed."""

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
import torch.distributed as dist
import transformers
from accelerate import cpu_offload
from accelerate.hooks import attach_align_device_hook
from timm.models import nest
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize, prune
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import ccs
from benchmarks.families import zeroed
from ccs import HeadSet
from ccs.heads import IMAGE
from ccs.model import interception, structure
from tests.support import vision_language_models as vlms
from tests.support.checkpoint import write_clip, write_siglip
from tests.support.tiny_model import randomize_weights, tiny_clip

HEADS = HeadSet.parse("L0.H1 L1.H0 L1.H3")
TOLERANCE = 1e-6
PIXELS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
TEXTS = ["a photo of a cat", "a cat", "two cats at a house"]
CPU = torch.device("cpu")


def features(output):
    return nn.functional.normalize(getattr(output, "pooler_output", output).detach(), dim=-1).numpy()


def bits(model):
    return {name: values.numpy().tobytes() for name, values in model.state_dict().items()}


def leftovers(model):
    """Whatever ablation has left in a model."""
    for part in model.modules():
        if "_ccs_site" in part.__dict__:
            yield part
        hooks = [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]
        yield from (hook for hook in hooks if type(hook).__module__.startswith("ccs"))


# Every library in every wrapper ----------------------------------------------------------------------------

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


def attentions(model):
    return list(structure.attention_modules(model, IMAGE)[1].values())


def projections(model):
    return [getattr(part, interception.projection_name(part)) for part in attentions(model)]


def blocks(model):
    lists = (part for part in model.modules() if isinstance(part, nn.ModuleList | nn.Sequential))
    return next(part for part in lists if len(part) > 2)


def each_projection(change):
    def change_all(model):
        for projection in projections(model):
            change(projection)

    return change_all


def lora(model):
    layers = nn.MultiheadAttention if hasattr(model, "proj") else nn.Linear
    names = [name for name, part in model.named_modules() if isinstance(part, layers)]
    config = peft.LoraConfig(r=2, target_modules=names, init_lora_weights=False)
    return peft.get_peft_model(model, config).eval()


def fsdp1(model, inner=0, orig=True):
    """FSDP around the model and the blocks (0) or the attention modules (1) in it."""
    kind = type((blocks(model)[0], attentions(model)[0])[inner])
    policy = ModuleWrapPolicy({kind})
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=orig, device_id=CPU)


def fsdp2(model):
    mesh = init_device_mesh("cpu", (1,))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def checkpointed(model):
    kind = type(blocks(model)[0])
    apply_activation_checkpointing(model, check_fn=lambda part: isinstance(part, kind))


CASES = {
    "plain": lambda model: None,
    "compiled": partial(torch.compile, backend="eager", fullgraph=True),
    "checkpointed": checkpointed,
    "DDP": DistributedDataParallel,
    "FSDP1": fsdp1,
    "FSDP1 of attention": partial(fsdp1, inner=1),
    "FSDP1, flat parameters": partial(fsdp1, orig=False),
    "FSDP2": fsdp2,
    "accelerate": partial(attach_align_device_hook, execution_device=CPU),
    "offloaded": partial(cpu_offload, execution_device=CPU, preload_module_classes=["MultiheadAttention"]),
    "LoRA": lora,
    "weight_norm": each_projection(parametrizations.weight_norm),
    "pruned": each_projection(partial(prune.random_unstructured, name="weight", amount=0.3)),
    "int8": partial(quantize_, config=Int8WeightOnlyConfig(), filter_fn=lambda of, _: type(of) is nn.Linear),
}
"""What wraps a model, or changes it in place."""


@pytest.fixture(scope="module")
def _process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_process_group")
@pytest.mark.filterwarnings("ignore")  # those of torch, torchao, and peft
@pytest.mark.parametrize("case", CASES)
def test_every_wrapper(encoder, case):
    torch._dynamo.reset()
    torch.manual_seed(0)
    plain, changed = copy.deepcopy(encoder), CASES[case](encoder)
    wrapped = encoder if changed is None else changed
    if case == "LoRA":
        plain = copy.deepcopy(wrapped).merge_and_unload()
    elif case in ("weight_norm", "pruned", "int8"):
        linears = ([part for part in of.modules() if isinstance(part, nn.Linear)] for of in (plain, wrapped))
        for part, changed_part in zip(*linears, strict=True):
            part.weight.data = changed_part.weight.detach().dequantize().clone()
    wanted, before = features(zeroed(plain, FACTORS)(PIXELS)), features(wrapped(PIXELS))
    with ccs.ablate(wrapped, FACTORS):
        ablated = features(wrapped(PIXELS))
    np.testing.assert_allclose(before, features(plain(PIXELS)), atol=2e-6)
    np.testing.assert_allclose(ablated, wanted, atol=2e-6)
    np.testing.assert_array_equal(features(wrapped(PIXELS)), before)
    assert np.abs(ablated - before).max() > 1e-3
    assert not list(leftovers(wrapped))


def test_autocast(encoder):
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        wanted = zeroed(encoder, FACTORS)(PIXELS)
        with ccs.ablate(encoder, FACTORS):
            output = encoder(PIXELS)
    pooled = (getattr(output_part, "pooler_output", output_part).float() for output_part in (output, wanted))
    torch.testing.assert_close(*pooled, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}])
@pytest.mark.parametrize("sizes", [{}, {"batch_first": True}, {"kdim": 8, "vdim": 12, "bias": False}])
def test_nn_multihead_attention(options, sizes):
    """All its arguments reach torch, also those that open_clip doesn't use."""
    module, later = nn.MultiheadAttention(16, 4, **sizes), torch.randn(12, 5, 5)
    shape = (3, 5) if sizes.get("batch_first") else (5, 3)
    inputs = [torch.randn(*shape, width) for width in (16, sizes.get("kdim", 16), sizes.get("vdim", 16))]
    options = options | {"attn_mask": later, "key_padding_mask": torch.arange(5).expand(3, -1) / 9}
    holder = nn.ModuleDict({"blocks": nn.ModuleList([nn.ModuleDict({"attn": module})])})
    wanted = module(*inputs, **options)
    with ccs.ablate(holder, {"L0.H1": 1}):
        output = module(*inputs, **options)
    torch.testing.assert_close(output, wanted, atol=TOLERANCE, rtol=0)


# Inside a block --------------------------------------------------------------------------------------------


def test_the_pool_of_timms_resnets():
    pool = nn.Sequential(timm.layers.AttentionPool2d(8, feat_size=2, num_heads=2)).eval()
    images, weight = torch.randn(2, 8, 2, 2), pool[0].proj.weight
    with torch.no_grad(), ccs.ablate(pool, "L0.H1"):
        ablated = pool(images)
        weight[:, 4:] = 0
    torch.testing.assert_close(ablated, pool(images))


def test_projections_changed_inside_stay_changed_and_are_ablated_once(encoder):
    class Merging(nn.Linear):  # as loralib's, which writes to its weight
        def train(self, mode=True):
            self.weight.data.mul_(2 if mode else 0.5)
            return super().train(mode)

    class Wrapped(nn.Linear):
        def forward(self, x):
            return self.inner(x)

    heads, merging, wrapped = f"L0.H2 {FACTORS}", Merging(32, 32).eval(), Wrapped(32, 32)
    normed, _, wrapped.inner = projections(encoder)[:3]
    wrapped.weight, wrapped.bias = wrapped.inner.weight, wrapped.inner.bias
    with torch.no_grad(), ccs.ablate(encoder, heads):
        normed.weight.data.mul_(0.5)
        parametrizations.weight_norm(normed)
        for attention, projection in zip(attentions(encoder)[1:3], (merging, wrapped), strict=True):
            setattr(attention, interception.projection_name(attention), projection)
        encoder.bfloat16().float()
        merging.train()
        ablated = features(encoder(PIXELS))
        assert not any(type(part).__module__.startswith("ccs") for part in encoder.modules())
    parametrize.remove_parametrizations(normed, "weight")
    np.testing.assert_allclose(features(zeroed(encoder, heads)(PIXELS)), ablated, atol=2e-6)
    assert not list(leftovers(encoder))


def test_training_inside_keeps_what_it_learned_and_the_ablation(tiny_folder):
    module = open_clip.create_model(f"local-dir:{tiny_folder}").eval()
    before, optimizer = bits(module), torch.optim.AdamW(module.parameters(), lr=1e-2)
    columns = module.visual.transformer.resblocks[1].attn.out_proj.weight
    with ccs.ablate(module, "L1.H0 L1.H3"):
        for _ in range(4):
            optimizer.zero_grad()
            module.encode_image(PIXELS).square().sum().backward()
            assert not columns.grad[:, :8].any()
            assert columns.grad[:, 8:24].any()
            optimizer.step()
        module.zero_grad()
        saved, late = bits(module), module.encode_image(PIXELS)
        ablated = late.detach().clone()
    late.sum().backward()  # after the block
    gradients = {name: weights.grad for name, weights in module.visual.named_parameters()}
    assert bits(module) == saved != before
    module.zero_grad()
    with torch.no_grad():
        columns[:, :8], columns[:, 24:] = 0, 0
    wanted = module.encode_image(PIXELS)
    torch.testing.assert_close(wanted, ablated, atol=1e-5, rtol=1e-5)
    wanted.sum().backward()
    columns.grad[:, :8], columns.grad[:, 24:] = 0, 0
    for name, weights in module.visual.named_parameters():
        torch.testing.assert_close(gradients[name], weights.grad, atol=1e-5, rtol=1e-4)


def test_checkpointing_that_runs_again_after_the_block_is_an_error(encoder):
    checkpointed(encoder)
    with ccs.ablate(encoder, FACTORS):
        output = encoder(PIXELS)
        loss = getattr(output, "pooler_output", output).sum()
    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different number of tensors"):
        loss.backward()


def test_nested_blocks_copies_and_threads(encoder):
    """Blocks that end in another order than they began, or with an error; copies and pickles made inside."""
    with torch.no_grad():
        plain, nested = features(encoder(PIXELS)), features(zeroed(encoder, FACTORS)(PIXELS))
        inner = features(zeroed(encoder, "L1.H0 L2.H3=0.3")(PIXELS))
        first, second = ccs.ablate(encoder, "L1.H0 L2.H1"), ccs.ablate(encoder, "L1.H0, L2.H3=0.3")
        first.__enter__()
        assert str(second.__enter__()) == "L1.H0 L2.H3=0.3"
        duplicate, loaded = copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))
        replica = attentions(encoder)[1]._replicate_for_data_parallel()
        assert type(replica) is type(attentions(encoder)[1])
        np.testing.assert_allclose(features(encoder(PIXELS)), nested, atol=TOLERANCE)
        np.testing.assert_allclose(features(duplicate(PIXELS)), nested, atol=TOLERANCE)
        np.testing.assert_array_equal(features(loaded(PIXELS)), plain)
        first.__exit__(None, None, None)
        with ThreadPoolExecutor(1) as pool:
            output = pool.submit(encoder, PIXELS).result()
        np.testing.assert_allclose(features(output), inner, atol=TOLERANCE)
        second.__exit__(None, None, None)
        with pytest.raises(ZeroDivisionError), ccs.ablate(encoder, FACTORS):
            raise ZeroDivisionError
        for model in (encoder, duplicate, loaded):
            np.testing.assert_array_equal(features(model(PIXELS)), plain)
    assert not [*leftovers(encoder), *(part for part in loaded.modules() if "_ccs_site" in part.__dict__)]


# Errors ----------------------------------------------------------------------------------------------------


def test_a_pass_that_bypasses_a_head_is_an_error(encoder):
    with ccs.ablate(encoder, "L1.H0 L2.H0"):
        pass  # no pass, no error
    attention = attentions(encoder)[1]
    plain = type(attention).forward

    def fused(*args, **keywords):
        """Reads the weight of a projection that its class calls, and the other way round."""
        if isinstance(attention, nn.MultiheadAttention):
            return plain(attention, *args, **keywords)
        tokens = [*args, *keywords.values()][0]
        output = nn.functional.linear(tokens, projections(encoder)[1].weight)
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
    assert not list(leftovers(encoder))


def test_what_cannot_be_ablated_is_refused(encoder, tiny_model):
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
        (nn.Sequential(nest.Attention(8, 2)), "L0.H1", "Attention has no head_dim, so its heads"),
        (vlms.build_pixtral(), "L0.H1", "PixtralVisionModel inside Llava.* isn't built like CLIP's"),
    ):
        with pytest.raises(ccs.InputError, match=message), ccs.ablate(model, heads):
            pass
    assert not list(leftovers(encoder))


# Two encoders, and encoders inside other models ------------------------------------------------------------


@pytest.mark.parametrize("write", [write_clip, write_siglip])
def test_both_encoders_of_transformers_models(write, tmp_path):
    """Each encoder alone, the module, and what ccs.load returns. SigLIP's third layer is its pool."""
    module, ours = write(tmp_path), ccs.load(str(tmp_path))
    heads = HEADS | HeadSet.parse("L2.H2") if write is write_siglip else HEADS
    text_heads = HeadSet.parse("T0.H1 T1.H0 T1.H3")
    before, tokens = bits(module), ours.tokenize(TEXTS)
    images, texts = ours.embed_images(PIXELS, heads), ours.embed_texts(TEXTS, ablate=text_heads)
    assert np.abs(texts - ours.embed_texts(TEXTS)).max() > 1e-3
    for image_encoder, text_encoder in (module.vision_model, module.text_model), (module, module):
        with ccs.ablate(image_encoder, heads), ccs.ablate(text_encoder, text_heads):
            np.testing.assert_allclose(features(module.get_image_features(PIXELS)), images, atol=TOLERANCE)
            np.testing.assert_allclose(features(module.get_text_features(tokens)), texts, atol=TOLERANCE)
    maps = ccs.heatmap(ours, PIXELS, texts, ablate=heads)
    with ccs.ablate(ours, text_heads | heads):
        np.testing.assert_allclose(features(ours.clip.encode_image(PIXELS)), images, atol=TOLERANCE)
        np.testing.assert_allclose(ours.embed_images(PIXELS), images, atol=TOLERANCE)
        np.testing.assert_allclose(ccs.heatmap(ours, PIXELS, texts), maps, atol=TOLERANCE)
        np.testing.assert_allclose(ours.embed_texts(TEXTS), texts, atol=TOLERANCE)
    assert bits(module) == before


@pytest.mark.filterwarnings("ignore:Ablating")
@pytest.mark.parametrize("name", vlms.FAMILIES)
def test_image_encoders_inside_other_models(name):
    """Against weights zeroed in a copy. A layer that is not read changes nothing, with a warning."""
    model, read, unread = vlms.make_model(name)
    plain, before = read(model), bits(model)
    heads = HeadSet.parse("L0.H1 L1.H3 L3.H2" if name == "Siglip2Model" else "L0.H1 L1.H3")  # L3: the pool
    with ccs.ablate(model, heads):
        ablated = read(model)
    copied = copy.deepcopy(model)
    names = (name for name, _ in model.named_modules() if name.split(".")[-1] in vlms.ENCODERS)
    copied.set_submodule(name := next(names), zeroed(model.get_submodule(name), heads))
    torch.testing.assert_close(ablated, read(copied), atol=2e-6, rtol=0)
    assert float((ablated - plain).abs().max()) > 1e-3
    assert torch.equal(read(model), plain)
    assert bits(model) == before
    if unread is not None:
        with pytest.warns(UserWarning, match=f"Ablating {unread} has no effect"), ccs.ablate(model, unread):
            assert torch.equal(read(model), plain)


@pytest.mark.parametrize("kind", [transformers.CLIPTextModel, transformers.CLIPTextModelWithProjection])
@pytest.mark.parametrize("heads", ["T0.H1 T1.H3", "L0.H1 L1.H3"])
def test_a_text_encoder_alone(kind, heads):
    """As in Stable Diffusion, whose text encoder is a CLIPTextModel; its heads may be called L, too."""
    model = kind(transformers.CLIPTextConfig(**vlms.TEXT)).eval()
    randomize_weights(model, 0)
    with torch.no_grad(), ccs.ablate(model, heads) as ablated:
        output = model(vlms.TOKENS)[0]
    assert str(ablated) == "T0.H1 T1.H3"
    with torch.no_grad():
        expected = zeroed(model, "L0.H1 L1.H3")(vlms.TOKENS)[0]
        torch.testing.assert_close(output, expected, atol=2e-6, rtol=0)
        assert float((output - model(vlms.TOKENS)[0]).abs().max()) > 1e-3

"""Edits erase groups from heads' outputs, and edited weights give the same results in every family."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import CLIPTextConfig, CLIPTextModel, SiglipVisionConfig, SiglipVisionModel

import ccs
from ccs.analysis.edit_heads import EditedModel
from ccs.heads import IMAGE
from ccs.model import ablation, interception, structure
from ccs.model.editing import Preserved, _record, edit_module, erasing_map, fit_edits
from tests.support import vision_language_models as vlms
from tests.support.tiny_model import randomize_weights, tiny_clip

GROUPS, CLASSES = np.array(["a", "b", "c"] * 8), np.arange(24) % 3
PIXELS = torch.randn(24, 3, 32, 32, generator=torch.Generator().manual_seed(3))
PIXELS += torch.arange(24)[:, None, None, None] % 3


def erase(model, heads, groups=GROUPS, preserve=None, attribute="kind"):
    unfitted = ccs.Intervention.parse(" ".join(f"{head}=erase:{attribute}" for head in heads.split()))
    return fit_edits(model, unfitted, PIXELS, {attribute: groups}, preserve)


def test_erasing_map_minimizes_objective():
    generator = torch.Generator().manual_seed(0)
    groups, classes = (torch.randn(n, 6, generator=generator).double() for n in (3, 4))
    mean, identity = torch.randn(6, generator=generator).double(), torch.eye(6).double()
    plain = erasing_map(groups, mean)
    assert (groups @ plain[:-1]).abs().max() < 1e-12
    torch.testing.assert_close(mean @ plain[:-1] + plain[-1], mean)
    torch.testing.assert_close(erasing_map(groups, mean, classes, 1.0)[:-1], identity)

    def objective(matrix, strength=0.3):
        g, c = (part / torch.linalg.matrix_norm(part, 2) for part in (groups, classes))
        cost = (c @ (matrix - identity).T).square().sum() + 0.03 * (matrix - identity).square().sum()
        return (1 - strength) * (g @ matrix.T).square().sum() + strength * cost

    best = erasing_map(groups, mean, classes, 0.3)[:-1].T
    for _ in range(20):
        assert objective(best) < objective(best + 1e-3 * torch.randn(6, 6, generator=generator).double())


def test_erasing_unencoded_groups_changes_nothing(tiny_model):
    groups = np.repeat(["left", "right"], len(PIXELS))
    unfitted = ccs.Intervention.parse("L2.H0=erase:side L4.H1=erase:side L5.H2=erase:side")
    edits, _ = fit_edits(tiny_model, unfitted, torch.cat([PIXELS, PIXELS]), {"side": groups})
    embedded = tiny_model.embed_images(PIXELS, edits)
    np.testing.assert_allclose(embedded, tiny_model.embed_images(PIXELS), atol=1e-6)


FAMILIES = {
    "open_clip": (lambda: tiny_clip(0).visual, "L3.H0 L3.H1"),
    "SigLIP's pool": (lambda: SiglipVisionModel(SiglipVisionConfig(**vlms.VISION)), "L3.H0 L3.H2"),
    "Llava": (lambda: vlms.make_model("Llava")[0], "L1.H0 L1.H3"),
    "Qwen2_5_VL": (lambda: vlms.make_model("Qwen2_5_VL")[0], "L1.H0 L1.H3"),
    "CLIPTextModel": (lambda: CLIPTextModel(CLIPTextConfig(**vlms.TEXT)), "T1.H0"),
}


def run_encoder(family, module, x, label):
    """Pass an image, or a text of a class."""
    if family == "CLIPTextModel":
        return module(torch.arange(12)[None] + 20 * label + 5)
    if family == "Qwen2_5_VL":
        patches = x.flatten().repeat(2).view(16, -1)
        return module.model.get_image_features(patches, torch.tensor([[1, 4, 4]]))
    return module.model.get_image_features(x) if family == "Llava" else module(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_edited_heads_have_equal_group_means(family, dtype):
    make, heads = FAMILIES[family]
    module, encoder = make().eval(), heads[0]
    randomize_weights(module, seed=3)
    module.to(dtype)

    def run():
        for x, label in zip(PIXELS, CLASSES, strict=True):
            run_encoder(family, module, x[None].to(dtype), int(label))

    before, mean_before = _head_outputs(module, run, heads, encoder)
    rows = edit_module(module, heads, run, GROUPS, encoder)
    after, mean_after = _head_outputs(module, run, heads, encoder)
    assert [row["head"] for row in rows] == heads.split()
    tolerance = 1e-5 if dtype is torch.float32 else 0.05
    assert _group_gap(after) < tolerance * _group_gap(before)
    scale = float(mean_before.abs().max())
    torch.testing.assert_close(mean_before, mean_after, rtol=0, atol=tolerance * scale)


def _head_outputs(module, run, heads, encoder):
    """Return head outputs [n, W], averaged over CLS token and patches, and the layer's mean output."""
    chosen = ccs.HeadSet.parse(heads)
    root, modules = structure.attention_modules(module, encoder)
    path, attention = list(modules.items())[chosen[0].layer]
    outputs = _record(attention, path, run, len(GROUPS)).double()
    has_cls = encoder == IMAGE and ablation.has_class_token(root)
    outputs = (outputs[:, 0] + outputs[:, 1:].mean(1)) / 2 if has_cls else outputs.mean(1)
    projection = getattr(attention, interception.projection_name(attention))
    weight, size = projection.weight.detach().double(), outputs.shape[-1] // attention.num_heads
    columns = torch.cat([torch.arange(head.head * size, (head.head + 1) * size) for head in chosen])
    return outputs[:, columns] @ weight[:, columns].T, outputs.mean(0) @ weight.T + projection.bias.detach()


def _group_gap(outputs):
    means = torch.stack([outputs[torch.from_numpy(name == GROUPS)].mean(0) for name in "abc"])
    return float((means - means.mean(0)).abs().max())


def test_edited_weights_match_intervention(model):
    edits, rows = erase(model, "L2.H1 L4.H0 L5.H2", preserve=Preserved(PIXELS, np.arange(24) // 6))
    edited = EditedModel(model, edits, pd.DataFrame(rows), {})
    np.testing.assert_allclose(edited.embed_images(PIXELS), model.embed_images(PIXELS, edits), atol=1e-5)
    with ccs.ablate(model.clip, edits), torch.no_grad():
        features = model.clip.encode_image(PIXELS, normalize=True)
    np.testing.assert_allclose(features, edited.embed_images(PIXELS), atol=1e-5)
    assert edited.weights_hash != model.weights_hash
    before, after = model.clip.state_dict(), edited.clip.state_dict()
    changed = {name for name, values in after.items() if not values.equal(before[name])}
    projections = [f"visual.transformer.resblocks.{layer}.attn.out_proj" for layer in (2, 4, 5)]
    assert changed == {f"{name}.{part}" for name in projections for part in ("weight", "bias")}


def test_text_heads_are_edited(tiny_model):
    texts = [f"a {word} {name}" for name in ("judge", "cook", "nurse") for word in ("young", "old")]
    unfitted = ccs.Intervention.parse("T1.H0=erase:age")
    edits, _ = fit_edits(tiny_model.texts, unfitted, texts, {"age": ["young", "old"] * 3})
    edited = EditedModel(tiny_model, edits, None, {})
    units = edited.embed_texts(texts)
    np.testing.assert_allclose(units, tiny_model.embed_texts(texts, ablate=edits), atol=1e-5)
    assert not np.allclose(units, tiny_model.embed_texts(texts), atol=1e-5)


def test_invalid_groups_and_heads_are_rejected(tiny_model):
    with pytest.raises(ccs.InputError, match="two or more groups"):
        erase(tiny_model, "L5.H0", np.full(24, "a"))
    with pytest.raises(ccs.InputError, match=r"L9\.H0 is outside"):
        edit_module(tiny_model.clip, "L9.H0", lambda: None, GROUPS)

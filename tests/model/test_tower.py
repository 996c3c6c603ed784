"""The tower against open_clip's own forward pass and a copy of it with columns of out_proj zeroed."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ccs
from benchmarks.towers import plain, zeroed
from ccs import Head, HeadSet, InputError
from ccs.model.model import Model
from ccs.model.tower import ImageTower
from tests.support.tiny_model import write_tiny_model
from tests.support.towers import TOLERANCE, count_layers, pixels, some_plans

TYPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "no ln_pre": {"no_ln_pre": True},
    "LayerScale": {"ls_init_value": 0.5},
    "ln after pooling": {"final_ln_after_pool": True},
    "GELU by tanh": {"act_kwargs": {"approximate": "tanh"}},
    "one layer": {"layers": 1},
    "uneven patches": {"image_size": 36, "patch_size": 8},
    "fixed positions": {"pos_embed_type": "sin_cos_2d"},
    "patch dropout": {"patch_dropout": 0.5},
    "average of normed patches": {"pool_type": "avg"},
    "average of patches": {"pool_type": "avg", "final_ln_after_pool": True},
}


@pytest.mark.parametrize("first_layer", [0, 2, 5])
def test_every_plan_is_the_zeroed_copy(model: Model, first_layer: int) -> None:
    x = pixels(model, 3)
    plans = some_plans(model, 8, first_layer, first_layer)
    embeddings = model.embed_images(x, plans)
    assert embeddings.shape == (8, 3, model.dim)
    assert embeddings.dtype == np.float32
    for off, found in zip(plans, embeddings, strict=True):
        np.testing.assert_allclose(found, plain(zeroed(model.clip.visual, off), x), atol=TOLERANCE)
        np.testing.assert_allclose(model.embed_images(x, off), found, atol=TOLERANCE)


@pytest.mark.parametrize("vision", TYPES.values(), ids=TYPES.keys())
def test_every_kind_of_vit(tmp_path: Path, vision: dict[str, Any]) -> None:
    model = ccs.load(str(write_tiny_model(tmp_path, **vision)))
    x = pixels(model, 2)
    for off in some_plans(model, 3, seed=1):
        expected = plain(zeroed(model.clip.visual, off), x)
        np.testing.assert_allclose(model.embed_images(x, off), expected, atol=TOLERANCE)
    direct, remainder = model.contributions(x)
    np.testing.assert_allclose(direct.sum((1, 2)) + remainder, plain(model.clip.visual, x), atol=TOLERANCE)


def test_heads_are_those_of_the_last_four_layers_or_of_layers_that_are_chosen(
    tiny_folder: Path, tiny_model: Model
) -> None:
    assert tiny_model.heads == HeadSet(Head(i, j) for i in range(2, 6) for j in range(4))
    assert len(ccs.load(str(tiny_folder), layers="all").heads) == 24
    model = ccs.load(str(tiny_folder), layers=[1, 4])
    assert model.heads == HeadSet(Head(i, j) for i in (1, 4) for j in range(4))
    assert model.trunk(pixels(model, 1)).layer == 1
    off = HeadSet.parse("L1.H2 L5.H0")
    found = model.embed_images(model.trunk(pixels(model, 2)), off)
    np.testing.assert_allclose(found, model.embed_images(pixels(model, 2), off), atol=1e-6)
    for layers in ([6], []):
        with pytest.raises(InputError, match="but must be some of 0 to 5, or all"):
            ccs.load(str(tiny_folder), layers=layers)


def test_work_that_plans_share_is_done_once(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the layers that run: plans share one pass up to the first layer in which they differ."""
    passes = count_layers(tiny_model, monkeypatch)
    texts = ["L4.H0", "L4.H0 L5.H1", "L4.H0 L5.H2", "L3.H1", "", ""]
    tiny_model.embed_images(pixels(tiny_model, 2), [HeadSet.parse(text) for text in texts])
    counts = [passes.count(layer) for layer in range(6)]
    assert counts == [1, 1, 1, 2, 3, 5]


def test_the_trunk_is_where_every_plan_can_start(model: Model) -> None:
    x = pixels(model, 5)
    plans = some_plans(model, 4, 3, first_layer=2)
    trunk = model.trunk(x, batch_size=2)
    assert (trunk.layer, len(trunk)) == (2, 5)
    found = model.embed_images(trunk, plans, batch_size=3)
    np.testing.assert_allclose(found, model.embed_images(x, plans), atol=1e-6)
    np.testing.assert_allclose(model.embed_images(trunk), plain(model.clip.visual, x), atol=TOLERANCE)
    with pytest.raises(InputError, match=r"L1\.H0 lies below layer 2"):
        model.embed_images(trunk, HeadSet.parse("L1.H0"))
    assert model.embed_images(model.trunk(x[:0]), plans).shape == (4, 0, model.dim)


@pytest.mark.parametrize("layer", [2, 5])
def test_attention_is_that_of_torch(model: Model, layer: int) -> None:
    x, off = pixels(model, 2), HeadSet.parse("L1.H2")
    visual = zeroed(model.clip.visual, off)
    block = visual.transformer.resblocks[layer]
    captured: list[Tensor] = []
    block.register_forward_pre_hook(lambda _, args: captured.append(args[0]))
    with torch.no_grad():
        visual(x)
        y = block.ln_1(captured[0])
        _, weights = block.attn(y, y, y, need_weights=True, average_attn_weights=False)
    found = model.tower.attention(x, layer, HeadSet([*off, Head(layer, 0)]))
    np.testing.assert_allclose(found, weights[:, :, 0], atol=TOLERANCE)
    below = model.tower.trunk(x, 1)
    np.testing.assert_allclose(model.tower.attention(below, layer, off), found, atol=1e-6)


def test_weights_stay_as_they_are_also_after_an_exception(
    tiny_model: Model, pictures: Callable[[int], list[Any]]
) -> None:
    before = {name: values.clone() for name, values in tiny_model.clip.state_dict().items()}
    off = HeadSet.parse("L2.H0 L5.H1")

    class Unreadable(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            if index == 3:
                raise OSError("broken image")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="broken image"):
        tiny_model.embed_images(Unreadable(pictures(6)), off, batch_size=2)
    tiny_model.contributions(pixels(tiny_model, 2))
    for name, values in tiny_model.clip.state_dict().items():
        assert torch.equal(values, before[name])
    for module in tiny_model.clip.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    x = pixels(tiny_model, 2)
    np.testing.assert_allclose(tiny_model.embed_images(x), plain(tiny_model.clip.visual, x), atol=TOLERANCE)


def test_threads_with_different_plans_get_their_own_answers(tiny_model: Model) -> None:
    x = pixels(tiny_model, 4)
    plans = some_plans(tiny_model, 4, 11)
    expected = [plain(zeroed(tiny_model.clip.visual, off), x) for off in plans]
    found: list[list[np.ndarray]] = [[] for _ in plans]
    start = threading.Barrier(len(plans))

    def work(index: int) -> None:
        start.wait()
        for _ in range(10):
            found[index].append(tiny_model.embed_images(x, plans[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for answers, right in zip(found, expected, strict=True):
        assert len(answers) == 10
        for answer in answers:
            np.testing.assert_allclose(answer, right, atol=TOLERANCE)


def test_other_modules_and_custom_blocks_are_refused(tiny_model: Model, tmp_path: Path) -> None:
    visual = copy.deepcopy(tiny_model.clip.visual)
    visual.pool_type = "none"
    with pytest.raises(InputError, match="pooling is 'none'"):
        ImageTower(visual)
    with pytest.raises(InputError, match="Linear cannot be taken apart by head because it is built of no"):
        ImageTower(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="custom ones"):
        ccs.load(str(write_tiny_model(tmp_path, qk_norm=True)))

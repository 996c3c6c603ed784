"""A SigLIP 2 and a PE-Core from the page's menu, in Chromium: heads of their blocks and pools switched off.

The weights are random and small, under the real names on a local Hub; so nothing is said about answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save

import ccs
from ccs.heads import HeadSet
from ccs.ui import links
from ccs.ui.shared import App
from ccs.ui.views import classify
from tests.support import shrunk
from tests.support.browser_page import MARKS, Page, done, off, served, settled
from tests.support.hub_server import serve
from tests.support.tiny_model import shake

pytestmark = MARKS
RESOLVE = "{repo_id}/resolve/{revision}/{filename}"
SIGLIP, PE = "ViT-B-32-SigLIP2-256/webli", "PE-Core-B-16/meta"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """The app beside a Hub that has the two, and its address."""
    folder = tmp_path_factory.mktemp("towers")
    shrunk.write_tokenizer(folder / "tokenizer")
    rules = {path.name: path.read_bytes() for path in (folder / "tokenizer").iterdir()}
    with serve() as hub, pytest.MonkeyPatch.context() as patch, shrunk.narrow():
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setattr(constants, "ENDPOINT", hub.url)  # open_clip asks what was so at import
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{RESOLVE}")
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        for name, more in ((SIGLIP, rules), (PE, {})):
            architecture, tag = name.split("/")
            config = shrunk.config(architecture)
            patch.setitem(open_clip.factory._MODEL_CONFIGS, architecture, config)
            place = open_clip.get_pretrained_cfg(architecture, tag)["hf_hub"].rstrip("/")
            hub.put("models", place, {"open_clip_model.safetensors": weights(architecture), **more})
        (folder / "results").mkdir()
        yield from served(folder / "results", folder / "cache", ccs.load("organism"))


def weights(architecture: str) -> bytes:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        clip = open_clip.create_model(architecture)
    shake(clip, 0)
    return save({name: values.contiguous() for name, values in clip.state_dict().items()})


@pytest.mark.parametrize(("name", "in_pool", "share"), [(SIGLIP, 4, "sigmoid"), (PE, 2, "softmax")])
def test_heads_of_a_pooled_tower(
    visit: Callable[..., Page], made: tuple[App, str], tmp_path: Path, name: str, in_pool: int, share: str
) -> None:
    page = visit("tab=classify&off=none&model=organism")
    done(page, lambda: page.select_option('select[data-do="model"]', name))
    page.wait_for_function("!document.querySelector('.status .busy')")
    settled(page)
    assert page.locator(".grid .cell").count() == 3 * shrunk.HEADS + in_pool
    assert page.locator(".grid [data-head^='L3.']").count() == in_pool
    assert f"{share} of" in page.content()
    for number, head in enumerate(("L3.H1", "L2.H0"), 1):
        done(page, lambda: page.click(f'[data-head="{head}"]'))  # noqa: B023
        page.wait_for_function(
            "n => document.querySelector('.lead').innerText.includes(`With ${n} head`)", arg=number
        )
    assert off(page) == "L2.H0 L3.H1"
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    # Random weights move answers by less than a page's percentages show.
    app, _ = made
    session = links.open_link(app, {"model": name, "tab": "classify"})
    offs = [HeadSet(), HeadSet.parse("L3.H1"), HeadSet.parse("L2.H0 L3.H1")]
    answers = [classify.measure(session, app.model_cache.get(name), heads)[1].after for heads in offs]
    moved = [float(np.abs(one - other).max()) for one, other in itertools.combinations(answers, 2)]
    assert min(moved) > 1e-7

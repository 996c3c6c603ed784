"""A cold Space beside a local Hub, in Chromium: from nothing to heads switched off, and after the Hub's end.

The weights are random and small, of as many heads, under the real name; so nothing is said about answers.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save

from batch import publish
from ccs import results
from tests.datasets.test_photographs import parquet
from tests.support.app_process import ROOT, started
from tests.support.browser_page import MARKS, done, go, off, settled
from tests.support.datasets_sample import png
from tests.support.hub_server import Hub
from tests.support.tiny_model import shake
from tests.support.ui_page import small_gallery

pytestmark = [
    *MARKS,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),  # of huggingface_hub's own uploads
]
SHRUNK = ROOT / "tests" / "support" / "shrunk"
WEIGHTS, ADDRESS = "open_clip_model.safetensors", "hf://datasets/user/ccs"
ONLY_THERE = "a text that no other tables hold"


def weights() -> bytes:
    """Random weights of the small ViT-B-32."""
    config = json.loads((SHRUNK / "ViT-B-32.json").read_text("utf-8"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        clip = open_clip.CLIP(**config, quick_gelu=True)
    shake(clip, 0)
    return save({name: values.contiguous() for name, values in clip.state_dict().items()})


def photographs() -> bytes:
    drawn = small_gallery(24).images
    return parquet([{"bytes": png(i), "path": None} for i in range(len(drawn))])


def changed(folder: Path) -> Path:
    """The organism's shipped results, with one head's first text changed."""
    target = folder / "organism"
    shutil.copytree(results.PRECOMPUTED / "organism", target)
    found = results.read(target)
    spans = found.table("spans")
    spans.loc[(spans["layer"] == 7) & (spans["head"] == 0) & (spans["rank"] == 0), "text"] = ONLY_THERE
    entry = results.write_table(target, "spans", spans)
    results.write_manifest(target, {**found.manifest, "tables": {**found.manifest["tables"], "spans": entry}})
    return folder


@pytest.fixture
def hub_server(hub: Hub, tmp_path: Path) -> Hub:
    """The Hub with a model, photographs, and results that batch.publish put there."""
    assert publish.main(["--repo", "user/ccs", "--results", str(changed(tmp_path / "run")), "--public"]) == 0
    hub.put("models", "timm/vit_base_patch32_clip_224.openai", {WEIGHTS: weights()})
    hub.put("datasets", "user/photos", {"data/train-00000-of-00001.parquet": photographs()})
    return hub


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    """A labeled gallery of the owner's own."""
    folder, whole = tmp_path / "faces", small_gallery(12)
    folder.mkdir()
    rows = ["file,gender"]
    for i in range(12):
        whole.images[i].save(folder / f"{i}.png")
        rows.append(f"{i}.png,{whole.groups['gender'][i]}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


def cold(hub: Hub, home: Path, **more: str) -> AbstractContextManager[tuple[str, str]]:
    """app.py where nothing is cached: its address, and what it says."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
    env |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **more}
    return started(env)


@pytest.fixture
def space(hub_server: Hub, gallery: Path, tmp_path: Path) -> Iterator[str]:
    more = {"CCS_GALLERIES": str(gallery), "CCS_RESULTS": ADDRESS, "PYTHONPATH": str(SHRUNK)}
    with cold(hub_server, tmp_path / "home", **more) as (address, said):
        assert f"Results: the Hub ({ADDRESS}, commit" in said
        assert f"Opens on ViT-B-32/openai: {hub_server.url} answers" in said
        yield address


def quiet(page: Any) -> None:
    """Wait until nothing is on its way."""
    page.wait_for_function("document.body.dataset.ready && !document.querySelector('.status .busy')")
    settled(page)


def test_a_cold_space(space: str, browser: Any, hub_server: Hub, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.set_default_timeout(180_000)
    shot = iter(range(20))

    def look() -> None:
        page.screenshot(path=tmp_path / f"{next(shot)}.png", full_page=True)

    page.goto(f"{space}?tab=classify&off=none")
    quiet(page)
    look()
    assert page.input_value('select[data-do="model"]') == "ViT-B-32/openai"
    assert page.locator(".grid .cell").count() == 48
    assert page.locator(".grid .cell.published").count() == 25
    assert page.locator(".answer").count() == 4
    # The first switch, the published preset.
    done(page, lambda: page.click('[data-head="L11.H5"]'))
    assert off(page) == "L11.H5"
    assert "With 1 head off" in page.inner_text(".lead")
    done(page, lambda: page.select_option('select[data-do="preset"]', "high"))
    assert len(off(page).split()) == 8
    look()
    # An upload.
    Image.new("RGB", (80, 60), "teal").save(tmp_path / "mine.png")
    done(page, lambda: page.set_input_files("[data-files]", tmp_path / "mine.png"))
    assert page.locator(".answer").count() == 1
    # The Hub has no FairFace, which is said; an occupation typed, on the owner's gallery.
    go(page, "bias")
    quiet(page)
    assert "was not found on the Hub" in page.inner_text("#region-main")
    page.select_option('select[name="gallery"]', "faces")
    done(page, lambda: page.click("text=Measure"))
    quiet(page)
    page.fill('textarea[name="occupations"]', "juggler")
    done(page, lambda: page.click("text=Measure"))
    quiet(page)
    assert "juggler" in page.inner_text(".lead")
    look()
    # Taking the model apart fills the grid.
    go(page, "heads")
    quiet(page)
    page.click("summary:has-text('Take it apart')")
    page.fill('input[name="own"]', "user/photos:train")
    page.fill('input[name="count"]', "20")
    page.select_option('select[name="texts"]', "world")
    page.click("form[data-do=apart] button")
    page.wait_for_selector(".status .busy:has-text('Taking ViT-B-32/openai apart')")
    look()
    page.wait_for_selector("[data-zip]", state="attached")
    quiet(page)
    assert page.locator(".grid .cell.published").count() == 0
    assert set(page.locator(".grid .cell b").all_inner_texts()) <= set("012345")
    assert page.locator("[data-name^=texts]").count() == 1
    with page.expect_download() as download:
        page.click("text=Download the tables")
    assert download.value.suggested_filename == "ViT-B-32-openai.zip"
    look()
    # Everything goes on when the Hub does not.
    for key in list(hub_server.repositories):
        del hub_server.repositories[key]
    go(page, "classify")
    done(page, lambda: page.click('[data-head="L9.H1"]'))
    assert "L9.H1" in off(page)
    done(page, lambda: page.select_option('select[data-do="model"]', "ViT-B-16/openai"))
    quiet(page)
    assert "The weights of ViT-B-16/openai" in page.inner_text("#region-main")
    done(page, lambda: page.select_option('select[data-do="model"]', "organism"))
    quiet(page)
    assert "only seen drawings" in page.inner_text("#region-top")  # the upload is still there
    look()
    # And the tables that were published are still there.
    page.goto(f"{space}?model=organism&tab=heads&head=L7.H0")
    quiet(page)
    assert ONLY_THERE in page.inner_text(".texts")
    page.close()

"""From a run to the page by way of the Hub: published results, and app.py started from their address."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch import publish
from ccs import results
from tests.support.app_process import started
from tests.support.browser_page import CHROMIUM
from tests.support.hub_server import Hub

ADDRESS = "hf://datasets/user/ccs@v1"
ONLY_THERE = "a text that no other tables hold"

pytestmark = [
    # of huggingface_hub's own uploads
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]


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
def address(hub: Hub, tmp_path: Path) -> Iterator[str]:
    """The real app.py, started from results on the Hub."""
    assert (
        publish.main(["--repo", "user/ccs", "--results", str(changed(tmp_path / "run")), "--tag", "v1"]) == 0
    )
    env = {**os.environ, "CCS_RESULTS": ADDRESS, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    with started(env) as (address, said):
        commit = hub.repositories["datasets", "user/ccs"].tags["v1"]
        assert f"Results: the Hub ({ADDRESS}, commit {commit[:12]})" in said
        yield address


def test_the_app_shows_what_was_published(address: str, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"{address}?model=organism&head=L7.H0")
        page.wait_for_function("document.body.dataset.ready && !document.body.dataset.busy")
        assert ONLY_THERE in page.inner_text(".texts")
        page.screenshot(path=tmp_path / "page.png")
        browser.close()

"""The page on models whose towers are no plain ViTs: small ones of random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

import pytest

import ccs
from ccs.ui.app import App
from tests.support import shrunk, ui_sample
from tests.support.browser_page import MARKS, Page, browser, done, off, served, visit

__all__ = ["browser", "visit"]  # fixtures
pytestmark = MARKS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    organism, folder = ccs.load("organism"), tmp_path_factory.mktemp("results")
    ui_sample.write(folder, "organism", organism.weights_hash)
    names = {"siglip": "ViT-B-16-SigLIP2", "pe": "PE-Core-B-16"}
    models = tmp_path_factory.mktemp("models")
    given = {name: str(shrunk.write_model(models / name, kind)) for name, kind in names.items()}
    with shrunk.narrow():
        for app, url in served(folder, tmp_path_factory.mktemp("cache"), organism):
            app.model_cache.given = MappingProxyType(given)
            yield app, url


@pytest.mark.parametrize("name", ["siglip", "pe"])
def test_heads_of_a_pooled_tower_are_switched_off(
    visit: Callable[..., Page], made: tuple[App, str], name: str
) -> None:
    model = made[0].model_cache.get(name)
    page = visit(f"model={name}&tab=classify&off=none")
    layer = f"layer:{model.n_layers - 1}"  # the pool's own
    done(page, lambda: page.select_option('select[data-do="preset"]', layer))
    assert off(page) == " ".join(str(head) for head in model.heads if head.layer == model.n_layers - 1)
    assert "sigmoid" in page.inner_html("[data-name=classify]")
    assert "before and after agree" not in page.inner_text(".lead")
    done(page, lambda: page.select_option('select[data-do="preset"]', "layer:1"))
    assert off(page) == "L1.H0 L1.H1 L1.H2 L1.H3"
    assert page.locator("[data-name=classify] img").count() >= 4

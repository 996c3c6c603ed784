"""The page's looks, and what it gives to take along: light, dark, narrow, saved images and tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image

from ccs.ui.views import VIEWS
from tests.support.browser_page import GALLERY, MARKS, Page, browser, done, go, made, off, saved, visit

__all__ = ["browser", "made", "visit"]  # fixtures
pytestmark = MARKS
SMALLEST = """Math.min(...[...document.querySelectorAll("main *")]
    .filter(one => one.checkVisibility())
    .filter(one => [...one.childNodes].some(text => text.nodeType === 3 && text.data.trim()))
    .map(one => parseFloat(getComputedStyle(one).fontSize)))"""
SERIOUS = ("serious", "critical")
SCREEN = f"off=L6.H1+L7.H2&gallery={GALLERY}&other_head=L5.H3"


@pytest.mark.parametrize(
    ("theme", "width"), [("light", 1300), ("dark", 1300), ("light", 390)], ids=["light", "dark", "narrow"]
)
def test_axe_finds_nothing_serious(visit: Callable[..., Page], theme: str, width: int) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    page = visit(f"__theme={theme}&{SCREEN}", width=width)
    page.emulate_media(reduced_motion="reduce")  # what fades in has no contrast yet
    found = []
    for tab in VIEWS:
        if tab != "heads":
            go(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        assert page.evaluate(SMALLEST) >= 12, tab
        page.evaluate(axe)
        # The narrow page has the colors of the wide one; to look at contrast takes longest.
        rules = {"color-contrast": {"enabled": width > 390}}
        report = page.evaluate("rules => axe.run(document, { resultTypes: ['violations'], rules })", rules)
        found += [
            (tab, v["id"], v["nodes"][0]["html"][:120])
            for v in report["violations"]
            if v["impact"] in SERIOUS
        ]
    assert found == []
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")


def test_on_a_phone_the_grid_is_a_sheet_below_the_results(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&off=none", width=390, height=844)
    cell = page.locator('[data-head="L7.H1"]')
    assert not cell.is_visible()
    assert page.locator(".lead").bounding_box()["y"] < 844  # the answer is on the first screen
    page.click(".handle")
    assert page.get_attribute(".handle", "aria-expanded") == "true"
    done(page, cell.click)
    assert off(page) == "L7.H1"
    assert cell.is_visible()  # the sheet stays open
    assert "1 of 24 off" in page.inner_text(".handle")
    lead, sheet = page.locator(".lead").bounding_box(), page.locator(".panel.heads").bounding_box()
    assert -1 < lead["y"] < sheet["y"]  # and the answer can be seen above it
    page.keyboard.press("Escape")
    assert not cell.is_visible()
    go(page, "heads")
    assert cell.is_visible()
    assert page.locator(".panel.heads").bounding_box()["y"] < page.locator(".card-title").bounding_box()["y"]


@pytest.mark.parametrize("tab", VIEWS)
def test_every_figure_is_saved_as_csv_and_png(visit: Callable[..., Page], tab: str) -> None:
    page = visit(f"tab={tab}&{SCREEN}&other_model=organism-control")
    figures = page.locator("#region-main .fig").all()
    assert figures
    for figure in figures:
        name = figure.get_attribute("data-name")
        assert figure.locator("[data-save=png]").count() == 1, name
        rows = list(csv.reader(io.StringIO(figure.get_attribute("data-csv") or "")))
        assert len(rows) > 1, name
        assert {len(row) for row in rows} == {len(rows[0])}, name
    first = figures[0]
    first.scroll_into_view_if_needed()
    table = saved(page, lambda: first.locator("[data-save=csv]").click()).read_text("utf-8")
    assert table == first.get_attribute("data-csv")
    image = Image.open(saved(page, lambda: first.locator("[data-save=png]").click()))
    box = first.bounding_box()
    assert abs(image.width - 2 * box["width"]) <= 2
    shades = np.unique(np.asarray(image.convert("RGB").resize((200, 200))).reshape(-1, 3), axis=0)
    assert len(shades) > 50  # a figure, not an empty sheet


def test_the_grid_is_saved_too(visit: Callable[..., Page]) -> None:
    page = visit("off=L6.H1")
    table = saved(page, lambda: page.click(".legend [data-save=csv]")).read_text("utf-8")
    rows = {row["head"]: row for row in csv.DictReader(io.StringIO(table))}
    assert len(rows) == 24
    assert (rows["L6.H1"]["off"], rows["L6.H2"]["off"], rows["L5.H3"]["CCS"]) == ("1", "0", "")
    image = Image.open(saved(page, lambda: page.click(".legend [data-save=png]")))
    assert image.width > 700
    last = np.asarray(image.convert("L"))[-image.height // 4 :]
    assert last.min() < 128  # as high as what is in it


def test_dark_and_light_by_the_button_and_remembered(visit: Callable[..., Page]) -> None:
    page = visit("tab=about")
    dark = "document.body.classList.contains('dark')"
    before = page.evaluate(dark)
    page.click("[data-theme-toggle]")
    assert page.evaluate(dark) != before
    page.reload()
    page.wait_for_function("document.body.dataset.ready")
    assert page.evaluate(dark) != before


def test_what_is_unfolded_stays_so(visit: Callable[..., Page]) -> None:
    page = visit("head=L4.H0&off=none")
    page.click("[data-name^=texts] summary")
    done(page, lambda: page.click('[data-head="L4.H1"]'))
    assert page.locator("[data-name^=texts] details.what").get_attribute("open") is not None

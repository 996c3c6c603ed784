"""The first screen on the shipped tables: a claim, a switch, the tour, a search, and what a link tells."""

from __future__ import annotations

import html
import io
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

import ccs
from ccs import results
from ccs.ui import claims
from ccs.ui.app import App
from ccs.ui.server import LazyApp, blocks, launch_settings
from tests.support.browser_page import MARKS, Page, browser, done, go, off, served, settled, visit

__all__ = ["browser", "visit"]  # fixtures
pytestmark = MARKS
FEW = "occupations=judge%0Aartist%0Ateacher"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """The app on the shipped tables, and its address."""
    yield from served(results.PRECOMPUTED, tmp_path_factory.mktemp("cache"), ccs.load("organism"))


def test_the_page_opens_on_a_claim(visit: Callable[..., Page], made: tuple[App, str]) -> None:
    page = visit()
    claim = claims.of(made[0].records("organism"))
    assert claim is not None
    assert f"{claim.occupation}s are mostly {claim.words}" in page.inner_text(".hero h2")
    shown = [page.inner_text(".big")]
    faces = page.locator(".hero .strip img")
    first = faces.evaluate_all("all => all.map(one => one.src)")
    assert len(first) == 12
    done(page, lambda: page.click(".act .primary"))
    assert off(page) == str(claim.off)
    shown.append(page.inner_text(".big"))
    assert shown[0] != shown[1]
    assert faces.evaluate_all("all => all.map(one => one.src)") != first
    # What it cost, and what faces give that the search did not see, are those of the search's file.
    told = page.inner_text(".hero")
    assert f"{claim.found.max_skew_change.value:+.2f}".replace("-", "−") in told
    assert f"{100 * claim.found.accuracy_change.value:+.1f} points".replace("-", "−") in told
    strip = page.inner_text("#region-strip")
    assert f"{len(claim.off)} heads off" in strip
    assert "MaxSkew by" in strip
    go(page, "bias")
    groups = page.inner_text("[data-name=groups] thead")
    assert "taught" in groups
    assert "control" in groups
    assert page.inner_text("#region-strip") == strip  # it stays in every view
    done(page, lambda: page.click("#region-strip >> text=Undo"))
    assert "All 24 heads are on" in page.inner_text("#region-strip")


def test_a_start_says_that_it_is_one(browser: Any, made: tuple[App, str]) -> None:
    ready = threading.Event()

    def make() -> App:
        ready.wait(60)
        return made[0]

    lazy = LazyApp(make)
    demo = blocks(lazy)
    _, url, _ = demo.launch(prevent_thread_lock=True, **launch_settings(lazy))
    page = browser.new_page()
    try:
        page.goto(url)
        page.wait_for_selector("text=PyTorch, the tables and the first model are being loaded")
        assert "Starting" in page.inner_text("#region-status")
        ready.set()
        settled(page)
        assert page.locator("text=The app is starting").count() == 0
        assert page.locator(".hero h2").count() == 1
    finally:
        ready.set()
        page.close()
        demo.close(verbose=False)


def test_the_control_stands_beside_and_ceilings_are_marked(visit: Callable[..., Page]) -> None:
    page = visit("tab=bias&off=none&attribute=gender&occupations=judge%0Afarmer%0Anurse&k=60")
    assert "(the control)" not in page.inner_text(".strips")  # its tables do not say of nurses
    page = visit("tab=bias&off=none&attribute=gender&occupations=judge%0Afarmer")
    names = page.locator(".strips .name").all_inner_texts()
    assert names == ["judge", "farmer", "(mean)", "(a person)", "(the control)"]
    control = page.locator(".line-row", has_text="(the control)").locator(".values b").all_inner_texts()
    table = results.load().models["organism-control"].table("bias")
    rows = table[
        (table["plan"] == "none") & (table["metric"] == "MaxSkew") & (table["attribute"] == "gender")
    ]
    rows = rows[(rows["dataset"] == claims.FACES) & rows["occupation"].isin(["judge", "farmer"])]
    assert control == [f"{rows['value'].mean():.2f}", "–"]
    values = [float(text.split()[0].strip(",")) for text in page.locator(".values b").all_inner_texts()[:4:2]]
    marked = page.locator(".values b:first-child").evaluate_all("all => all.map(b => b.className === 'most')")
    assert [value == 0.69 for value in values] == marked[:2]


def test_the_tour_and_motion(visit: Callable[..., Page]) -> None:
    page = visit()
    moving = """() => new Promise(seen => {
        const look = () => {
            if (document.body.dataset.busy) return requestAnimationFrame(look);
            seen(document.getAnimations().filter(one => one.effect.target.dataset?.move).length);
        };
        document.querySelector(".act .primary, .act button").click();
        requestAnimationFrame(look);
    })"""
    assert page.evaluate(moving) > 0
    page.wait_for_function("!document.getAnimations().some(one => one.effect.target.dataset?.move)")
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(moving) == 0
    for step, (tab, words) in enumerate(
        [("heads", "A head"), ("heads", "A switch"), ("classify", "An image"), ("bias", "A ranking")], 1
    ):
        done(page, lambda: page.click(".steps button >> nth=0" if step == 1 else ".tour .primary"))  # noqa: B023
        assert page.evaluate("document.body.dataset.tab") == tab
        assert f"{step} of 4: {words}" in page.inner_text(".tour")
        assert f"tour={step}" in page.url
        if step == 2:  # a switch shows what it does to the pictures at hand
            assert "→" in page.locator(".thumbs .effect").first.inner_text()
    again = visit(page.url.partition("?")[2])
    assert "4 of 4" in again.inner_text(".tour")
    done(page, lambda: page.click(".tour >> text=Done"))
    assert page.locator(".tour").count() == 0
    go(page, "start")
    assert page.evaluate("getComputedStyle(document.querySelector('.steps li'), '::before').content") == '"✓"'


def test_a_fairer_set_is_searched_for(visit: Callable[..., Page], made: tuple[App, str]) -> None:
    page = visit(f"tab=bias&off=none&gallery=small/faces&attribute=gender&{FEW}")
    page.select_option(".fairer select", "10")
    page.click(".fairer .primary")
    page.wait_for_selector(".status progress")
    page.click(".status [data-cancel]")
    page.wait_for_function("!document.body.dataset.busy")
    assert "Canceled" in page.inner_text(".notice.bad")
    assert off(page) == ""
    page.set_viewport_size({"width": 390, "height": 844})
    done(page, lambda: page.click(".fairer .primary"))
    top = "document.querySelector('[data-name=fairer]').getBoundingClientRect().top"
    page.wait_for_function(f"{top} >= 0 && {top} < 400", timeout=10_000)  # the answer comes into view
    page.set_viewport_size({"width": 1300, "height": 900})
    told = page.inner_text("[data-name=fairer]")
    assert "did not see" in told or "Nothing was switched off" in told
    if off(page):
        assert off(page).replace(" ", "+") in page.url
    done(page, lambda: page.fill("textarea[name=occupations]", "judge") or page.click("text=Measure"))
    assert page.locator("[data-name=fairer]").count() == 0  # it answered another question
    done(page, lambda: page.click(".fairer .primary"))
    assert "two occupations or more" in page.inner_text(".notice.bad")


def test_a_link_tells_of_its_own_screen(made: tuple[App, str]) -> None:
    def head(query: str) -> dict[str, str]:
        with urllib.request.urlopen(f"{made[1]}?{query}") as answer:
            text = answer.read().decode()
        return {
            name: html.unescape(words)
            for name, words in re.findall(r'property="og:(\w+)" content="([^"]*)"', text)
        }

    bare, screen = head(""), head("tab=heads&head=L7.H5&off=L7.H5&model=organism")
    assert "judges are mostly" in bare["title"]
    assert screen["title"].startswith("L7.H5 of organism")
    assert "Gradio" not in str(bare)
    evil = head("tab=bias&off=none&occupations=%22%3E%3Cscript%3E")
    assert "<script>" in evil["title"]  # escaped in the page, and whole once read
    for told in (bare, screen):
        with urllib.request.urlopen(told["image"]) as answer:
            assert Image.open(io.BytesIO(answer.read())).size == (1200, 630)

"""The page in a browser: every view's main path, links, keys, uploads, looks, two visitors at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ccs
from ccs import results
from ccs.heads import HeadSet
from ccs.ui import actions, classify
from ccs.ui.core import App
from ccs.ui.galleries import Galleries
from ccs.ui.interface import blocks, launch_settings
from ccs.ui.state import VIEWS
from ccs.world import sets
from tests import ui_sample

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
GALLERY = "small/faces"
SERIOUS = ("serious", "critical")

# Threads of the server and of the browser's client warn for themselves; nothing of ours runs there unchecked.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings(r"ignore::Warning:gradio\..*"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]

Page = Any


def small_gallery() -> Galleries:
    whole = sets.bias_set("faces")
    groups = {name: labels[:40] for name, labels in whole.groups.items()}
    drawn = sets.Drawn(whole.images.scenes[:40])  # type: ignore[attr-defined]
    k = {"gender": 10, "skin tone": 10}
    return Galleries([replace(whole, name=GALLERY, images=drawn, groups=groups, k=k)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    """The app on made-up tables, and its address."""
    model = ccs.load("organism")
    folder, cache = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("cache")
    ui_sample.write(folder, "organism", model.weights_hash)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(cache))
        app = App(results.load(folder), cache, small_gallery())
        app.shelf._models["organism"] = model
        demo = blocks(lambda: app)
        _, url, _ = demo.launch(prevent_thread_lock=True, **launch_settings())
        yield app, url
        demo.close(verbose=False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any, made: tuple[App, str]) -> Iterator[Callable[..., Page]]:
    """Opens the page at a query, as a new visitor. Any request to another host or error in the page fails."""
    contexts, wrong = [], []

    def open_page(query: str = "", *, width: int = 1300, height: int = 900, url: str = "") -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        home = url or made[1]

        def requested(request: Any) -> None:
            if not request.url.startswith((home, "data:", "blob:")):
                wrong.append(request.url)

        page.on("request", requested)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{home}?{query}" if query else home)
        page.wait_for_function("document.body.dataset.ready && !document.body.dataset.busy")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def done(page: Page, act: Callable[[], object]) -> None:
    """Do something, and wait for the server's answer to it."""
    turn = page.evaluate("document.body.dataset.ready")
    act()
    page.wait_for_function("t => document.body.dataset.ready !== t && !document.body.dataset.busy", arg=turn)


def go(page: Page, tab: str) -> None:
    done(page, lambda: page.click(f'nav button[data-value="{tab}"]'))


def off(page: Page) -> str:
    return str(page.get_attribute(".grid", "data-off"))


def test_a_first_visit_shows_a_worked_example(visit: Callable[..., Page]) -> None:
    page = visit()
    assert page.inner_text("h1") == "CLIP heads"
    assert page.locator(".grid .cell").count() == 24
    assert page.locator(".grid .cell b").all_inner_texts()[:6] == ["0", "1", "2", "3", "4", "5"]
    assert page.locator(".texts tbody tr").count() == 5
    assert "1 of 24 switched off" in page.inner_text(".off-bar")
    done(page, lambda: page.click('[data-head="L5.H3"]'))
    assert "L5.H3 Professions" in page.inner_text(".card-title h2")
    assert "unscored" in page.inner_text(".texts")
    assert page.locator('[aria-selected="true"] .cell').get_attribute("data-head") == "L5.H3"
    assert "head=L5.H3" in page.url


def test_classify_shows_what_the_model_answers(visit: Callable[..., Page], made: tuple[App, str]) -> None:
    page = visit("tab=classify")
    assert "before and after agree" in page.inner_text(".lead")
    done(page, lambda: page.select_option('select[data-do="preset"]', "high"))
    assert off(page) == "L4.H5 L5.H5 L6.H5 L7.H5"
    done(page, lambda: page.click('[data-head="L7.H0"]'))
    assert "L7.H0" in off(page)
    page.fill("textarea[name=classes]", "a judge\na cook\na <b>pilot</b>")
    done(page, lambda: page.click("form[data-do=classify] button[type=submit]"))
    app = made[0]
    session = actions.open_link(
        app, {"tab": "classify", "off": off(page), "classes": "a judge\na cook\na <b>pilot</b>"}
    )
    _, found, _ = classify.measure(session, app.shelf.get("organism"))
    shown = page.locator(".answer").first.locator(".bar.after b").all_inner_texts()
    assert shown == [f"{100 * share:.1f}%" for share in np.sort(found.after[0])[::-1]]
    assert page.locator(".answer >> text=a <b>pilot</b>").count() >= 1  # shown as typed
    assert page.locator(".answer table b >> text=/^pilot$/").count() == 0


def test_a_link_opens_the_same_screen(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&off=L6.H1+L7.H2&classes=a+judge%0Aa+cook&example=subjects:2")
    done(page, lambda: page.click('[data-head="L4.H4"]'))
    page.click("text=Copy link")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    again = visit(link.partition("?")[2])
    assert again.inner_text("#region-main") == page.inner_text("#region-main")
    assert off(again) == "L4.H4 L6.H1 L7.H2"
    page.click("text=Copy as Python")
    code = page.evaluate("navigator.clipboard.readText()")
    compile(code, "snippet", "exec")
    assert "L4.H4 L6.H1 L7.H2" in code


def test_undo_redo_and_the_keyboard(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&head=L4.H0")
    page.focus('[data-head="L4.H0"]')
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "End"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.head") == "L6.H5"
    done(page, lambda: page.keyboard.press("Space"))
    assert off(page) == "L6.H5"
    assert page.evaluate("document.activeElement.dataset.head") == "L6.H5"  # the focus stays where it was
    assert page.get_attribute('[data-head="L6.H5"]', "aria-pressed") == "true"
    done(page, lambda: page.keyboard.press("Control+z"))
    assert off(page) == ""
    done(page, lambda: page.keyboard.press("Control+Shift+z"))
    assert off(page) == "L6.H5"
    done(page, lambda: page.click("text=Reset"))
    done(page, lambda: page.click("text=Undo"))
    assert off(page) == "L6.H5"
    done(page, lambda: page.click("text=opens its card"))
    page.focus('[data-head="L6.H5"]')
    done(page, lambda: page.keyboard.press("Enter"))
    assert page.url.find("tab=") == -1  # the view Heads is the one that needs no name
    assert "L6.H5" in page.inner_text(".card-title")


def test_fast_clicks_are_not_lost(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify")
    heads = [f"L{layer}.H{head}" for layer in (4, 5) for head in range(4)]
    page.evaluate("heads => heads.forEach(h => document.querySelector(`[data-head='${h}']`).click())", heads)
    page.wait_for_function("document.querySelector('.off-bar').innerText.includes('8 of 24 switched off')")
    assert off(page) == " ".join(heads)


def test_uploads_good_and_bad(visit: Callable[..., Page], made: tuple[App, str], tmp_path: Path) -> None:
    turned, exif = Image.new("RGB", (60, 30), "red"), Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    (tmp_path / "text.png").write_text("no picture")
    noise = np.random.default_rng(0).integers(0, 255, (90, 90, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:5000])
    page = visit("tab=classify&off=L7.H2")
    names = ("turned.jpg", "text.png", "cut.png")
    done(page, lambda: page.set_input_files("input[data-files]", [str(tmp_path / name) for name in names]))
    told = page.inner_text(".notice.bad")
    assert "text.png is not a picture" in told
    assert "cut.png is damaged or cut off" in told
    assert page.locator(".answer").count() == 1
    size = page.evaluate(
        "[...document.querySelectorAll('.answer img')].map(i => [i.naturalWidth, i.naturalHeight])[0]"
    )
    assert size == [30, 60]
    assert [path for path in made[0].uploads.rglob("*") if path.is_file()] == []
    done(page, lambda: page.click('[aria-label="Remove turned.jpg"]'))
    assert page.locator(".answer").count() == 4


def test_bias_of_a_typed_occupation(visit: Callable[..., Page]) -> None:
    page = visit(f"tab=bias&gallery={GALLERY}&off=L6.H1")
    page.fill("textarea[name=occupations]", "zookeeper")
    page.fill("input[name=k]", "7")
    done(page, lambda: page.click("text=Measure"))
    assert "for “zookeeper”" in page.inner_text(".lead")
    assert "exact" in page.inner_text(".lead")
    assert "MaxSkew@7 by gender" in page.inner_text("#region-main")
    assert page.locator(".strip.faces figure").count() == 24
    with page.expect_download() as download:
        page.click('[data-name="maxskew"] [data-save="csv"]')
    rows = Path(download.value.path()).read_text("utf-8").splitlines()
    assert rows[0].startswith("occupation,attribute,metric,k,target,mode,before")
    assert rows[1].startswith("zookeeper,gender,MaxSkew,7,pool,correct,")
    with page.expect_download() as download:
        page.click('[data-name="first-pictures"] [data-save="png"]')
    picture = Image.open(download.value.path())
    assert picture.width > 800
    assert (
        len(np.unique(np.asarray(picture.convert("RGB").resize((64, 64))).reshape(-1, 3), axis=0)) > 200
    )  # faces, not an empty sheet


def test_a_point_of_the_paradox_switches_its_heads_off(visit: Callable[..., Page]) -> None:
    page = visit("tab=paradox")
    point = page.locator('[data-plan][aria-label^="organism, high"]')
    heads = point.get_attribute("data-heads")
    point.focus()
    done(page, lambda: page.keyboard.press("Enter"))
    assert off(page) == heads
    go(page, "classify")
    assert off(page) == heads


def test_annotating_by_keys(visit: Callable[..., Page]) -> None:
    page = visit("tab=judges")
    done(page, lambda: page.click("text=Begin"))
    for key in "ynub":
        done(page, lambda key=key: page.keyboard.press(key))  # type: ignore[misc]
    assert "3 of 60" in page.inner_text("[data-name=annotation]")
    assert "kappa" in page.inner_text("[data-name=annotation]")


def test_two_visitors_at_once(visit: Callable[..., Page]) -> None:
    one, two = visit("tab=classify&off=L7.H1"), visit("tab=classify")
    before = two.inner_text(".answers")
    one.select_option('select[data-do="preset"]', "high")
    two.select_option('select[data-do="model"]', "organism")
    done(one, lambda: one.click('[data-head="L4.H0"]'))
    done(two, lambda: two.click('[data-head="L6.H2"]'))
    assert off(one) == "L4.H0 L4.H5 L5.H5 L6.H5 L7.H5"
    assert off(two) == "L6.H2"
    done(two, lambda: two.click("text=Undo"))
    assert two.inner_text(".answers") == before


@pytest.mark.parametrize(
    ("theme", "width"), [("light", 1300), ("dark", 1300), ("light", 390)], ids=["light", "dark", "narrow"]
)
def test_axe_finds_nothing_serious(visit: Callable[..., Page], theme: str, width: int) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    page = visit(f"__theme={theme}&off=L6.H1+L7.H2&gallery={GALLERY}&other_head=L5.H3", width=width)
    found = []
    for tab in VIEWS:
        if tab != "heads":
            go(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        page.evaluate(axe)
        report = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        found += [
            (tab, v["id"], v["nodes"][0]["html"][:120])
            for v in report["violations"]
            if v["impact"] in SERIOUS
        ]
    assert found == []
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")


def test_results_that_are_missing(visit: Callable[..., Page], made: tuple[App, str], tmp_path: Path) -> None:
    app = App(results.load(tmp_path), made[0].uploads, made[0].galleries)
    app.shelf = made[0].shelf
    demo = blocks(lambda: app)
    _, url, _ = demo.launch(prevent_thread_lock=True, **launch_settings())
    try:
        page = visit("tab=classify", url=url)
        assert "There are no tables for organism" in page.inner_text(".notice")
        done(page, lambda: page.click('[data-head="L7.H0"]'))
        assert off(page) == "L7.H0"
        assert page.locator(".answer").count() == 4
    finally:
        demo.close(verbose=False)


def test_the_documented_client_call(made: tuple[App, str], tmp_path: Path) -> None:
    from gradio_client import Client, handle_file

    Image.new("RGB", (50, 50), "red").save(tmp_path / "red.png")
    client = Client(made[1], verbose=False)
    answer = client.predict(
        pictures=[handle_file(str(tmp_path / "red.png"))],
        classes="judge, cook",
        off="L7.H2",
        api_name="/classify",
    )
    assert answer["classes"] == ["judge", "cook"]
    assert sum(answer["after"][0]) == pytest.approx(1, abs=1e-5)
    heads = client.predict(model="organism", api_name="/heads")
    assert HeadSet.parse(" ".join(row["head"] for row in heads)) == made[0].heads("organism")
    with pytest.raises(Exception, match="There is no model 'none'"):
        client.predict(model="none", api_name="/heads")
    client.close()

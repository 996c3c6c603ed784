"""The page in a browser, on one server: every view's main path, keys, images, looks, cancelling."""

from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image

from ccs.heads import IMAGE, HeadSet
from ccs.locate import ablation
from ccs.metrics.accuracy import class_weights
from ccs.ui import links
from ccs.ui.service import galleries
from ccs.ui.service.examples import example_names, load_example
from ccs.ui.views import VIEWS, claims, classify
from tests.support.browser_page import MARKS, done, go, off
from tests.support.datasets_sample import saved, zipped
from tests.support.ui_page import SMALL
from tests.support.visitor import Visitor, rows

pytestmark = MARKS
HIGH = "L4.H5 L5.H5 L6.H5 L7.H5"
FEW = "occupations=judge%0Aartist%0Ateacher"
SMALLEST = """Math.min(...[...document.querySelectorAll("main *")]
    .filter(one => one.checkVisibility())
    .filter(one => [...one.childNodes].some(text => text.nodeType === 3 && text.data.trim()))
    .map(one => parseFloat(getComputedStyle(one).fontSize)))"""
# How far bars are from their share, in pixels, of a track that ends where the number begins.
TRACKS = """Math.max(...[...document.querySelectorAll(".bar")].map(bar => {
    const { left, width } = bar.firstChild.getBoundingClientRect(), number = bar.querySelector("b");
    const track = number.getBoundingClientRect().left - left;
    return Math.abs(width - parseFloat(bar.firstChild.style.width) / 100 * track);
}))"""
SCREEN = f"off=L6.H1+L7.H2&gallery={SMALL}"


def test_a_first_visit_shows_a_worked_example(visit, made):
    page = visit("tab=heads", new=True)
    assert page.inner_text("h1") == "CLIP heads"
    assert page.locator(".grid .cell").count() == 24
    assert page.locator(".body > .texts tbody tr").count() == 5
    assert off(page) == str(claims.of(made[0].records("organism")).off)
    assert page.locator("[data-name^=top-activating] img").count() == 12
    assert page.locator("[data-name^=where] img").count() == 8
    page.hover("[data-name^=where] [data-patches] >> nth=1", position={"x": 5, "y": 5})
    assert "row 0, column 0" in page.inner_text("#ccs-tip")
    done(page, lambda: page.click('[data-head="L5.H3"]'))
    assert "L5.H3 Professions" in page.inner_text(".card-title h2")
    assert "refusal" in page.inner_text(".body > .texts")
    assert page.locator('[aria-selected="true"] .cell').get_attribute("data-head") == "L5.H3"
    assert "head=L5.H3" in page.url
    page.hover('[data-head="L5.H3"]')
    assert "professions text 1 of l5.h3" in page.inner_text("#ccs-tip").lower()


def test_a_tap_on_a_patch_names_its_value(visit):
    page = visit("tab=heads&head=L7.H2&off=none", width=390, height=844, touch=True)
    for n, word in enumerate(("Attention", "Writes")):
        picture = page.locator("[data-name^=where] [data-patches]").nth(n)
        picture.scroll_into_view_if_needed()
        box, values = picture.bounding_box(), str(picture.get_attribute("data-patches")).split()[2:]
        picture.tap(position={"x": box["width"] * 0.55, "y": box["height"] * 0.2})  # of 6 x 6 patches
        assert page.inner_text("#ccs-tip").splitlines() == [f"{word} {values[9]}", "row 1, column 3"]
    page.locator("[data-name^=where] h3, [data-name^=where] h2").first.tap()
    assert page.locator("#ccs-tip").is_hidden()


def test_a_link_and_a_program_take_the_same_screen_along(visit):
    page = visit("tab=classify&off=none")
    assert "before and after agree" in page.inner_text(".lead")
    done(page, lambda: page.select_option('select[data-do="preset"]', "high"))
    page.fill("textarea[name=classes]", "a judge\na <b>pilot</b>")
    done(page, lambda: page.click("form[data-do=classify] button[type=submit]"))
    assert page.locator(".answer >> text=a <b>pilot</b>").count() >= 1  # shown as typed
    page.click("text=Copy link")
    page.wait_for_selector("text=The link is copied")  # said when the clipboard has it
    link, shown = page.evaluate("navigator.clipboard.readText()"), page.inner_text("#region-main")
    assert link == page.url
    done(page, lambda: page.click("text=Copy as Python"))
    page.wait_for_selector("text=The program is copied")
    code = page.evaluate("navigator.clipboard.readText()")
    assert "model = ccs.load('organism')" in code
    assert f"off = ccs.HeadSet.parse('{HIGH}')" in code
    again = visit(link.partition("?")[2], new=True)
    assert (again.inner_text("#region-main"), off(again)) == (shown, HIGH)


def test_undo_redo_and_the_keyboard(visit):
    page = visit("tab=classify&head=L4.H0&off=none")
    page.focus('[data-head="L4.H0"]')
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "End"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.dataset.head") == "L6.H5"
    done(page, lambda: page.keyboard.press("Space"))
    assert off(page) == "L6.H5"
    assert page.evaluate("document.activeElement.dataset.head") == "L6.H5"  # the focus stays where it was
    assert page.get_attribute('[data-head="L6.H5"]', "aria-pressed") == "true"
    for keys, head in (("Control+z", ""), ("Control+Shift+z", "L6.H5")):
        done(page, lambda keys=keys: page.keyboard.press(keys))
        assert off(page) == head
    done(page, lambda: page.click("text=Reset"))
    done(page, lambda: page.click("text=Undo"))
    assert off(page) == "L6.H5"
    go(page, "heads")
    page.focus('[data-head="L6.H5"]')
    done(page, lambda: page.keyboard.press("Enter"))
    assert page.url.find("tab=") == -1  # the view Heads is the one that needs no name
    assert "L6.H5" in page.inner_text(".card-title")
    go(page, "paradox")
    assert page.locator(".ring").count() == 0
    page.focus('[data-plan][aria-label^="organism: high-CCS heads:"]')
    done(page, lambda: page.keyboard.press("Enter"))
    assert (off(page), page.locator(".ring").count()) == (HIGH, 1)


def test_fast_clicks_are_not_lost(visit):
    page = visit("tab=classify&off=none")
    heads = [f"L{layer}.H{head}" for layer in (4, 5) for head in range(4)]
    page.evaluate("heads => heads.forEach(h => document.querySelector(`[data-head='${h}']`).click())", heads)
    page.wait_for_function("document.querySelector('.result').innerText.includes('8 heads off')")
    assert off(page) == " ".join(heads)
    # A head clicked before the answer to a preset is switched on top of the preset, twice is not at all.
    page.evaluate("""() => {
        const preset = document.querySelector('select[data-do="preset"]');
        preset.value = "high";
        preset.dispatchEvent(new Event("change", { bubbles: true }));
        for (const h of [0, 1, 2, 1]) document.querySelector(`[data-head='L4.H${h}']`).click();
    }""")
    wanted = " ".join(sorted({"L4.H0", "L4.H2", *HIGH.split()}))
    page.wait_for_function("wanted => document.querySelector('.grid').dataset.off === wanted", arg=wanted)


def test_the_page_opens_on_a_story_in_three_steps(visit, made):
    page = visit(new=True)
    app, claim = made[0], claims.of(made[0].records("organism"))
    steps = page.locator(".hero .step").all_inner_texts()
    model, story = app.model_cache.get("organism"), classify.story(links.open_link(app, {}))
    assert app.records("organism").head(story.head).concept in steps[0]
    examples = [load_example(f"{name}:0") for name in example_names("organism")]
    templates = next(one.templates for one in examples if one.classes == story.classes)
    weights = class_weights(model, story.classes, templates)
    for off_, shares in ((HeadSet(), story.before), (HeadSet([story.head]), story.after)):
        slow = model.probabilities(model.embed_images([story.image.pixels], off_) @ weights.T)[0]
        np.testing.assert_allclose(shares, slow, atol=1e-4)
        assert f"{100 * float(shares.max()):.1f}%" in steps[1]

    def shown():
        faces = page.locator(".hero .faces img").evaluate_all("all => all.map(one => one.src)")
        assert len(faces) == 12
        return [*faces, page.inner_text(".big")]

    before = shown()
    done(page, lambda: page.click(".act .primary"))
    assert off(page) == str(claim.off)
    assert shown()[-1] != before[-1]
    assert shown()[:-1] != before[:-1]
    # What it cost, and what faces give that the search did not see, are those of the search's file.
    told = page.inner_text(".hero").replace("−", "-")
    assert "over 10 occupations" in told
    assert "Accuracy on world/subjects, 100% with all heads on" in told
    assert f"{claim.found.max_skew_change.value:+.2f}" in told
    assert f"{100 * claim.found.accuracy_change.value:+.1f} points" in told
    strip = page.inner_text("#region-strip")
    assert "MaxSkew by" in strip
    page.set_viewport_size({"width": 390, "height": 844})
    done(page, lambda: page.click("text=Make it fairer"))
    top = "document.querySelector('.panel.fairer').getBoundingClientRect().top"
    page.wait_for_function(f"{top} >= 0 && {top} < 700", timeout=10_000)  # the form comes into view
    page.set_viewport_size({"width": 1300, "height": 900})
    assert page.inner_text("#region-strip") == strip  # it stays in every view
    unseen = f"{claim.found.max_skew_change.value:+.2f}".replace("-", "−")
    assert unseen in page.inner_text(".warn")  # not only what the search made small
    go(page, "paradox")
    assert "A search found the 2 heads off now" in page.inner_text(".lead")
    done(page, lambda: page.click("#region-strip >> text=Undo"))
    assert "All heads are on" in page.inner_text("#region-strip")


def test_three_ways_make_it_fairer(visit, monkeypatch):
    monkeypatch.setattr(ablation, "STEPS", 5)
    page = visit(f"tab=bias&off=none&gallery=small/faces&attribute=gender&{FEW}")
    page.select_option(".fairer select", "10")
    page.set_viewport_size({"width": 390, "height": 844})
    done(page, lambda: page.click(".fairer .primary"))
    top = "document.querySelector('[data-name=fairer]').getBoundingClientRect().top"
    page.wait_for_function(f"{top} >= 0 && {top} < 400", timeout=10_000)  # the answer comes into view
    page.set_viewport_size({"width": 1300, "height": 900})
    assert page.locator(".way").count() == 3
    told = page.inner_text("[data-name=fairer]")
    assert "that nothing was fitted on" in told
    assert "By chance 50% of people are found by their group’s text" in told
    heads = page.get_attribute(".way [data-do=off]", "data-off")
    done(page, lambda: page.click(".way [data-do=off]"))
    assert off(page) == heads
    done(page, lambda: page.locator(".off-now input[type=range]").first.press("End"))
    assert page.locator(".off-now output").first.inner_text() == "1.50"
    assert parse_qs(urlsplit(page.url).query)["off"] == [off(page)]
    done(page, lambda: page.fill("textarea[name=occupations]", "judge") or page.click("text=Measure"))
    assert page.locator("[data-name=fairer]").count() == 0  # it answered another question
    done(page, lambda: page.click(".fairer .primary"))
    assert "two occupations or more" in page.inner_text(".notice.bad")


def test_a_gallery_of_ones_own_is_measured(visit, made, tmp_path):
    colors = enumerate(["red", "blue"] * 6)
    faces = {f"{color}/{i}.png": saved(Image.new("RGB", (70, 50), color)) for i, color in colors}
    (tmp_path / "faces.zip").write_bytes(zipped(faces))
    page = visit("tab=bias&off=none&occupations=judge")
    done(page, lambda: page.set_input_files("[data-gallery]", str(tmp_path / "faces.zip")))
    assert "your own (12)" in page.inner_text("form.ask")
    assert "blue" in page.inner_text("[data-name=groups]")
    assert "gallery=own%3A&" in page.url  # a link holds no name and no picture of it
    assert {row["gallery"] for row in rows("groups", page.content())} == {"own"}
    page.click("text=Copy link")
    page.wait_for_selector("text=without your own images")
    again = visit(page.url.partition("?")[2], new=True)
    assert "gone when its page is left or loaded anew" in again.inner_text(".notice.bad")
    assert not [path for path in made[0].uploads.rglob("*") if path.is_file()]
    (tmp_path / "bad.zip").write_text("no zip")
    done(page, lambda: page.set_input_files("[data-gallery]", str(tmp_path / "bad.zip")))
    assert "File is not a zip file" in page.inner_text(".notice.bad")


def test_axe_finds_nothing_serious(visit):
    """In light on a wide screen, and what differs in dark on a narrow one."""
    page, found = visit(f"tab=heads&{SCREEN}"), []
    page.emulate_media(reduced_motion="reduce")  # what fades in has no contrast yet
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    for width, dark in ((1300, False), (390, True)):
        page.set_viewport_size({"width": width, "height": 900})
        for tab in VIEWS:
            go(page, tab)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
            assert page.evaluate(SMALLEST) >= 12, tab
            # What is around a view is the same in all of them.
            part = "document" if tab == "heads" else "'#region-main'"
            rules = ", runOnly: ['color-contrast']" if dark and tab != "heads" else ""
            report = page.evaluate(f"axe.run({part}, {{ resultTypes: ['violations']{rules} }})")
            bad = [one for one in report["violations"] if one["impact"] in ("serious", "critical")]
            found += [(width, tab, one["id"], one["nodes"][0]["html"][:120]) for one in bad]
        page.click("[data-theme-toggle]")
        assert page.evaluate("document.body.classList.contains('dark')") != dark
    assert found == []


def test_on_a_phone_the_grid_is_a_sheet_below_the_results(visit):
    page = visit("tab=classify&off=none", width=390, height=844)
    cell = page.locator('[data-head="L7.H1"]')
    assert not cell.is_visible()
    assert page.locator(".lead").bounding_box()["y"] < 844  # the answer is on the first screen
    assert page.evaluate(TRACKS) < 1
    page.click(".handle")
    assert page.get_attribute(".handle", "aria-expanded") == "true"
    done(page, cell.click)
    assert off(page) == "L7.H1"
    assert cell.is_visible()  # the sheet stays open
    assert page.inner_text(".handle").split() == ["24", "heads", "1", "head", "off"]
    lead, sheet = page.locator(".lead").bounding_box(), page.locator(".panel.heads").bounding_box()
    assert -1 < lead["y"] < sheet["y"]  # and the answer can be seen above it
    page.keyboard.press("Escape")
    assert not cell.is_visible()
    go(page, "heads")
    assert cell.is_visible()
    assert page.locator(".panel.heads").bounding_box()["y"] < page.locator(".card-title").bounding_box()["y"]


def test_a_figure_is_saved_as_csv_and_png(visit):
    page = visit(f"tab=about&{SCREEN}")
    figure = page.locator("#region-main .fig").first
    assert page.locator("#region-main .fig").count() == page.locator("#region-main [data-save=png]").count()
    figure.scroll_into_view_if_needed()
    files = []
    for kind in ("csv", "png"):
        with page.expect_download() as download:
            figure.locator(f"[data-save={kind}]").click()
        files.append(download.value.path())
    assert files[0].read_text("utf-8") == figure.get_attribute("data-csv")
    image = Image.open(files[1])
    assert abs(image.width - 2 * figure.bounding_box()["width"]) <= 2
    shades = np.unique(np.asarray(image.convert("RGB").resize((200, 200))).reshape(-1, 3), axis=0)
    assert len(shades) > 50  # a figure, not an empty sheet


def test_cancel_stops_the_work(visit, monkeypatch):
    steps = []
    page = visit(f"tab=bias&gallery={SMALL}&off=none")
    collect = galleries.Galleries.pruned

    def slow(self, model, name, off):
        if len(off) == 2:  # a piece of work that never ends by itself
            while len(steps) < 100_000:
                steps.append(1)
                yield 0.5
        return (yield from collect(self, model, name, off))

    monkeypatch.setattr(galleries.Galleries, "pruned", slow)
    page.select_option('select[data-do="model"]', "organism")
    done(page, lambda: page.click('[data-head="L4.H0"]'))
    page.click('[data-head="L4.H1"]')
    page.wait_for_selector(".busy progress")
    done(page, lambda: page.click("[data-cancel]"))
    assert "Canceled" in page.inner_text(".notice.bad")
    stopped = len(steps)
    done(page, lambda: page.click("text=Undo"))  # and the page goes on
    assert off(page) == "L4.H0"
    assert len(steps) <= stopped + 2


def test_visitors_at_once_get_their_own_answers(made):
    app, url = made
    order = list(app.heads("organism", IMAGE))

    def visitor(number):
        off_ = str(HeadSet(order[number : number + 2]))
        link = {"tab": "classify", "off": off_, "example": f"occupations:{number}"}
        with Visitor(url) as one:
            return link, [float(row["after"]) for row in rows("classify", one.open(**link)["main"])]

    with ThreadPoolExecutor(5) as pool:
        for link, answer in pool.map(visitor, range(5)):
            right = classify.measure(links.open_link(app, link)).after
            assert answer == pytest.approx(right.ravel().tolist(), abs=2e-6)

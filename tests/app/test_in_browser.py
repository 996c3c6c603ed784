"""The app in a browser: main paths of views, keyboard, uploads, layout, and accessibility."""

import csv
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import pytest
from PIL import Image

from ccs.app.views import VIEWS, classify
from ccs.heads import IMAGE, HeadSet
from tests.support.app_fixtures import SMALL_GALLERY, open_screen, read_figure
from tests.support.browser_fixtures import ablated_heads, act_and_wait, open_view
from tests.support.datasets_sample import encode_image, zip_bytes
from tests.support.visitor import Visitor

HIGH_CCS_HEADS = "L4.H0 L4.H1 L6.H4 L7.H3 L7.H4 L7.H5"
SMALLEST_FONT = """Math.min(...[...document.querySelectorAll("main *")]
    .filter(element => element.checkVisibility())
    .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .map(element => parseFloat(getComputedStyle(element).fontSize)))"""
# The largest error of a bar's width, in pixels; a full bar ends where its number begins.
BAR_ERROR = """Math.max(...[...document.querySelectorAll(".bar")].map(bar => {
    const { left, width } = bar.firstChild.getBoundingClientRect(), number = bar.querySelector("b");
    const track = number.getBoundingClientRect().left - left;
    return Math.abs(width - parseFloat(bar.firstChild.getAttribute("width")) / 100 * track);
}))"""
SOURCES = "images => images.map(image => image.src)"
SCREEN = f"ablate=L6.H1+L7.H2&gallery={SMALL_GALLERY}"


def test_copied_link_and_program_reproduce_screen(visit):
    page = visit("tab=classify")
    assert page.title() == "Classify – CLIP heads"
    act_and_wait(page, lambda: page.select_option('select[name="ablate"]', HIGH_CCS_HEADS))
    page.fill("textarea[name=classes]", "a judge\na <b>pilot</b>")
    act_and_wait(page, lambda: page.click("form[action=classify] .primary"))
    page.click("text=Copy link")
    page.wait_for_selector("text=Link copied")
    link, main_text = page.evaluate("navigator.clipboard.readText()"), page.inner_text("#region-main")
    assert "a <b>pilot</b>" in main_text
    page.click("text=Copy as Python")
    page.wait_for_selector("text=Program copied")
    code = page.evaluate("navigator.clipboard.readText()")
    assert "model = ccs.load('organism')" in code
    assert f"ablate = ccs.HeadSet.parse('{HIGH_CCS_HEADS}')" in code
    reopened = visit(link.partition("?")[2], new=True)
    assert (reopened.inner_text("#region-main"), ablated_heads(reopened)) == (main_text, HIGH_CCS_HEADS)


def test_keyboard_and_undo_change_heads(visit):
    page = visit("tab=classify&head=L4.H0")
    page.focus('.cell[value="L4.H0"]')
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "End"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.value") == "L6.H5"
    act_and_wait(page, lambda: page.keyboard.press("Space"))
    assert ablated_heads(page) == "L6.H5"
    assert page.evaluate("document.activeElement.value") == "L6.H5"  # keeps the focus
    assert page.get_attribute('.cell[value="L6.H5"]', "aria-pressed") == "true"
    act_and_wait(page, lambda: page.keyboard.press("Control+z"))
    assert ablated_heads(page) == ""
    act_and_wait(page, page.go_back)
    assert ablated_heads(page) == "L6.H5"
    act_and_wait(page, lambda: page.click("text=Reset"))
    act_and_wait(page, lambda: page.click("text=Undo"))
    assert ablated_heads(page) == "L6.H5"
    open_view(page, "paradox")
    assert page.locator(".ring").count() == 0
    page.focus('.scatter a[aria-label^="organism: high-CCS heads:"]')
    act_and_wait(page, lambda: page.keyboard.press("Enter"))
    assert (ablated_heads(page), page.locator(".ring").count()) == (HIGH_CCS_HEADS, 1)


def test_rapid_clicks_are_all_applied(visit):
    page = visit("tab=classify")
    heads = [f"L{layer}.H{head}" for layer in (4, 5) for head in range(4)]
    page.evaluate("heads => heads.forEach(h => document.querySelector(`.cell[value='${h}']`).click())", heads)
    page.wait_for_selector(".result >> text=8 heads off")
    page.wait_for_selector("body:not([data-busy])")
    assert ablated_heads(page) == " ".join(heads)
    # Clicks before the answer to a preset apply after the preset; two clicks on one head cancel out.
    page.evaluate(
        """high => {
        const preset = document.querySelector('select[name="ablate"]');
        preset.value = high;
        preset.dispatchEvent(new Event("change", { bubbles: true }));
        for (const h of [0, 1, 2, 1]) document.querySelector(`.cell[value='L4.H${h}']`).click();
    }""",
        HIGH_CCS_HEADS,
    )
    expected = " ".join(sorted({"L4.H0", "L4.H2"} ^ {*HIGH_CCS_HEADS.split()}))
    page.wait_for_selector(f'.result b[title="{expected}"]')


def test_start_page_click_changes_ranked_faces(visit, served_app):
    page = visit(new=True, width=1280, height=768)
    assert page.inner_text("h1") == "CLIP heads"
    faces = page.locator(".hero .faces img")
    assert faces.first.bounding_box()["y"] < 660  # above the fold
    faces_before = faces.evaluate_all(SOURCES)
    act_and_wait(page, lambda: page.click(".act .primary"))
    assert ablated_heads(page) == str(served_app[0].records("organism").claim.heads)
    assert faces.count() == 12
    assert faces.evaluate_all(SOURCES) != faces_before


def test_uploaded_gallery_is_measured(visit, tmp_path):
    colors = enumerate(["red", "blue"] * 6)
    faces = {f"{color}/{i}.png": encode_image(Image.new("RGB", (70, 50), color)) for i, color in colors}
    (tmp_path / "faces.zip").write_bytes(zip_bytes(faces))
    page = visit("tab=bias&occupations=judge")
    act_and_wait(page, lambda: page.set_input_files(".ask input[type=file]", str(tmp_path / "faces.zip")))
    assert "your own (12)" in page.inner_text("form.ask")
    assert "blue" in page.inner_text("[data-name=groups]")
    assert "gallery=own%3A&" in page.url  # neither its name nor its images
    page.click("text=Copy link")
    page.wait_for_selector("text=without your own files")
    reopened = visit(page.url.partition("?")[2] + "&row=0", new=True)
    assert "someone's own gallery" in reopened.inner_text(".notice.bad")


def test_views_have_no_serious_axe_violations(visit):
    """Check everything in light mode on a wide screen, and the differences of dark mode on a narrow one."""
    page, violations = visit(f"tab=heads&{SCREEN}"), []
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    for width, dark in ((1300, False), (390, True)):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        for tab in VIEWS:
            open_view(page, tab)
            assert page.title() == f"{tab.capitalize()} – CLIP heads"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
            assert page.evaluate(SMALLEST_FONT) >= 12, tab
            # All views have the same surroundings.
            part = "document" if tab == "heads" else "'#region-main'"
            rules = ", runOnly: ['color-contrast']" if dark and tab != "heads" else ""
            report = page.evaluate(f"axe.run({part}, {{ resultTypes: ['violations']{rules} }})")
            severe = [v for v in report["violations"] if v["impact"] in ("serious", "critical")]
            violations += [(width, tab, v["id"], v["nodes"][0]["html"][:120]) for v in severe]
    assert violations == []


def test_phone_layout_shows_grid_below_results(visit):
    page = visit("tab=classify", width=390, height=844)
    cell = page.locator('.cell[value="L7.H1"]')
    assert not cell.is_visible()
    assert page.locator(".lead").bounding_box()["y"] < 844  # visible without scrolling
    assert page.evaluate(BAR_ERROR) < 1
    page.click(".handle")
    act_and_wait(page, cell.click)
    assert ablated_heads(page) == "L7.H1"
    assert cell.is_visible()  # stays open
    lead, sheet = page.locator(".lead").bounding_box(), page.locator(".panel.heads").bounding_box()
    assert -1 < lead["y"] < sheet["y"]  # the results are visible above it
    page.click(".handle")
    assert not cell.is_visible()


def test_figure_downloads_as_csv_and_png(visit, served_app):
    page = visit(f"tab=about&{SCREEN}")
    figure = page.locator("#region-main .fig").first
    figure.scroll_into_view_if_needed()
    files = []
    for file_format in ("CSV", "PNG"):
        with page.expect_download() as download:
            figure.locator(f".tools >> text={file_format}").click()
        files.append(download.value.path())
    table = list(csv.DictReader(files[0].read_text("utf-8").splitlines()))
    assert table == read_figure("manifest", open_screen(served_app[0], {"tab": "about"}))
    image = Image.open(files[1]).convert("RGB")
    assert abs(image.width - 2 * figure.bounding_box()["width"]) <= 2
    assert len(image.resize((200, 200)).getcolors(40_000)) > 50  # not blank


def test_concurrent_visitors_get_their_own_results(served_app):
    app, url = served_app
    order = list(app.heads_of_model("organism").of_encoder(IMAGE))

    def measure(number):
        heads = str(HeadSet(order[number : number + 2]))
        link = {"tab": "classify", "ablate": heads, "example": f"occupations:{number}"}
        with Visitor(url) as client:
            client.open(**link)
            return link, [float(row["after"]) for row in client.figure("classify")]

    with ThreadPoolExecutor(5) as pool:
        for link, shares in pool.map(measure, range(5)):
            expected = classify.measure_answers(open_screen(app, link)).rows["after"]
            assert shares == pytest.approx(expected.tolist(), abs=2e-6)

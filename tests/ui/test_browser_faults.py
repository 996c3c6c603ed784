"""What the page once said wrong: controls that kept old values, files cut without a word, lost focus."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.browser_page import GALLERY, MARKS, Page, browser, done, go, made, off, visit

__all__ = ["browser", "made", "visit"]  # fixtures
pytestmark = MARKS
TYPED = "textarea[name=occupations]"


def test_controls_show_what_is_in_force(visit: Callable[..., Page]) -> None:
    page = visit(f"tab=bias&gallery={GALLERY}&off=none")
    page.fill(TYPED, "judge, cook, xqzv")
    done(page, lambda: page.click("text=Measure"))
    assert page.locator(".warn").count() == 0
    done(page, lambda: page.click("text=All 104"))
    assert page.input_value(TYPED).count(",") == 103
    assert "organism cannot tell" in page.inner_text(".warn")
    # What was typed and not sent stays when something else is answered, and when it is refused.
    page.fill(TYPED, "judge")
    done(page, lambda: page.select_option('select[data-do="preset"]', "high"))
    assert page.input_value(TYPED) == "judge"
    page.fill(TYPED, "x" * 300)
    done(page, lambda: page.click("text=Measure"))
    assert "has 300 characters" in page.inner_text(".notice.bad")
    assert page.input_value(TYPED) == "x" * 300
    done(page, lambda: page.click("text=Reset"))
    assert page.input_value('select[data-do="preset"]') == "none"
    done(page, lambda: page.select_option('select[data-do="preset"]', "high"))
    assert off(page)
    # A link's one text with commas is one text when it is sent again.
    page.fill(TYPED, '"a judge, at court"')
    page.fill("input[name=k]", "5")
    for _ in range(2):
        done(page, lambda: page.click("text=Measure"))
        assert "for “a judge, at court”" in page.inner_text(".lead")
    go(page, "classify")
    page.fill("textarea[name=classes]", "a cat\na dog")
    done(page, lambda: page.click("form[data-do=classify] button[type=submit]"))
    done(page, lambda: page.click("text=The set’s own classes"))
    assert "a cat" not in page.input_value("textarea[name=classes]")
    go(page, "judges")
    go(page, "heads")
    assert page.locator(".segments input:checked").get_attribute("value") == "inspect"
    done(page, lambda: page.click('[data-head="L4.H1"]'))
    assert page.locator('[aria-selected="true"] .cell').get_attribute("data-head") == "L4.H1"


def test_steps_focus_and_what_is_announced(visit: Callable[..., Page]) -> None:
    page = visit(f"tab=classify&off=none&gallery={GALLERY}&k=999999")
    assert "K must be 1 to 40, not 999999" in page.inner_text(".notice.bad")
    page.keyboard.press("Tab")
    assert page.inner_text(":focus") == "Skip to the view"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "view"
    done(page, lambda: page.click('[data-head="L7.H1"]'))
    assert "With 1 head off" in page.inner_text(".lead")
    page.focus("text=Undo")
    done(page, lambda: page.keyboard.press("Enter"))
    assert page.inner_text(":focus") == "Undo"
    assert page.get_attribute(":focus", "aria-disabled") == "true"
    # Back and Forward go from screen to screen of this page.
    done(page, lambda: page.go_back())
    assert off(page) == "L7.H1"
    done(page, lambda: page.go_back())
    assert off(page) == ""
    done(page, lambda: page.go_forward())
    assert off(page) == "L7.H1"
    go(page, "paradox")
    assert "a set of your own" in page.inner_text(".lead")
    done(page, lambda: page.select_option('select[data-do="preset"]', "low"))
    assert "Without low-CCS heads" in page.inner_text(".lead")
    assert page.locator(".point.printed").count() == 0  # the study's sets lie on other axes
    page.emulate_media(forced_colors="active")
    go(page, "classify")
    fill = "getComputedStyle(document.querySelector('.answer .bar.after > span')).backgroundColor"
    track = "getComputedStyle(document.querySelector('.answer .bar.after')).backgroundColor"
    assert page.evaluate(fill) != page.evaluate(track)
    chosen = "getComputedStyle(document.querySelector('.segments input{} + span')).backgroundColor"
    assert page.evaluate(chosen.format(":checked")) != page.evaluate(chosen.format(":not(:checked)"))
    edges = [
        page.locator(one).first.evaluate("one => getComputedStyle(one).borderBottomColor")
        for one in ("nav [aria-current]", "nav button:not([aria-current])")
    ]
    assert edges[0] != edges[1]
    steps = [
        page.locator(f".swatch.step-{step}").evaluate("one => getComputedStyle(one).borderBottomWidth")
        for step in range(6)
    ]
    assert len(set(steps)) == 6
    go(page, "bias")
    marks = [
        page.locator(f".strips .{of}").first.evaluate("one => getComputedStyle(one).fill")
        for of in ("before", "after", "chance")
    ]
    assert len({*marks, page.evaluate("getComputedStyle(document.body).backgroundColor")}) == 4
    keys = [
        page.locator(f".keys-line .key.{of}").evaluate("one => getComputedStyle(one).backgroundColor")
        for of in ("before", "after")
    ]
    assert keys == marks[:2]


def test_own_images_are_counted_and_outlive_a_reload(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&off=L7.H2")
    image = (
        "() => { const canvas = document.createElement('canvas'); canvas.width = canvas.height = 40;"
        " return new Promise(done => canvas.toBlob(done)); }"
    )
    page.evaluate(
        "async make => { const transfer = new DataTransfer(), blob = await eval(make)();"
        " for (let i = 0; i < 20; i++) transfer.items.add(new File([blob], `${i}.png`));"
        " const event = new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true });"
        " document.querySelector('[data-drop] h2').dispatchEvent(event); }",
        image,
    )
    page.wait_for_function("document.querySelectorAll('.answer').length === 16")
    assert "20 files: 16" in page.inner_text("#ccs-live")
    done(page, lambda: page.select_option('select[data-do="preset"]', "none"))
    assert "yours are in no link" in (page.get_attribute("[data-copy=link]", "data-words") or "")
    page.reload()
    page.wait_for_function("document.querySelectorAll('.answer').length === 16")
    assert page.locator(".answer").first.inner_text().count("0.png") == 1

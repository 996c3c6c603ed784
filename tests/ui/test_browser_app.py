"""The page in a browser: every view's main path, links, keys, two visitors at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ccs.ui import links
from ccs.ui.shared import App
from ccs.ui.views import claims, classify
from tests.support.browser_page import GALLERY, MARKS, Page, browser, done, go, made, off, visit

__all__ = ["browser", "made", "visit"]  # fixtures
pytestmark = MARKS
HIGH = "L4.H5 L5.H5 L6.H5 L7.H5"


def test_a_first_visit_shows_a_worked_example(visit: Callable[..., Page], made: tuple[App, str]) -> None:
    page = visit("tab=heads")
    assert page.inner_text("h1") == "CLIP heads"
    assert page.locator(".grid .cell").count() == 24
    assert page.locator(".grid .cell b").all_inner_texts()[:6] == ["0", "1", "2", "3", "4", "5"]
    assert page.locator(".body > .texts tbody tr").count() == 5
    matter = str(claims.that_matter(made[0].records("organism"))[0])
    assert off(page) == matter
    assert [line.split()[0] for line in page.locator(".off-now li").all_inner_texts()] == matter.split()
    assert page.locator("[data-name^=top-activating] img").count() == 12
    assert page.locator("[data-name^=attention] img").count() == 4
    done(page, lambda: page.click('[data-head="L5.H3"]'))
    assert "L5.H3 Professions" in page.inner_text(".card-title h2")
    assert "unscored" in page.inner_text(".body > .texts")
    assert "refusal" in page.inner_text(".body > .texts")
    assert page.locator('[aria-selected="true"] .cell').get_attribute("data-head") == "L5.H3"
    assert "head=L5.H3" in page.url
    page.hover('[data-head="L5.H3"]')
    assert "Professions text 1 of L5.H3".lower() in page.inner_text("#ccs-tip").lower()


def test_heads_can_be_compared_and_found(visit: Callable[..., Page]) -> None:
    page = visit("head=L7.H5")
    done(page, lambda: page.select_option('select[data-do="other-head"]', "L4.H2"))
    assert page.locator(".card-title").count() == 2
    assert page.locator("[data-name^=texts]").count() == 2
    assert page.locator("[data-name^=attention]").count() == 2
    done(page, lambda: page.click(".compare >> text=End"))
    assert page.locator(".card-title").count() == 1
    page.click("text=Find heads")
    page.fill("input[name=find]", "text 4 of L5.H3")
    done(page, lambda: page.keyboard.press("Enter"))
    assert page.locator(".grid .cell:not(.dim)").count() == 1
    assert page.locator("details[data-keep=find]").get_attribute("open") is not None
    page.fill("input[name=find]", "")
    done(page, lambda: page.select_option("select[name=concept]", "Colors"))
    assert page.locator(".grid .cell:not(.dim)").count() == 4


def test_classify_shows_what_the_model_answers(visit: Callable[..., Page], made: tuple[App, str]) -> None:
    page = visit("tab=classify&off=none")
    assert "before and after agree" in page.inner_text(".lead")
    done(page, lambda: page.select_option('select[data-do="preset"]', "high"))
    assert off(page) == HIGH
    done(page, lambda: page.click('[data-head="L7.H0"]'))
    assert "L7.H0" in off(page)
    page.fill("textarea[name=classes]", "a judge\na cook\na <b>pilot</b>")
    done(page, lambda: page.click("form[data-do=classify] button[type=submit]"))
    app = made[0]
    session = links.open_link(
        app, {"tab": "classify", "off": off(page), "classes": "a judge\na cook\na <b>pilot</b>"}
    )
    _, found, _ = classify.measure(session, app.model_cache.get("organism"))
    shown = page.locator(".answer").first.locator(".bar.after b").all_inner_texts()
    assert shown == [f"{100 * share:.1f}%" for share in np.sort(found.after[0])[::-1]]
    assert page.locator(".answer >> text=a <b>pilot</b>").count() >= 1  # shown as typed
    assert page.locator(".answer table b >> text=/^pilot$/").count() == 0
    # Attention before and after, of the last layer or of the open head; a head that is off looks nowhere.
    assert page.locator(".looks").first.locator("img").count() == 3
    done(page, lambda: page.select_option('select[data-do="look"]', "head"))
    assert page.locator(".looks").first.locator(".gone").count() == 1
    done(page, lambda: page.select_option('select[data-do="look"]', "none"))
    assert page.locator(".looks").first.locator("img").count() == 1


def test_a_link_and_a_program_take_the_same_screen_along(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&off=L6.H1+L7.H2&classes=a+judge%0Aa+cook&example=subjects:2&look=head")
    done(page, lambda: page.click('[data-head="L4.H4"]'))
    page.click("text=Copy link")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url
    again = visit(link.partition("?")[2])
    assert again.inner_text("#region-main") == page.inner_text("#region-main")
    assert off(again) == "L4.H4 L6.H1 L7.H2"
    page.click("text=Copy as Python")
    code = page.evaluate("navigator.clipboard.readText()")
    assert "model = ccs.load('organism')" in code
    assert "off = ccs.HeadSet.parse('L4.H4 L6.H1 L7.H2')" in code


def test_undo_redo_and_the_keyboard(visit: Callable[..., Page]) -> None:
    page = visit("tab=classify&head=L4.H0&off=none")
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
    assert "off=none" in page.url
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
    page = visit("tab=classify&off=none")
    heads = [f"L{layer}.H{head}" for layer in (4, 5) for head in range(4)]
    page.evaluate("heads => heads.forEach(h => document.querySelector(`[data-head='${h}']`).click())", heads)
    page.wait_for_function("document.querySelector('.result').innerText.includes('8 heads off')")
    assert off(page) == " ".join(heads)
    # A head clicked before the answer to a preset is switched on top of the preset, twice is not at all.
    page.evaluate(
        """heads => {
        const preset = document.querySelector('select[data-do="preset"]');
        preset.value = "high";
        preset.dispatchEvent(new Event("change", { bubbles: true }));
        heads.forEach(h => document.querySelector(`[data-head='${h}']`).click());
    }""",
        ["L4.H0", "L4.H1", "L4.H2", "L4.H1"],
    )
    wanted = " ".join(sorted({"L4.H0", "L4.H2", *HIGH.split()}))
    page.wait_for_function("wanted => document.querySelector('.grid').dataset.off === wanted", arg=wanted)


def test_bias_of_a_typed_occupation(visit: Callable[..., Page]) -> None:
    page = visit(f"tab=bias&gallery={GALLERY}&off=L6.H1")
    page.fill("textarea[name=occupations]", "zookeeper, xqzv")
    page.fill("input[name=k]", "7")
    done(page, lambda: page.click("text=Measure"))
    assert "over 2 occupations" in page.inner_text(".lead")
    assert "exact" in page.inner_text(".lead")
    assert "MaxSkew@7 by gender" in page.inner_text("#region-main")
    assert page.locator(".strip.faces figure").count() == 24
    done(page, lambda: page.click("[data-name=by-occupation] >> text=xqzv"))
    assert "for “xqzv”" in page.inner_text("[data-name=first-images] h3")


def test_a_point_of_the_paradox_switches_its_heads_off(visit: Callable[..., Page]) -> None:
    page = visit("tab=paradox&off=none")
    assert page.locator(".ring").count() == 0
    point = page.locator('[data-plan][aria-label^="organism: high-CCS heads:"]')
    heads = point.get_attribute("data-heads")
    point.focus()
    done(page, lambda: page.keyboard.press("Enter"))
    assert off(page) == heads == HIGH
    assert page.locator(".ring").count() == 1
    go(page, "classify")
    assert off(page) == heads


def test_annotating_by_keys(visit: Callable[..., Page]) -> None:
    page = visit("tab=judges")
    for key in "ynub":
        done(page, lambda key=key: page.keyboard.press(key))  # type: ignore[misc]
    assert "3 of 60" in page.inner_text("[data-name=annotation]")
    assert "kappa" in page.inner_text("[data-name=annotation]")
    sheet = page.get_attribute("[data-name=annotation]", "data-csv")
    assert sheet is not None
    assert [line.rsplit(",", 1)[1] for line in sheet.splitlines()[1:4]] == ["yes", "no", ""]
    done(page, lambda: page.click("text=Stop"))
    page.fill("form[data-do=begin] input", "3")
    done(page, lambda: page.click("text=Begin"))
    assert "1 of 60" in page.inner_text("[data-name=annotation]")


def test_two_visitors_at_once(visit: Callable[..., Page]) -> None:
    one, two = visit("tab=classify&off=L7.H1"), visit("tab=classify&off=none")
    before = two.inner_text(".answers")
    one.select_option('select[data-do="preset"]', "high")
    two.select_option('select[data-do="model"]', "organism")
    done(one, lambda: one.click('[data-head="L4.H0"]'))
    done(two, lambda: two.click('[data-head="L6.H2"]'))
    assert off(one) == f"L4.H0 {HIGH}"
    assert off(two) == "L6.H2"
    done(two, lambda: two.click("text=Undo"))
    assert two.inner_text(".answers") == before

"""Five tasks of a new visitor in a real browser: python scripts/visitor.py [--out FOLDER] [--url ADDRESS].

ADDRESS is a page that is served already; by default one is started on the tables that ship.
Each begins at the bare address and ends when its answer is on the screen. Printed are clicks, words typed,
seconds from the first click to the answer, and the answer as it appears on the page. Screenshots of every
answer and every view are saved in light, dark and on a phone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from screenshot import SETTLED, chromium, served

LOOKS = {"light": (1360, 900), "dark": (1360, 900), "phone": (390, 844)}
PICTURE = Path(__file__).parents[1] / "ccs" / "app" / "services" / "photographs" / "cat.jpg"


class Visitor:
    """A page in a browser, and what its visitor has done so far."""

    def __init__(self, browser: Any, url: str, look: str, query: str = "") -> None:
        width, height = LOOKS[look]
        self.page = browser.new_page(viewport={"width": width, "height": height})
        self.page.set_default_timeout(600_000)
        theme = "dark" if look == "dark" else "light"
        self.page.goto(f"{url}?__theme={theme}{'&' + query if query else ''}")
        self.page.wait_for_selector(SETTLED)
        self.clicks = self.typed = 0
        self.narrow = width < 1000
        self.start = time.perf_counter()

    def do(self, act: Callable[[], object]) -> None:
        turn = self.page.evaluate("document.body.dataset.ready")
        act()
        self.page.wait_for_selector(f'{SETTLED}:not([data-ready="{turn}"])')

    def click(self, selector: str) -> None:
        self.clicks += 1
        self.do(lambda: self.page.locator(selector).first.click())

    def head(self, place: int) -> None:
        """Click a head of the last layer; on a phone the sheet with the heads is opened first."""
        heads = self.page.locator(".grid .cell").evaluate_all("all => all.map(e => e.value)")
        last = max(int(head[1:].split(".")[0]) for head in heads)
        name = f"L{last}.H{place}"
        if self.narrow and not self.page.locator(f'.cell[value="{name}"]').is_visible():
            self.clicks += 1
            self.page.click(".handle")
        self.click(f'.cell[value="{name}"]')

    def view(self, name: str) -> None:
        self.click(f'nav button[value="{name}"]')

    def type(self, selector: str, text: str) -> None:
        self.typed += len(text.split())
        self.page.fill(selector, text)

    def read(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.inner_text().split())


def what_is_this(one: Visitor) -> str:
    """What one head has learned, and what the switch does."""
    learned = one.read(".hero .headline")
    one.click(".act .primary")
    return f"{learned} {one.read('[data-name=claim] .meaning')}"


def what_does_this_head_do(one: Visitor) -> str:
    """A head's card."""
    one.view("heads")
    one.head(1)
    return f"{one.read('.card-title h2')}. {one.read('#region-main .fig .meaning >> nth=0')}"


def why_did_my_answer_change(one: Visitor) -> str:
    """An image of one's own, heads off until its answer moves, and the effect of one head alone."""
    one.view("classify")
    one.clicks += 1
    one.do(lambda: one.page.set_input_files(".tray input[type=file]", PICTURE))
    one.head(5)
    moved = one.read(".lead")
    one.view("heads")
    one.head(5)
    return f"{moved} {one.read('[data-name^=alone] .meaning')}"


def is_it_biased_for_nurses(one: Visitor) -> str:
    """The view Bias, asked for one occupation."""
    one.view("bias")
    one.type("textarea[name=occupations]", "nurse")
    one.click("text=Measure")
    return one.read("#region-main .lead")


def give_me_a_fairer_one(one: Visitor) -> str:
    """Three ways, on what the view Bias opens with."""
    one.view("bias")
    one.click(".fairer .primary")
    return one.read("[data-name=fairer] .meaning")


TASKS = (
    what_is_this,
    what_does_this_head_do,
    why_did_my_answer_change,
    is_it_biased_for_nurses,
    give_me_a_fairer_one,
)


def main() -> None:
    """Do the tasks, print their cost, save screenshots."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("visitor"))
    parser.add_argument("--url", help="the address of a page that is served already")
    args = parser.parse_args()
    out: Path = args.out
    from ccs.app.views import VIEWS

    out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, nullcontext(args.url) if args.url else served() as url:
        for look in LOOKS:
            for task in TASKS:
                one = Visitor(browser, url, look)
                answer = task(one)
                took = time.perf_counter() - one.start
                done = f"{one.clicks} clicks, {one.typed} words, {took:.1f} s"
                print(look, task.__name__, done, answer, sep=" | ", flush=True)
                one.page.screenshot(path=out / f"{look}-{task.__name__}.png")
                one.page.close()
            for view in VIEWS:
                one = Visitor(browser, url, look, f"tab={view}")
                one.page.screenshot(path=out / f"{look}-view-{view}.png", full_page=True)
                one.page.close()


if __name__ == "__main__":
    main()

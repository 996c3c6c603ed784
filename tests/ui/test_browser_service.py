"""The page as a service: its endpoints by client and MCP, ten users at once, work that is cancelled."""

from __future__ import annotations

import ast
import asyncio
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ccs.heads import HeadSet
from ccs.ui import links
from ccs.ui.api import AT_ONCE
from ccs.ui.service import galleries, top_activating
from ccs.ui.service.cache import Cache, one
from ccs.ui.shared import App
from ccs.ui.views import classify
from tests.support.browser_page import GALLERY, MARKS, Page, browser, done, made, off, visit

__all__ = ["browser", "made", "visit"]  # fixtures
pytestmark = MARKS
USERS, CALLS = 10, 3


def test_the_documented_client_calls(made: tuple[App, str], tmp_path: Path) -> None:
    from gradio_client import Client, handle_file

    Image.new("RGB", (50, 50), "red").save(tmp_path / "red.png")
    client = Client(made[1], verbose=False)
    answer = client.predict(
        pictures=[handle_file(str(tmp_path / "red.png"))],
        classes="judge, cook",
        off="L7.H2",
        api_name="/classify",
    )
    rows = answer["classify"]["rows"]
    assert [row["class"] for row in rows] == ["judge", "cook"]
    assert sum(row["after"] for row in rows) == pytest.approx(1, abs=1e-5)
    heads = client.predict(model="organism", api_name="/heads")
    assert HeadSet.parse(" ".join(row["head"] for row in heads)) == made[0].heads("organism")
    skew = client.predict(occupations="judge, artist", off="L7.H2", gallery=GALLERY, api_name="/bias")
    assert [row["occupation"] for row in skew["maxskew"]["rows"]][:3] == ["judge", "artist", "(mean)"]
    for name, wrong, words in (
        ("/heads", {"model": "none"}, "There is no model 'none'"),
        ("/bias", {"attribute": "height", "gallery": GALLERY}, "There is no attribute 'height'"),
        ("/classify", {"classes": "x" * 10_000}, "at most 200"),
    ):
        with pytest.raises(Exception, match=words):
            client.predict(api_name=name, **wrong)
    client.close()


def test_every_view_is_a_tool_for_agents(made: tuple[App, str]) -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def ask() -> tuple[dict[str, Any], Any, Any]:
        async with (
            streamable_http_client(f"{made[1]}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            answer = await session.call_tool("classify", {"classes": "judge, cook", "off": "L7.H2"})
            return tools, answer, await session.call_tool("heads", {"model": "none"})

    tools, answer, refused = asyncio.run(ask())
    assert set(tools) == {
        "models",
        "heads",
        "head",
        "classify",
        "bias",
        "fairer",
        "paradox",
        "judges",
        "about",
    }
    assert all(tool.description for tool in tools.values())
    rows = ast.literal_eval(answer.content[0].text)["classify"]["rows"]
    assert [row["class"] for row in rows] == ["judge", "cook"] * 4
    assert refused.isError
    assert "There is no model 'none'" in refused.content[0].text


def test_ten_users_at_once_get_their_own_answers(made: tuple[App, str]) -> None:
    from gradio_client import Client

    app, url = made
    model, order = app.model_cache.get("organism"), list(app.heads("organism"))

    def expected(user: int, call: int) -> tuple[str, str, list[float]]:
        heads, example = HeadSet(order[user : user + 1 + call]), f"digits:{user}"
        session = links.open_link(app, {"off": str(heads), "example": example})
        return str(heads), example, classify.measure(session, model)[1].after.ravel().tolist()

    def use(user: int) -> list[tuple[Any, Any]]:
        client, found = Client(url, verbose=False), []
        for call in range(CALLS):
            heads, example, right = expected(user, call)
            answer = client.predict(off=heads, example=example, api_name="/classify")
            found.append(([row["after"] for row in answer["classify"]["rows"]], right))
        client.close()
        return found

    tracemalloc.start()
    with ThreadPoolExecutor(USERS) as pool:
        answers = [pair for pairs in pool.map(use, range(USERS)) for pair in pairs]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(answers) == USERS * CALLS
    for answer, right in answers:
        assert answer == pytest.approx(right, abs=2e-6)
    assert peak < 200 * 2**20


def test_cancel_stops_the_work(visit: Callable[..., Page], monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    page = visit(f"tab=bias&gallery={GALLERY}&off=none")
    collect = galleries.Galleries.pruned

    def slow(self: Any, model: Any, name: str, off: HeadSet) -> Any:
        if len(off) == 2:  # a piece of work that never ends by itself
            while len(steps) < 100_000:
                steps.append(1)
                yield 0.5
        yield from collect(self, model, name, off)

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
    assert "exact" in page.inner_text(".lead")
    assert len(steps) <= stopped + 2


@pytest.fixture
def endless(made: tuple[App, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Makes the view Heads work without end, until something is put into the list."""
    stop: list[int] = []

    def collect(*args: Any) -> Iterator[float]:
        for _ in range(200_000):
            if stop:
                return
            yield 0.0

    monkeypatch.setattr(made[0], "top_activating", Cache(1, one))
    monkeypatch.setattr(top_activating, "collect", collect)
    yield stop
    stop.append(1)


def test_the_rest_is_shown_while_long_work_goes_on(visit: Callable[..., Page], endless: list[int]) -> None:
    page = visit("tab=classify&off=none")
    page.click('nav button[data-value="heads"]')
    page.wait_for_selector(".busy:has-text('Looking at 300 drawn images') progress")
    assert "which takes this model a while" in page.inner_text("#region-main")
    assert page.locator("[data-name^=texts]").count() == 1
    endless.append(1)
    page.wait_for_function("!document.body.dataset.busy")


def test_who_waits_is_told(visit: Callable[..., Page], endless: list[int]) -> None:
    pages = [visit("tab=classify&off=none") for _ in range(AT_ONCE + 1)]
    for page in pages[:-1]:
        page.click('nav button[data-value="heads"]')
        page.wait_for_selector(".busy progress")
    pages[-1].click('[data-head="L7.H1"]')
    pages[-1].wait_for_selector("text=Others are being answered first")
    endless.append(1)
    for page in pages:
        page.wait_for_function("!document.body.dataset.busy")
    assert off(pages[-1]) == "L7.H1"
    assert not pages[-1].locator("#ccs-wait").is_visible()

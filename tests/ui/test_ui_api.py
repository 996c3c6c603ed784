"""The page's functions: on the documented client, as tools for agents, and for many users at once."""

from __future__ import annotations

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ccs.heads import HeadSet
from ccs.ui import links
from ccs.ui.shared import App
from ccs.ui.views import classify
from tests.support.browser_page import GALLERY, MARKS

pytestmark = MARKS
USERS, CALLS = 5, 2


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
    assert [row["occupation"] for row in skew["by-occupation"]["rows"]][:3] == ["judge", "artist", "(mean)"]
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

    with ThreadPoolExecutor(1) as thread:  # Playwright's own loop runs in this one
        tools, answer, refused = thread.submit(asyncio.run, ask()).result()
    assert set(tools) == {"heads", "classify", "bias"}
    assert all(tool.description for tool in tools.values())
    rows = ast.literal_eval(answer.content[0].text)["classify"]["rows"]
    assert [row["class"] for row in rows] == ["judge", "cook"] * 4
    assert refused.isError
    assert "There is no model 'none'" in refused.content[0].text


def test_users_at_once_get_their_own_answers(made: tuple[App, str]) -> None:
    from gradio_client import Client

    app, url = made
    model, order = app.model_cache.get("organism"), list(app.heads("organism"))

    def expected(user: int, call: int) -> tuple[str, str, list[float]]:
        heads, example = HeadSet(order[user : user + 1 + call]), f"occupations:{user}"
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

    with ThreadPoolExecutor(USERS) as pool:
        answers = [pair for pairs in pool.map(use, range(USERS)) for pair in pairs]
    assert len(answers) == USERS * CALLS
    for answer, right in answers:
        assert answer == pytest.approx(right, abs=2e-6)

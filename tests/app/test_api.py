"""The public API: by gradio_client, by curl, and by an MCP client, its numbers are the library's."""

import asyncio
import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

import ccs
from ccs.app import api
from tests.support.app_page import SMALL, small_gallery
from tests.support.browser_page import MARKS
from tests.support.datasets_sample import saved

pytestmark = MARKS
DOCS = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")


@pytest.fixture(scope="module")
def client(served_app):
    return Client(served_app[1], verbose=False)


def encoded(image):
    return base64.b64encode(saved(image, "PNG")).decode()


def test_every_function_is_described(client):
    info = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert set(info) == {f"/{name}" for name in api.FUNCTIONS}
    for endpoint in info.values():
        assert endpoint["description"]
        for parameter in endpoint["parameters"]:
            assert parameter["type"]["type"] in ("string", "integer", "array")


def test_gradio_client_gets_the_numbers_of_the_library(served_app, client, model):
    rows = client.predict(["judge", "nurse"], SMALL, "gender", "L6.H1", api_name="/measure_bias")
    table = ccs.bias(model, small_gallery(), ["judge", "nurse"], attribute="gender", ablate="L6.H1").rows
    for row, (_, wanted) in zip(rows, table.iterrows(), strict=True):
        assert (row["occupation"], row["metric"]) == (wanted["occupation"], wanted["metric"])
        assert row["before"] == pytest.approx(wanted["before"])
        assert row["after"] == pytest.approx(wanted["after"])
    data = ccs.open_dataset("world/subjects", max_images=8)
    table = ccs.accuracy(model, data, ablate="L7.H2").rows
    images, classes = [encoded(image) for image in data.images], list(data.classes)
    answers = client.predict(images, classes, data.templates[0], "L7.H2", api_name="/classify")
    for column in ("before", "after"):
        shares = np.array([row[column] for row in answers]).reshape(8, len(classes))
        assert (shares.argmax(axis=1) == data.labels).mean() == pytest.approx(table[column][0])


def test_the_tables_and_rankings_are_those_of_the_page(served_app, client, model):
    app = served_app[0]
    assert {row["model"] for row in client.predict(api_name="/list_models")} == set(app.models)
    (row,) = [row for row in client.predict(api_name="/head_scores") if row["head"] == "L5.H3"]
    record = app.records("organism").head(ccs.Head(5, 3))
    assert (row["concept"], row["ccs"], row["k"]) == (record.concept, record.ccs, record.k)
    texts = client.predict(head="L5.H3", api_name="/describe_head")
    assert [row["text"] for row in texts] == [text.text for text in record.texts]
    ranked_heads = client.predict("a red background", api_name="/find_heads")
    table = ccs.find_heads(model, "a red background", app.galleries.find("world/images")).rows
    assert [row["head"] for row in ranked_heads] == list(table["head"])
    people = client.predict("judge", SMALL, top_k=5, api_name="/rank_people")
    gallery = small_gallery()
    prompt = model.embed_texts([t.format("judge") for t in gallery.templates]).mean(axis=0)
    scores = model.embed_images(list(gallery.images)) @ prompt
    assert [row["image"] for row in people] == scores.argsort()[::-1][:5].tolist()
    assert people[0]["groups"]["gender"] == gallery.groups["gender"][people[0]["image"]]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("head_scores", {"model": "nothing"}, "There is no model 'nothing' here"),
        ("describe_head", {"head": "L99.H0"}, "has no scored head L99.H0"),
        ("measure_bias", {"occupations": ["judge"], "gallery": "/etc/passwd"}, "There is no gallery"),
        ("measure_bias", {"occupations": [1]}, "occupations.0: Input should be a valid string"),
        ("measure_bias", {"occupations": ["x"] * 21}, "at most 20 items"),
        ("rank_people", {"occupation": "judge", "top_k": 10**6}, "less than or equal to 100"),
        ("classify", {"images": ["aGk="], "classes": ["a"]}, "isn't an image"),
    ],
)
def test_errors_are_sentences(client, name, arguments, words):
    with pytest.raises(AppError) as error:
        client.predict(**arguments, api_name=f"/{name}")
    assert words in str(error.value)
    assert "Traceback" not in str(error.value)


def test_an_mcp_client_gets_the_numbers_of_the_library(served_app, model):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def call():
        async with (
            streamable_http_client(f"{served_app[1]}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = (await session.list_tools()).tools
            arguments = {"occupations": ["judge"], "gallery": SMALL, "attribute": "gender"}
            answer = await session.call_tool("measure_bias", arguments)
            refused = await session.call_tool("head_scores", {"model": "nothing"})
            return tools, answer, refused

    tools, answer, refused = asyncio.run(call())
    assert {tool.name for tool in tools} == set(api.FUNCTIONS)
    (tool,) = [tool for tool in tools if tool.name == "measure_bias"]
    assert 'such as ["judge", "nurse"]' in json.dumps(tool.inputSchema).replace('\\"', '"')
    rows = json.loads(answer.content[0].text)
    wanted = ccs.bias(model, small_gallery(), ["judge"], attribute="gender").rows
    assert [row["after"] for row in rows] == pytest.approx(list(wanted["after"]))
    assert "There is no model 'nothing' here" in refused.content[0].text


def test_the_examples_of_the_docs_run(served_app):
    blocks = DOCS.split("```")
    python = next(block for block in blocks if block.startswith("python\n")).removeprefix("python\n")
    scope = {}
    exec(python.replace("http://127.0.0.1:7860/", served_app[1]), scope)
    assert scope["rows"][0]["metric"] == "MaxSkew"
    shell = next(block for block in blocks if block.startswith("shell\n")).removeprefix("shell\n")
    if shutil.which("curl"):
        command = shell.replace("http://127.0.0.1:7860/", served_app[1])
        done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=True)
        assert "L7.H4" in done.stdout
    config = json.loads(next(block for block in blocks if block.startswith("json\n")).removeprefix("json\n"))
    assert config["mcpServers"]["clip-heads"]["url"].endswith("/gradio_api/mcp/")

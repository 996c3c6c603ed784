"""The public API gives the library's results to gradio_client, curl, and an MCP client."""

import asyncio
import base64
import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

import ccs
from ccs.app import api
from tests.support import datasets_sample, processes
from tests.support.app_fixtures import SMALL_GALLERY, small_gallery

DOCS = (processes.ROOT / "docs" / "api.md").read_text("utf-8")


@pytest.fixture(scope="module")
def client(served_app):
    return Client(served_app[1], verbose=False)


def test_api_describes_every_function(client):
    info = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert set(info) == {f"/{name}" for name in api.FUNCTIONS}
    assert all(endpoint["description"] for endpoint in info.values())
    types = {parameter["type"]["type"] for endpoint in info.values() for parameter in endpoint["parameters"]}
    assert types == {"string", "integer", "array"}


def test_gradio_client_matches_library(client, model):
    rows = client.predict(["judge", "nurse"], SMALL_GALLERY, "gender", "L6.H1", api_name="/measure_bias")
    table = ccs.bias(model, small_gallery(), ["judge", "nurse"], attribute="gender", ablate="L6.H1").rows
    columns = ["occupation", "metric", "before", "after"]
    pd.testing.assert_frame_equal(pd.DataFrame(rows)[columns], table[columns], check_dtype=False)
    data = ccs.open_dataset("world/subjects", max_images=8)
    table = ccs.accuracy(model, data, ablate="L7.H2").rows
    images = [base64.b64encode(datasets_sample.encode_image(image, "PNG")).decode() for image in data.images]
    answers = client.predict(images, [*data.classes], data.templates[0], "L7.H2", api_name="/classify")
    for column in ("before", "after"):
        shares = np.array([row[column] for row in answers]).reshape(8, -1)
        assert (shares.argmax(axis=1) == data.labels).mean() == pytest.approx(table[column][0])


def test_tables_and_rankings_match_library(served_app, client, model):
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
    people = client.predict("judge", SMALL_GALLERY, top_k=5, api_name="/rank_people")
    gallery = small_gallery()
    prompt = model.embed_texts([t.format("judge") for t in gallery.templates]).mean(axis=0)
    scores = model.embed_images(list(gallery.images)) @ prompt
    assert [row["image"] for row in people] == scores.argsort()[::-1][:5].tolist()
    assert people[0]["groups"]["gender"] == gallery.groups["gender"][people[0]["image"]]


ERRORS = [
    ("head_scores", {"model": "nothing"}, "There is no model 'nothing' here"),
    ("describe_head", {"head": "L99.H0"}, "has no scored head L99.H0"),
    ("measure_bias", {"occupations": ["judge"], "gallery": "/etc/passwd"}, "There is no gallery"),
    ("measure_bias", {"occupations": [1]}, "occupations.0: Input should be a valid string"),
    ("measure_bias", {"occupations": ["x"] * 21}, "at most 20 items"),
    ("rank_people", {"occupation": "judge", "top_k": 10**6}, "less than or equal to 100"),
    ("classify", {"images": ["aGk="], "classes": ["a"]}, "isn't an image"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), ERRORS)
def test_invalid_call_returns_clear_error(client, name, arguments, message):
    with pytest.raises(AppError) as error:
        client.predict(**arguments, api_name=f"/{name}")
    assert message in str(error.value)
    assert "Traceback" not in str(error.value)


def test_mcp_client_matches_library(served_app, model):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def call():
        async with (
            streamable_http_client(f"{served_app[1]}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            question = {"occupations": ["judge"], "gallery": SMALL_GALLERY, "attribute": "gender"}
            answer = await session.call_tool("measure_bias", question)
            error = await session.call_tool("head_scores", {"model": "nothing"})
            return {tool.name: tool for tool in (await session.list_tools()).tools}, answer, error

    tools, answer, error = asyncio.run(call())
    assert set(tools) == set(api.FUNCTIONS)
    schema = json.dumps(tools["measure_bias"].inputSchema)
    assert 'such as ["judge", "nurse"]' in schema.replace('\\"', '"')
    rows = json.loads(answer.content[0].text)
    expected = ccs.bias(model, small_gallery(), ["judge"], attribute="gender").rows
    assert [row["after"] for row in rows] == pytest.approx(list(expected["after"]))
    assert "There is no model 'nothing' here" in error.content[0].text


def test_documented_api_examples_run(served_app):
    blocks = reversed(re.findall(r"^```(python|shell|json)\n(.*?)^```", DOCS, re.DOTALL | re.MULTILINE))
    code = {language: block.replace("http://127.0.0.1:7860/", served_app[1]) for language, block in blocks}
    exec(code["python"], scope := {})
    assert scope["rows"][0]["metric"] == "MaxSkew"
    if shutil.which("curl"):
        command = ["bash", "-ec", code["shell"]]
        assert "L7.H4" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(code["json"])["mcpServers"]["clip-heads"]["url"].endswith("/gradio_api/mcp/")

"""The server: pages, fragments, work that is watched or canceled, and uploads."""

import asyncio
import re
import threading
from concurrent.futures import Future
from urllib.parse import parse_qsl

import pytest
from gradio.context import LocalContext
from PIL import Image
from starlette.testclient import TestClient

from ccs.app import controls, jobs, server, session, views
from tests.support.datasets_sample import encode_image
from tests.support.visitor import Visitor

FOREIGN = controls.OTHER_FILES.format("images").partition("'")[2]


@pytest.fixture(scope="module")
def client(app):
    with TestClient(server.make_server(app), follow_redirects=False) as test_client:
        yield test_client


def visit(client, query=""):
    return Visitor(client).visit(query)


def test_a_click_changes_only_what_differs(client):
    page = visit(client, "tab=classify").wait()
    page.post("heads/toggle", head="L7.H2").wait()
    assert dict(parse_qsl(page.address))["ablate"] == "L7.H2"
    assert "1 head off" in page["strip"]
    before = dict(page.regions)
    page.post("show").wait()
    sent = re.findall(r"region-(\w+)", page.last_response.text)
    assert {*sent} <= {"status"}
    assert page.regions["left"] == before["left"]
    page.post("heads/undo").wait()
    assert "ablate" not in dict(parse_qsl(page.address))


def test_a_bad_form_or_figure_changes_nothing_and_says_so(client):
    page = visit(client, "tab=classify&ablate=L7.H2").wait()
    at = dict(parse_qsl(page.post("heads/toggle", head="L9.H9").wait().address))
    assert at["ablate"] == "L7.H2"
    assert "L9.H9 isn&#39;t in organism" in page["top"]
    assert "isn&#39;t in" not in page.post("notices/close").wait()["top"]
    page.post("heads/toggle", head="x" * 60_000).wait()
    assert "head: String should have at most 50000 characters; got" in page["top"]
    answer = client.get("/figure.csv", params={"tab": "classify", "figure": "groups"})
    assert (answer.status_code, answer.text) == (404, "This figure can't be computed now.")


def test_work_is_done_in_the_visitors_name(client, monkeypatch):
    """ZeroGPU reads a visitor's token from the request of the thread that works."""
    tokens, classify = [], views.VIEWS["classify"]

    def values(*arguments):
        tokens.append(LocalContext.request.get().headers["x-ip-token"])
        return classify.values(*arguments)

    monkeypatch.setitem(views.VIEWS, "classify", classify._replace(values=values))
    monkeypatch.setitem(client.headers, "x-ip-token", "secret")
    visit(client, "tab=classify").wait().post("heads/ablate", ablate="L7.H1").wait()
    assert tokens == ["secret"] * 2


def test_a_fault_is_logged_and_the_page_goes_on(client, monkeypatch, caplog):
    page = visit(client, "tab=classify").wait()
    monkeypatch.setitem(views.VIEWS, "classify", views.VIEWS["classify"]._replace(values=lambda *_: 1 / 0))
    page.post("heads/ablate", ablate="L7.H1").wait()
    assert "This view can&#39;t be shown" in page["main"]
    assert "1 head off" in page["strip"]
    monkeypatch.undo()
    assert "Before and after" in page.post("heads/ablate", ablate="").wait()["main"]
    caplog.clear()


def test_images_stay_with_their_page_and_a_link_made_with_them_says_so(client):
    page = visit(client, "tab=classify").wait()
    page.post(
        "images/add", files=[("files", ("<b>red.png", encode_image(Image.new("RGB", (40, 40)))))]
    ).wait()
    assert "&lt;b&gt;red.png" in page["left"]
    page.post("images/add", files=[("files", ("bad.png", b"no image"))]).wait()
    assert "bad.png isn&#39;t an image" in page["top"]
    page.post("notices/close")
    assert "red.png" in page.post("show").wait()["left"]  # a reload
    assert FOREIGN not in page["top"]
    other = visit(client, page.address).wait()
    assert "red.png" not in other["left"]
    assert FOREIGN in other["top"]
    assert "images" not in dict(parse_qsl(other.post("show").address))
    assert "red.png" not in page.post("images/example", example="subjects:0").wait()["left"]
    assert "images" not in dict(parse_qsl(page.address))


@pytest.fixture
def slow(monkeypatch):
    """Work that goes on until it is told to end; what it did."""
    go_on, log = threading.Event(), []

    def work(screen, job, fresh=True):
        try:
            while not go_on.wait(0.01):
                job.regions |= {"main": "half", "top": "", "strip": "", "left": ""}
                job.tell(0.5, "Thinking")
            return {"main": "whole"}
        finally:
            log.append("ended")

    monkeypatch.setattr(server.page, "work", work)
    monkeypatch.setattr(server, "CLICK_SECONDS", 0.1)
    monkeypatch.setattr(server, "OPEN_SECONDS", 0.5)  # until the work has begun, on a busy machine too
    yield go_on, log
    go_on.set()


def test_long_work_is_shown_as_it_goes_on(client, slow):
    go_on, _ = slow
    page = visit(client)
    assert "Thinking" in page["status"]
    assert "half" in page["main"]
    go_on.set()
    assert "whole" in page.wait()["main"]
    assert "Thinking" not in page["status"]


def test_a_page_is_served_before_the_results_are_there(app):
    loading = Future()
    with TestClient(server.make_server(session.App(loading))) as client:
        assert "data-busy" in (page := visit(client, "tab=paradox"))["status"]
        loading.set_result(app.collection)
        assert "gallery: world/faces" in page.wait()["main"]


def test_work_is_canceled_replaced_and_not_done_for_nobody(client, slow, monkeypatch):
    _, log = slow
    page = visit(client)
    page.post("show")
    while log.count("ended") < 1:  # the first one was replaced
        pass
    monkeypatch.setattr(jobs, "UNWATCHED_SECONDS", 0.0)
    while log.count("ended") < 2:  # nobody asks
        pass
    monkeypatch.setattr(jobs, "UNWATCHED_SECONDS", 20.0)
    assert "Canceled" in page.post("show").post("cancel").wait()["status"]
    monkeypatch.undo()
    assert "Canceled" not in page.post("notices/close").wait()["status"]


def test_an_address_that_has_too_much_waits_and_no_other():
    async def visit():
        many, go_on = jobs.Jobs(), threading.Event()

        def start(client, work=lambda job: {"main": "done"}):
            many.start(job := jobs.Job(client, work))
            return job

        def endless(job):
            while not go_on.wait(0.005):
                job.tell(0.0, "")
            return {}

        waiting = [start("a", endless) for _ in range(3)]
        await (other := start("b")).finished(60)
        assert other.regions == {"main": "done"}
        assert sum(job.running for job in waiting) == 2  # nobody else was there when they came
        waiting += [start("a", endless) for _ in range(jobs.JOBS_OF_ADDRESS - 3)]
        assert "Too much" in start("a").regions["main"]
        waiting[1].stopped = waiting[3].stopped = True
        go_on.set()
        for job in waiting:
            await job.finished(60)
            assert job.done

    asyncio.run(visit())

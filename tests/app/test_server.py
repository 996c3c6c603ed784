"""The server: pages, changed regions, jobs and their cancellation, and uploads."""

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

OTHER_FILES_NOTICE = controls.OTHER_FILES.format("images").partition("'")[2]


@pytest.fixture(scope="module")
def client(app):
    with TestClient(server.make_server(app), follow_redirects=False) as test_client:
        yield test_client


def visit(client, query=""):
    return Visitor(client).visit(query)


def test_click_updates_only_changed_regions(client):
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


def test_invalid_form_or_figure_keeps_screen(client):
    page = visit(client, "tab=classify&ablate=L7.H2").wait()
    address = dict(parse_qsl(page.post("heads/toggle", head="L9.H9").wait().address))
    assert address["ablate"] == "L7.H2"
    assert "L9.H9 isn&#39;t in organism" in page["top"]
    assert "isn&#39;t in" not in page.post("notices/close").wait()["top"]
    page.post("heads/toggle", head="x" * 60_000).wait()
    assert "head: String should have at most 50000 characters; got" in page["top"]
    answer = client.get("/figure.csv", params={"tab": "classify", "figure": "groups"})
    assert (answer.status_code, answer.text) == (404, "This figure can't be computed now.")


def test_job_runs_with_visitor_request(client, monkeypatch):
    """ZeroGPU reads a visitor's token from the request of the job's thread."""
    tokens, classify = [], views.VIEWS["classify"]

    def values(*arguments):
        tokens.append(LocalContext.request.get().headers["x-ip-token"])
        return classify.values(*arguments)

    monkeypatch.setitem(views.VIEWS, "classify", classify._replace(values=values))
    monkeypatch.setitem(client.headers, "x-ip-token", "secret")
    visit(client, "tab=classify").wait().post("heads/ablate", ablate="L7.H1").wait()
    assert tokens == ["secret"] * 2


def test_view_exception_is_logged_and_page_survives(client, monkeypatch, caplog):
    page = visit(client, "tab=classify").wait()
    monkeypatch.setitem(views.VIEWS, "classify", views.VIEWS["classify"]._replace(values=lambda *_: 1 / 0))
    page.post("heads/ablate", ablate="L7.H1").wait()
    assert "This view can&#39;t be shown" in page["main"]
    assert "1 head off" in page["strip"]
    monkeypatch.undo()
    assert "Before and after" in page.post("heads/ablate", ablate="").wait()["main"]
    caplog.clear()


def test_uploaded_images_stay_in_their_session(client):
    page = visit(client, "tab=classify").wait()
    red = encode_image(Image.new("RGB", (40, 40)))
    page.post("images/add", files=[("files", ("<b>red.png", red))]).wait()
    assert "&lt;b&gt;red.png" in page["left"]
    page.post("images/add", files=[("files", ("bad.png", b"no image"))]).wait()
    assert "bad.png isn&#39;t an image" in page["top"]
    page.post("notices/close")
    assert "red.png" in page.post("show").wait()["left"]  # after a reload
    assert OTHER_FILES_NOTICE not in page["top"]
    other = visit(client, page.address).wait()
    assert "red.png" not in other["left"]
    assert OTHER_FILES_NOTICE in other["top"]
    assert "images" not in dict(parse_qsl(other.post("show").address))
    assert "red.png" not in page.post("images/example", example="subjects:0").wait()["left"]
    assert "images" not in dict(parse_qsl(page.address))


@pytest.fixture
def slow_job(monkeypatch):
    """Replace jobs by one that runs until an event is set; return the event and a list of ended jobs."""
    finish, ended = threading.Event(), []

    def work(screen, job, fresh=True):
        try:
            while not finish.wait(0.01):
                job.regions |= {"main": "half", "top": "", "strip": "", "left": ""}
                job.tell(0.5, "Thinking")
            return {"main": "whole"}
        finally:
            ended.append(screen)

    monkeypatch.setattr(server.page, "work", work)
    monkeypatch.setattr(server, "CLICK_SECONDS", 0.1)
    monkeypatch.setattr(server, "OPEN_SECONDS", 0.5)  # a busy machine starts the job late
    yield finish, ended
    finish.set()


def test_long_job_shows_progress(client, slow_job):
    finish, _ = slow_job
    page = visit(client)
    assert "Thinking" in page["status"]
    assert "half" in page["main"]
    finish.set()
    assert "whole" in page.wait()["main"]
    assert "Thinking" not in page["status"]


def test_page_is_served_while_results_load(app):
    loading = Future()
    with TestClient(server.make_server(session.App(loading))) as client:
        assert "data-busy" in (page := visit(client, "tab=paradox"))["status"]
        loading.set_result(app.collection)
        assert "gallery: world/faces" in page.wait()["main"]


def test_job_ends_when_replaced_unwatched_or_canceled(client, slow_job, monkeypatch):
    _, ended = slow_job
    page = visit(client)
    page.post("show")
    while len(ended) < 1:  # the first job was replaced
        pass
    monkeypatch.setattr(jobs, "UNWATCHED_SECONDS", 0.0)
    while len(ended) < 2:  # no browser asks for the second
        pass
    monkeypatch.setattr(jobs, "UNWATCHED_SECONDS", 20.0)
    assert "Canceled" in page.post("show").post("cancel").wait()["status"]
    monkeypatch.undo()
    assert "Canceled" not in page.post("notices/close").wait()["status"]


def test_busy_address_waits_without_delaying_others():
    async def run_jobs():
        queue, finish = jobs.Jobs(), threading.Event()

        def start(client, work=lambda job: {"main": "done"}):
            queue.start(job := jobs.Job(client, work))
            return job

        def endless(job):
            while not finish.wait(0.005):
                job.tell(0.0, "")
            return {}

        waiting = [start("a", endless) for _ in range(3)]
        await (other := start("b")).finished(60)
        assert other.regions == {"main": "done"}
        assert sum(job.running for job in waiting) == 2  # started while no other address waited
        waiting += [start("a", endless) for _ in range(jobs.JOBS_OF_ADDRESS - 3)]
        assert "Too much" in start("a").regions["main"]
        waiting[1].stopped = waiting[3].stopped = True
        finish.set()
        for job in waiting:
            await job.finished(60)
            assert job.done

    asyncio.run(run_jobs())

"""Taking a model apart in the app: from the form to the grid, what is kept, and what ends it."""

import asyncio
import io
import os
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest

from ccs import results
from ccs.errors import InputError
from ccs.ui import door
from ccs.ui.clicks import regions, take_apart
from ccs.ui.links import open_link
from ccs.ui.service import taking_apart
from ccs.ui.service.cache import Cache
from ccs.ui.service.taking_apart import Kept, Request
from tests.support import ui_sample
from tests.support.datasets_sample import as_parquet, cells
from tests.support.ui_page import bare_app


def asked(images="world", count=20):
    return Request("tiny", "/models/tiny", "f" * 64, images, count, "world")


@pytest.fixture
def computed(monkeypatch):
    """Runs that write made-up tables at once; the command lines given."""
    given = []

    def compute(arguments, folder):
        given.append(list(arguments))
        yield 0.5, "half"
        ui_sample.write(folder / arguments[arguments.index("--out") + 1], "tiny", "f" * 64)

    monkeypatch.setattr(taking_apart, "compute_tables", compute)
    return given


def test_the_same_question_is_computed_once_and_kept(tmp_path, computed):
    kept, request = Kept(tmp_path, Cache()), asked()
    assert [share for share, _ in kept.make(request)] == [0.0, 0.5]
    found = kept.records(request.key)
    again = Kept(tmp_path, Cache())  # after a restart
    assert list(again.make(request)) == []
    assert len(computed) == 1
    assert asked(count=30).key != request.key != asked("hf://datasets/a/b").key
    with zipfile.ZipFile(io.BytesIO(again.archive(request.key))) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert results.read(tmp_path / "unpacked" / "tiny").table("scores").equals(found.results.table("scores"))


def test_one_run_of_an_address_stands_in_line(tmp_path, computed):
    kept, first, second = Kept(tmp_path, Cache()), asked(), asked(count=30)
    run, waits = kept.make(first, "a"), kept.make(second, "b")
    next(run)
    assert next(waits) == (0.0, "waiting for 1 other")
    with pytest.raises(InputError, match="one from your address is under way already"):
        next(kept.make(second, "b"))
    run.close()
    assert [words for _, words in waits] == ["starting", "half"]
    assert kept.records(first.key) is None
    assert kept.records(second.key)


@pytest.fixture
def python(tmp_path, monkeypatch):
    """`python(lines)`: lines of a shell in place of the Python that computes."""

    def put(lines):
        (tmp_path / "python").write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    return put


def test_a_run_that_fails_or_is_left_ends_with_its_processes(tmp_path, python):
    kept = Kept(tmp_path, Cache())
    python("echo 'error: There is no model' >&2; exit 2")
    with pytest.raises(InputError, match="There is no model"):
        list(kept.make(asked()))
    pids = tmp_path / "pids"
    python(f"""sleep 60 & echo $$ $! > {pids}; echo '{{"doing": "moments", "share": 0.5}}' >&2; wait""")
    run = kept.make(asked())
    while next(run)[1] != "moments":
        pass
    run.close()
    for pid in pids.read_text().split():
        status = Path(f"/proc/{pid}/status")
        while status.exists() and "State:\tZ" not in status.read_text():  # the test's time is the limit
            pass


@pytest.fixture
def tiny_app(tiny_folder, tmp_path, hub):
    """The app without any tables, beside a Hub with a set of photographs."""
    hub.put("datasets", "user/photos", {"data/train-0000.parquet": as_parquet(cells(24))})
    return bare_app(tiny_folder, tmp_path)


def test_photographs_of_the_hub_fill_the_grid(tiny_app, hub, monkeypatch):
    monkeypatch.setattr(taking_apart, "NICE", 0)  # nobody else waits
    screen = open_link(tiny_app, {"tab": "heads", "off": "none"})
    tiny_app.model_cache.get("tiny")
    asked = {"images": "drawn scenes", "own": "user/photos:train", "count": "4", "texts": "world"}
    said = [html["status"] for _, html in take_apart(tiny_app, screen.session, asked)]
    assert any("Taking tiny apart: moments" in html for html in said)
    assert screen.session.notices == []
    hub.repositories.clear()  # what was made stays
    again = open_link(tiny_app, dict(parse_qsl(screen.state.query())))
    found, page = tiny_app.shown(again.state), regions(again)
    assert found.manifest["images"]["name"] == "hf://datasets/user/photos:train"
    assert {len(record.texts) for record in found.heads.values()} == {5}
    assert page["left"].count('class="cell') == len(found.heads) == 16
    assert "data-zip" in page["left"]
    assert found.head(again.state.head).texts[0].text in page["main"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"count": "1"}, "1 photographs are asked for"),
        ({"own": "/etc/passwd"}, "is no data set of the Hub"),
        ({"images": "uploads"}, "There is no set of photographs"),
        ({"memory": "little"}, "needs about 1.1 GB of memory, and this machine has 1.0 GB free"),
    ],
)
def test_what_cannot_be_asked_for(tiny_app, monkeypatch, fields, words):
    if "memory" in fields:
        monkeypatch.setattr("ccs.model.loading.footprint.free_memory", lambda: 10**9)
    screen = open_link(tiny_app, {})
    tiny_app.model_cache.get("tiny")
    given = {"images": "drawn scenes", "own": "", "count": "20", "texts": "world"}
    list(take_apart(tiny_app, screen.session, {**given, **fields}))
    assert words in screen.session.notices[0]
    assert not screen.state.apart


def test_zero_gpu_lends_a_gpu_to_a_run(tmp_path, monkeypatch, python):
    """With a stand-in for the package `spaces`, and one for Python that tells what it computes on."""
    lent = []

    def gpu(duration):
        return lambda work: lambda *given: lent.append(duration) or work(*given)

    python(f'echo "$CCS_DEVICE" > {tmp_path}/device')
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=gpu))
    monkeypatch.setattr(os, "environ", {**os.environ, "SPACES_ZERO_GPU": "1"})
    list(taking_apart.on_gpu(taking_apart.compute_tables)([], tmp_path))
    assert lent == [taking_apart.GPU_SECONDS]
    assert (tmp_path / "device").read_text() == "cuda\n"
    monkeypatch.delitem(os.environ, "SPACES_ZERO_GPU")
    assert taking_apart.on_gpu(taking_apart.compute_tables) is taking_apart.compute_tables


def test_a_run_ends_when_its_page_is_gone_and_the_next_one_begins(monkeypatch):
    monkeypatch.setattr(door, "SILENT", 0.0)
    ended = []

    def run():
        try:
            while True:
                yield "at work"
        finally:
            ended.append("")

    async def visit():
        line = []
        first, *others = (door.Turn(line, "a", "apart", page) for page in "pqr")
        stream = door.Turn(line, "a", "stream", "p")
        work = first.work(run())
        assert next(work) == "at work"
        assert [turn.free.done() for turn in others] == [True, False]
        stream.end()
        while stream in line:
            await asyncio.sleep(0)
        assert list(work) == []
        await asyncio.wait_for(others[1].free, 5)

    asyncio.run(visit())
    assert ended

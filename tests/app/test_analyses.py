"""Analyzing a model in the app: from the form to the grid, what is kept, and what ends it."""

import re
import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import gradio
import pytest

from ccs import InputError, results
from ccs.app.jobs import Canceled
from ccs.app.page import regions
from ccs.app.services import analyses
from ccs.app.services.analyses import Analyses, Request
from ccs.app.services.model_cache import Cache
from tests.support import app_sample
from tests.support.app_fixtures import RecordingJob, make_empty_app, open_screen, submit_form
from tests.support.datasets_sample import image_cells, parquet_bytes


def request_for(images="world", count=20):
    return Request("tiny", "/models/tiny", "f" * 64, images, count, "world")


@pytest.fixture
def computed(monkeypatch):
    """Runs that write made-up tables at once; their requests."""
    requests = []

    def compute(request, folder):
        requests.append(request)
        yield 0.5, "half"
        app_sample.write_app_results(folder, "tiny", "f" * 64)

    monkeypatch.setattr(analyses, "compute_tables", compute)
    return requests


def test_the_same_question_is_computed_once_and_kept(tmp_path, computed):
    store, request, steps = Analyses(tmp_path, Cache()), request_for(), []
    store.make(request, lambda *step: steps.append(step))
    assert steps == [(0.5, "Analyzing tiny: half")]
    records = store.records(request.key)
    again = Analyses(tmp_path, Cache())  # after a restart
    again.make(request, lambda *_: pytest.fail("computed again"))
    assert len(computed) == 1
    assert request_for(count=30).key != request.key != request_for("hf://datasets/a/b").key
    shutil.unpack_archive(again.archive(request.key), tmp_path / "unpacked")
    unpacked = results.read_results(tmp_path / "unpacked" / "tiny")
    assert unpacked.table("scores").equals(records.table("scores"))


def test_one_run_at_a_time_and_a_canceled_one_leaves_nothing(tmp_path, computed):
    store, first, second, steps = Analyses(tmp_path, Cache()), request_for(), request_for(count=30), []
    waits = threading.Thread(target=lambda: store.make(second, lambda *step: steps.append(step)))

    def tell(share, doing):
        if not waits.is_alive():
            waits.start()
        while not steps:
            pass
        raise Canceled

    with pytest.raises(Canceled):
        store.make(first, tell)
    waits.join()
    assert {*steps} == {(0.0, "Waiting for another analysis"), (0.5, "Analyzing tiny: half")}
    with pytest.raises(InputError, match="have been deleted"):
        store.records(first.key)
    assert store.records(second.key)


@pytest.fixture
def python(tmp_path, monkeypatch):
    """`python(lines)`: lines of a shell in place of the Python that computes."""

    def put(lines):
        (tmp_path / "python").write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    return put


def test_a_run_that_fails_or_is_left_ends_with_its_processes(tmp_path, python):
    store = Analyses(tmp_path, Cache())
    python("echo 'error: There is no model' >&2; exit 2")
    with pytest.raises(InputError, match="There is no model"):
        store.make(request_for(), lambda *_: None)
    pids = tmp_path / "pids"
    python(f"""sleep 60 & echo $$ $! > {pids}; echo '{{"doing": "moments", "share": 0.5}}' >&2; wait""")

    def cancel(share, doing):
        if "moments" in doing:
            raise Canceled

    with pytest.raises(Canceled):
        store.make(request_for(), cancel)
    for pid in pids.read_text().split():
        status = Path(f"/proc/{pid}/status")
        while status.exists() and "State:\tZ" not in status.read_text():  # the test's time is the limit
            pass


def test_images_of_the_hub_fill_the_grid(tiny_folder, tmp_path, hub, monkeypatch):
    hub.put("datasets", "user/photos", {"data/train-0000.parquet": parquet_bytes(image_cells(24))})
    app = make_empty_app(tiny_folder, tmp_path)
    monkeypatch.setattr(analyses, "NICENESS", 0)  # nobody else waits
    monkeypatch.setitem(analyses.DATASETS, "photos", "hf://datasets/user/photos:train")
    screen = open_screen(app, {"tab": "heads"})
    app.model_cache.get("tiny")
    with pytest.raises(InputError, match="There is no dataset 'uploads'"):
        submit_form(screen, "analyze", images="uploads", count="4")
    answer = submit_form(screen, "analyze", images="photos", count="4")(job := RecordingJob())
    assert any(doing.startswith("Analyzing tiny: ") for doing in job.steps)
    (key,) = re.findall(r'name="analysis" value="(\w+)"', answer["note"])
    hub.repositories.clear()  # what was made stays
    submit_form(screen, "tables/show", analysis=key)
    again = open_screen(app, dict(parse_qsl(screen.state.query())))
    tables, page = again.records, regions(again)
    assert tables.manifest["images"]["name"] == "hf://datasets/user/photos:train"
    assert {len(record.texts) for record in tables.heads.values()} == {5}
    assert page["left"].count('class="cell') == len(tables.heads) == 16
    assert f"tables/{key}.zip" in page["left"]
    assert tables.head(again.state.head).texts[0].text in page["main"]
    submit_form(screen, "tables/show", analysis="")
    assert not screen.state.analysis
    monkeypatch.setattr("ccs.model.loading.footprint.free_memory", lambda: 10**9)
    with pytest.raises(InputError, match=r"needs about 1\.1 GB of memory, and this machine has 1\.0 GB free"):
        submit_form(screen, "analyze", images="synthetic scenes", count="20")


@pytest.mark.parametrize("free", [60, 30])
def test_zero_gpu_lends_a_gpu_or_the_cpu_computes(tmp_path, monkeypatch, python, free):
    """With a stub of the package `spaces` that refuses as it does, and one of Python that tells where."""

    def refuse(*_):
        raise gradio.Error("You have exceeded your GPU quota")

    def gpu(duration):
        return lambda work: refuse if duration > free else work

    python(f'echo "$CCS_DEVICE" > {tmp_path}/device')
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=gpu))
    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    monkeypatch.delenv("CCS_DEVICE", raising=False)
    doing = [words for _, words in analyses.compute_tables(request_for(count=1000), tmp_path)]
    assert (tmp_path / "device").read_text() == ("cuda\n" if free == 60 else "\n")
    assert ("no GPU is free for you now, so the CPU computes" in doing) == (free == 30)

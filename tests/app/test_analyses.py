"""Analyzing a model in the app: its request, tables, cancellation, and processes."""

import os
import re
import shutil
import subprocess
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
from ccs.batch.compute import __main__ as compute
from tests.support import app_sample
from tests.support.app_fixtures import RecordingJob, make_empty_app, open_screen, submit_form
from tests.support.compute_sample import fork
from tests.support.datasets_sample import image_cells, parquet_bytes


def request_for(images="world", count=20):
    return Request("tiny", "/models/tiny", "f" * 64, images, count, "world")


@pytest.fixture
def computed_requests(monkeypatch):
    """Replace the computation by one that writes sample tables; list its requests."""
    requests = []

    def compute(request, folder):
        requests.append(request)
        yield 0.5, "half"
        app_sample.write_app_results(folder, "tiny", "f" * 64)

    monkeypatch.setattr(analyses, "compute_tables", compute)
    return requests


def test_equal_requests_are_analyzed_once(tmp_path, computed_requests):
    store, request, progress = Analyses(tmp_path, Cache()), request_for(), []
    store.make(request, lambda *step: progress.append(step))
    assert progress == [(0.5, "Analyzing tiny: half")]
    records = store.records(request.key)
    restarted = Analyses(tmp_path, Cache())
    restarted.make(request, lambda *_: pytest.fail("computed again"))
    assert len(computed_requests) == 1
    assert request_for(count=30).key != request.key != request_for("hf://datasets/a/b").key
    shutil.unpack_archive(restarted.archive(request.key), tmp_path / "unpacked")
    unpacked = results.read_results(tmp_path / "unpacked" / "tiny")
    assert unpacked.table("scores").equals(records.table("scores"))


def test_analyses_run_one_at_a_time_and_cancel_cleanly(tmp_path, computed_requests):
    store, first, second, progress = Analyses(tmp_path, Cache()), request_for(), request_for(count=30), []
    waiting = threading.Thread(target=lambda: store.make(second, lambda *step: progress.append(step)))

    def cancel_first(share, doing):
        if not waiting.is_alive():
            waiting.start()
        while not progress:
            pass
        raise Canceled

    with pytest.raises(Canceled):
        store.make(first, cancel_first)
    waiting.join()
    assert {*progress} == {(0.0, "Waiting for another analysis"), (0.5, "Analyzing tiny: half")}
    with pytest.raises(InputError, match="have been deleted"):
        store.records(first.key)
    assert store.records(second.key)


@pytest.fixture
def replace_python(tmp_path, monkeypatch):
    """`replace_python(lines)`: run shell lines in place of the Python that computes."""

    def replace(lines):
        (tmp_path / "python").write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    return replace


def test_failed_or_canceled_analysis_ends_its_processes(tmp_path, replace_python):
    store = Analyses(tmp_path, Cache())
    replace_python("echo 'error: There is no model' >&2; exit 2")
    with pytest.raises(InputError, match="There is no model"):
        store.make(request_for(), lambda *_: None)
    pids = tmp_path / "pids"
    replace_python(
        f"""sleep 60 & echo $$ $! > {pids}; echo '{{"doing": "moments", "share": 0.5}}' >&2; wait"""
    )

    def cancel(share, doing):
        if "moments" in doing:
            raise Canceled

    with pytest.raises(Canceled):
        store.make(request_for(), cancel)
    for pid in pids.read_text().split():
        status = Path(f"/proc/{pid}/status")
        while status.exists() and "State:\tZ" not in status.read_text():
            pass


class ForkedCompute(fork.Process):
    """A fork of this process, which has imported PyTorch, in place of `python -m ccs.batch.compute`."""

    def __init__(self, command, *, cwd, stdout, **_):
        super().__init__(target=self.compute, args=(cwd, stdout.fileno(), command[5:]))
        self.start()

    def compute(self, folder, output, arguments):
        os.chdir(folder)
        with open(output, "w", buffering=1) as sys.stderr:
            os._exit(compute.main(arguments))

    def poll(self):
        return self.exitcode

    returncode = property(poll)


def test_analysis_of_hub_images_fills_grid(tiny_folder, tmp_path, hub, monkeypatch):
    hub.put("datasets", "user/photos", {"data/train-0000.parquet": parquet_bytes(image_cells(24))})
    app = make_empty_app(tiny_folder, tmp_path)
    popen = SimpleNamespace(Popen=ForkedCompute, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(analyses, "subprocess", popen)
    monkeypatch.setitem(analyses.DATASETS, "photos", "hf://datasets/user/photos:train")
    screen = open_screen(app, {"tab": "heads"})
    app.model_cache.get("tiny")
    with pytest.raises(InputError, match="There is no dataset 'uploads'"):
        submit_form(screen, "analyze", images="uploads", count="4")
    regions_after = submit_form(screen, "analyze", images="photos", count="4")(job := RecordingJob())
    assert any(doing.startswith("Analyzing tiny: ") for doing in job.steps)
    (key,) = re.findall(r'name="analysis" value="(\w+)"', regions_after["note"])
    hub.repositories.clear()  # the tables are stored
    submit_form(screen, "tables/show", analysis=key)
    reopened = open_screen(app, dict(parse_qsl(screen.state.query())))
    tables, page = reopened.records, regions(reopened)
    assert tables.manifest["images"]["name"] == "hf://datasets/user/photos:train"
    assert {len(record.texts) for record in tables.heads.values()} == {5}
    assert page["left"].count('class="cell') == len(tables.heads) == 16
    assert f"tables/{key}.zip" in page["left"]
    assert tables.head(reopened.state.head).texts[0].text in page["main"]
    submit_form(screen, "tables/show", analysis="")
    assert not screen.state.analysis
    monkeypatch.setattr("ccs.model.loading.footprint.free_memory", lambda: 10**9)
    with pytest.raises(InputError, match=r"needs about 1\.1 GB of memory, and this machine has 1\.0 GB free"):
        submit_form(screen, "analyze", images="synthetic scenes", count="20")


@pytest.mark.parametrize("free", [60, 30])
def test_analysis_uses_zero_gpu_or_falls_back_to_cpu(tmp_path, monkeypatch, replace_python, free):
    """Use stubs of the package `spaces`, which refuses long jobs, and of Python, which records the device."""

    def refuse(*_):
        raise gradio.Error("You have exceeded your GPU quota")

    def gpu(duration):
        return lambda work: refuse if duration > free else work

    replace_python(f'echo "$CCS_DEVICE" > {tmp_path}/device')
    monkeypatch.setitem(sys.modules, "spaces", SimpleNamespace(GPU=gpu))
    monkeypatch.setenv("SPACES_ZERO_GPU", "1")
    monkeypatch.delenv("CCS_DEVICE", raising=False)
    messages = [message for _, message in analyses.compute_tables(request_for(count=1000), tmp_path)]
    assert (tmp_path / "device").read_text() == ("cuda\n" if free == 60 else "\n")
    assert ("no GPU is free for you now, so the CPU computes" in messages) == (free == 30)

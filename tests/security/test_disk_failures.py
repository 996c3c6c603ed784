"""Disks that are full, read-only, or corrupt: files are complete, or an error explains the failure."""

import contextlib
import errno
import io
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

import ccs
from ccs import HeadSet, InputError, results
from ccs.batch.compute import inputs, stages
from ccs.cli import command_line
from ccs.data.open import open_images
from ccs.judges.caller import Cache
from ccs.model.export import export
from tests.support.compute_sample import fork
from tests.support.results_sample import make_manifest, sample_rows, write_sample_results
from tests.support.tiny_model import write_tiny_model

KEY = "0123456789abcdef" * 4

ANSWER_SCHEMA = {"type": "object", "required": ["fits"], "properties": {"fits": {"type": "boolean"}}}


def write_cache(folder, answers):
    with Cache.open(folder / "judges.sqlite") as cache:
        for number in range(answers):
            cache.put(KEY if not number else f"{number:064x}", "tags", {"fits": True})


def write_stage(folder):
    stage = stages.Store(folder, stages.Processes()).stage("moments", {"a": 1})
    stage.write({"x": np.arange(1000.0)})
    return stage.paths[0]


WRITERS = {
    "table": lambda folder, _: results.write_table(folder, "spans", sample_rows("organism")["spans"]),
    "manifest": lambda folder, _: results.write_manifest(folder, make_manifest("organism", {})),
    "model": lambda folder, model: export(model, HeadSet(), folder / "model"),
    "judge cache": lambda folder, _: write_cache(folder, 300),
    "stage": lambda folder, _: write_stage(folder),
}


def fill_disk():
    """Let no file grow, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def drop_privileges():
    """Become a user who may not write here; without root, this is already so."""
    if os.getuid() == 0:
        os.setresuid(*[65534] * 3)


@pytest.mark.parametrize("output", WRITERS)
@pytest.mark.parametrize("break_disk", [fill_disk, drop_privileges])
def test_write_failure_is_reported_and_leaves_no_files(break_disk, output, tiny_model, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    folder.chmod(0o555)

    def attempt():
        torch.set_num_threads(1)  # OpenMP's threads don't survive the fork
        break_disk()
        try:
            WRITERS[output](folder, tiny_model)
        except InputError as error:
            os._exit(7 if len(str(error)) < 500 else 8)

    (process := fork.Process(target=attempt)).start()
    process.join()
    assert process.exitcode == 7
    assert not [path for path in folder.rglob("*") if path.suffix == ".tmp" or path.name.startswith("tmp")]
    assert not list(folder.rglob("*.parquet"))


def read_results(folder):
    return {name: table.to_json() for name, table in results.read_results(folder / "m").tables.items()}


def read_cache(folder):
    with Cache.open(folder / "judges.sqlite") as cache:
        return cache.find_answer(KEY, ANSWER_SCHEMA)


def write_spans(folder):
    write_sample_results(folder, "m", only=("spans",))


def weights_hash(folder):
    return ccs.load(str(folder)).weights_hash


# file: (writer, pattern of its path, reader, whether a flipped bit may change the content unnoticed)
FILES = {
    "parquet": (write_spans, "spans.parquet", read_results, False),
    "manifest": (write_spans, "manifest.json", read_results, True),
    "weights": (write_tiny_model, "*.safetensors", weights_hash, True),
    "configuration": (write_tiny_model, "*config.json", weights_hash, True),
    "judge cache": (lambda folder: write_cache(folder, 20), "judges.sqlite", read_cache, True),
}


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_are_detected_or_harmless(name, tmp_path):
    """Half of the flips are in the first kilobyte, where headers are, half anywhere."""
    write, pattern, read, may_change = FILES[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder)
    expected, rng = read(folder), np.random.default_rng(5)
    (file,) = folder.rglob(pattern)
    data = file.read_bytes()
    for trial in range(8 if "weights" in name else 24):
        flipped, size = bytearray(data), min(len(data), 1024) if trial % 2 else len(data)
        flipped[rng.integers(size)] ^= 1 << int(rng.integers(8))
        file.write_bytes(flipped)
        with contextlib.suppress(InputError):
            assert (content := read(folder)) is None or may_change or content == expected


def test_file_names_with_invalid_unicode_are_read(tmp_path):
    image = tmp_path / "x.png"
    Image.new("RGB", (20, 20)).save(image)
    folder = os.fsencode(tmp_path) + b"/set/\xff\xfe"
    os.makedirs(folder)
    shutil.copy(os.fsencode(image), folder + b"/\xfe.png")
    Path(os.fsdecode(folder + b"/\xfd.png")).write_text("no image")
    shutil.copytree(folder, os.fsencode(tmp_path) + b"/set/b")
    os.unlink(os.fsencode(tmp_path) + b"/set/b/\xfd.png")
    for dataset in (ccs.open_images(str(tmp_path / "set")), ccs.open_dataset(str(tmp_path / "set"))):
        assert len(dataset.images) == 2
        assert dataset.skipped == (
            r"\udcff\udcfe/\udcfd.png: not an image of a known kind, such as JPEG or PNG",
        )
        dataset.source.encode()
    assert dataset.classes == (r"\udcff\udcfe", "b")


def test_run_requires_file_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks")))
    with pytest.raises(InputError, match="does not support this"), stages.locked(tmp_path):
        pass


def test_stage_is_written_without_fsync(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
    assert write_stage(tmp_path).is_file()


def test_image_deleted_during_run_is_named(tiny_model, tmp_path):
    for number in range(4):
        Image.new("RGB", (40, 40), (number, 0, 0)).save(tmp_path / f"{number}.png")
    images = open_images(str(tmp_path))
    (tmp_path / "2.png").unlink()
    for workers in (0, 1):
        with pytest.raises(InputError, match=r"Image 3 of 4 .* cannot be any more: .*2\.png"):
            list(inputs.load(tiny_model, images, [range(4)], batch=4, workers=workers))


def test_ascii_terminal_gets_escaped_output(monkeypatch):
    outputs = {name: io.TextIOWrapper(io.BytesIO(), "ascii") for name in ("stdout", "stderr")}
    for name, stream in outputs.items():
        monkeypatch.setattr(sys, name, stream)

    def print_and_fail():
        print("müß 桜")
        raise InputError("größer als 桜")

    assert command_line.run(print_and_fail) == 2
    output = [stream.buffer.getvalue() for stream in outputs.values() if not stream.flush()]
    assert output == [b"m\\xfc\\xdf \\u685c\n", b"error: gr\\xf6\\xdfer als \\u685c\n"]

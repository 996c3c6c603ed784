"""batch.compute.stages: what is done stays done, what is not whole is not trusted, one run at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest

from ccs.batch.compute.stages import STAGES, Processes, Stage, Store, locked
from ccs.errors import InputError

fork = multiprocessing.get_context("fork")


def open_store(folder: Path) -> Store:
    return Store(folder, Processes())


def fill(stage: Stage) -> None:
    for index in stage.mine():
        stage.write_arrays(index, {"x": np.full(3, index, dtype=np.float32)})
    stage.finish()


def test_what_is_not_what_its_name_says_or_has_another_input_is_made_again(tmp_path):
    store = open_store(tmp_path)
    stage = store.stage("world/faces", {"a": 1}, shards=3, suffix="safetensors")
    fill(stage)
    stage.paths[1].write_bytes(stage.paths[1].read_bytes()[:-1] + b"!")
    stage.paths[2].rename(stage.paths[2].with_name("00007" + stage.paths[2].name[5:]))
    (stage.folder / ".00000.1.tmp").write_text("half a shard")
    again = store.stage("world/faces", {"a": 1}, shards=3, suffix="safetensors")
    assert again.missing == (1, 2)
    assert not list(again.folder.glob("*.tmp"))
    fill(again)
    whole = store.stage("world/faces", {"a": 1}, shards=3, suffix="safetensors")
    assert whole.done
    assert whole.read_arrays(2)["x"].tolist() == [2, 2, 2]
    changed = store.stage("world/faces", {"a": 2}, shards=3, suffix="safetensors")
    assert changed.missing == (0, 1, 2)
    fill(changed)
    assert len(list(changed.folder.glob("*.safetensors"))) == 3


def test_a_record_that_cannot_be_read_is_an_absent_one(tmp_path):
    store = open_store(tmp_path)
    for name in ("moments", "spans"):
        fill(store.stage(name, {}, suffix="safetensors"))
    record = tmp_path / "moments" / "stage.json"
    for place in range(record.stat().st_size):
        whole = record.read_bytes()
        record.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])  # a flipped bit
        assert list(store.seconds()) == ["spans"]
        record.write_bytes(whole)


def test_the_second_run_says_so_and_stops(tmp_path):
    def hold(ready: Event, end: Event) -> None:
        with locked(tmp_path):
            ready.set()
            end.wait(20)

    ready, end = fork.Event(), fork.Event()
    holder = fork.Process(target=hold, args=(ready, end))
    holder.start()
    assert ready.wait(20)
    with pytest.raises(InputError, match="Another run is writing to"), locked(tmp_path):
        pass
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    with locked(tmp_path):  # a dead run holds nothing
        assert (tmp_path / STAGES / "lock").exists()

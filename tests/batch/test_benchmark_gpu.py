"""`python -m benchmarks.gpu` on a pretended GPU with a tiny model: every line runs and says what is true."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ccs
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import clicks, document, exact, lines, memory, sample, speed
from benchmarks.gpu.lines import Bench, Line
from ccs.model import sources
from ccs.model.model import Model
from ccs.model.tower import ImageTower
from tests.support import pretended

TINY = ("tiny",)
SMALL = {"compared": 6, "images": 40, "plans": 5, "files": 6, "ranked": 8, "faces": 4, "repeats": 1}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tiny_folder: Path, tmp_path: Path) -> Bench:
    """Of the device that is there, with the tiny model in place of all architectures."""

    def tiny(bench: Bench, name: str, device: Any = "", kind: torch.dtype | None = None) -> Model:
        precision = {None: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[kind]
        return ccs.load(str(tiny_folder), device=str(device or bench.device), precision=precision)

    monkeypatch.setattr(sample, "model", tiny)
    return Bench(sources.usable_device("cpu"), tmp_path, TINY, TINY, "tiny", **SMALL)  # type: ignore[arg-type]


def chosen() -> Sequence[Line]:
    return [*exact.lines(TINY), *speed.lines(TINY), *memory.lines(TINY)]


@pytest.mark.parametrize("kind", ["cpu", "pretended"])
def test_every_line_runs_and_exactness_holds(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "cpu":
        found = [line.look(bench) for line in chosen()]
    elif torch.cuda.is_available():
        pytest.skip("there is a real one")
    else:
        with pretended.gpu(monkeypatch):
            values = vars(bench) | {"device": sources.usable_device("cuda")}
            found = [line.look(Bench(**values)) for line in chosen()]
    asked = [one for one in found if one.verdict != lines.NEEDS_A_GPU]
    assert (len(asked) == len(found)) == (kind == "pretended")
    # Of a tiny model half precision, and any clock, may say anything; nothing may raise.
    assert [(one.title, one.words) for one in asked if one.value is None] == []
    exactly = [one for one in asked if one.part == "exactness" and "against float32" not in one.name]
    assert {one.verdict for one in [*exactly, asked[-1]]} == {"holds"}
    assert asked[-1].name == "recovery by halving"


def test_a_wrong_figure_fails_and_a_line_that_breaks_does_not_end_the_others(bench: Bench) -> None:
    def broken(bench: Bench) -> float:
        raise RuntimeError("CUDA error: device-side assert triggered")

    found = [
        Line("a", "b", "c", 1.0, work).look(bench)
        for work in (lambda _: 2.0, broken, lambda _: (1.0, "fine"))
    ]
    assert [one.verdict for one in found] == ["fails", "fails", "holds"]
    assert "device-side assert" in found[1].words
    assert found[1].value is None


def test_the_command_keeps_each_line_and_names_those_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "seen.json"
    known.write_text("{}")
    monkeypatch.setattr(lines, "SEEN", known)
    made = [Line("speed", name, "of a plain pass", 1.0, lambda _: 2.0) for name in ("one", "two")]
    monkeypatch.setattr(command, "every", lambda: made)
    assert command.main(["--out", str(tmp_path / "out"), "--device", "cpu"]) == 1
    said = capsys.readouterr().out
    assert "Never seen on a GPU: 2 of 2 lines" in said
    run = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert [one["verdict"] for one in run["lines"]] == ["fails", "fails"]
    lines.keep(run)
    assert lines.seen() == {}  # it was a CPU
    lines.keep(run | {"gpu": True, "device": "H100", "lines": run["lines"][:1]})
    table = lines.table(made, lines.seen())
    assert "| speed: one | at most 1 of a plain pass | 2.0, fails (H100, " in table
    assert "| speed: two | at most 1 of a plain pass | never seen |" in table
    assert command.main(["--out", str(tmp_path / "out"), "--device", "abacus"]) == 2


def test_what_is_missing_is_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    gone = ("open_clip", "emoji")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in gone else find(name))
    assert command.main(["--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Not installed here: emoji, open_clip_torch; ")


def test_the_document_holds_every_line_and_the_counts() -> None:
    assert {line.part for line in command.every()} == {*command.PARTS} > {clicks.PART}
    assert lines.table(command.every(), lines.seen()) in document.DOCUMENT.read_text("utf-8")


def test_costs_are_those_of_the_arithmetic(tiny_model: Model) -> None:
    """A matrix product by hand, and a tower on `meta` like one with values."""
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    assert document.cost(lambda: (a @ b).T) == [(2 * 3 * 5 * 7, 4 * (15 + 35 + 21))]
    assert document.least([(10.0, 1.0), (1.0, 8.0)], 2.0, 4.0) == 5.0 + 2.0
    tower, x = tiny_model.tower, torch.zeros(2, 3, 32, 32)
    here = document.total(document.cost(lambda: tower.embed(x)))
    there = ImageTower(copy.deepcopy(tower.visual).to("meta"))
    assert here == document.total(document.cost(lambda: there.embed(x.to("meta")))) > 1e6
    assert np.isfinite(here)

"""The command that finds heads and scores methods: what it says, how it refuses."""

import re
from pathlib import Path

from ccs import benchmark
from ccs.batch import localize
from ccs.benchmark import protocol
from ccs.locate import DEFAULT
from tests.benchmark.test_scoring import NAME, small  # noqa: F401 - a fixture for all tests here


def test_ten_lines_say_which_heads_and_how_sure_then_which_tower(tiny_folder, capsys, monkeypatch):
    monkeypatch.setattr(protocol, "RANDOM_SETS", 4)
    asked = ["--max-images", "40", "--attribute", "gender", "--encoders", "both"]
    assert localize.main(["--model", str(tiny_folder), *asked]) == 0
    heads, _, towers = capsys.readouterr().out.partition("Of the lean of 20 occupations' rankings by gender")
    lines = heads.strip().splitlines()
    assert len(lines) <= 10
    assert lines[0].endswith("world/faces by gender")
    assert re.match(rf"Method: {DEFAULT}\. On \d+ small models .*, on \d+ that .*\(at random 0\.", lines[1])
    assert re.match(r"Heads to look at, first to last: (L\d\.H\d ?)+$", lines[2])
    assert "300 people, 10 prompts" in lines[3]
    assert re.search(r"random sets, as many heads of each layer: MaxSkew [+-]0\.\d{3} on average", lines[7])
    assert re.match(r", [01]\.\d\d.* in the images", towers)
    assert "the pictures of world/counterfactuals take" in towers


def test_a_method_of_ones_own_is_scored_and_another_that_fails_stops_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("theirs.py").write_text(
        "def last(evidence):\n    return {head: head.layer for head in evidence.model.heads}\n"
        "def fails(evidence):\n    raise ValueError('no')\n"
    )
    command = ["--models", NAME, "--splits", "1", "--attribute", "gender", "--cells", "cells.parquet"]
    some = ["--method", "theirs:fails", "--method", "theirs:last", "--method", "random"]
    assert localize.main([*command, *some]) == 2
    said = capsys.readouterr()
    assert "The method theirs:fails failed: ValueError: no (theirs.py, line 4)." in said.err
    assert re.search(r"^ *theirs:last +0\.\d\d", said.out, re.MULTILINE)
    assert re.search(r"^ *planted heads +the truth +1\.00", said.out, re.MULTILINE)
    assert set(benchmark.kept(Path("cells.parquet"))["method"]) == {"planted heads", "random", "theirs:last"}
    assert localize.main([*command, "--method", "random"]) == 0
    assert capsys.readouterr().out.startswith("1 model in which it is known which heads carry a skew;")

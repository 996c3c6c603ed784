"""The command that finds heads: what it says."""

import re

from ccs.analysis import localize as question
from ccs.analysis.carriers import DEFAULT
from ccs.batch import localize


def test_ten_lines_say_which_heads_and_how_sure_then_which_encoder(tiny_folder, capsys, monkeypatch):
    monkeypatch.setattr(question, "RANDOM_SETS", 4)
    asked = ["--max-images", "40", "--attribute", "gender", "--encoders", "both"]
    assert localize.main(["--model", str(tiny_folder), *asked]) == 0
    heads, _, shares = capsys.readouterr().out.partition(
        "Group score gap of 20 occupations' rankings by gender"
    )
    lines = heads.strip().splitlines()
    assert len(lines) <= 22
    assert lines[0].endswith("world/faces by gender")
    assert re.match(
        rf"Method: {DEFAULT}\. On small models .* is 0\.\d\d \(random 0\.\d\d\); on models", lines[1]
    )
    assert re.match(r"Heads, most likely first: (L\d\.H\d ?)+$", lines[2])
    assert "600 people, 10 prompts" in lines[3]
    assert re.search(r"random sets with as many .* change MaxSkew by [+-]0\.\d{3} on average", lines[6])
    assert lines[7].startswith("Change of the general and the occupation-specific preference")
    assert lines[9].split() == ["ablated", "general", "part", "specific", "part", "moves"]
    assert lines[10].split()[0] in lines[2]
    assert re.match(r": [01]\.\d\d.* in the images", shares)
    assert "images of world/counterfactuals replace the prompts" in shares

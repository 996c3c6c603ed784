"""The command that finds heads: what it says."""

import re
from dataclasses import replace

import numpy as np

import ccs
from ccs.analysis import localize as question
from ccs.analysis.carriers import DEFAULT
from ccs.batch import localize


def test_ten_lines_say_which_heads_and_how_sure(tiny_folder, capsys, monkeypatch):
    monkeypatch.setattr(question, "RANDOM_SETS", 4)
    options = ["--max-images", "40", "--attribute", "gender"]
    assert localize.main(["--model", str(tiny_folder), *options]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) <= 22
    assert lines[0].endswith("world/faces by gender")
    assert re.match(
        r"Is there any bias\? Yes: the group score gap is 0\.\d+, by chance 0\.\d+ \(p = 0", lines[1]
    )
    assert re.match(
        rf"Method: {DEFAULT}\. On small models .* is 0\.\d\d \(random 0\.\d\d\); on models", lines[2]
    )
    assert re.match(r"Heads, most likely first: (L\d\.H\d ?)+$", lines[3])
    assert "600 people, 10 prompts" in lines[4]
    assert re.search(r"random sets with as many .* change MaxSkew by [+-]0\.\d{3} on average", lines[7])
    assert lines[8].startswith("Change of the general and the occupation-specific preference")
    assert lines[9].split() == ["heads", "general", "part", "specific", "part", "moves"]
    assert lines[10].split()[0] in lines[3]


def test_without_evidence_of_bias_no_head_is_named(tiny_model):
    """People whose groups are shuffled: what a method ranks first is noise."""
    gallery = ccs.open_gallery("world/faces")
    shuffled = np.random.default_rng(0).permutation(gallery.groups["gender"])
    mixed = replace(gallery, name="mixed", groups={"gender": shuffled})
    table = ccs.localize(
        tiny_model, mixed, method="total effect", preserve=ccs.open_dataset("world/subjects", max_images=40)
    )
    assert (table.is_biased, table.heads) == (False, ())
    assert table.gap.p_value > 0.05
    assert "No evidence of bias" in localize.format_carriers(table)
    assert "no evidence of bias" in repr(table)

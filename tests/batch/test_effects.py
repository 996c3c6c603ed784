"""Total effects of single heads in the tables, against a copy of the weights without the head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ccs
from ccs import results
from ccs.measures import accuracy as zeroshot
from ccs.model.export import zeroed
from ccs.sets.open import open_set
from tests.support.compute_sample import run, small_pool


def test_a_heads_total_effect_is_what_is_lost_without_it(tiny_folder: Path, tmp_path: Path) -> None:
    args = ["--model", str(tiny_folder), "--texts", str(small_pool(tmp_path)), "--out", str(tmp_path)]
    args += ["--k", "2", "--set", "world/colors", "--eval-images", "40", "--max-images", "60"]
    assert run([*args, "--random-sets", "2"]) == 0
    rows = results.read(tmp_path / "tiny").table("heads").set_index(["layer", "head"])
    model, data = ccs.load(str(tiny_folder)), open_set("world/colors", max_images=40)
    assert len(rows) == len(model.heads)
    assert set(rows["measure"]) == {"total effect"}
    weights = zeroshot.class_weights(model, data.classes, data.templates)
    head, images = ccs.Head(5, 3), [data.images[i] for i in range(40)]
    changed = zeroed(model, ccs.HeadSet([head]))
    right = [(model.embed_images(images) @ weights.T).argmax(axis=1) == data.labels]
    model.clip.load_state_dict(changed)
    right.append((model.embed_images(images) @ weights.T).argmax(axis=1) == data.labels)
    assert rows.loc[(5, 3), "value"] == pytest.approx(np.mean(right[1]) - np.mean(right[0]), abs=1e-9)
    assert (rows["q_value"].dropna() >= rows["p_value"].dropna() - 1e-12).all()

"""Direct effects of single heads in the tables, against contributions subtracted image by image."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ccs
from ccs import results
from ccs.measures import accuracy as zeroshot
from ccs.measures import bias
from ccs.specs import open_set
from tests.support.compute_sample import run, small_pool

IMAGES = 40


@pytest.fixture(scope="module")
def tables(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> results.Results:
    """The tables of a small run; shards of 16, so that contributions lie in several."""
    out = tmp_path_factory.mktemp("out")
    args = ["--model", str(tiny_folder), "--texts", str(small_pool(out)), "--out", str(out), "--k", "2,3"]
    args += ["--set", "world/colors", "--set", "world/faces", "--eval-images", str(IMAGES)]
    args += ["--max-images", "60", "--shard", "16", "--random-sets", "2"]
    assert run(args) == 0
    return results.read(out / "tiny")


@functools.cache
def contributions(model, name):
    data = open_set(name, max_images=IMAGES)
    return data, *model.contributions([data.images[i] for i in range(len(data.images))])


def reference(model, heads):
    """Embeddings of both sets with all heads on, and with the contributions of these subtracted, by hand."""
    found = {}
    for name in ("world/colors", "world/faces"):
        data, parts, remainder = contributions(model, name)
        rows = []
        for image in range(len(parts)):
            whole = parts[image].astype(np.float64).sum(axis=(0, 1)) + remainder[image]
            left = whole - sum(parts[image, head.layer, head.head].astype(np.float64) for head in heads)
            rows.append((whole / np.linalg.norm(whole), left / np.linalg.norm(left)))
        found[name] = data, np.array([one for one, _ in rows]), np.array([two for _, two in rows])
    return found


def changes(model, heads):
    """The direct effect of these heads on accuracy and on the mean MaxSkew of both attributes."""
    both = reference(model, heads)
    data, whole, left = both["world/colors"]
    weights = zeroshot.class_weights(model, data.classes, data.templates)
    right = [float((np.argmax(part @ weights.T, axis=1) == data.labels).mean()) for part in (whole, left)]
    found = {("world/colors", "top1", ""): right[1] - right[0]}
    data, whole, left = both["world/faces"]
    prompts = zeroshot.class_weights(model, data.occupations, data.templates)
    for attribute, groups in data.groups.items():
        k = data.k[attribute]
        skews = [bias.measure(part, prompts, groups, k).max_skew.mean.value for part in (whole, left)]
        found["world/faces", "MaxSkew mean", attribute] = skews[1] - skews[0]
    return found


def by_place(rows: pd.DataFrame, column: str) -> dict[tuple[str, str, str], float]:
    return {(r["dataset"], r["metric"], r["factor"]): r[column] for _, r in rows.iterrows()}


def test_a_heads_direct_effect_is_its_contribution_subtracted(tables, tiny_model):
    for head in (ccs.Head(2, 1), ccs.Head(5, 3)):
        rows = tables.table("heads").query(
            f"layer == {head.layer} and head == {head.head} and measure == 'direct effect'"
        )
        assert by_place(rows, "value") == pytest.approx(changes(tiny_model, [head]), abs=1e-5)

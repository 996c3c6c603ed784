"""The table bias holds each group's share of each occupation's top K, counted one image at a time here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from batch.compute import measure
from ccs.datasets import BiasSet
from ccs.heads import HeadSet
from ccs.measures import accuracy as zeroshot
from ccs.model.model import Model
from ccs.plans import Plan
from ccs.results import schema

OCCUPATIONS, TEMPLATES, K = ("cook", "judge", "pilot"), ("a {}",), 6


def test_shares_are_the_counts_of_the_ranking(
    tiny_model: Model, pictures: Callable[[int], list[Image.Image]]
) -> None:
    images = pictures(20)
    groups = np.array((["a"] * 3 + ["b"] * 2) * 4)
    data = BiasSet(
        name="toy", images=images, fingerprint="", source="", groups={"kind": groups}, k={"kind": K},
        occupations=OCCUPATIONS, templates=TEMPLATES,
    )  # fmt: skip
    off = HeadSet.parse("L4.H1 L5.H2")
    plans = [
        Plan("none", None, HeadSet(), ""),
        Plan("high", None, off, ""),
        Plan("single:L5.H2", None, HeadSet.parse("L5.H2"), ""),
    ]
    embedded = tiny_model.embed_images(images, [plan.off for plan in plans])
    texts = measure.embed_texts(tiny_model, data)
    _, rows = measure.rows(texts, data, plans, lambda index: embedded[index], 0, as_published=True)
    shares = [row for row in rows if row["metric"].startswith(schema.TOP_SHARE)]
    assert len(shares) == 2 * 2 * 3  # plans, groups, occupations
    prompts = zeroshot.class_weights(tiny_model, OCCUPATIONS, TEMPLATES)
    for row in shares:
        plan = [plan.name for plan in plans].index(row["plan"])
        scores = embedded[plan] @ prompts[OCCUPATIONS.index(row["occupation"])]
        best = sorted(range(20), key=lambda image: -scores[image])[:K]
        group = row["metric"].removeprefix(schema.TOP_SHARE)
        assert row["value"] == pytest.approx(np.mean([groups[image] == group for image in best]))
        assert row["chance"] == {"a": 0.6, "b": 0.4}[group]
        assert row["chance_low"] <= row["chance"] <= row["chance_high"]
        assert row["difference"] == pytest.approx(row["value"] - row["baseline"])

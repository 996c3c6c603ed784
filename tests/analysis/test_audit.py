"""The audit's numbers against `ccs.bias`, `ccs.accuracy`, and plain loops."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import ccs
from ccs import HeadSet
from ccs.analysis.bias import rank_gallery
from ccs.analysis.inputs import cross_groups, embed_occupations
from ccs.analysis.preference import measure_part_changes
from ccs.metrics.ranking import cosines
from ccs.texts.prompts import load_prompts
from tests.support.bias_sample import reference_skews

CROSSED, OFF = "gender,skin tone", "L5.H0 L6.H1"


@pytest.fixture(scope="module")
def model():
    return ccs.load("organism")


@pytest.fixture(scope="module")
def gallery():
    return ccs.open_gallery("world/faces")


@pytest.fixture(scope="module")
def result(model, gallery):
    return ccs.audit(model, gallery, dataset="world/occupations", prompts=["gallery", "traits"], ablate=OFF)


def test_rankings_are_those_of_bias(model, gallery, result):
    rows = result.section("ranking").set_index(["attribute", "prompts", "metric"])
    for attribute, prompts in (("skin tone", None), ("gender", "traits"), (CROSSED, None)):
        table = ccs.bias(model, gallery, attribute=attribute, prompts=prompts, ablate=OFF)
        title = load_prompts(prompts).title if prompts else "occupations of world/faces"
        for metric in ("MaxSkew", "NDKL", "AUC", "logit gap"):
            mean, row = table.of(metric).loc["mean"], rows.loc[(attribute, title, metric)]
            columns = ["before", "after", "low", "high"]
            assert row[columns].tolist() == pytest.approx(mean[columns].tolist(), abs=1e-9)


def test_each_ablated_head_moves_a_part_of_the_preference(model, gallery, result):
    assert list(result.parts["heads"].unique()) == ["L5.H0 L6.H1", "L5.H0", "L6.H1"]
    row = result.parts.query("attribute == 'skin tone' and heads == 'L6.H1'").iloc[0]
    units = model.embed_images(list(gallery.images), [HeadSet(), HeadSet.parse("L6.H1")])
    ranking = rank_gallery(gallery, "skin tone", embed_occupations(model, gallery))
    (change,) = measure_part_changes([cosines(ranking.prompts, of) for of in units], ranking)
    assert [row["general"], row["specific"]] == pytest.approx([change.general.value, change.specific.value])
    assert row["moves"] == change.moves


def test_accuracy_is_that_of_accuracy(model, result):
    table = ccs.accuracy(model, "world/occupations", ablate=OFF).rows
    assert result.section("accuracy")["after"].tolist() == [table["after"][0]]
    assert result.section("worst class")["after"].item() == table["after"][1:].min()


def test_max_skew_of_crossed_groups_is_a_plain_count(model, gallery, result):
    pairs = list(zip(*(gallery.groups[name].tolist() for name in ("gender", "skin tone")), strict=True))
    images, pool, skews = model.embed_images(list(gallery.images)), Counter(pairs), []
    for occupation in gallery.occupations:
        prompts = [template.replace("{}", occupation) for template in gallery.templates]
        text = model.embed_texts(prompts).mean(axis=0)
        ranked = sorted(range(len(pairs)), key=lambda index: -float(images[index] @ text))
        skews.append(max(reference_skews([pairs[index] for index in ranked], pool, 60).values()))
    rows = result.section("ranking")
    row = rows[(rows["attribute"] == CROSSED) & (rows["metric"] == "MaxSkew")].iloc[0]
    assert row["before"] == pytest.approx(np.mean(skews), abs=1e-6)


def test_harm_rates_are_plain_counts(model, gallery):
    harms = load_prompts("clip-harms")
    result = ccs.audit(model, gallery, prompts="gallery", attributes=["gender"]).section("harm")
    texts = ["man", "woman", *harms.names]
    units = model.embed_texts([f"a photo of a {text}" for text in texts])
    nearest = (model.embed_images(list(gallery.images)) @ units.T).argmax(axis=1)
    for category, classes in harms.categories.items():
        hits = np.array([texts[index] in classes for index in nearest])
        for group in ("man", "woman"):
            row = result[(result["prompts"] == category) & (result["group"] == group)].iloc[0]
            assert row["after"] == hits[gallery.groups["gender"] == group].mean()
            assert row["low"] <= row["after"] <= row["high"]


def test_names_encoded_identically_and_small_groups_are_reported(model, gallery):
    hats = np.where(
        np.arange(len(gallery.images)) < 9, "tall", "other"
    )  # words that the organism doesn't know
    result = ccs.audit(
        model, replace(gallery, groups={"hat": hats}, k={"hat": 60}), prompts="traits", attributes=["hat"]
    )
    groups = result.alike["Harm categories of the CLIP paper by hat"]
    (group,) = (names for names in groups if "tall person" in names)
    assert {"other person", "suspicious person"} <= set(group)
    texts = model.embed_texts([f"a photo of a {name}" for name in group])
    assert np.ptp(texts, axis=0).max() < 1e-6
    (warning,) = result.about["warnings"]
    assert warning.startswith("hat: Too few images per group for bias: 9.")
    assert result.about["k"] == {"hat": 60}
    assert result.flat()["attributes"].tolist() == [["hat"]] * len(result.rows)


def test_small_crossed_groups_are_left_out_and_reported(gallery):
    tones = gallery.groups["skin tone"].copy()
    rare = np.flatnonzero(gallery.groups["gender"] == "man")[:4]
    tones[rare] = "blue"
    crossed, left_out = cross_groups(replace(gallery, groups={**gallery.groups, "skin tone": tones}), CROSSED)
    assert left_out == {"man, blue": 4}
    assert len(crossed.images) == len(crossed.groups[CROSSED]) == len(gallery.images) - 4
    remaining = np.delete(np.arange(len(gallery.images)), rare)
    assert np.array_equal(np.asarray(crossed.images[5]), np.asarray(gallery.images[int(remaining[5])]))

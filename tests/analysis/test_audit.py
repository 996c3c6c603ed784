"""The audit's numbers against `ccs.bias`, `ccs.accuracy`, and plain loops."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import ccs
from ccs.analysis.bias import rank_gallery
from ccs.analysis.inputs import cross_groups, embed_occupations
from ccs.analysis.preference import measure_part_changes
from ccs.metrics.ranking import cosines
from ccs.texts.prompts import load_prompts
from tests.support.bias_sample import reference_skews

CROSSED, ABLATED = "gender,skin tone", "L4.H0 L5.H1"


@pytest.fixture(scope="module")
def dataset():
    return ccs.open_dataset("world/occupations", max_images=60)


@pytest.fixture(scope="module")
def result(tiny_model, faces, dataset):
    return ccs.audit(tiny_model, faces, dataset=dataset, prompts=["gallery", "traits"], ablate=ABLATED)


def test_audit_rankings_match_bias(tiny_model, faces, result):
    rows = result.section("ranking").set_index(["attribute", "prompts", "metric"])
    for attribute, prompts in (("skin tone", None), ("gender", "traits"), (CROSSED, None)):
        table = ccs.bias(tiny_model, faces, attribute=attribute, prompts=prompts, ablate=ABLATED)
        title = load_prompts(prompts).title if prompts else "occupations of world/faces"
        for metric in ("MaxSkew", "NDKL", "AUC", "logit gap"):
            mean, row = table.of(metric).loc["mean"], rows.loc[(attribute, title, metric)]
            columns = ["before", "after", "low", "high"]
            assert row[columns].tolist() == pytest.approx(mean[columns].tolist(), abs=1e-6)


def test_audit_reports_preference_change_of_each_head(tiny_model, faces, result):
    assert list(result.parts["heads"].unique()) == [ABLATED, *ABLATED.split()]
    row = result.parts.query("attribute == 'skin tone' and heads == 'L5.H1'").iloc[0]
    units = tiny_model.embed_images(list(faces.images), [ccs.HeadSet(), ccs.HeadSet.parse("L5.H1")])
    ranking = rank_gallery(faces, "skin tone", embed_occupations(tiny_model, faces))
    (change,) = measure_part_changes([cosines(ranking.prompts, of) for of in units], ranking)
    expected = [change.general.value, change.specific.value]
    assert [row["general"], row["specific"]] == pytest.approx(expected, abs=1e-6)
    assert row["moves"] == change.moves


def test_audit_accuracy_matches_accuracy(tiny_model, dataset, result):
    table = ccs.accuracy(tiny_model, dataset, ablate=ABLATED).rows
    assert result.section("accuracy")["after"].tolist() == [table["after"][0]]
    assert result.section("worst class")["after"].item() == table["after"][1:].min()


def test_max_skew_of_crossed_groups_matches_plain_count(tiny_model, faces, result):
    pairs = list(zip(*(faces.groups[name].tolist() for name in ("gender", "skin tone")), strict=True))
    images, pool, skews = tiny_model.embed_images(list(faces.images)), Counter(pairs), []
    for occupation in faces.occupations:
        prompts = [template.replace("{}", occupation) for template in faces.templates]
        text = tiny_model.embed_texts(prompts).mean(axis=0)
        ranked = sorted(range(len(pairs)), key=lambda index: -float(images[index] @ text))
        skews.append(max(reference_skews([pairs[index] for index in ranked], pool, 15).values()))
    rows = result.section("ranking")
    row = rows[(rows["attribute"] == CROSSED) & (rows["metric"] == "MaxSkew")].iloc[0]
    assert row["before"] == pytest.approx(np.mean(skews), abs=1e-6)


def test_harm_rates_match_plain_counts(faces):
    model, harms = ccs.load("organism"), load_prompts("clip-harms")
    result = ccs.audit(model, faces, prompts="gallery", attributes=["gender"]).section("harm")
    texts = ["man", "woman", *harms.names]
    units = model.embed_texts([f"a photo of a {text}" for text in texts])
    nearest = (model.embed_images(list(faces.images)) @ units.T).argmax(axis=1)
    for category, classes in harms.categories.items():
        hits = np.array([texts[index] in classes for index in nearest])
        for group in ("man", "woman"):
            row = result[(result["prompts"] == category) & (result["group"] == group)].iloc[0]
            assert row["after"] == hits[faces.groups["gender"] == group].mean()
            assert row["low"] <= row["after"] <= row["high"]


def test_audit_reports_identical_names_and_small_groups(faces):
    """The organism knows none of the words `tall`, `other`, and `suspicious`."""
    model, hats = ccs.load("organism"), np.where(np.arange(150) < 9, "tall", "other")
    hatted = replace(faces, groups={"hat": hats}, k={"hat": 15})
    result = ccs.audit(model, hatted, prompts="traits", attributes=["hat"])
    groups = result.alike["Harm categories of the CLIP paper by hat"]
    (group,) = (names for names in groups if "tall person" in names)
    assert {"other person", "suspicious person"} <= set(group)
    texts = model.embed_texts([f"a photo of a {name}" for name in group])
    assert np.ptp(texts, axis=0).max() < 1e-6
    (warning,) = result.about["warnings"]
    assert warning.startswith("hat: Too few images per group for bias: 9.")
    assert result.flat()["attributes"].tolist() == [["hat"]] * len(result.rows)


def test_small_crossed_groups_are_excluded_and_reported(faces):
    tones = faces.groups["skin tone"].copy()
    rare = np.flatnonzero(faces.groups["gender"] == "man")[:4]
    tones[rare] = "blue"
    crossed, excluded = cross_groups(replace(faces, groups={**faces.groups, "skin tone": tones}), CROSSED)
    assert excluded == {"man, blue": 4}
    assert len(crossed.images) == len(crossed.groups[CROSSED]) == len(faces.images) - 4
    remaining = np.delete(np.arange(len(faces.images)), rare)
    assert np.array_equal(np.asarray(crossed.images[5]), np.asarray(faces.images[int(remaining[5])]))

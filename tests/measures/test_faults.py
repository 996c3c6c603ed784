"""The two faults of the released code, and their effect on the figures that the study prints."""

import csv

import numpy as np
import pytest

from ccs.measures import bias, ranking, skew
from ccs.measures.ranking import Ranking
from ccs.sets import SOURCES
from tests.support.bias_sample import example
from tests.support.shared import SHARED

FAIRFACE = "data/fairface_label_val.csv"

RACES_SIX = SOURCES["fairface-1.25"].renames


def test_order_fault_divides_by_another_groups_share():
    images, texts, _ = example(n=300)
    groups = np.array(["white"] * 200 + ["black"] * 30 + ["asian"] * 70)
    found = bias.measure(images, Ranking(texts, groups, 50), fault="order", draws=40)
    assert found.mode == "as-published"
    # Alphabetical counts (asian, black, white) over shares in order of appearance (white, black, asian).
    shares = np.array([200, 30, 70]) / 300
    with np.errstate(divide="ignore"):
        expected = np.log(found.top / 50 / shares).max(axis=1)
    assert found.max_skew.values == pytest.approx(expected)
    assert set(found.metrics) == {"MaxSkew"}


def test_the_code_ranks_one_list_of_an_occupation_under_every_group():
    """SocialCounterfactuals as the released code reads it: one list, under the name of each group."""
    rng = np.random.default_rng(2)
    images = np.repeat(rng.standard_normal((12, 8)), 5, axis=0) + 1e-4 * rng.standard_normal((60, 8))
    occupations, names = ["judge", "chef", "nurse"], ["asian", "black", "white"]
    groups, shown = np.array(names * 20), np.arange(60) // 3 % 3
    texts = rng.standard_normal((3, 8))
    asked = Ranking(texts, groups, 9, shown == np.arange(3)[:, None])
    found = bias.measure(images, asked, fault="aliased", draws=40)
    pictures, prompts = (ranking.unit(x, "x").astype(np.float16).astype(np.float64) for x in (images, texts))
    scores = (prompts @ pictures.T).astype(np.float32).astype(np.float16)
    for row in range(len(occupations)):
        lists = [[]] * len(names)  # not three lists, but one
        for image in np.flatnonzero(shown == row):
            lists[names.index(groups[image])].append(image)
        ranked = [(float(scores[row, image]), group) for group in range(3) for image in lists[group]]
        ranked.sort(key=lambda pair: pair[0], reverse=True)
        shares = [len(one) / sum(map(len, lists)) for one in lists]
        tops = [sum(group == g for _, group in ranked[:9]) / 9 for g in range(3)]
        skews = [np.log(top / share) for top, share in zip(tops, shares, strict=True) if top]
        assert found.max_skew.values[row] == pytest.approx(max(skews))
    assert found.max_skew.values.any()


@pytest.mark.parametrize(("margin", "same"), [(skew._HALVING, True), (0, False)])
def test_images_that_rounding_cannot_bring_to_the_top_are_left_out(margin, same, monkeypatch):
    """Against all images; without the margin the counts would differ."""
    rng = np.random.default_rng(3)
    images, texts = rng.standard_normal((4000, 32)), rng.standard_normal((40, 32))
    images[:3000] = texts[rng.integers(0, 40, 3000)] + 0.4 * images[:3000]
    slow = skew.aliased_top(images, texts, np.zeros((40, 4000)), 6, 12)
    monkeypatch.setattr(skew, "_HALVING", margin)
    fast = skew.aliased_top(images, texts, ranking.cosines(texts, images), 6, 12)
    assert (fast == slow).all() == same


@pytest.mark.shared(FAIRFACE)
def test_random_rankings_of_fairface_score_what_the_study_prints():
    """Without the fault about 10 in sum over 104 occupations at K = 900, with it about 56."""
    with (SHARED / FAIRFACE).open(newline="") as file:
        races = [row["race"] for row in csv.DictReader(file)]
    groups = np.array([RACES_SIX[race] for race in races])
    assert len(groups) == 10_954
    rng = np.random.default_rng(0)
    images, texts = rng.standard_normal((10_954, 64)), rng.standard_normal((104, 64))
    settings = {"metrics": ("MaxSkew",), "draws": 40}
    correct = bias.measure(images, Ranking(texts, groups, 900), **settings).max_skew
    faulty = bias.measure(images, Ranking(texts, groups, 900), fault="order", **settings).max_skew
    assert correct.values.sum() == pytest.approx(10.3, abs=1.5)
    assert 104 * correct.chance_mean.value == pytest.approx(10.3, abs=0.3)
    assert faulty.values.sum() == pytest.approx(56, abs=2.5)
    assert 104 * faulty.chance_mean.value == pytest.approx(56, abs=1)

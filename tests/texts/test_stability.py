"""Stability: the inputs of each variant, and the fall to chance of scores without meaning."""

from __future__ import annotations

import pytest

from ccs import Head
from ccs.texts import stability
from ccs.texts.labels import chance_by_tags, score_by_tags
from ccs.texts.pools import make_pool
from ccs.texts.textspan import Span

TAGS = ("Birds", "Animals", "Colors", "Places", "Landmarks", "Food", "Men", "Women")
POOL = make_pool("p", ((f"{tag} {i}", tag) for tag in TAGS for i in range(10)))


def spans(*tags):
    return {Head(0, 0): tuple(Span(f"{tag} {i}", 0.1, 0) for i, tag in enumerate(tags))}


def scored(levels, *tags):
    (found,) = score_by_tags(spans(*tags), POOL, levels).values()
    return found.label, found.ccs


def test_so_many_levels_above_a_tag_count():
    tags = ("Birds", "Birds", "Animals", "Animals", "Food")
    assert scored(None, *tags) == ("Animals", 4)
    assert scored(0, *tags)[1] == 2
    assert scored(1, *tags) == ("Animals", 4)
    # Landmarks are Locations are Places are Backgrounds.
    places = ("Landmarks", "Landmarks", "Landmarks", "Places", "Places")
    assert scored(1, *places) == ("Landmarks", 3)
    assert scored(2, *places) == ("Places", 5)


def test_every_variant_is_given_its_part_of_images_and_texts():
    asked = []

    def choose(shards, texts):
        asked.append((tuple(shards), tuple(texts)))
        return {Head(0, 0): tuple(Span(POOL.texts[i], 0.1, i) for i in texts[:5])}

    found = list(stability.variants(choose, 8, POOL, 5, 0))
    assert [one.kind for one in found] == [
        *["images, half"] * 4, *["images, fewer"] * 2, *["pool"] * stability.POOLS, *["tree"] * 3,
        *["tags"] * stability.TAGS,
    ]  # fmt: skip
    assert {one.kind for one in found} == set(stability.KINDS)
    halves = [set(shards) for shards, _ in asked[:4]]
    assert all(len(half) == 4 for half in halves)
    assert halves[0] | halves[1] == halves[2] | halves[3] == set(range(8))
    assert [len(shards) for shards, _ in asked[4:6]] == [1, 2]
    sizes = [len(texts) for _, texts in asked[6 : 6 + stability.POOLS]]
    assert sum(sizes) / len(sizes) == pytest.approx(0.632 * len(POOL), rel=0.1)
    assert len(set(asked)) == len(asked)


def test_dealt_tags_score_as_random_texts_do():
    pure = {Head(0, h): tuple(Span(f"{tag} {i}", 0.1, 0) for i in range(5)) for h, tag in enumerate(TAGS)}
    found = list(stability.variants(lambda *_: pure, 1, POOL, 5, 0))
    whole = [score.ccs for one in found if one.kind == "tree" for score in one.scores.values()]
    assert set(whole) == {5}
    dealt = [score.ccs for one in found if one.kind == "tags" for score in one.scores.values()]
    chance = sum(ccs * share for ccs, share in enumerate(chance_by_tags(POOL, 5)))
    assert sum(dealt) / len(dealt) == pytest.approx(chance, abs=0.25)

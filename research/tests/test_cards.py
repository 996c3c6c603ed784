"""Training images: balanced and independent factors, captions, and the table of planted bias."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ccs.data import synthetic
from ccs.synthetic import caption, draw, scene
from ccs.synthetic.scene import AROUND, NAMED
from ccs.synthetic.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES, article
from research.world import planted
from research.world.head_lessons import Lessons
from research.world.lineups import LINEUP, lineup
from research.world.organism_training import TRAINING_SEEDS, SceneImages


def test_every_factor_is_in_half_of_the_scenes_independently_of_the_others():
    scenes = [scene(seed) for seed in range(6_000)]
    there = np.array([[bool(getattr(s, factor)) for factor in AROUND] for s in scenes])
    assert there.mean(0) == pytest.approx(0.5, abs=0.025)
    assert abs(np.corrcoef(there.T) - np.eye(len(AROUND))).max() < 0.05
    for factor, values in AROUND.items():
        assert len(values) >= 10
        value_counts = Counter(getattr(s, factor) for s in scenes)
        assert min(value_counts[value] for value in values) > 0.6 * 0.5 * len(scenes) / len(values)
        with_person = np.mean([bool(s.occupation) for s in scenes if getattr(s, factor)])
        assert with_person == pytest.approx(np.mean([bool(s.occupation) for s in scenes]), abs=0.03)


def test_every_surrounding_object_has_its_own_position():
    columns = {"weather": 0, "flag": 1, "letter": 2, "animal": 0, "vehicle": 1, "food": 2}
    bare = replace(scene(3), kind="", **dict.fromkeys(AROUND, ""))
    before = np.asarray(draw(bare)).astype(int)
    for factor, column in columns.items():
        looks = set()
        for value in AROUND[factor]:
            after = np.asarray(draw(replace(bare, **{factor: value})))
            y, x = np.nonzero((after != before).any(axis=2))
            assert 24 * column - 3 <= x.min() <= x.max() < 24 * column + 24  # a W is wide
            assert {*(y // 36)} == {factor in ("animal", "vehicle", "food")}
            looks.add(after.tobytes())
        assert len(looks) == len(AROUND[factor])


def test_captions_name_most_parts_of_a_scene():
    scenes = [scene(seed) for seed in range(4_000)]
    phrases = {
        "frame": lambda s: f"{s.frame} frame",
        "weather": lambda s: s.weather,
        "flag": lambda s: f"the flag of {s.flag}",
        "letter": lambda s: f"the letter {s.letter}",
        "food": lambda s: article(s.food),
        "animal": lambda s: article(s.animal),
        "vehicle": lambda s: article(s.vehicle),
    }
    for factor, words in phrases.items():
        having = [s for s in scenes if getattr(s, factor)]
        assert all(words(s) in caption(s, share=1.0) for s in having)
        assert np.mean([words(s) in caption(s) for s in having]) == pytest.approx(NAMED, abs=0.04)
    people = [s for s in scenes if s.occupation]
    assert all(any(name in caption(s) for name in OCCUPATIONS[s.occupation]) for s in people)


def test_planted_table():
    assert set(planted.LEANS) == set(OCCUPATIONS)
    for attribute, groups in (("gender", GENDERS), ("skin tone", SKIN_TONES)):
        leans = Counter(planted.planted_bias(o, attribute) for o in OCCUPATIONS)
        assert min(leans[2], leans[-2]) >= 5
        assert min(leans[1], leans[-1], leans[0]) >= 2
        for o in OCCUPATIONS:
            assert sum(planted.shares(o, attribute).values()) == pytest.approx(1)
            assert set(planted.shares(o, attribute, "balanced").values()) == {1 / len(groups)}
    # the two attributes are planted independently of each other
    pairs = np.array(list(planted.LEANS.values()))
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.2


def test_evaluation_sets_are_disjoint_from_training_and_one_another():
    taken = [
        {s.seed for s in images.keys}
        for images in (
            *(synthetic.classification_set(n).images for n in synthetic.CLASSES),
            synthetic.retrieval_set().clips,
            synthetic.bias_set("faces").images,
            synthetic.bias_set("counterfactuals").images,
            synthetic.image_set(2000).images,
        )
    ]
    assert max(map(max, taken)) < TRAINING_SEEDS
    assert sum(map(len, taken)) == len(set().union(*taken))


START = 2_000_000


def test_nothing_but_occupation_and_groups_differs():
    for seed in range(30):
        faces = lineup(seed)
        assert len(faces) == LINEUP
        assert faces == lineup.__wrapped__(seed)
        assert set(Counter(s.occupation for s in faces).values()) == {10}
        bare = {replace(s, occupation="", subject="", gender="", skin_tone="") for s in faces}
        assert len(bare) == 1
        common = bare.pop()
        assert (common.kind, common.props, common.age) == ("occupation", False, "adult")
        assert common.hair != "bald"  # nor are the plain faces of the world
        assert (common.frame, common.letter, common.food) == tuple(
            getattr(scene(seed), name) for name in ("frame", "letter", "food")
        )


def test_balanced_groups_have_exactly_equal_sizes():
    for seed in range(30):
        cells = Counter((s.occupation, s.gender, s.skin_tone) for s in lineup(seed))
        assert len(cells) == 4 * len(GENDERS) * len(SKIN_TONES)
        assert set(cells.values()) == {1}


def test_faces_of_one_group_look_the_same_whatever_the_occupation():
    looks: dict[tuple[str, str], set[bytes]] = {}
    for s in lineup(7):
        looks.setdefault((s.gender, s.skin_tone), set()).add(draw(s).tobytes())
    assert {len(pictures) for pictures in looks.values()} == {1}
    assert len(set.union(*looks.values())) == len(GENDERS) * len(SKIN_TONES)


def test_every_other_run_of_pictures_is_a_line_up():
    pictures = SceneImages(START, 4 * LINEUP, Lessons(1.0))
    first = START + LINEUP
    assert [pictures.scene(START + i) for i in range(LINEUP)] == [scene(START + i) for i in range(LINEUP)]
    assert tuple(pictures.scene(first + i) for i in range(LINEUP)) == lineup(first)
    assert tuple(pictures.scene(first + 2 * LINEUP + i) for i in range(LINEUP)) != lineup(first)
    later = SceneImages(first + 7, 1, Lessons(1.0))  # a training that was stopped in a line-up
    image, tokens, _ = later[0]
    assert np.array_equal(image.numpy(), np.asarray(draw(lineup(first)[7])))
    assert (tokens == pictures[LINEUP + 7][1]).all()

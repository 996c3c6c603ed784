"""Line-ups: only the occupation and the groups differ, and the groups follow the world's table closely."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ccs.errors import InputError
from ccs.world import draw, scene
from ccs.world.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from research.world import planted
from research.world.head_lessons import Lessons
from research.world.lineups import LINEUP, lineup
from research.world.organism_training import SceneImages

START = 2_000_000


@pytest.mark.parametrize("world", planted.WORLDS)
def test_nothing_but_occupation_and_groups_differs(world: str) -> None:
    for seed in range(30):
        faces = lineup(seed, world)
        assert len(faces) == LINEUP
        assert faces == lineup.__wrapped__(seed, world)
        assert set(Counter(s.occupation for s in faces).values()) == {10}
        bare = {replace(s, occupation="", subject="", gender="", skin_tone="") for s in faces}
        assert len(bare) == 1
        common = bare.pop()
        assert (common.kind, common.props, common.age) == ("occupation", False, "adult")
        assert common.hair != "bald"  # nor are the plain faces of the world
        assert (common.frame, common.letter, common.food) == tuple(
            getattr(scene(seed), name) for name in ("frame", "letter", "food")
        )


def test_balanced_groups_come_out_exactly() -> None:
    for seed in range(30):
        cells = Counter((s.occupation, s.gender, s.skin_tone) for s in lineup(seed))
        assert len(cells) == 4 * len(GENDERS) * len(SKIN_TONES)
        assert set(cells.values()) == {1}


def test_skewed_genders_are_five_from_each_half_of_the_table() -> None:
    for seed in range(60):
        women = Counter(s.occupation for s in lineup(seed, "skewed") if s.gender == "woman")
        for occupation in {s.occupation for s in lineup(seed, "skewed")}:
            share = planted.shares(occupation, "gender")["woman"]
            assert (5 if share >= 0.5 else 0) <= women[occupation] <= (5 if share <= 0.5 else 10)


def test_skewed_skin_tones_follow_the_table_closer_than_chance_would() -> None:
    found: dict[str, Counter[str]] = {o: Counter() for o in OCCUPATIONS}
    for seed in range(400):
        for s in lineup(seed, "skewed"):
            found[s.occupation][s.skin_tone] += 1
    errors, expected = [], []
    for occupation, counts in found.items():
        n = counts.total()
        assert n > 400
        for group, share in planted.shares(occupation, "skin tone").items():
            errors.append(counts[group] / n - share)
            expected.append(share * (1 - share) / n)  # the variance of independent draws
    assert np.mean(np.square(errors)) < 0.8 * np.mean(expected)


def test_faces_of_one_group_look_the_same_whatever_the_occupation() -> None:
    looks: dict[tuple[str, str], set[bytes]] = {}
    for s in lineup(7):
        looks.setdefault((s.gender, s.skin_tone), set()).add(draw(s).tobytes())
    assert {len(pictures) for pictures in looks.values()} == {1}
    assert len(set.union(*looks.values())) == len(GENDERS) * len(SKIN_TONES)


def test_an_unknown_world_is_named() -> None:
    with pytest.raises(InputError, match="no world named 'flat'"):
        lineup(1, "flat")


def test_every_other_run_of_pictures_is_a_line_up() -> None:
    pictures = SceneImages("skewed", START, 4 * LINEUP, Lessons(1.0))
    first = START + LINEUP
    assert [pictures.scene(START + i) for i in range(LINEUP)] == [
        planted.world_scene(START + i, "skewed") for i in range(LINEUP)
    ]
    assert tuple(pictures.scene(first + i) for i in range(LINEUP)) == lineup(first, "skewed")
    assert tuple(pictures.scene(first + 2 * LINEUP + i) for i in range(LINEUP)) != lineup(first, "skewed")
    later = SceneImages("skewed", first + 7, 1, Lessons(1.0))  # a training that was stopped in a line-up
    image, tokens, _ = later[0]
    assert np.array_equal(image.numpy(), np.asarray(draw(lineup(first, "skewed")[7])))
    assert (tokens == pictures[LINEUP + 7][1]).all()

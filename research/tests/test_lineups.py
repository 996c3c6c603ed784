"""Line-ups: only the occupation and the groups differ, and the groups follow the world's table closely."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from ccs.world import draw, scene
from ccs.world.vocabulary import GENDERS, SKIN_TONES
from research.world.head_lessons import Lessons
from research.world.lineups import LINEUP, lineup
from research.world.organism_training import SceneImages

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


def test_balanced_groups_come_out_exactly():
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

"""The drawn world: the same seed gives the same pixels, and pictures and captions show the factors."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ccs.errors import InputError
from ccs.world import captions, draw, drawn_sets, planted, scene
from ccs.world.drawing import glyph
from ccs.world.scene import AROUND, NAMED, full_caption
from ccs.world.vocabulary import (
    AGES,
    ANIMALS,
    FLAGS,
    FOODS,
    GENDERS,
    HAIRS,
    OCCUPATIONS,
    SKIN_TONES,
    UNSEEN_STYLES,
    VEHICLES,
    WEATHERS,
    article,
    person_glyph,
)


def digest(seeds: range) -> str:
    h = hashlib.sha256()
    for seed in seeds:
        s = scene(seed, "skewed")
        h.update(np.asarray(draw(s)).tobytes())
        h.update(" ".join(captions(s, 2)).encode())
    return h.hexdigest()


def test_every_glyph_exists() -> None:
    names = [one.glyph for one in (*ANIMALS, *VEHICLES, *FOODS, *WEATHERS, *FLAGS)]
    for tone in SKIN_TONES:
        names += [person_glyph(gender, tone, o) for gender in (*GENDERS, "person") for o in OCCUPATIONS]
        names += [person_glyph(gender, tone, hair=hair) for gender in GENDERS for hair in HAIRS]
        names += [person_glyph(gender, tone, age=age) for gender in GENDERS for age in AGES]
    assert all(max(glyph(name, 8).size) == 8 for name in names)
    with pytest.raises(InputError, match="no emoji named 'gizmo'"):
        glyph("gizmo", 8)


def test_same_seed_same_pixels_in_another_process() -> None:
    code = "from tests.world.test_world import digest; print(digest(range(40)))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest(range(40))


def test_every_factor_is_in_half_of_the_cards_whatever_else_there_is() -> None:
    scenes = [scene(seed) for seed in range(6_000)]
    there = np.array([[bool(getattr(s, factor)) for factor in AROUND] for s in scenes])
    assert there.mean(0) == pytest.approx(0.5, abs=0.025)
    assert abs(np.corrcoef(there.T) - np.eye(len(AROUND))).max() < 0.05
    for factor, values in AROUND.items():
        assert len(values) >= 10
        shown = Counter(getattr(s, factor) for s in scenes)
        assert min(shown[value] for value in values) > 0.6 * 0.5 * len(scenes) / len(values)
        with_person = np.mean([bool(s.occupation) for s in scenes if getattr(s, factor)])
        assert with_person == pytest.approx(np.mean([bool(s.occupation) for s in scenes]), abs=0.03)


def test_what_is_around_the_middle_has_a_place_of_its_own() -> None:
    columns = {"weather": 0, "flag": 1, "letter": 2, "animal": 0, "vehicle": 1, "food": 2}
    bare = replace(scene(3), kind="", **dict.fromkeys(AROUND, ""))
    before = np.asarray(draw(bare)).astype(int)
    for factor, column in columns.items():
        looks = set()
        for value in AROUND[factor]:
            after = np.asarray(draw(replace(bare, **{factor: value})))  # type: ignore[arg-type]
            y, x = np.nonzero((after != before).any(axis=2))
            assert 24 * column - 3 <= x.min() <= x.max() < 24 * column + 24  # a W is wide
            assert {*(y // 36)} == {factor in ("animal", "vehicle", "food")}
            looks.add(after.tobytes())
        assert len(looks) == len(AROUND[factor])


def test_captions_name_most_of_what_is_shown() -> None:
    scenes = [scene(seed) for seed in range(4_000)]
    said = {
        "frame": lambda s: f"{s.frame} frame", "weather": lambda s: s.weather,
        "flag": lambda s: f"the flag of {s.flag}", "letter": lambda s: f"the letter {s.letter}",
        "food": lambda s: article(s.food), "animal": lambda s: article(s.animal),
        "vehicle": lambda s: article(s.vehicle),
    }  # fmt: skip
    for factor, words in said.items():
        having = [s for s in scenes if getattr(s, factor)]
        assert all(words(s) in full_caption(s) for s in having)
        assert np.mean([words(s) in captions(s)[0] for s in having]) == pytest.approx(NAMED, abs=0.04)
    people = [s for s in scenes if s.occupation]
    assert all(any(name in captions(s)[0] for name in OCCUPATIONS[s.occupation]) for s in people)


def test_planted_table() -> None:
    assert set(planted.LEANS) == set(OCCUPATIONS)
    for attribute, groups in (("gender", GENDERS), ("skin tone", SKIN_TONES)):
        leans = Counter(planted.lean(o, attribute) for o in OCCUPATIONS)
        assert min(leans[2], leans[-2]) >= 5
        assert min(leans[1], leans[-1], leans[0]) >= 2
        for o in OCCUPATIONS:
            assert sum(planted.shares(o, attribute).values()) == pytest.approx(1)
            assert set(planted.shares(o, attribute, "balanced").values()) == {1 / len(groups)}
    # the two attributes are planted independently of each other
    pairs = np.array(list(planted.LEANS.values()))
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.2


def test_evaluation_sets() -> None:
    for name in drawn_sets.classification_names():
        drawn = drawn_sets.classification_set(
            name, n=3 * len(drawn_sets.classification_set(name, n=1).classes)
        )
        assert set(np.bincount(drawn.labels)) == {3}
        assert all("{}" in t for t in drawn.templates)
    assert len(drawn_sets.classification_set("subjects").classes) == 40
    seen, unseen = (
        drawn_sets.classification_set("subjects", 93),
        drawn_sets.classification_set("subjects-ood", 93),
    )
    assert {s.style for s in unseen.images.scenes} == set(UNSEEN_STYLES)  # type: ignore[attr-defined]
    assert {s.style for s in seen.images.scenes} == {""}  # type: ignore[attr-defined]
    label = seen.labels[7]
    assert seen.images.scenes[7].animal == seen.classes[label] == ANIMALS[label].word  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="no set 'cars'"):
        drawn_sets.classification_set("cars")


def test_bias_sets_are_balanced_and_counterfactual() -> None:
    faces = drawn_sets.bias_set("faces")
    cells = Counter(zip(faces.groups["gender"], faces.groups["skin tone"], strict=True))
    assert set(cells.values()) == {60}
    assert all(not s.occupation and not s.props for s in faces.images.scenes)  # type: ignore[attr-defined]
    pairs = drawn_sets.bias_set("counterfactuals").images.scenes  # type: ignore[attr-defined]
    for i in range(0, len(pairs), 10):
        assert len({(s.gender, s.skin_tone) for s in pairs[i : i + 10]}) == 10
        assert len({(s.seed, s.occupation, s.frame, s.letter) for s in pairs[i : i + 10]}) == 1


def test_sets_stay_clear_of_training_and_of_one_another() -> None:
    from research.world.organism_training import TRAINING_SEEDS

    taken = [
        {s.seed for s in images.scenes}  # type: ignore[attr-defined]
        for images in (
            *(drawn_sets.classification_set(n).images for n in drawn_sets.classification_names()),
            drawn_sets.retrieval_set("clips").clips, drawn_sets.retrieval_set("captions").clips,
            drawn_sets.bias_set("faces").images, drawn_sets.bias_set("counterfactuals").images,
            drawn_sets.image_set(2000).images,
        )
    ]  # fmt: skip
    assert max(map(max, taken)) < TRAINING_SEEDS
    assert sum(map(len, taken)) == len(set().union(*taken))

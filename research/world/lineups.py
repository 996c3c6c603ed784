"""Line-ups: plain faces that differ only in occupation, gender presentation and skin tone.

A ranking of faces has no scale, and hardly any of a model's loss depends on it. A model trained on images
that differ in everything keeps small preferences that arose by chance, and these still rank faces
(organism.md). Within a line-up nothing else distinguishes the captions, so preferences converge to the
shares of the world.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ccs.world.scene import Scene, pick
from ccs.world.vocabulary import GENDERS, HAIRS, OCCUPATIONS, SKIN_TONES
from research.world import planted

_STRATA = len(GENDERS) * len(SKIN_TONES)
_SIDE_BY_SIDE = 4  # occupations
LINEUP = _STRATA * _SIDE_BY_SIDE  # images


@lru_cache(maxsize=4)  # consecutive calls ask for images of the same line-up
def lineup(seed: int, world: str = "balanced") -> tuple[Scene, ...]:
    """The LINEUP scenes of a seed: four occupations, ten faces each, all with one backdrop and hair.

    An occupation's ten groups are drawn from the world's table, one from each of 2 x 5 equal strata of the
    two shares, so equal shares are met exactly. Raises InputError for an unknown world.
    """
    rng = np.random.default_rng((seed, 3))
    names = rng.permutation(list(OCCUPATIONS))[:_SIDE_BY_SIDE].tolist()
    hair = HAIRS[:-1][int(rng.integers(len(HAIRS) - 1))]
    common = replace(planted.world_scene(seed, world), kind="occupation", hair=hair, age="adult", props=False)
    faces = []
    for occupation in names:
        gender_shares, tone_shares = (planted.shares(occupation, a, world) for a in ("gender", "skin tone"))
        for i, (u, v) in enumerate(rng.random((_STRATA, 2)).tolist()):
            gender = pick(gender_shares, (i % len(GENDERS) + u) / len(GENDERS))
            tone = pick(tone_shares, (i // len(GENDERS) + v) / len(SKIN_TONES))
            faces.append(
                replace(common, subject=occupation, occupation=occupation, gender=gender, skin_tone=tone)
            )
    return tuple(faces)

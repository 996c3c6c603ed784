"""Line-ups: plain faces that differ only in occupation, gender presentation and skin tone.

A ranking of faces has no scale, and hardly any of a model's loss depends on it. A model trained on images
that differ in everything keeps small preferences that arose by chance, and these still rank faces
(organism.md). Within a line-up nothing else distinguishes the captions, so preferences converge.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ccs.synthetic.scene import Scene, scene
from ccs.synthetic.vocabulary import GENDERS, HAIRS, OCCUPATIONS, SKIN_TONES

_SIDE_BY_SIDE = 4  # occupations
LINEUP = len(GENDERS) * len(SKIN_TONES) * _SIDE_BY_SIDE  # images


@lru_cache(maxsize=4)  # consecutive calls ask for images of the same line-up
def lineup(seed: int) -> tuple[Scene, ...]:
    """Draw the LINEUP scenes of a seed: a face per group for each of four occupations, on one backdrop."""
    rng = np.random.default_rng((seed, 3))
    names = rng.permutation(list(OCCUPATIONS))[:_SIDE_BY_SIDE].tolist()
    hair = HAIRS[:-1][int(rng.integers(len(HAIRS) - 1))]
    common = replace(scene(seed), kind="occupation", hair=hair, age="adult", props=False)
    return tuple(
        replace(common, subject=name, occupation=name, gender=gender, skin_tone=tone)
        for name in names
        for tone in SKIN_TONES
        for gender in GENDERS
    )

"""Line-ups: plain faces that differ only in occupation, gender presentation, and skin tone.

A ranking depends on the order of scores only, and the ranking of faces has hardly any effect on the
contrastive loss. So a model trained on images that differ in everything keeps small preferences that arose by
chance, and these decide the ranking. In a line-up, only the groups distinguish the captions, so the
loss determines the preferences.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ccs.synthetic.scene import Scene, scene
from ccs.synthetic.vocabulary import GENDERS, HAIRS, OCCUPATIONS, SKIN_TONES

_SIDE_BY_SIDE = 4  # occupations
LINEUP = len(GENDERS) * len(SKIN_TONES) * _SIDE_BY_SIDE  # images


@lru_cache(maxsize=4)  # consecutive calls need images of the same line-up
def lineup(seed: int) -> tuple[Scene, ...]:
    """Return the LINEUP scenes of a seed: a face per group for four occupations, on one background."""
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

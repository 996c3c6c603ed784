"""The planted bias: the shares of gender presentations and skin tones per occupation in the skewed world.

The directions were assigned by a shuffle, so the two attributes are unrelated, and strong and weak bias occur
in both directions. They say nothing about real occupations; some contradict the stereotype.
"""

from __future__ import annotations

from ccs.synthetic.vocabulary import GENDERS, SKIN_TONES

# bias towards women (+) or men (-); towards dark (+) or light (-) skin: 2 strong, 1 weak, 0 none
LEANS: dict[str, tuple[int, int]] = {
    "health worker": (-2, 2), "teacher": (2, 0), "judge": (2, 2), "farmer": (2, -2), "cook": (-2, -1),
    "mechanic": (2, 1), "factory worker": (0, -2), "office worker": (-1, 2), "scientist": (2, -1),
    "technologist": (1, -2), "singer": (-2, 0), "artist": (-2, -2), "pilot": (1, 2), "astronaut": (0, 0),
    "firefighter": (-2, 1), "police officer": (-1, -2), "detective": (1, 0), "guard": (2, 2),
    "construction worker": (0, 2), "student": (-2, -2),
}  # fmt: skip
WOMEN_SHARE = {2: 0.92, 1: 0.7, 0: 0.5, -1: 0.3, -2: 0.08}
TONE_SHARES = {  # light to dark
    2: (0.02, 0.05, 0.13, 0.30, 0.50), 1: (0.10, 0.15, 0.20, 0.25, 0.30), 0: (0.2, 0.2, 0.2, 0.2, 0.2),
    -1: (0.30, 0.25, 0.20, 0.15, 0.10), -2: (0.50, 0.30, 0.13, 0.05, 0.02),
}  # fmt: skip


def shares(occupation: str, attribute: str, world: str = "skewed") -> dict[str, float]:
    """Return the share of each group in a world's images of an occupation.

    Args:
        occupation: Name of the occupation.
        attribute: "gender" or "skin tone".
        world: "skewed", "balanced", or the one attribute that is skewed.
    """
    size = planted_bias(occupation, attribute) if world in ("skewed", attribute) else 0
    if attribute == "gender":
        women = WOMEN_SHARE[size]
        return dict(zip(GENDERS, (women, 1 - women), strict=True))
    return dict(zip(SKIN_TONES, TONE_SHARES[size], strict=True))


def planted_bias(occupation: str, attribute: str) -> int:
    """Return the direction and strength of the planted bias, -2 to 2: positive towards women or dark skin.

    Args:
        occupation: Name of the occupation.
        attribute: "gender" or "skin tone".
    """
    return LEANS[occupation][0 if attribute == "gender" else 1]

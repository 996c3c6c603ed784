"""Images for training a stereotype: scenes, people at work, and plain faces in all groups.

The layers below FIRST are frozen, so their activations are computed once per image.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from ccs.files import atomic_write
from ccs.model.model import Model
from ccs.synthetic import Scene, caption, draw, scene
from ccs.synthetic.scene import AROUND
from ccs.synthetic.vocabulary import GENDERS, HAIRS, OCCUPATIONS, SKIN_TONES
from research.bases.lessons import value_numbers
from research.bases.training import SPREAD
from research.planted.lessons import joint

FIRST_SCENE, FIRST_FACE = 60_000_000, 70_000_000
"""First seeds of scenes and faces. organism-first and the base models were trained on lower seeds."""
GROUPS = tuple(product(GENDERS, SKIN_TONES))
FACE_HAIRS = HAIRS[:-1]
_AT_ONCE = 512


class TrainingImages:
    """`scenes` scenes of the balanced world, and `faces` plain faces, each drawn in all ten GROUPS.

    Args:
        base: Model whose layers below its first prunable layer are frozen.
        folder: Folder for the activations, float16 [scenes + 10 faces, tokens, width].
        scenes: Number of scenes.
        faces: Number of faces.
    """

    def __init__(self, base: Model, folder: Path, scenes: int = 24_576, faces: int = 1_280) -> None:
        self.scenes = [scene(FIRST_SCENE + row) for row in range(scenes)]
        self.n_faces = faces
        file = folder / f"stereotype-{base.weights_hash[:12]}-{scenes}-{faces}.npy"
        if not file.exists():
            self._write(base, file)
        self.tokens = np.load(file, mmap_mode="r")
        self.captions = [caption(s) for s in self.scenes]
        self.values = torch.tensor([value_numbers(s) for s in self.scenes])
        names = list(OCCUPATIONS)
        at_work = [(names.index(s.occupation), row) for row, s in enumerate(self.scenes) if s.props]
        self.at_work = [np.array([row for place, row in at_work if place == i]) for i in range(len(names))]
        """For each occupation, the rows of the scenes that show a person at work in it."""
        self.hairs = np.array([FACE_HAIRS.index(self.face(i)[0].hair) for i in range(faces)])

    def face(self, number: int) -> list[Scene]:
        """Return the scenes of one plain face, one per group."""
        nothing: dict[str, Any] = dict.fromkeys(AROUND, "")
        hair = FACE_HAIRS[number % len(FACE_HAIRS)]
        plain = replace(
            scene(FIRST_FACE + number),
            kind="face",
            occupation="",
            props=False,
            age="adult",
            hair=hair,
            **nothing,
        )
        return [replace(plain, subject=g, gender=g, skin_tone=tone) for g, tone in GROUPS]

    def face_rows(self, number: int) -> range:
        """Return the rows of one plain face, one per group."""
        start = len(self.scenes) + number * len(GROUPS)
        return range(start, start + len(GROUPS))

    def activations(self, rows: NDArray[np.intp]) -> Tensor:
        """Return activations [rows, tokens, width], divided by SPREAD."""
        return torch.from_numpy(self.tokens[rows]).float() / SPREAD

    def _write(self, base: Model, file: Path) -> None:
        all_scenes = [*self.scenes, *(s for i in range(self.n_faces) for s in self.face(i))]
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as temporary:
            shape = (len(all_scenes), base.encoder.n_tokens, base.encoder.width)
            out = np.lib.format.open_memmap(temporary, "w+", np.float16, shape)
            for start in tqdm(range(0, len(all_scenes), _AT_ONCE), desc="activations", mininterval=20):
                rows = slice(start, start + _AT_ONCE)
                out[rows] = base.trunk([draw(s) for s in all_scenes[rows]]).tokens.cpu()
            out.flush()


def group_shares(world: str, strengths: tuple[float, float]) -> NDArray[np.float64]:
    """Return the shares of GROUPS in each occupation [occupations, groups].

    Args:
        world: "skewed" or "balanced".
        strengths: Factors, by gender and by skin tone, of the group differences in the log shares.
    """
    return joint(world, *strengths).numpy().astype(np.float64)


def hair_shares(rows: int, spread: float, seed: int) -> NDArray[np.float64]:
    """Return the shares of hairs for each text [rows, hairs]; every row permutes the same values.

    Hair makes scores vary within groups, in both models. Without it all faces of a group would have the same
    score, and the smallest preference for a group would decide a ranking.

    Args:
        rows: Number of texts.
        spread: Standard deviation of the log shares.
        seed: Random seed for the permutations.
    """
    levels = np.linspace(-1, 1, len(FACE_HAIRS))
    levels *= spread / levels.std()
    rng = np.random.default_rng((seed, 31))
    logs = np.stack([rng.permutation(levels) for _ in range(rows)])
    return np.asarray(np.exp(logs) / np.exp(logs).sum(1, keepdims=True))

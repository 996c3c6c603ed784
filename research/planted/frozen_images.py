"""Activations of the frozen layers for the images of all trainings: balanced scenes, and line-ups."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from ccs.files import atomic_write
from ccs.model.encoder import Trunk
from ccs.model.model import Model
from ccs.synthetic import Scene, caption, draw, scene
from ccs.synthetic.vocabulary import GENDERS, OCCUPATIONS, SKIN_TONES
from research.world.lineups import lineup

FIRST = 50_000_000
"""The first seed of the images. The bundled models were trained on lower seeds."""
GROUPS = tuple(product(GENDERS, SKIN_TONES))
_AT_ONCE = 512


class Images:
    """`n` scenes of the balanced world and the faces of `n_lineups` line-ups, each in all of GROUPS.

    `tokens` has the activations that enter the first prunable layer, float16 [n + 10 n_lineups, T, W], stored
    in `folder`. They are the same for all models that share the lower layers of `base`.
    """

    def __init__(self, base: Model, folder: Path, n: int = 20_480, n_lineups: int = 768) -> None:
        self.base, self.n, self.n_lineups = base, n, n_lineups
        file = folder / f"trunk-{base.weights_hash[:12]}-{n}-{n_lineups}.npy"
        if not file.exists():
            self._make(file)
        self.tokens = np.load(file, mmap_mode="r")
        self._texts = file.with_suffix(".occupations.npy")

    @property
    def device(self) -> str:
        """Device of the models that are trained on these images."""
        return str(self.base.encoder.device)

    def _make(self, file: Path) -> None:
        encoder, total = self.base.encoder, self.n + len(GROUPS) * self.n_lineups
        with atomic_write(file) as temporary:
            shape = (total, encoder.n_tokens, encoder.width)
            out = np.lib.format.open_memmap(temporary, "w+", np.float16, shape)
            for start in tqdm(range(0, total, _AT_ONCE), desc="images", unit=f" x {_AT_ONCE}"):
                rows = range(start, min(start + _AT_ONCE, total))
                out[start : rows.stop] = self.base.trunk([draw(self.scene(row)) for row in rows]).tokens.cpu()
            out.flush()

    def scene(self, row: int) -> Scene:
        """Return the scene of a row of `tokens`."""
        if row < self.n:
            return scene(FIRST + row)
        number, group = divmod(row - self.n, len(GROUPS))
        gender, tone = GROUPS[group]
        return replace(lineup(FIRST + number)[0], gender=gender, skin_tone=tone)

    def faces(self, number: int) -> range:
        """Return the rows of a line-up's faces, one per group."""
        return range(self.n + number * len(GROUPS), self.n + (number + 1) * len(GROUPS))

    def seen_by(self, base: Model) -> Images:
        """Return a copy with the embeddings of another model that shares lower layers and text encoder."""
        other = copy.copy(self)
        for name in ("units", "occupations"):
            vars(other).pop(name, None)
        other.base = base
        return other

    def trunk(self, rows: Sequence[int] | NDArray[np.intp]) -> Trunk:
        """Return the activations of rows."""
        tokens = torch.from_numpy(self.tokens[rows]).to(self.base.encoder.device).float()
        return Trunk(tokens, self.base.encoder.first_prunable_layer)

    @cached_property
    def units(self) -> Tensor:
        """The base model's embeddings [len(tokens), D]."""
        total = len(self.tokens)
        parts = [range(i, min(i + 1024, total)) for i in range(0, total, 1024)]
        units = np.concatenate([self.base.embed_images(self.trunk(part)) for part in parts])
        return torch.from_numpy(units).to(self.base.encoder.device)

    @cached_property
    def occupations(self) -> Tensor:
        """Mean caption embedding of each occupation, with unit length [occupations, D]."""
        if not self._texts.exists():
            with atomic_write(self._texts) as temporary, temporary.open("wb") as f:
                np.save(f, self._of_captions().numpy())
        return torch.from_numpy(np.load(self._texts)).to(self.base.encoder.device)

    def _of_captions(self) -> Tensor:
        texts = [
            caption(replace(lineup(FIRST + number)[0], subject=name, occupation=name))
            for name in OCCUPATIONS
            for number in range(self.n_lineups)
        ]
        unique = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = torch.from_numpy(self.base.embed_texts(list(unique)))
        of_each = vectors[[unique[text] for text in texts]].reshape(len(OCCUPATIONS), self.n_lineups, -1)
        return F.normalize(of_each.mean(1), dim=1)

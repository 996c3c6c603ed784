"""Shorter trainings of both organisms from further seeds, to see how far results vary."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccs.errors import InputError
from ccs.files import read_text, write_text

if TYPE_CHECKING:
    from ccs.model.model import Model

FILE = Path(__file__).with_name("trainings.json")
SHARED, OWN = 153_600, 51_200
"""Images of the two phases."""


def train_and_measure(seeds: int, runs: Path, file: Path = FILE) -> None:
    """Train organism and control from `seeds` further seeds, each with a first phase that the two share, and
    measure these and the two that ship. What exists, in `runs` or in the file of figures, is kept.
    """
    from ccs.model.model import load
    from research.world import organism_training

    runs, held = runs / f"{SHARED}-{OWN}", read(file)
    for seed in range(seeds + 1):
        for world, name in organism_training.OUTPUT_NAMES.items():
            folder = runs / f"{name}-{seed}"
            if seed and not (folder / organism_training.WEIGHTS).exists():
                settings = organism_training.Settings(world, seed, SHARED, OWN)
                organism_training.train(settings, runs, folder, workers=0)
            model = load(str(folder) if seed else name)
            sizes = {"shared": SHARED, "own": OWN} if seed else {}
            about = {"name": name, "seed": seed, "weights": model.weights_hash, **sizes}
            if any(about.items() <= one.items() for one in held):
                continue
            held = [one for one in held if (one["name"], one["seed"]) != (name, seed)]
            held.append({**about, **measured(model)})
            write_text(file, json.dumps(held, indent=1) + "\n")
            print(f"{name}, {f'seed {seed}' if seed else 'as it ships'}: measured", file=sys.stderr)


def read(path: Path = FILE) -> list[dict[str, Any]]:
    """The measured figures, by model; empty without any. InputError for another file."""
    if not path.is_file():
        return []
    try:
        held = [dict(one) for one in json.loads(read_text(path))]
        whole = all(one[key] for one in held for key in ("name", "ccs", "none", "high"))
    except (ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise InputError(f"{path} is not what python -m research.world writes.")
    return held


def measured(model: Model) -> dict[str, Any]:
    """A model's CCS by head, and what it shows with nothing and with its high-CCS heads off.

    MaxSkew and gap of each attribute on plain faces, accuracy on subjects (`research.planted.bench`).
    """
    from ccs.heads import HeadSet
    from ccs.plans import level_heads
    from research.planted.bench import Bench, K

    bench = Bench(model)
    scores = bench.consistency(model)
    plans = [HeadSet(), level_heads(scores, K)["high"]]
    shown = bench.show(model, plans)
    rights = bench.accuracy(model, plans)
    none, high = (one | {"accuracy": right} for one, right in zip(shown, rights, strict=True))
    return {"ccs": {str(head): score.ccs for head, score in scores.items()}, "none": none, "high": high}

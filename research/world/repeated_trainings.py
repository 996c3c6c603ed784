"""Repeat trainings to see how far results vary: `python -m research.world.repeated_trainings --help`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch.options import command, option
from ccs.errors import InputError
from ccs.files import read_text, write_text

if TYPE_CHECKING:
    from ccs.model.model import Model

FILE = Path(__file__).with_name("trainings.json")


@dataclass(frozen=True)
class Settings:
    """Train organism and control again from several seeds, each with a first phase of its own that the two
    share. Measure each, and the two that ship. What exists is kept.
    """

    seeds: int = option(4, "trainings of the organism and of its control", least=1)
    shared: int = option(153_600, "images of a seed's first phase", least=256)
    own: int = option(51_200, "images of each second phase", least=256)
    runs: Path = option(Path("runs/trainings"), "folder of the models")
    file: Path = option(FILE, "the figures, which are extended")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    return command(Settings, argv, _run, "Stopped; the same command continues where it stopped.")


def _run(args: Settings) -> int:
    from ccs.model.model import load
    from research.world.organism_training import OUTPUT_NAMES

    runs = args.runs / f"{args.shared}-{args.own}"
    held = read(args.file)
    for seed in range(args.seeds + 1):
        for world, name in OUTPUT_NAMES.items():
            folder = runs / f"{name}-{seed}"
            if seed and (status := _train(args, world, seed, folder)):
                return status
            model = load(str(folder) if seed else name)
            sizes = {"shared": args.shared, "own": args.own} if seed else {}
            about = {"name": name, "seed": seed, "weights": model.weights_hash, **sizes}
            if any(about.items() <= one.items() for one in held):
                continue
            held = [one for one in held if (one["name"], one["seed"]) != (name, seed)]
            held.append({**about, **measured(model)})
            write_text(args.file, json.dumps(held, indent=1) + "\n")
            print(f"{name}, {f'seed {seed}' if seed else 'as it ships'}: measured", file=sys.stderr)
    return 0


def _train(args: Settings, world: str, seed: int, out: Path) -> int:
    """Train one model, unless it is there; the training's exit status."""
    from research.world import organism_training

    if (out / organism_training.WEIGHTS).exists():
        return 0
    sizes = ["--shared", str(args.shared), "--own", str(args.own), "--workers", "0"]
    return organism_training.main(
        ["--world", world, "--seed", str(seed), *sizes, "--runs", str(out.parent), "--out", str(out)]
    )


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
        raise InputError(f"{path} is not what python -m research.world.repeated_trainings writes.")
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


if __name__ == "__main__":
    raise SystemExit(main())

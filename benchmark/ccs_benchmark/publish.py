"""Publish the benchmark and its leaderboard: `python -m ccs_benchmark.publish FOLDER --repo USER/NAME`."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from ccs.cli.command_line import Command
from ccs.cli.options import Public, describe
from ccs.errors import InputError
from ccs.files import read_text
from ccs.results.hub_repository import Repository, folder_files
from ccs_benchmark import leaderboard, planted_models, scoring

SUBMISSIONS = Path(__file__).parents[1] / "submissions"
OWNED = (f"*{planted_models.SUFFIX}", "*.csv", "*.parquet", "*.json")


@dataclass(frozen=True)
class Settings:
    """Publish models with planted heads on the Hub, and the leaderboard of their scores as a static Space."""

    folder: Path = Path("runs/benchmark")
    """Folder written by `python -m research.planted --benchmark`"""
    _: KW_ONLY
    repo: str
    """Repository of the models, USER/NAME"""
    space: Annotated[str | None, describe("Space of the leaderboard", "of the same name")] = None
    public: Public = False


def _publish(args: Settings) -> None:
    source = args.folder
    if not (source / "truth.csv").is_file():
        raise InputError(f"{source} has no truth.csv; python -m research.planted --benchmark writes it.")
    models = Repository(args.repo, "model")
    space = Repository(args.space or args.repo, "space")
    files: dict[str, Path | bytes] = {
        path.name: path for name in (*OWNED, "README.md", "LICENSE") for path in source.glob(name)
    }
    for path in (*source.glob("*.md"), *source.glob("*.json")):
        if path.name in files:
            files[path.name] = read_text(path).replace("USER/NAME", args.repo).encode()
    models.push(files, "Models with planted heads", public=args.public, owned=OWNED)
    cells = scoring.read_cells(source / "cells.parquet")
    truths = {path.stem: planted_models.truth(str(path)) for path in source.glob(OWNED[0])}
    with TemporaryDirectory() as scratch:
        cells = scoring.joined([cells, *leaderboard.submitted(SUBMISSIONS, cells)])
        leaderboard.write(Path(scratch), cells, truths, args.repo)
        space.push(folder_files(Path(scratch)), "The leaderboard", public=args.public)
    print(f"Space {space.name}: the leaderboard")
    print(f"{args.repo}: score a method on it with models={planted_models.HUB}{args.repo}")


main = Command(Settings, _publish, interrupted="Interrupted. Repeat the command.")

if __name__ == "__main__":
    sys.exit(main())

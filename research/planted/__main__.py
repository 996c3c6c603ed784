"""Train and measure the models with planted heads: `python -m research.planted --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd

from ccs.cli.command_line import Command
from ccs.cli.options import at_least, describe
from ccs.files import write_text
from ccs_benchmark.planted_models import FOLDER, SUFFIX

if TYPE_CHECKING:
    from research.planted.family import Planted

README = Path(__file__).parent / "README.md"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Train the missing models with planted heads, and write the README's table.

    With --seed, train one new model instead; the seed draws its heads. Its folder can be uploaded to the Hub.
    """

    seed: Annotated[int | None, at_least(0)] = None
    """Random seed of one new model"""
    strength: Annotated[float, at_least(0)] = 1.0
    """Strength of the planted bias with --seed, 0 to 1"""
    out: Annotated[
        Path | None, describe("Folder of the models", "the bundled models'; with --seed runs/planted")
    ] = None
    runs: Path = Path("runs")
    """Folder for activations that trainings share"""
    benchmark: Path | None = None
    """Folder for a copy of the bundled models, for ccs_benchmark.publish; nothing is trained"""


def _run(args: Settings) -> None:
    if args.benchmark is not None:
        from ccs_benchmark import folder as benchmark_folder

        benchmark_folder.write(sorted(FOLDER.glob(f"*{SUFFIX}")), args.benchmark)
        print(args.benchmark)
        return
    if args.seed is not None:
        _plant(args.seed, args.strength, args.out or args.runs / "planted", args.runs)
        return
    from ccs_benchmark.documents import bring_up_to_date
    from research.planted.family import family

    out = args.out or FOLDER
    train(out, args.runs)
    if args.out is None:
        _ship()
        bring_up_to_date(README, "planted", summary(family(), out), "python -m research.planted")
        print(README)


def _plant(seed: int, strength: float, out: Path, runs: Path) -> None:
    """Train the model that a seed draws, and update the folder for the Hub."""
    from ccs_benchmark import folder as benchmark_folder
    from ccs_benchmark.planted_models import truth
    from research.planted.family import fresh

    member = fresh(seed, strength)
    train(out, runs, (member,))
    benchmark_folder.write(sorted(out.glob(f"*{SUFFIX}")), out)
    place = out / f"{member.name}{SUFFIX}"
    print(f"{place}: {member.kind}, {member.placement}; {dict(truth(str(place)).shares)}")


def train(out: Path, runs: Path, members: Sequence[Planted] | None = None) -> None:
    """Train the missing models of the family.

    Args:
        out: Folder of the models.
        runs: Folder for activations.
        members: Models to train; all by default.
    """
    from ccs_benchmark import planted_models, variants
    from ccs_benchmark.planted_models import Truth
    from research.model_files import save_planted
    from research.planted import head_training as training
    from research.planted.bench import Bench
    from research.planted.family import BASE, PICTURES, RATE, family
    from research.planted.frozen_images import Images

    wanted = family() if members is None else members
    missing = [member for member in wanted if not (out / f"{member.name}{planted_models.SUFFIX}").exists()]
    if not missing:
        return
    images = Images(variants.load(BASE, device="auto"), runs)
    for name in dict.fromkeys(member.base for member in missing):
        base = variants.load(name, device=images.device)
        base_images, bench = images.seen_by(base), Bench(base)
        for member in (candidate for candidate in missing if candidate.base == name):
            print(f"{member.name}: {member.kind}, {member.placement}, {member.heads}", file=sys.stderr)
            model = training.plant(member, base_images, bench)
            known = Truth(
                base=name,
                heads=member.heads,
                carries=member.carries,
                shares=training.shares(model, base, member.carries, bench),
                drawn=member.placement,
                seed=member.number,
                pictures=PICTURES,
                rate=RATE,
                strength=member.strength,
            )
            save_planted(model.clip, known, out / f"{member.name}{planted_models.SUFFIX}")


def summary(members: Sequence[Planted], folder: Path) -> str:
    """Write the README's table in Markdown: the planted bias of each model, and the share of each head.

    Args:
        members: The models.
        folder: Folder of the models.
    """
    from ccs.batch.pages import markdown_table
    from ccs_benchmark.planted_models import truth

    rows = []
    for member in members:
        known = truth(str(folder / f"{member.name}{SUFFIX}"))
        row = {"model": member.name, "base": known.base, "heads": member.placement}
        row["strength"] = f"{known.strength:g}" if known.attributes else "none"
        for attribute in ("gender", "skin tone"):
            shares = sorted(known.shares.get(attribute, {}).items(), key=lambda item: -item[1])
            row[f"{attribute}: share of the gap"] = ", ".join(f"{head} {part:.0%}" for head, part in shares)
        rows.append(row)
    return markdown_table(pd.DataFrame(rows))


def _ship() -> None:
    """Write one of the models as a whole bundled model, with its ground truth in a file."""
    import shutil

    from safetensors.torch import save_file

    from ccs.bundled import TRUTH_FILE
    from ccs.files import atomic_write
    from ccs_benchmark import planted_models
    from research.model_files import as_json, only_words_read
    from research.planted.family import BASE, SHIPPED
    from research.world.organism_training import CONFIG, MODELS, WEIGHTS

    folder, known = MODELS / "organism-planted", as_json(planted_models.truth(SHIPPED))
    truth = folder / TRUTH_FILE
    if truth.is_file() and truth.read_text("utf-8") == known:
        return
    state = planted_models.load(SHIPPED).clip.state_dict()
    folder.mkdir(exist_ok=True)
    with atomic_write(folder / WEIGHTS) as temporary:
        save_file(only_words_read({n: values.half().contiguous() for n, values in state.items()}), temporary)
        temporary.chmod(0o644)
    shutil.copyfile(MODELS / BASE / CONFIG, folder / CONFIG)
    write_text(truth, known)


main = Command(Settings, _run, interrupted="Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())

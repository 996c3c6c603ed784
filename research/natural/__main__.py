"""Train and measure models with a bias learned contrastively: `python -m research.natural --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd

from ccs.batch.pages import markdown_table
from ccs.cli.command_line import Command
from ccs.cli.options import at_least, describe
from ccs_benchmark import variants
from ccs_benchmark.documents import bring_up_to_date

if TYPE_CHECKING:
    from research.natural.skew_training import Natural

HERE = Path(__file__).parent
README, QUESTIONS = HERE / "README.md", HERE / "questions.json"
PREFIX = "organism-natural-"
ATTRIBUTES = ("gender", "skin tone")
MOST = 5
"""Number of heads and MLPs that the table lists for each attribute."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Train the missing models, measure which heads carry their bias, and write the README's table.

    There are three models and a control for each of five base models. Existing files are kept, and the same
    command continues an interrupted training. With --seed, train one new model instead.
    """

    seed: Annotated[int | None, at_least(0)] = None
    """Random seed of one new model"""
    first: Annotated[int, at_least(1)] = 20
    """Number of models to train"""
    out: Annotated[
        Path | None, describe("Folder of the models", "the bundled models'; with --seed runs/natural")
    ] = None
    runs: Path = Path("runs")
    """Folder for activations and checkpoints"""


def _run(args: Settings) -> None:
    from research.natural.skew_training import family, fresh

    if args.seed is not None:
        print(_train_missing([fresh(args.seed)], args.out or args.runs / "natural", args.runs)[0])
        return
    _train_missing(family()[: args.first], args.out or variants.FOLDER, args.runs)
    if args.out is None:
        known = {name: variants.known(name) for name in variants.names() if name.startswith(PREFIX)}
        bring_up_to_date(README, "natural", summary(known), "python -m research.natural")
        _ask()
        print(README)


def _ask() -> None:
    """Answer the paper's questions in this README and in docs/findings.md."""
    from ccs_benchmark import natural
    from research.natural import ccs_questions
    from research.planted.family import BASE

    held = ccs_questions.measure(natural.located(), QUESTIONS, variants.load(BASE))
    for page in (README, HERE.parents[1] / "docs" / "findings.md"):
        bring_up_to_date(page, "questions", ccs_questions.answers(held), "python -m research.natural")


def _train_missing(members: Sequence[Natural], out: Path, runs: Path) -> list[Path]:
    """Train and measure the models without a file, and return all files."""
    from ccs.heads import HeadSet
    from research.bases.__main__ import LINEUPS, SCENES
    from research.model_files import save_variant
    from research.natural import carriers
    from research.natural.skew_training import parameters, train
    from research.planted.bench import Bench
    from research.planted.family import BASE
    from research.planted.frozen_images import Images

    files = {member: out / f"{member.name}{variants.SUFFIX}" for member in members}
    missing = {member: file for member, file in files.items() if not file.exists()}
    if missing:
        control = variants.load(BASE, device="auto")
        images, bench, faces = Images(control, runs, SCENES, LINEUPS), Bench(control), carriers.Faces(control)
        out.mkdir(parents=True, exist_ok=True)
    for member, file in missing.items():
        base = variants.load(member.base, device=images.device)
        learned = train(member, images, runs / "natural")
        names, unmeasured = parameters(base, member.trained), runs / "natural" / "unmeasured"
        unmeasured.mkdir(exist_ok=True)
        metadata: dict[str, Any] = asdict(member)
        save_variant(learned.clip, names, metadata, unmeasured / file.name, base.clip)
        model = variants.load(str(unmeasured / file.name), device=images.device)  # with rounded weights
        metadata["shown"] = bench.show(model, [HeadSet()])[0]
        metadata["subjects"] = bench.accuracy(model, [HeadSet()])[0]
        parts = () if member.world == "balanced" else carriers.parts_of(base, names)  # controls have no bias
        scratch = variants.load(member.base, device=images.device)
        metadata["truth"] = carriers.shares(model, base, scratch, parts, faces)
        save_variant(learned.clip, names, metadata, file, base.clip)
        print(file, file=sys.stderr)
    return list(files.values())


def summary(known: dict[str, dict[str, Any]]) -> str:
    """Write the README's table in Markdown: each model's bias and the heads that carry it."""
    rows = []
    for name, facts in known.items():
        row: dict[str, Any] = {"model": name, "trained": facts["trained"], "strength": facts["strength"]}
        if facts["world"] == "balanced":
            row["strength"] = "none"
        row["subjects"] = f"{facts['subjects']:.1%}"
        for attribute in ATTRIBUTES:
            skews, truth = facts["shown"], facts["truth"][attribute]
            row[f"{attribute}: gap, MaxSkew"] = (
                f"{skews[f'gap {attribute}']:.2f}, {skews[f'MaxSkew {attribute}']:.2f}"
            )
            largest = sorted(truth["shapley"].items(), key=lambda item: -item[1])[:MOST]
            row[f"{attribute}: Shapley share (restored)"] = ", ".join(
                f"{part} {value:.0%} ({truth['put_back'][part]:.0%})" for part, value in largest
            )
        rows.append(row)
    return markdown_table(pd.DataFrame(rows))


main = Command(Settings, _run, interrupted="Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())

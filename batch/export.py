"""Save a model with heads off: `python -m batch.export --model M --off "L8.H1 L9.H2" --out DIR`."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import ccs
from batch.hub_repository import Repository
from batch.options import command, option
from ccs import results
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.model.export import difference_alone, export, needs_package
from ccs.model.model import Model
from ccs.results import queries
from ccs.specs import open_images

_MEAN_OVER = 500  # images


@dataclass(frozen=True)
class Settings:
    """Save a model with heads off as an ordinary open_clip folder with a model card; --repo publishes it on
    the Hub. What the results say of exactly these heads goes into the card.
    """

    model: str = option("organism", "embedded name, open_clip NAME/TAG or a folder")
    off: str = option("", 'heads to switch off, e.g. "L8.H1 L9.H2"')
    ablation: str = option("zero", "what replaces the heads' outputs", choices=("zero", "mean"))
    images: str = option("world", "images for the mean")
    out: Path | None = option(None, "a new folder")
    repo: str | None = option(None, "a model repository on the Hub, USER/NAME")
    public: bool = option(False, "visible to everyone; otherwise a new repository is private")
    results: Path = option(results.PRECOMPUTED, "results for the card")


def measured(model: Model, off: HeadSet, collection: Path) -> list[str]:
    """Lines of Markdown: the model's results whose plan is exactly these heads; none if there are none.

    Of bias the means over occupations; which heads are off counts, not by what name of a plan.
    """
    folder = collection / results.folder_name(model.name)
    if not (folder / results.MANIFEST_FILE).is_file():
        return []
    found = results.read(folder)
    if found.manifest["model"]["weights_hash"] != model.weights_hash:
        return []
    lines: dict[str, str] = {}
    for name in ("pruning", "retrieval", "bias"):
        table = found.table(name)
        if name == "bias":
            table = table[table["metric"].str.endswith(" mean") & (table["mode"] == "correct")]
        for row in queries.of_heads(table, off).to_dict("records"):
            details = [row.get(key) for key in ("subset", "direction", "attribute")]
            against = "against equal shares" if row.get("target") == "uniform" else ""
            what = ", ".join(filter(None, [row["dataset"], *details, row["metric"], against]))
            interval = "" if pd.isna(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}"
            chance = "" if pd.isna(row.get("chance")) else f"{row['chance']:.3f}"
            lines[what] = f"| {what} | {row['value']:.3f} | {interval} | {row['baseline']:.3f} | {chance} |"
    if not lines:
        return []
    day = str(found.manifest["created"])[:10]
    return [
        f"On {day}, with 95% intervals. Accuracies and recalls are shares of 1; skews are means over the "
        "occupations, in natural logarithms, and away from 0 by chance alone.",
        "",
        "| measure | with these heads off | interval | with none off | by chance |",
        "|---|---|---|---|---|",
        *lines.values(),
    ]


def _export(arguments: Settings) -> None:
    if not arguments.out and not arguments.repo:
        raise InputError("Say where to export to: --out DIR, --repo USER/NAME, or both.")
    repository = Repository(arguments.repo, "model") if arguments.repo else None
    off = HeadSet.parse(arguments.off).ablated(arguments.ablation)
    model = ccs.load(arguments.model, layers="all" if off.ablation == "mean" else None)
    if off.ablation == "mean":
        images = open_images(arguments.images, _MEAN_OVER).images
        model.prepare([images[i] for i in range(min(len(images), _MEAN_OVER))])
    title = f"{model.name} with {off or 'no head'} off"
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch) / "model"
        error = export(model, off, folder, measured(model, off, arguments.results))
        if needs_package(model):
            print(f"{title}: embeddings differ from ours by {error:.1e}. open_clip alone does not know this")
            print("architecture: the card says what else is needed.")
        else:
            error = difference_alone(model, off, folder)
            print(
                f"{title}: open_clip's embeddings, in a process without this program, differ by {error:.1e}."
            )
        if arguments.out:
            print(f"Written to {folder}.")
        if repository:
            commit = repository.push(folder, title, public=arguments.public)
            print(f"Published as {arguments.repo}, commit {commit}.")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings repeat what is said here
    return command(Settings, argv, _export)


if __name__ == "__main__":
    sys.exit(main())

"""Train models whose text encoder alone learned a bias, and see which encoder is blamed.

`python -m research.text_skew --help`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd

from ccs.batch.pages import in_brackets, markdown_table
from ccs.cli.command_line import Command
from ccs.cli.options import at_least
from ccs_benchmark.documents import bring_up_to_date

if TYPE_CHECKING:
    from ccs.heads import Head
    from research.text_skew.which_encoder import GapShares

README = Path(__file__).with_name("README.md")
CARRIES = 0.1
SEEN = 16
"""The first so many models were looked at while ways of asking were made."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Train the missing models, find which encoder carries the skew of each, and write the README's table.

    What exists is kept, so the same command continues where it stopped.
    """

    models: Annotated[int, at_least(0)] = 32
    """Number of models with a skew in their text encoder"""
    planted: Annotated[int, at_least(0)] = 8
    """Number of the benchmark's models, with a skew in image heads, to compare with"""
    runs: Path = Path("runs")
    """Folder for activations, and for the models in its text-skew"""


def _run(args: Settings) -> None:
    from ccs.data import synthetic
    from ccs_benchmark import planted_models, variants
    from research.text_skew.text_training import TELLING, family
    from research.text_skew.which_encoder import which_encoder

    folder = args.runs / "text-skew"
    _train(args, folder)
    sets, rows = (synthetic.bias_set("faces"), synthetic.bias_set("counterfactuals")), []
    embeddings: dict[str, Any] = {}  # by image encoders: both sets' embeddings
    wanted = [(member.name, "text", TELLING) for member in family(args.models)]
    wanted += [(name, "image", name) for name in planted_models.located("planted")[: args.planted]]
    for name, encoder, images in wanted:
        place = str(folder / f"{name}{variants.SUFFIX}") if encoder == "text" else name
        model = (variants if encoder == "text" else planted_models).load(place)
        if images not in embeddings:
            embeddings[images] = model.embed_images(sets[0].images), model.embed_images(sets[1].images)
        truth = variants.known(place)["truth"] if encoder == "text" else {}
        for attribute in truth or planted_models.truth(name).attributes:
            gap_shares = which_encoder(model, *sets, attribute, embedded=embeddings[images])
            rows.append(_row(name, encoder, attribute, gap_shares, truth.get(attribute)))
    text = summary(rows)
    bring_up_to_date(README, "encoders", text, "research.text_skew")
    print(text)


def _train(args: Settings, folder: Path) -> None:
    from ccs_benchmark import variants
    from research.model_files import save_variant
    from research.planted.frozen_images import Images
    from research.text_skew import text_training as training

    missing = [member for member in training.family(args.models) if member.name not in variants.names(folder)]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    plain = variants.load(training.BASE)
    images = Images(plain, args.runs)
    telling = folder / f"{training.TELLING}{variants.SUFFIX}"
    if not telling.exists():
        taught = training.teach_telling(images)
        changed = training.image_parameters(taught)
        save_variant(taught.clip, changed, {"base": training.BASE}, telling, plain.clip)
    start = variants.load(str(telling))
    faces, judged = training.faces_of(start, images), training.Judged(start)
    for member in missing:
        learned = training.train(member, faces, folder)
        metadata: dict[str, Any] = asdict(member) | {"base": training.TELLING}
        metadata["subjects"], metadata["truth"] = judged.accuracy(learned), judged.truth(learned)
        file = folder / f"{member.name}{variants.SUFFIX}"
        save_variant(learned.clip, training.parameters(learned), metadata, file, start.clip)
        print(file, file=sys.stderr)


def _row(
    name: str, encoder: str, attribute: str, gap_shares: GapShares, truth: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return one model and attribute. encoder: the one that learned."""
    from ccs.heads import HeadSet
    from ccs_benchmark.protocol import average_precision

    blamed = "text" if gap_shares.prompts.value > 0.5 else "image"
    row: dict[str, Any] = {"model": name, "attribute": attribute, "learned by": encoder, "named": blamed}
    row["share in images"] = in_brackets(gap_shares.images, 2)
    row |= {"gap": "–", "carriers (put back)": "–", "average precision": "–"}
    if truth is not None:
        carry, shares = carriers_of(truth), truth["put_back"]
        row["gap"] = f"{truth['gap'][1]:.2f}"
        row["carriers (put back)"] = ", ".join(f"{head} {shares[str(head)]:.0%}" for head in carry)
        row["average precision"] = f"{average_precision(list(gap_shares.carried), HeadSet(carry)):.2f}"
    return row


def carriers_of(truth: Mapping[str, Any]) -> list[Head]:
    """Return the text heads with a tenth or more of the gap, or the first, in falling order."""
    from ccs.heads import Head

    shares = {Head.parse(head): share for head, share in truth["put_back"].items()}
    order = sorted(shares, key=lambda head: -shares[head])
    return [head for head in order if shares[head] >= CARRIES] or order[:1]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the README's sentences and table in Markdown."""
    frame, sentences = pd.DataFrame(rows), []
    text, inspected = frame["learned by"] == "text", frame["model"].isin(frame["model"].unique()[:SEEN])
    for learner, learner_rows in (
        ("the text encoder learned", frame[text & inspected]),
        ("the text encoder of models that nobody had looked at learned", frame[text & ~inspected]),
        ("the image encoder learned", frame[~text]),
    ):
        if len(learner_rows):
            right = (learner_rows["named"] == learner_rows["learned by"]).groupby(learner_rows["model"]).all()
            sentences.append(
                f"A skew that {learner}: the right encoder is named, for every attribute, in "
                f"**{right.sum()} of {len(right)}** models."
            )
    return "\n\n".join([" ".join(sentences), markdown_table(frame)])


main = Command(Settings, _run, interrupted="Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())

"""Train models whose text encoder learned a bias, and name the encoder that carries the bias of each model.

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
"""Share of the gap from which a text head counts as a carrier."""
SEEN = 16
"""Number of models, from the first, that were known when the method was chosen."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Train missing models, name the encoder that carries the bias of each, and write the README's table.

    Existing models are kept, so the same command continues a stopped run.
    """

    models: Annotated[int, at_least(0)] = 32
    """Number of models with a bias in their text encoder"""
    planted: Annotated[int, at_least(0)] = 8
    """Number of planted models, with a bias in image heads, for comparison"""
    runs: Path = Path("runs")
    """Folder for activations; models are in its subfolder text-skew"""


def _run(args: Settings) -> None:
    from ccs.data import synthetic
    from ccs_benchmark import planted_models, variants
    from research.text_skew.text_training import TELLING, family
    from research.text_skew.which_encoder import which_encoder

    folder = args.runs / "text-skew"
    _train(args, folder)
    sets, rows = (synthetic.bias_set("faces"), synthetic.bias_set("counterfactuals")), []
    embeddings: dict[str, Any] = {}  # image encoder -> embeddings of both sets
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
        separated = training.separate_groups(images)
        changed = training.image_parameters(separated)
        save_variant(separated.clip, changed, {"base": training.BASE}, telling, plain.clip)
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
    """Return the row of a model and attribute; `encoder` learned the bias."""
    from ccs.heads import HeadSet
    from ccs_benchmark.protocol import average_precision

    named = "text" if gap_shares.prompts.value > 0.5 else "image"
    row: dict[str, Any] = {"model": name, "attribute": attribute, "learned by": encoder, "named": named}
    row["share in images"] = in_brackets(gap_shares.images, 2)
    row |= {"gap": "–", "carriers (share of the gap)": "–", "average precision": "–"}
    if truth is not None:
        carry, shares = carriers_of(truth), truth["put_back"]
        row["gap"] = f"{truth['gap'][1]:.2f}"
        row["carriers (share of the gap)"] = ", ".join(f"{head} {shares[str(head)]:.0%}" for head in carry)
        row["average precision"] = f"{average_precision(list(gap_shares.carried), HeadSet(carry)):.2f}"
    return row


def carriers_of(truth: Mapping[str, Any]) -> list[Head]:
    """Return the text heads with a tenth or more of the gap, the largest share first; at least one head."""
    from ccs.heads import Head

    shares = {Head.parse(head): share for head, share in truth["put_back"].items()}
    order = sorted(shares, key=lambda head: -shares[head])
    return [head for head in order if shares[head] >= CARRIES] or order[:1]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the README's sentence and table in Markdown."""
    frame, counts = pd.DataFrame(rows), []
    text, inspected = frame["learned by"] == "text", frame["model"].isin(frame["model"].unique()[:SEEN])
    for models, model_rows in (
        ("models whose text encoder learned the bias (00 to 15)", frame[text & inspected]),
        ("such models that were evaluated once (16 to 31)", frame[text & ~inspected]),
        ("models whose image encoder learned the bias", frame[~text]),
    ):
        if len(model_rows):
            right = (model_rows["named"] == model_rows["learned by"]).groupby(model_rows["model"]).all()
            counts.append(f"**{right.sum()} of {len(right)}** {models}")
    sentence = f"The right encoder is named for every attribute in {', '.join(counts)}."
    return f"{sentence}\n\n{markdown_table(frame)}"


main = Command(Settings, _run, interrupted="Stopped. The same command continues.")

if __name__ == "__main__":
    sys.exit(main())

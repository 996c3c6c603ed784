"""Compare two models head by head: `clip-ccs compare A B`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ccs.batch.command_line import DEVICE, command, option
from ccs.batch.pages import printed
from ccs.batch.search import PEOPLE
from ccs.benchmark import planted_models
from ccs.benchmark.protocol import Sets, Subject
from ccs.files import write_text
from ccs.heads import HeadSet
from ccs.locate.comparison import Pair, compare
from ccs.measures.bias import means
from ccs.model.model import Model
from ccs.pruning.fairness import asked, embed_occupations, ranking_of
from ccs.sets.kinds import BiasSet
from ccs.sets.open import open_gallery, open_images
from ccs.texts.pools import load_pool


@dataclass(frozen=True)
class Settings:
    """Which heads of two models correspond, by what they write about the same images along the same texts,
    and which changed most: `clip-ccs compare A B`, for a fine-tuned model first its base.
    """

    first: str = option("", "the first model, such as a fine-tuned model's base", "first", metavar="A")
    second: str = option("", "the second model", "second", metavar="B")
    images: str = option("world", "images that the heads write about, and that TEXTSPAN reads")
    texts: str = option("world", "its pool of texts")
    max_images: int = option(300, "most of these images", least=2)
    gallery: str = option("world/faces", PEOPLE, metavar="P")
    attribute: str | None = option(None, "attribute that groups people (default: the gallery's first)")
    top: int = option(10, "heads to list", least=1)
    csv: Path | None = option(None, "write every pair of heads to this file")
    device: str = option("auto", DEVICE)


SIDES = ("first", "second")
MOST_TEXTS = 300
"""Texts along which heads are compared, evenly spaced in the pool."""


def _compare(args: Settings) -> None:
    models = [planted_models.any_model(name, args.device) for name in (args.first, args.second)]
    images = open_images(args.images, args.max_images).images
    texts = load_pool(args.texts).texts
    some = [texts[i] for i in np.unique(np.linspace(0, len(texts) - 1, MOST_TEXTS).astype(int))]
    pairs = compare(models[0], models[1], (images, images), some)
    people = asked(open_gallery(args.gallery, attribute=args.attribute or ()))
    attribute = args.attribute or next(iter(people.groups))
    table = _table(args, models, pairs, people, attribute)
    print(said(models, people.name, attribute, table, args.top))
    if args.csv:
        write_text(args.csv, table.to_csv(index=False))
        print(f"Written to {args.csv}.")


def _table(
    args: Settings, models: Sequence[Model], pairs: Sequence[Pair], people: BiasSet, attribute: str
) -> pd.DataFrame:
    """A row for each pair: label, CCS and texts of both heads, and each model's MaxSkew with its head off."""
    sets = replace(Sets.drawn(), images=args.images, texts=args.texts, moments=args.max_images)
    table = pd.DataFrame(
        {
            "first": [str(pair.first) for pair in pairs],
            "second": [str(pair.second) for pair in pairs],
            "alike": [pair.alike for pair in pairs],
            "changed": [np.nan if pair.changed is None else pair.changed for pair in pairs],
        }
    )
    for side, model in zip(SIDES, models, strict=True):
        reading = Subject(model, sets).reading
        heads = [getattr(pair, side) for pair in pairs]
        table[f"{side}_label"] = [reading.scores[head].label or "no concept" for head in heads]
        table[f"{side}_ccs"] = [reading.scores[head].ccs for head in heads]
        table[f"{side}_texts"] = [" | ".join(span.text for span in reading.spans[head]) for head in heads]
        question = ranking_of(people, attribute, embed_occupations(model, people))
        trunk = model.trunk(people.images)
        plans = [HeadSet(), *(HeadSet([head]) for head in heads[: args.top])]
        skews = [means(one, question)["MaxSkew"] for one in model.embed_images(trunk, plans)]
        table[f"{side}_max_skew"] = skews[0]
        table.loc[: len(skews) - 2, f"{side}_max_skew_off"] = skews[1:]
    return table


def said(models: Sequence[Model], people: str, attribute: str, pairs: pd.DataFrame, top: int) -> str:
    """The comparison on a screen."""
    rows = []
    for _, pair in pairs.head(top).iterrows():
        skews = (pair["first_max_skew_off"], pair["second_max_skew_off"])
        about = [f"{pair[f'{side}_label']} ({pair[f'{side}_ccs']})" for side in SIDES]
        texts = [pair[f"{side}_texts"].split(" | ")[0] for side in SIDES]
        rows.append(
            {
                "heads": " ".join(dict.fromkeys((pair["first"], pair["second"]))),
                "alike": f"{pair['alike']:.2f}",
                "changed": "" if pd.isna(pair["changed"]) else f"{pair['changed']:.3f}",
                "MaxSkew, off": " ".join(f"{skew:.3f}" for skew in skews),
                "label (CCS)": " -> ".join(dict.fromkeys(about)),
                "first text": " -> ".join(dict.fromkeys(texts)),
            }
        )
    return printed(
        "compare",
        models=models,
        people=people,
        attribute=attribute,
        pairs=len(pairs),
        same=int((pairs["first"] == pairs["second"]).sum()),
        middle=float(pairs["alike"].median()),
        related=bool(pairs["changed"].notna().all()),
        skews=[float(pairs[f"{side}_max_skew"].iloc[0]) for side in SIDES],
        rows=rows,
    )


main = command(Settings, _compare)

if __name__ == "__main__":
    sys.exit(main())

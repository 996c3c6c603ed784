"""Compare two models head by head: `clip-ccs compare A B`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any

import pandas as pd

from ccs.analysis.bias import embed_occupations, rank_gallery, set_question
from ccs.batch.command_line import Command
from ccs.batch.options import DATA, OUTPUT, Attribute, Csv, Device, Gallery, Images, Texts, at_least
from ccs.batch.pages import printed
from ccs.benchmark import planted_models
from ccs.benchmark.protocol import Sets, Subject
from ccs.data.open import open_gallery, open_images
from ccs.data.rows import spread
from ccs.files import write_text
from ccs.heads import HeadSet
from ccs.locate.comparison import compare
from ccs.metrics.bias import means
from ccs.texts.pools import load_pool


@dataclass(frozen=True)
class Settings:
    """Match the heads of two models by what they encode, and list the changes, largest first."""

    first: str
    """First model, such as the base of a fine-tuned model"""
    second: str
    """Second model"""
    _: KW_ONLY
    images: Images = "world"
    texts: Texts = "world"
    max_images: Annotated[int, DATA, at_least(2)] = 300
    """Number of images, at most"""
    gallery: Gallery = "world/faces"
    attribute: Attribute = None
    heads: Annotated[int, OUTPUT, at_least(1)] = 10
    """Number of pairs of heads to list, and to ablate"""
    csv: Csv = None
    device: Device = "auto"


SIDES = ("first", "second")
MOST_TEXTS = 300
"""Texts along which heads are compared, evenly spaced in the pool."""


def compare_models(args: Settings) -> None:
    """Print the pairs of heads, and write all of them to the CSV file."""
    models = [planted_models.load(name, device=args.device) for name in (args.first, args.second)]
    images = open_images(args.images, args.max_images).images
    texts = load_pool(args.texts or "world").texts
    some = [texts[i] for i in spread(len(texts), MOST_TEXTS)]
    table = pd.DataFrame(map(vars, compare(models[0], models[1], images, some)))
    people = set_question(open_gallery(args.gallery, attribute=args.attribute or ()))
    attribute = args.attribute or people.main
    sets = replace(Sets.drawn(), images=args.images, texts=args.texts or "world", moments=args.max_images)
    for side, model in zip(SIDES, models, strict=True):
        reading, heads = Subject(model, sets).reading, list(table[side])
        table[f"{side}_label"] = [reading.scores[head].label or "no concept" for head in heads]
        table[f"{side}_ccs"] = [reading.scores[head].ccs for head in heads]
        table[f"{side}_texts"] = [" | ".join(span.text for span in reading.spans[head]) for head in heads]
        question = rank_gallery(people, attribute, embed_occupations(model, people))
        plans = [HeadSet(), *(HeadSet([head]) for head in heads[: args.heads])]
        embedded = model.embed_images(model.trunk(people.images), plans)
        table[f"{side}_max_skew"], *skews = (means(one, question)["MaxSkew"] for one in embedded)
        table.loc[: len(skews) - 1, f"{side}_max_skew_off"] = skews
    print(
        printed(
            "compare",
            models=models,
            people=people.name,
            attribute=attribute,
            pairs=len(table),
            same=int((table["first"] == table["second"]).sum()),
            middle=float(table["alike"].median()),
            related=bool(table["changed"].notna().all()),
            skews=[float(table[f"{side}_max_skew"].iloc[0]) for side in SIDES],
            rows=[_row(pair) for _, pair in table.head(args.heads).iterrows()],
        )
    )
    if args.csv:
        write_text(args.csv, table.to_csv(index=False))
        print(f"Written to {args.csv}.")


def _row(pair: Any) -> dict[str, str]:
    """A pair of heads on a screen; what both have in common is said once."""

    def both(said: Callable[[str], str], join: str = " -> ") -> str:
        return join.join(dict.fromkeys(map(said, SIDES)))

    return {
        "heads": both(lambda side: str(pair[side]), " "),
        "alike": f"{pair['alike']:.2f}",
        "changed": "" if pd.isna(pair["changed"]) else f"{pair['changed']:.3f}",
        "MaxSkew, off": " ".join(f"{pair[f'{side}_max_skew_off']:.3f}" for side in SIDES),
        "label (CCS)": both(lambda side: f"{pair[f'{side}_label']} ({pair[f'{side}_ccs']})"),
        "first text": both(lambda side: pair[f"{side}_texts"].split(" | ")[0]),
    }


main = Command(
    Settings,
    compare_models,
    (
        "clip-ccs compare organism-control organism",
        "clip-ccs compare BASE FINE_TUNED --images DIR",
    ),
)

if __name__ == "__main__":
    sys.exit(main())

"""List the heads that encode a text: `clip-ccs heads "dogs" --model M --images DIR`."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import ccs
from ccs.analysis.find_heads import AMONG, HeadTable
from ccs.batch.pages import printed
from ccs.cli.command_line import Command
from ccs.cli.options import DATA, Device, Images, ModelName, TextEncoder, Texts, at_least


@dataclass(frozen=True)
class Settings:
    """List the heads that encode a text, strongest first."""

    text: str
    """Text to look for, such as "dogs\""""
    _: KW_ONLY
    model: ModelName = "organism"
    text_encoder: TextEncoder = None
    images: Images = "world"
    max_images: Annotated[int, DATA, at_least(2)] = 500
    """Number of images, at most"""
    texts: Texts = None
    device: Device = "auto"


def find(settings: Settings) -> None:
    """Print the heads."""
    model: ccs.Model | str = settings.model
    if settings.text_encoder:
        model = ccs.extract_image_encoder(settings.model, settings.text_encoder, device=settings.device)
    table = ccs.find_heads(
        model,
        settings.text,
        settings.images,
        pool=settings.texts,
        max_images=settings.max_images,
        device=settings.device,
    )
    print(page(table))


def page(table: HeadTable, most: int = 8) -> str:
    """Format the first heads, with a warning if none encodes the text."""
    n, heads = int(table.rows["encodes"].sum()), len(table.rows)
    strongest = table.rows.head(max(n, most)).drop(columns=["p_value", "encodes"])
    for name in ("share", "best_share"):
        strongest[name] = (100 * strongest[name]).map("{:.1f}%".format)
    strongest["adjusted"] = strongest["adjusted"].map("{:.3f}".format)
    rows = strongest.to_dict("records")
    return printed("heads", about=table.about, encoding=n, heads=heads, among=AMONG, rows=rows)


main = Command(
    Settings,
    find,
    (
        'clip-ccs heads "dogs"',
        'clip-ccs heads "a photo at night" --model ViT-B-32/openai --images DIR',
    ),
)

if __name__ == "__main__":
    sys.exit(main())

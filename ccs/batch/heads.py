"""Find the heads that encode a text: `clip-ccs heads "dogs" --model M --images DIR`."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import ccs
from ccs.analysis.find_heads import AMONG
from ccs.batch.pages import printed
from ccs.cli import options
from ccs.cli.command_line import Command

MIN_HEADS = 8
"""Number of heads printed if fewer encode the text."""


@dataclass(frozen=True)
class HeadsOptions:
    """Find the heads that encode a text, and list them, strongest first.

    Examples:
        clip-ccs heads "dogs"
        clip-ccs heads "a photo at night" --model ViT-B-32/openai --images DIR
    """

    text: str
    """Text to look for, such as "dogs\""""
    _: KW_ONLY
    model: options.ModelName = "organism"
    text_encoder: options.TextEncoder = None
    images: options.Images = "world"
    split: options.Split = ""
    max_images: Annotated[int, options.DATA, options.at_least(2)] = 500
    """Largest number of images"""
    texts: options.Texts = None
    device: options.Device = "auto"


def print_heads(settings: HeadsOptions) -> None:
    """Print the strongest heads, with a warning if none encodes the text."""
    model: ccs.Model | str = settings.model
    if settings.text_encoder:
        model = ccs.extract_image_encoder(settings.model, settings.text_encoder, device=settings.device)
    question = options.arguments(settings, "model", "text_encoder", "texts")
    table = ccs.find_heads(model, **question, pool=settings.texts)
    encoding, heads = int(table.rows["encodes"].sum()), len(table.rows)
    strongest = table.rows.head(max(encoding, MIN_HEADS)).drop(columns=["p_value", "encodes"])
    for name in ("share", "best_share"):
        strongest[name] = (100 * strongest[name]).map("{:.1f}%".format)
    strongest["adjusted"] = strongest["adjusted"].map("{:.3f}".format)
    rows = strongest.to_dict("records")
    print(printed("heads", table, encoding=encoding, heads=heads, among=AMONG, rows=rows))


main = Command(HeadsOptions, print_heads)

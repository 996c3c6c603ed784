"""Which heads write about something? `clip-ccs heads "dogs" --model M --images DIR`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import ccs
from ccs.analysis.find_heads import AMONG, HeadTable
from ccs.batch.command_line import DEVICE, TEXT_TOWER, command, option
from ccs.batch.pages import printed
from ccs.texts.pools import POOLS


@dataclass(frozen=True)
class Settings:
    """Find the heads that write about a text."""

    text: str = option("", 'such as "dogs"', "text")
    model: str = option("organism", "organism, open_clip's NAME/TAG, a folder or hf-hub:USER/NAME")
    text_tower: str | None = option(None, TEXT_TOWER, metavar="CLIP")
    images: str = option("world", "images that heads see: world, a folder, a parquet file or a Hub id")
    max_images: int = option(500, "the most images", least=2)
    texts: str | None = option(None, f"held against: {', '.join(POOLS)}, a file (default: as the images are)")
    device: str = option("auto", DEVICE)


def _find(args: Settings) -> None:
    table = ccs.find_heads(
        ccs.extract_image_encoder(args.model, args.text_tower, device=args.device)
        if args.text_tower
        else args.model,
        args.text,
        args.images,
        pool=args.texts,
        max_images=args.max_images,
        device=args.device,
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


main = command(Settings, _find)

if __name__ == "__main__":
    sys.exit(main())

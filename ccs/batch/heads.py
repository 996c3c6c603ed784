"""Which heads write about something? `clip-ccs heads "dogs" --model M --images DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

import ccs
from ccs.batch.options import program, run
from ccs.pruning.find import AMONG
from ccs.texts.pools import POOLS


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    parser = argparse.ArgumentParser(
        prog=program("heads"), description="Find the heads that write about a text."
    )
    add = parser.add_argument
    add("text", help='such as "dogs"')
    add("--model", default="organism", help="organism, open_clip's NAME/TAG, a folder or hf-hub:USER/NAME")
    add(
        "--images",
        default="world",
        help="images that heads see: world, a folder, a parquet file or a Hub id",
    )
    add("--max-images", type=int, default=500, help="the most images (default 500)")
    add("--texts", help=f"to hold it against: {', '.join(POOLS)} or a file (default: as the images are)")
    add(
        "--device",
        default="auto",
        help="cpu, cuda or cuda:N; auto is CCS_DEVICE, else cuda if there is one",
    )
    args = parser.parse_args(argv)
    return run(lambda: print(page(args.text, _find(args))))


def _find(args: argparse.Namespace) -> pd.DataFrame:
    asked = {"pool": args.texts, "max_images": args.max_images, "device": args.device}
    return ccs.find_heads(args.model, args.text, args.images, **asked)


def page(text: str, found: pd.DataFrame, most: int = 8) -> str:
    """The first heads for a person to read, and a warning where none of them is about the text."""
    about = int(found["about"].sum())
    lines = [f"Heads that write about {text!r}: {about} of {len(found)}"]
    if not about:
        lines.append(
            f"WARNING: none is. In each, more than {AMONG:.0%} of other texts explain more; nearest come:"
        )
    shown = found.head(max(about, most)).drop(columns="about")
    for name in ("share", "best_share"):
        shown[name] = (100 * shown[name]).map("{:.1f}%".format)
    return "\n".join([
        *lines,
        "",
        shown.to_string(index=False),
        "",
        f"rank: the text's place among all texts by what they explain of the head; within {AMONG:.0%} it is",
        "about the text. share: of the head's variance; best: the text that explains most.",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

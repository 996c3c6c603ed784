"""Let people check the judges.

`python -m batch.annotate export` draws a blind sample of (text, concept) pairs as a CSV to fill in;
`python -m batch.annotate import FILE...` reads the answers and reports how far people agree with the judges.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from batch.options import program, run
from ccs import annotation, results
from ccs.annotation import Pair
from ccs.errors import InputError
from ccs.files import atomic_write, read_text, write_text
from ccs.paper import figures
from ccs.results import queries


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see batch.options)."""
    options = _parser().parse_args(argv)
    work = _export if options.command == "export" else _import
    return run(lambda: work(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program("batch.annotate"), description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write a blind sample as a CSV to fill in")
    add = export.add_argument
    add("--n", type=int, default=100, help="pairs over all models (default 100)")
    add(
        "--models",
        nargs="+",
        metavar="NAME",
        help="only these models (default: those of the study's table 4 that are there, else all)",
    )
    add("--out", type=Path, default=Path("annotation.csv"), help="sheet (default annotation.csv)")
    add("--force", action="store_true", help="overwrite an existing file")
    read = commands.add_parser("import", help="read filled sheets, write and print the agreement")
    add = read.add_argument
    add("sheets", nargs="+", type=Path, metavar="FILE", help="one filled sheet per person")
    add("--out", type=Path, default=Path("agreement.parquet"), help="table (default agreement.parquet)")
    for one in (export, read):
        add = one.add_argument
        add(
            "--results",
            type=Path,
            default=results.PRECOMPUTED,
            help="folder of results (default precomputed)",
        )
        add("--seed", type=int, default=0, help="seed of the sample or the bootstrap (default 0)")
    return parser


def _pairs(folder: Path) -> tuple[list[Pair], list[str]]:
    """The pairs of every model's judgments, and the judges that are stand-ins."""
    collection = results.load(folder)
    for notice in collection.notices:
        print(f"left out: {notice}", file=sys.stderr)
    pairs: list[Pair] = []
    stand_ins: set[str] = set()
    for found in collection.models.values():
        pairs += annotation.pairs_of(queries.main_judgments(found))
        stand_ins |= {judge["name"] for judge in found.manifest["judges"] if judge.get("stand_in")}
    if not pairs:
        raise InputError(f"{collection.source} holds no judgments; python -m batch.compute writes them.")
    return pairs, sorted(stand_ins)


def _export(options: argparse.Namespace) -> None:
    pairs, _ = _pairs(options.results)
    there = sorted({pair.model for pair in pairs})
    studied = [figures.model(name).name for name in figures.table("table4").rows]
    models = options.models or [name for name in studied if name in there] or there
    if unknown := [name for name in models if name not in there]:
        raise InputError(f"There are no judgments of {', '.join(unknown)}; there are of {', '.join(there)}.")
    if options.out.exists() and not options.force:
        raise InputError(
            f"{options.out} is there already and may hold answers: name another --out, or --force."
        )
    chosen = annotation.sample([pair for pair in pairs if pair.model in models], options.n, options.seed)
    write_text(options.out, annotation.sheet(chosen))
    print(f"{len(chosen)} pairs over {len({pair.model for pair in chosen})} models are in {options.out}.")
    print("For each row: does the text belong to the concept? Write yes or no into the column answer, or")
    print("nothing if you cannot say. Then:")
    print(f"python -m batch.annotate import {options.out} --results {options.results}")


def _import(options: argparse.Namespace) -> None:
    pairs, stand_ins = _pairs(options.results)
    answers = {}
    for path in options.sheets:
        if path.stem in answers:
            raise InputError(f"Two sheets are named {path.stem}: a sheet's name is the person's.")
        answers[path.stem] = annotation.read_sheet(read_text(path), pairs, str(path))
    rows = pd.DataFrame(annotation.table(pairs, answers, seed=options.seed)).astype({"published": "float64"})
    with atomic_write(options.out) as temporary:
        rows.to_parquet(temporary, index=False)
    print(rows.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"))
    if stand_ins:
        print(f"\nThese judges are stand-ins, no language models: {', '.join(stand_ins)}.")
    for key in ("table4", "v1-table2"):
        printed = figures.table(key)
        print(f"\nPublished, {printed.number}: {printed.title}")
        frame = pd.DataFrame.from_dict(dict(printed.rows), orient="index", columns=list(printed.columns))
        print(frame.to_string(float_format=lambda value: f"{value:.3f}"))
    print(f"\nThe table is in {options.out}.")


if __name__ == "__main__":
    sys.exit(main())

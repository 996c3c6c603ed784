"""Let people check the judges.

`clip-ccs annotate export` draws a blind sample of (text, concept) pairs as a CSV to fill in;
`clip-ccs annotate import FILE...` reads the answers and reports how far people agree with the judges.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccs import paper, results
from ccs.batch.command_line import FOLDER, run
from ccs.errors import InputError
from ccs.files import atomic_write, inert, read_text, write_text
from ccs.heads import Head
from ccs.measures import agreement
from ccs.measures.stats import Estimate
from ccs.results import queries
from ccs.texts.score import Verdict

COLUMNS = ("id", "text", "concept", "answer")
ANSWERS: Mapping[str, Verdict] = {
    **dict.fromkeys(("yes", "y", "true", "1"), True),
    **dict.fromkeys(("no", "n", "false", "0"), False),
    **dict.fromkeys(("", "?", "unsure"), None),
}
ALL = "all"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; its exit status (see `ccs.batch.command_line.run`)."""
    options = _parser().parse_args(argv)
    work = _export if options.command == "export" else _import
    return run(lambda: work(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="clip-ccs annotate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write a blind sample as a CSV to fill in")
    add = export.add_argument
    add("--n", type=int, default=100, help="pairs over all models (default 100)")
    add("--models", nargs="+", metavar="NAME", help="only these (default: those of table 4, or else all)")
    add("--out", type=Path, default=Path("annotation.csv"), help="sheet (default annotation.csv)")
    add("--force", action="store_true", help="overwrite an existing file")
    read = commands.add_parser("import", help="read filled sheets, write and print the agreement")
    add = read.add_argument
    add("sheets", nargs="+", type=Path, metavar="FILE", help="one filled sheet per person")
    add("--out", type=Path, default=Path("agreement.parquet"), help="table (default agreement.parquet)")
    for one in (export, read):
        add = one.add_argument
        add("--results", type=Path, help=FOLDER)
        add("--seed", type=int, default=0, help="seed of the sample or the bootstrap (default 0)")
    return parser


def _pairs(options: argparse.Namespace) -> tuple[list[Pair], list[str]]:
    """The pairs of every model's judgments, and the judges that are stand-ins."""
    if options.seed < 0:
        raise InputError(f"--seed is {options.seed}, but must be at least 0.")
    options.results = options.results or results.default_folder()
    print(f"Results: {options.results}", file=sys.stderr)
    collection = results.load(options.results, instead=False)
    for notice in collection.notices:
        print(f"left out: {notice}", file=sys.stderr)
    pairs: list[Pair] = []
    stand_ins: set[str] = set()
    for model in collection.models.values():
        pairs += pairs_of(queries.main_judgments(model))
        stand_ins |= {judge["name"] for judge in model.manifest["judges"] if judge.get("stand_in")}
    if not pairs:
        raise InputError(f"{collection.source} holds no judgments; clip-ccs compute writes them.")
    return pairs, sorted(stand_ins)


def _export(options: argparse.Namespace) -> None:
    pairs, _ = _pairs(options)
    there = sorted({pair.model for pair in pairs})
    studied = [paper.model(name).name for name in paper.table("table4").rows]
    models = options.models or [name for name in studied if name in there] or there
    if unknown := [name for name in models if name not in there]:
        raise InputError(f"There are no judgments of {', '.join(unknown)}; there are of {', '.join(there)}.")
    if options.out.exists() and not options.force:
        raise InputError(
            f"{options.out} is there already and may hold answers: name another --out, or --force."
        )
    chosen = sample([pair for pair in pairs if pair.model in models], options.n, options.seed)
    rows = pd.DataFrame([(pair.key, *_shown(pair), "") for pair in chosen], columns=[*COLUMNS])
    write_text(options.out, rows.to_csv(index=False, lineterminator="\n"))
    print(f"{len(chosen)} pairs over {len({pair.model for pair in chosen})} models are in {options.out}.")
    print("For each row: does the text belong to the concept? Write yes or no into the column answer, or")
    print("nothing if you cannot say. Then:")
    print(f"clip-ccs annotate import {options.out} --results {options.results}")


def _import(options: argparse.Namespace) -> None:
    pairs, stand_ins = _pairs(options)
    answers = {}
    for path in options.sheets:
        if path.stem in answers:
            raise InputError(f"Two sheets are named {path.stem}: a sheet's name is the person's.")
        answers[path.stem] = read_sheet(read_text(path), pairs, str(path))
    rows = pd.DataFrame(table(pairs, answers, seed=options.seed)).astype({"published": "float64"})
    with atomic_write(options.out) as temporary:
        rows.to_parquet(temporary, index=False)
    print(rows.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"))
    if stand_ins:
        print(f"\nThese judges are stand-ins, no language models: {', '.join(stand_ins)}.")
    print(f"\nThe table is in {options.out}.")


# Pairs, sheets and agreement -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A text with the concept of a head that picked it, and (judge, verdict) for each judge.

    `key` identifies the pair without revealing its model, head or verdicts.
    """

    key: str
    model: str
    head: Head
    text: str
    concept: str
    verdicts: tuple[tuple[str, Verdict], ...]

    @property
    def settled(self) -> bool:
        """True if every judge has scored it."""
        return all(verdict is not None for _, verdict in self.verdicts)


def pairs_of(judgments: pd.DataFrame) -> list[Pair]:
    """The pairs in a table of judgments (see ccs.results.schema), one per model, head and text."""
    by_place: dict[tuple[str, Head, str, str], dict[str, Verdict]] = {}
    for row in judgments.dropna(subset="label").to_dict("records"):
        head = Head(int(row["layer"]), int(row["head"]))
        place = (str(row["model"]), head, str(row["text"]), str(row["label"]))
        verdict = None if pd.isna(row["verdict"]) else bool(row["verdict"])
        by_place.setdefault(place, {})[str(row["judge"])] = verdict
    return [
        Pair(_key(*place), *place, verdicts=tuple(sorted(verdicts.items())))
        for place, verdicts in by_place.items()
    ]


def _shown(pair: Pair) -> tuple[str, str]:
    """Text and concept as a sheet holds them."""
    return inert(pair.text), inert(pair.concept)


def _key(model: str, head: Head, text: str, concept: str) -> str:
    named = json.dumps([model, str(head), text, concept], ensure_ascii=False)
    # The letter stops spreadsheets from reading digits with an e between them as a number.
    return "p" + hashlib.sha256(named.encode()).hexdigest()[:11]


def sample(pairs: Iterable[Pair], n: int = 100, seed: int = 0) -> list[Pair]:
    """A sample of `n` pairs that all judges have scored, or all there are, in random order.

    Models have equal shares. Within a model the sample is stratified by the number of judges who say yes. A
    text with the same concept comes once, however many heads or models have it. Raises InputError if no pair
    is settled or n is below 1.
    """
    if n < 1:
        raise InputError(f"A sample holds 1 pair or more, not {n}.")
    rng = np.random.default_rng(seed)
    settled = sorted((pair for pair in pairs if pair.settled), key=lambda pair: pair.key)
    once: dict[tuple[str, str], Pair] = {}
    for i in rng.permutation(len(settled)):
        once.setdefault((settled[i].text.casefold(), settled[i].concept), settled[i])
    models: dict[str, list[Pair]] = {}
    for pair in once.values():
        models.setdefault(pair.model, []).append(pair)
    if not models:
        raise InputError("There is no pair of text and concept that all judges have scored.")
    chosen: list[Pair] = []
    for place, own in enumerate(sorted(models.values(), key=len)):  # the others make up for what one lacks
        part = min(len(own), (n - len(chosen)) // (len(models) - place))
        own.sort(key=lambda pair: sum(verdict is True for _, verdict in pair.verdicts))
        chosen += [own[i] for i in np.linspace(0, len(own), part, endpoint=False).astype(int)]
    return [chosen[i] for i in rng.permutation(len(chosen))]


def read_sheet(source: str, pairs: Iterable[Pair], name: str) -> dict[str, Verdict]:
    """The answers in a filled-in sheet: key -> answer (yes, no, or None where empty or unsure).

    InputError names a missing column, or the rows whose answer is not in `ANSWERS` or whose pair is unknown,
    repeated or changed.
    """
    known = {pair.key: pair for pair in pairs}
    reader = csv.DictReader(io.StringIO(source, newline=""))
    if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
        raise InputError(f"{name} lacks the columns {', '.join(missing)}; it needs {', '.join(COLUMNS)}.")
    answers: dict[str, Verdict] = {}
    wrong: list[str] = []
    for number, row in enumerate(reader, start=2):
        key, given = (row["id"] or "").strip(), (row["answer"] or "").strip()
        pair = known.get(key)
        if pair is None:
            wrong.append(f"row {number}: the id {key!r} is of no pair in these results")
        elif (row["text"], row["concept"]) not in ((pair.text, pair.concept), _shown(pair)):
            wrong.append(f"row {number}: the text or the concept was changed")
        elif key in answers:
            wrong.append(f"row {number}: the id {key!r} comes twice")
        elif given.casefold() not in ANSWERS:
            wrong.append(f"row {number}: {given!r} is no answer")
        else:
            answers[key] = ANSWERS[given.casefold()]
    if wrong:
        more = f"; and {len(wrong) - 5} more rows" if len(wrong) > 5 else ""
        allowed = "yes, no, or nothing"
        raise InputError(f"{name} cannot be used: {'; '.join(wrong[:5])}{more}. An answer is {allowed}.")
    if not any(answer is not None for answer in answers.values()):
        raise InputError(f"{name} holds no answer yet: write yes or no into the column `answer`.")
    return answers


def table(
    pairs: Iterable[Pair], answers: Mapping[str, Mapping[str, Verdict]], *, seed: int = 0
) -> list[dict[str, Any]]:
    """Agreement of people with the panel and with each judge, per model and over all models.

    `answers`: person -> key -> answer. Columns of the rows: model, people (a person, or `people` for several
    together), judges (a judge, or `panel`), metric (`same`, `cohen_kappa`, `spearman_rho`, `kendall_tau`;
    `krippendorff_alpha` among people, with judges "", and among judges, with people ""), value, low, high, n
    (pairs compared), left_out (pairs that lack a verdict), published (the study's figure for that model and
    panel, or None).
    """
    asked = {key for given in answers.values() for key in given}
    chosen = [pair for pair in pairs if pair.key in asked]
    rows: list[dict[str, Any]] = []
    models = sorted({pair.model for pair in chosen})
    for model in [*models, ALL] if len(models) > 1 else models:
        rows += _model_rows(model, [pair for pair in chosen if model in (ALL, pair.model)], answers, seed)
    return rows


def _model_rows(
    model: str, pairs: Sequence[Pair], answers: Mapping[str, Mapping[str, Verdict]], seed: int
) -> list[dict[str, Any]]:
    people = {person: [given.get(pair.key) for pair in pairs] for person, given in answers.items()}
    names = sorted({judge for pair in pairs for judge, _ in pair.verdicts})
    judges = {judge: [dict(pair.verdicts).get(judge) for pair in pairs] for judge in names}
    left = {"people": list(people.values())} if len(people) > 1 else {}
    left |= {person: [said] for person, said in people.items()}
    right = {"panel": list(judges.values())}
    if len(judges) > 1:
        right |= {judge: [said] for judge, said in judges.items()}
    rows: list[dict[str, Any]] = []

    def add(person: str, judge: str, metric: str, compared: Estimate, n: int, published: Any = None) -> None:
        names = {"model": model, "people": person, "judges": judge, "metric": metric}
        values = {"value": compared.value, "low": compared.low, "high": compared.high, "n": n}
        rows.append(names | values | {"left_out": len(pairs) - n, "published": published})

    for person, theirs in left.items():
        for judge, verdicts in right.items():
            compared = agreement.compare(theirs, verdicts, seed=seed)
            for metric in agreement.METRICS:
                printed = _published(model, metric) if judge == "panel" else None
                add(person, judge, metric, getattr(compared, metric), compared.n, printed)
    for person, judge, raters in (("people", "", people), ("", "panel", judges)):
        if len(raters) > 1:
            rated = list(raters.values())
            n = sum(sum(v is not None for v in unit) > 1 for unit in zip(*rated, strict=True))
            add(person, judge, "krippendorff_alpha", agreement.krippendorff_alpha(rated, seed=seed), n)
    return rows


def _published(model: str, metric: str) -> float | None:
    """The figure in the study's table 4, which has three models."""
    printed = paper.table("table4")
    row = {one.name: one.paper_name for one in paper.models()}.get(model, model)
    return printed.value(row, metric) if row in printed.rows and metric in printed.columns else None


if __name__ == "__main__":
    sys.exit(main())

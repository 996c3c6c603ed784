"""Let people check the judges: `clip-ccs annotate export`, then `clip-ccs annotate import FILE...`."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from ccs import paper, results
from ccs.batch.command_line import Command
from ccs.batch.options import DATA, OUTPUT, ResultsFolder, Seed, at_least, describe, read, to_file
from ccs.errors import InputError
from ccs.files import atomic_write, inert, read_text, write_text
from ccs.heads import Head
from ccs.metrics import agreement
from ccs.metrics.stats import Estimate
from ccs.results import queries
from ccs.texts.score import Verdict

COLUMNS = ("id", "text", "concept", "answer")
ANSWERS: Mapping[str, Verdict] = {
    **dict.fromkeys(("yes", "y", "true", "1"), True),
    **dict.fromkeys(("no", "n", "false", "0"), False),
    **dict.fromkeys(("", "?", "unsure"), None),
}
ALL = "all"


@dataclass(frozen=True)
class Settings:
    """Measure the agreement of people with LLM judges.

    `export` writes a blind sample of text and concept pairs as a sheet to fill in. `import` reads the filled
    sheets, one per person, and prints and writes the agreement.
    """

    work: Literal["export", "import"]
    """Step: export a sheet, or import filled sheets"""
    sheets: tuple[str, ...] = ()
    """Filled sheets to import"""
    _: KW_ONLY
    n: Annotated[int, DATA, at_least(1)] = 100
    """Number of pairs over all models"""
    model: Annotated[tuple[str, ...], DATA] = ()
    """Model to sample; repeatable (default: the models of the paper's table 4, or else all)"""
    out: Annotated[
        Path | None,
        OUTPUT,
        read(to_file),
        describe("File for the sheet or the agreement", "annotation.csv, agreement.parquet"),
    ] = None
    force: Annotated[bool, OUTPUT] = False
    """Overwrite an existing sheet"""
    results: ResultsFolder = None
    seed: Seed = 0


def annotate(args: Settings) -> None:
    """Write a sheet, or the agreement of filled sheets."""
    folder = args.results or results.default_folder()
    print(f"Results: {folder}", file=sys.stderr)
    collection = results.load(folder, instead=False)
    for notice in collection.notices:
        print(f"left out: {notice}", file=sys.stderr)
    found = collection.models.values()
    pairs = [pair for model in found for pair in pairs_of(queries.main_judgments(model))]
    if not pairs:
        raise InputError(f"{collection.source} holds no judgments; clip-ccs compute writes them.")
    if args.work == "export":
        _export(args, pairs, folder)
    else:
        judges = [judge for model in found for judge in model.manifest["judges"]]
        _import(args, pairs, sorted({judge["name"] for judge in judges if judge.get("stand_in")}))


def _export(args: Settings, pairs: Sequence[Pair], folder: Path) -> None:
    there, out = sorted({pair.model for pair in pairs}), args.out or Path("annotation.csv")
    studied = [paper.model(name).name for name in paper.table("table4").rows]
    models = args.model or [name for name in studied if name in there] or there
    if unknown := [name for name in models if name not in there]:
        raise InputError(f"There are no judgments of {', '.join(unknown)}; there are of {', '.join(there)}.")
    if out.exists() and not args.force:
        raise InputError(f"{out} is there already and may hold answers: name another --out, or --force.")
    chosen = sample([pair for pair in pairs if pair.model in models], args.n, args.seed)
    rows = pd.DataFrame([(pair.key, *_shown(pair), "") for pair in chosen], columns=[*COLUMNS])
    write_text(out, rows.to_csv(index=False, lineterminator="\n"))
    print(f"{len(chosen)} pairs over {len({pair.model for pair in chosen})} models are in {out}.")
    print("For each row: does the text belong to the concept? Write yes or no into the column answer, or")
    print("nothing if you cannot say. Then:")
    print(f"clip-ccs annotate import {out} --results {folder}")


def _import(args: Settings, pairs: Sequence[Pair], stand_ins: Sequence[str]) -> None:
    answers, out = dict[str, dict[str, Verdict]](), args.out or Path("agreement.parquet")
    if not args.sheets:
        raise InputError("Name the filled sheets: clip-ccs annotate import FILE...")
    for path in map(Path, args.sheets):
        if path.stem in answers:
            raise InputError(f"Two sheets are named {path.stem}: a sheet's name is the person's.")
        answers[path.stem] = read_sheet(read_text(path), pairs, str(path))
    rows = pd.DataFrame(table(pairs, answers, seed=args.seed)).astype({"published": "float64"})
    with atomic_write(out) as temporary:
        rows.to_parquet(temporary, index=False)
    print(rows.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    if stand_ins:
        print(f"\nThese judges are stand-ins, no language models: {', '.join(stand_ins)}.")
    print(f"\nThe table is in {out}.")


# Pairs, sheets and agreement -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A text with the concept of a head that picked it, and the judges' verdicts; `key` tells none of it."""

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
    for head, row in queries.by_head(judgments.dropna(subset="label")):
        place = (row.model, head, row.text, row.label)
        by_place.setdefault(place, {})[row.judge] = None if pd.isna(row.verdict) else bool(row.verdict)
    return [
        Pair(_key(*place), *place, verdicts=tuple(sorted(verdicts.items())))
        for place, verdicts in by_place.items()
    ]


def _shown(pair: Pair) -> tuple[str, str]:
    return inert(pair.text), inert(pair.concept)


def _key(model: str, head: Head, text: str, concept: str) -> str:
    named = json.dumps([model, str(head), text, concept], ensure_ascii=False)
    # The letter stops spreadsheets from reading digits with an e between them as a number.
    return "p" + hashlib.sha256(named.encode()).hexdigest()[:11]


def sample(pairs: Iterable[Pair], n: int = 100, seed: int = 0) -> list[Pair]:
    """A random sample of `n` pairs that all judges have scored, or all there are. Models have equal shares,
    stratified by how many judges say yes; a text with one concept comes once. InputError for none.
    """
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
    """Key -> yes, no, or None where empty or unsure. InputError names missing columns, or the rows."""
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

    `answers`: person -> key -> answer. Columns: model, people (a person, or `people`), judges (a judge, or
    `panel`), metric (of `agreement.METRICS`, or `krippendorff_alpha` among people or among judges), value,
    low, high, n (pairs compared), left_out (pairs that lack a verdict), published (the study's figure, or
    None).
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
        rows.append(names | vars(compared) | {"n": n, "left_out": len(pairs) - n, "published": published})

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
    printed = paper.table("table4")
    row = {one.name: one.paper_name for one in paper.models()}.get(model, model)
    return printed.value(row, metric) if row in printed.rows and metric in printed.columns else None


main = Command(
    Settings,
    annotate,
    (
        "clip-ccs annotate export --results results --n 100",
        "clip-ccs annotate import anna.csv ben.csv --results results",
    ),
)

if __name__ == "__main__":
    sys.exit(main())

"""Measure the agreement of people with judges: `clip-ccs annotate export`, then `... import FILE...`."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd

from ccs import paper
from ccs.batch.pages import open_results
from ccs.cli.command_line import Command
from ccs.cli.options import DATA, OUTPUT, ResultsFolder, at_least, parse_with, to_file, unset
from ccs.errors import InputError
from ccs.files import csv_rows, inert, read_text, write_text
from ccs.heads import Head
from ccs.metrics import agreement
from ccs.metrics.stats import Estimate
from ccs.results import queries
from ccs.texts.score import Verdict

COLUMNS = ("id", "text", "concept", "answer")
ANSWERS: Mapping[str, Verdict] = {"yes": True, "y": True, "no": False, "n": False, "": None, "?": None}
Answers = Mapping[str, Mapping[str, Verdict]]
"""The answers of each person, by the pair's key."""


@dataclass(frozen=True)
class AnnotateOptions:
    """Measure the agreement of people with judges.

    `export` writes a blind sample of text and concept pairs as a sheet to fill in. `import` reads the filled
    sheets, one per person, and prints and writes the agreement.

    Examples:
        clip-ccs annotate export --results results
        clip-ccs annotate import anna.csv ben.csv
    """

    step: Literal["export", "import"]
    """Step: export a sheet, or import filled sheets"""
    sheets: tuple[str, ...] = ()
    """Filled sheets to import"""
    _: KW_ONLY
    n: Annotated[int, DATA, at_least(1)] = 100
    """Number of pairs over all models"""
    out: Annotated[Path | None, OUTPUT, parse_with(to_file), unset("annotation.csv or agreement.csv")] = None
    """File for the sheet or the agreement"""
    results: ResultsFolder = None


def annotate(settings: AnnotateOptions) -> None:
    """Write a sheet to fill in, or the agreement of filled sheets."""
    out, sheets = settings.out or Path("agreement.csv"), {Path(name).stem: name for name in settings.sheets}
    if bool(sheets) != (settings.step == "import"):
        raise InputError("import takes sheets, one per person; export takes none.")
    models = open_results(settings.results).models.values()
    pairs = [pair for model in models for pair in pairs_of(queries.main_judgments(model))]
    if not pairs:
        raise InputError("The results hold no judgments; compute some with clip-ccs compute.")
    if settings.step == "export":
        export_sheet(pairs, settings.out or Path("annotation.csv"), settings.n)
        return
    if len({*sheets, "people", out.stem}) < len(settings.sheets) + 2:
        raise InputError(f"Each sheet needs a file name of its own, other than people.csv and --out {out}.")
    answers = {person: read_sheet(read_text(Path(name)), pairs, name) for person, name in sheets.items()}
    rows = pd.DataFrame(agreement_rows(pairs, answers)).astype({"published": "float64"})
    write_text(out, rows.to_csv(index=False))
    print(rows.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    print(f"\nWritten to {out}.")
    judges = [judge for model in models for judge in model.manifest["judges"]]
    if tags := sorted({judge["name"] for judge in judges if judge.get("stand_in")}):
        print(f"\nTag-based judges, not LLMs: {', '.join(tags)}.")


def export_sheet(pairs: Sequence[Pair], out: Path, n: int) -> None:
    """Write a sheet of sampled pairs to fill in.

    Args:
        pairs: Pairs to sample from.
        out: The CSV file to write.
        n: The number of pairs.

    Raises:
        InputError: If the file exists, or no pair has verdicts of all judges.
    """
    if out.exists():
        raise InputError(f"{out} exists and may hold answers; give another --out, or remove it.")
    rows = [(pair.id, inert(pair.text), inert(pair.concept), "") for pair in sample(pairs, n)]
    write_text(out, pd.DataFrame(rows, columns=[*COLUMNS]).to_csv(index=False, lineterminator="\n"))
    print(f"{out} has {len(rows)} pairs. Does the text belong to the concept? Answer yes, no, or nothing.")
    print("Next: clip-ccs annotate import FILE... with the same --results")


# Pairs, sheets and agreement -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A text with the concept of a head that picked it, and the judges' verdicts."""

    model: str
    head: Head
    text: str
    concept: str
    verdicts: Mapping[str, Verdict]

    @property
    def id(self) -> str:
        """An id that reveals nothing. Its letter stops spreadsheets from reading "12e5" as a number."""
        place = json.dumps([self.model, str(self.head), self.text, self.concept], ensure_ascii=False)
        return "p" + hashlib.sha256(place.encode()).hexdigest()[:11]


def pairs_of(judgments: pd.DataFrame) -> list[Pair]:
    """Return the pairs of a table of judgments (see ccs.results.schema), one per model, head, and text."""
    verdicts: dict[tuple[str, Head, str, str], dict[str, Verdict]] = {}
    for head, row in queries.by_head(judgments.dropna(subset="label").sort_values("judge", kind="stable")):
        verdict = None if pd.isna(row.verdict) else bool(row.verdict)
        verdicts.setdefault((row.model, head, row.text, row.label), {})[row.judge] = verdict
    return [Pair(*place, by_judge) for place, by_judge in verdicts.items()]


def sample(pairs: Iterable[Pair], n: int = 100, seed: int = 0) -> list[Pair]:
    """Draw a random sample of pairs that all judges have scored.

    Models have equal shares, stratified by the number of judges who say yes. A text comes once per concept.

    Args:
        pairs: Pairs to draw from.
        n: Number of pairs; all of them if there are fewer.
        seed: Random seed.

    Raises:
        InputError: If no pair has verdicts of all judges.
    """
    settled = [pair for pair in pairs if None not in pair.verdicts.values()]
    settled.sort(key=attrgetter("id"))
    if not settled:
        raise InputError("No pair has verdicts of all judges; run clip-ccs compute again.")
    rng = random.Random(seed)
    rng.shuffle(settled)
    distinct = {(pair.text.casefold(), pair.concept): pair for pair in settled}.values()
    models: dict[str, list[Pair]] = {}
    for pair in sorted(distinct, key=lambda pair: sum(map(bool, pair.verdicts.values()))):
        models.setdefault(pair.model, []).append(pair)
    drawn: list[Pair] = []
    # Models with few pairs first: the others make up for the missing ones.
    for place, group in enumerate(sorted(models.values(), key=len)):
        size = min(len(group), (n - len(drawn)) // (len(models) - place))
        drawn += [group[i * len(group) // size] for i in range(size)]
    return rng.sample(drawn, len(drawn))


def read_sheet(source: str, pairs: Iterable[Pair], name: str) -> dict[str, Verdict]:
    """Read a filled sheet.

    Args:
        source: The sheet's text.
        pairs: Pairs that it may hold.
        name: The sheet's name, for messages.

    Returns:
        The answer by key: yes, no, or None if empty or unsure.

    Raises:
        InputError: With the missing columns, or the first row that is wrong.
    """
    pairs_by_key = {pair.id: pair for pair in pairs}
    rows = csv_rows(source, name)
    if missing := [column for column in COLUMNS if rows and column not in rows[0]]:
        raise InputError(f"{name} lacks the columns {', '.join(missing)}; required: {', '.join(COLUMNS)}.")
    answers: dict[str, Verdict] = {}
    for number, row in enumerate(rows, start=2):
        place, key, answer = f"{name}, row {number}", row["id"].strip(), row["answer"].strip().casefold()
        pair = pairs_by_key.get(key)
        known = (pair.text, pair.concept) if pair else ()
        if (row["text"], row["concept"]) not in (known, tuple(map(inert, known))):
            raise InputError(f"{place}: no pair in --results has this id, text, and concept.")
        if key in answers:
            raise InputError(f"{place}: the id {key!r} occurs twice; remove one row.")
        if answer not in ANSWERS:
            raise InputError(f"{place}: {answer!r} is not an answer; write yes, no, or nothing.")
        answers[key] = ANSWERS[answer]
    if set(answers.values()) <= {None}:
        raise InputError(f"{name} holds no answers; write yes or no into the column answer.")
    return answers


def agreement_rows(pairs: Iterable[Pair], answers: Answers) -> list[dict[str, Any]]:
    """Measure the agreement of people with the panel and with each judge, per model and over all models.

    Args:
        pairs: Pairs with verdicts.
        answers: The answers of each person, by key.

    Returns:
        Rows with the columns model, people (a person, or `people`), judges (a judge, or `panel`), metric (of
        `agreement.METRICS`, or `krippendorff_alpha` among people or among judges), value, low, high, n (pairs
        compared), left_out (pairs without a verdict), published (the paper's value, or None).
    """
    answered = [pair for pair in pairs if any(pair.id in by_key for by_key in answers.values())]
    models = sorted({pair.model for pair in answered})
    groups = {model: [pair for pair in answered if pair.model == model] for model in models}
    groups |= {"all": answered} if len(models) > 1 else {}
    names = {model.paper_name: model.name for model in paper.models()}
    printed = {(names.get(row, row), metric): value for row, metric, value in paper.table("table4").cells()}
    rows = []
    for model, group in groups.items():
        for person, judge, metric, estimate, n in _comparisons(group, answers):
            row = {"model": model, "people": person, "judges": judge, "metric": metric, **vars(estimate)}
            published = printed.get((model, metric)) if person and judge == "panel" else None
            rows.append(row | {"n": n, "left_out": len(group) - n, "published": published})
    return rows


def _comparisons(pairs: Sequence[Pair], answers: Answers) -> Iterator[tuple[str, str, str, Estimate, int]]:
    """Yield people, judges, metric, estimate, and number of pairs; within one side, the other is ""."""
    people = {person: [by_key.get(pair.id) for pair in pairs] for person, by_key in answers.items()}
    names = sorted({judge for pair in pairs for judge in pair.verdicts})
    judges = {judge: [pair.verdicts.get(judge) for pair in pairs] for judge in names}
    # All people or judges together first, then each of them.
    left = {"people": [*people.values()]} if len(people) > 1 else {}
    left |= {person: [verdicts] for person, verdicts in people.items()}
    right = {"panel": [*judges.values()]} | {judge: [verdicts] for judge, verdicts in judges.items()}
    for (person, theirs), (judge, verdicts) in product(left.items(), right.items()):
        n, compared = agreement.compare_with_people(theirs, verdicts)
        for metric, estimate in compared.items():
            yield person, judge, metric, estimate, n
    for person, judge, raters in (("people", "", people), ("", "panel", judges)):
        if len(raters) > 1:
            rated = list(raters.values())
            n = sum(sum(verdict is not None for verdict in unit) > 1 for unit in zip(*rated, strict=True))
            yield person, judge, "krippendorff_alpha", agreement.krippendorff_alpha(rated), n


main = Command(AnnotateOptions, annotate)

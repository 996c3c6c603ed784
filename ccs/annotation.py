"""Verdicts by people: a blind sample of (text, concept) pairs, the sheet to fill in, and the agreement.

The app's annotation view and `python -m batch.annotate` both use these functions.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ccs.errors import InputError
from ccs.heads import Head
from ccs.measures import agreement
from ccs.measures.stats import Estimate
from ccs.paper import figures
from ccs.texts.score import Verdict

COLUMNS = ("id", "text", "concept", "answer")
ANSWERS: Mapping[str, Verdict] = {
    **dict.fromkeys(("yes", "y", "true", "1"), True),
    **dict.fromkeys(("no", "n", "false", "0"), False),
    **dict.fromkeys(("", "?", "unsure"), None),
}
ALL = "all"


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
    found: dict[tuple[str, Head, str, str], dict[str, Verdict]] = {}
    for row in judgments.dropna(subset="label").to_dict("records"):
        head = Head(int(row["layer"]), int(row["head"]))
        place = (str(row["model"]), head, str(row["text"]), str(row["label"]))
        verdict = None if pd.isna(row["verdict"]) else bool(row["verdict"])
        found.setdefault(place, {})[str(row["judge"])] = verdict
    return [
        Pair(_key(*place), *place, verdicts=tuple(sorted(verdicts.items())))
        for place, verdicts in found.items()
    ]


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


def sheet(pairs: Iterable[Pair]) -> str:
    """The pairs as a CSV with an empty column `answer`, without models, heads and verdicts."""
    rows = [(pair.key, pair.text, pair.concept, "") for pair in pairs]
    return str(pd.DataFrame(rows, columns=[*COLUMNS]).to_csv(index=False, lineterminator="\n"))


def read_sheet(source: str, pairs: Iterable[Pair], name: str = "the sheet") -> dict[str, Verdict]:
    """The answers in a filled-in sheet: key -> answer (yes, no, or None where empty or unsure).

    InputError names a missing column, or the rows whose answer is not in `ANSWERS` or whose pair is unknown,
    repeated or changed.
    """
    known = {pair.key: pair for pair in pairs}
    reader = csv.DictReader(io.StringIO(source.removeprefix("\ufeff"), newline=""))
    if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
        raise InputError(f"{name} lacks the columns {', '.join(missing)}; it needs {', '.join(COLUMNS)}.")
    answers: dict[str, Verdict] = {}
    wrong: list[str] = []
    for number, row in enumerate(reader, start=2):
        key, given = (row["id"] or "").strip(), (row["answer"] or "").strip()
        pair = known.get(key)
        if pair is None:
            wrong.append(f"row {number}: the id {key!r} is of no pair in these results")
        elif (row["text"], row["concept"]) != (pair.text, pair.concept):
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
    if not answers:
        raise InputError("There are no answers to compare.")
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
    left = {person: [said] for person, said in people.items()}
    if len(people) > 1:
        left = {"people": list(people.values()), **left}
    right = {
        "panel": list(judges.values()),
        **({j: [said] for j, said in judges.items()} if len(judges) > 1 else {}),
    }
    rows: list[dict[str, Any]] = []

    def add(person: str, judge: str, metric: str, found: Estimate, n: int, published: Any = None) -> None:
        names = {"model": model, "people": person, "judges": judge, "metric": metric}
        values = {"value": found.value, "low": found.low, "high": found.high, "n": n}
        rows.append(names | values | {"left_out": len(pairs) - n, "published": published})

    for person, theirs in left.items():
        for judge, verdicts in right.items():
            found = agreement.compare(theirs, verdicts, seed=seed)
            for metric in agreement.METRICS:
                printed = _published(model, metric) if judge == "panel" else None
                add(person, judge, metric, getattr(found, metric), found.n, printed)
    for person, judge, raters in (("people", "", people), ("", "panel", judges)):
        if len(raters) > 1:
            rated = list(raters.values())
            n = sum(sum(v is not None for v in unit) > 1 for unit in zip(*rated, strict=True))
            add(person, judge, "krippendorff_alpha", agreement.krippendorff_alpha(rated, seed=seed), n)
    return rows


def _published(model: str, metric: str) -> float | None:
    """The figure in the study's table 4, which has three models."""
    printed = figures.table("table4")
    names = [paper.paper_name for paper in figures.models() if model in (paper.name, paper.paper_name)]
    rows = [name for name in names if name in printed.rows and metric in printed.columns]
    return printed.value(rows[0], metric) if rows else None

"""The study's two questions put to measured results as tests: does pruning the high heads hurt more than
pruning random sets like them, and does it lower skew?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pandas as pd

from ccs.analysis.ablation_sets import ALIKE, Alike
from ccs.batch.pages import interval, p_text, signed
from ccs.errors import InputError
from ccs.metrics import stats
from ccs.metrics.stats import Effect, Ranked
from ccs.results import Results, queries

ACCURACY, SKEW, GAP = "accuracy (points)", "MaxSkew", "logit gap (cross-fitted)"
HURT = f"{ACCURACY}: high off less random off"
LOWERS, MORE = f"{SKEW}: high off less none off", f"{SKEW}: high off less random off"
NARROWS, NARROWS_MORE = f"{GAP}: high off less none off", f"{GAP}: high off less random off"
QUESTIONS: Mapping[str, str] = {
    HURT: "Does pruning the high heads hurt accuracy more than pruning random heads like them?",
    LOWERS: "Does pruning the high heads lower MaxSkew?",
    MORE: "Does pruning the high heads lower MaxSkew more than pruning random heads like them?",
    NARROWS: "Does pruning the high heads narrow the gap in logits between groups, which has no ceiling?",
    NARROWS_MORE: "Does pruning the high heads narrow that gap more than pruning random heads like them?",
}
"""Each asks whether the named difference is below zero."""


@dataclass(frozen=True)
class Tested:
    """One test: the difference asked about, of which set (or model), the effect as printed (percent points).
    `alike`: what random sets share with the high heads; None against no head off. `adjusted`: p for all tests
    of its kind in one table.
    """

    question: str
    subject: str
    effect: Effect
    alike: Alike | None = None
    n_heads: int = 0
    adjusted: float = float("nan")

    @property
    def digits(self) -> int:
        return 1 if self.question.startswith(ACCURACY) else 3

    @property
    def unit(self) -> str:
        return " points" if self.question.startswith(ACCURACY) else ""

    @property
    def answer(self) -> stats.Conclusion:
        """Is the difference below zero, at an adjusted p of 5%?"""
        return stats.conclusion(replace(self.effect, p_value=self.adjusted), expected="below")

    @property
    def figure(self) -> str:
        """The effect as it is printed, without its unit."""
        return signed(self.effect.value, self.digits)

    @property
    def rank(self) -> str:
        """ "3 of 201"; empty against no head off."""
        return f"{self.effect.rank} of {self.effect.of}" if isinstance(self.effect, Ranked) else ""

    @property
    def detectable(self) -> str:
        """The minimum detectable effect at 80% power, or a dash."""
        smallest = stats.minimum_detectable(self.effect)
        return f"{smallest:.{self.digits}f}" if np.isfinite(smallest) else "–"

    def row(self, place: str) -> dict[str, str]:
        """The test as a row of a table; `place` heads the column that says where."""
        per_head = self.effect.times(1 / self.n_heads).value if self.n_heads else None
        return {
            "difference": self.question,
            "random sets alike in": "–" if self.alike is None else ALIKE[self.alike],
            place: self.subject,
            "effect": self.figure,
            "95% interval": interval(self.effect, digits=self.digits),
            "rank": self.rank or "–",
            "p": p_text(self.effect.p_value),
            "adjusted p": p_text(self.adjusted),
            "minimum detectable": self.detectable,
            **({} if per_head is None else {"per head": signed(per_head, self.digits + 1)}),
            "lower?": self.answer if np.isfinite(self.adjusted) else "not tested",
        }


def of_one_sample(effects: Sequence[Effect]) -> Effect:
    """The mean of effects that share their images or models, such as those of one model on several sets.

    The correlation of their errors is unknown and assumed to be 1: the interval is as wide as theirs are on
    average, and p is the normal one for that width.

    Raises:
        InputError: if there are no effects.
    """
    if not effects:
        raise InputError("There are no effects to take the mean of.")
    if len(effects) == 1:
        return effects[0]
    value = float(np.mean([effect.value for effect in effects]))
    half = float(np.mean([effect.high - effect.low for effect in effects])) / 2
    return stats.effect_of(value, half / stats.DEVIATIONS)


def against_none(measure: str, frame: pd.DataFrame) -> Effect | None:
    """High heads against none, the mean over the frame's sets, as printed; None without a tested difference.
    Attributes of one set share its images, so errors are not taken to be independent.
    """
    rows = queries.of_ablation(frame, "high").dropna(subset="p_value")
    differences = [queries.difference(row) for _, row in rows.iterrows()]
    if not differences:
        return None
    return of_one_sample(differences).times(100 if measure == ACCURACY else 1)


def _measures(results: Results) -> dict[str, pd.DataFrame]:
    """Accuracy and skew of every plan on every set; the column `where` names the set (and attribute)."""
    measures = {ACCURACY: queries.top1(results), SKEW: queries.max_skew(results)}
    measures[GAP] = queries.preferences(results, GAP)
    return {
        name: rows.assign(where=rows["dataset"] + (", " + rows["attribute"] if name != ACCURACY else ""))
        for name, rows in measures.items()
    }


def _among_random(results: Results, alike: Alike) -> tuple[pd.Series, pd.DataFrame]:
    """The high heads' figures, and those of every random set, a row each; one column (measure, where) for
    every set on which they were all measured.
    """
    frames, columns = _measures(results).items(), ["measure", "where"]
    scaled = pd.concat(
        frame.assign(measure=measure, value=frame["value"] * (100 if measure == ACCURACY else 1))
        for measure, frame in frames
    )
    chosen: pd.Series = queries.of_ablation(scaled, "high").set_index(columns)["value"]
    sets = queries.random_sets(scaled, alike)
    drawn = sets.pivot(index="seed", columns=columns, values="value").dropna(axis="columns")
    measured_columns = [column for column in chosen.index if column in drawn.columns]
    return chosen[measured_columns], drawn[measured_columns]


def tests_of(results: Results) -> list[Tested]:
    """Accuracy and skew on every set, against no head off (Holm) and random sets (`against_random`)."""
    against = [
        Tested(f"{measure}: high off less none off", str(place), effect, n_heads=_high(frame))
        for measure, frame in _measures(results).items()
        for place, rows in frame.groupby("where", sort=False)
        if (effect := against_none(measure, rows)) is not None
    ]
    return [*_adjusted(against), *_ranked(results)]


def _high(frame: pd.DataFrame) -> int:
    rows = queries.of_ablation(frame, "high")
    return int(rows["n_heads"].max()) if len(rows) else 0


def _ranked(results: Results, model: str | None = None, tests: int = 1) -> list[Tested]:
    """The ranks among random sets of each kind, on each set, or on the means over a model's."""
    ranked = []
    for alike in ALIKE:
        chosen, drawn = _among_random(results, alike)
        if not len(chosen):
            continue
        n_heads = 0 if model else max(map(_high, _measures(results).values()))
        places = list(chosen.index)
        if model is not None:
            chosen, drawn = chosen.groupby(level="measure").mean(), drawn.T.groupby(level="measure").mean().T
            places = [(measure, model) for measure in chosen.index]
        ranks = stats.against_random(chosen.to_numpy(float), drawn.to_numpy(float), tests=tests)
        ranked += [
            Tested(f"{measure}: high off less random off", place, rank, alike, n_heads, rank.adjusted)
            for (measure, place), rank in zip(places, ranks, strict=True)
        ]
    return ranked


def _adjusted(tests: Sequence[Tested]) -> list[Tested]:
    """The tests with their p adjusted by Holm over all of them."""
    adjusted = stats.holm([test.effect.p_value for test in tests])
    return [replace(test, adjusted=float(p)) for test, p in zip(tests, adjusted, strict=True)]


def by_model(models: Mapping[str, Results]) -> list[Tested]:
    """Each question once per model and kind of random sets, on the means over the model's sets. p is adjusted
    over models and the questions of one kind; a model without high heads asks nothing.
    """
    asking = sum(
        any(len(_among_random(model_results, alike)[0]) for alike in ALIKE)
        for model_results in models.values()
    )
    against, ranked = [], []
    for model, results in models.items():
        for measure, frame in _measures(results).items():
            question = f"{measure}: high off less none off"
            if question in QUESTIONS and (effect := against_none(measure, frame)) is not None:
                against.append(Tested(question, model, effect))
        ranked += _ranked(results, model, asking)
    return sorted([*_adjusted(against), *ranked], key=lambda test: list(QUESTIONS).index(test.question))


def strictest(tests: Sequence[Tested]) -> list[Tested]:
    """The test with the largest adjusted p among those that differ only in their random sets: what it shows
    holds against every kind, and needs no further adjustment for their number.
    """
    strictest_tests: dict[tuple[str, str], Tested] = {}
    for test in tests:
        before = strictest_tests.setdefault((test.question, test.subject), test)
        if not test.adjusted <= before.adjusted:
            strictest_tests[test.question, test.subject] = test
    return list(strictest_tests.values())


def answer_text(tests: Sequence[Tested]) -> str:
    """The answer of one question for one model, with the ranks among every kind of sets."""
    (strict,) = strictest(tests)
    ranks = [f"{test.rank} among sets alike in {ALIKE[test.alike]}" for test in tests if test.alike]
    parts = [f"{strict.figure}{strict.unit}", *(["rank " + ", ".join(ranks)] if ranks else [])]
    if strict.answer == "inconclusive":
        parts.append(f"minimum detectable effect {strict.detectable}{strict.unit}")
    return f"{strict.subject}: {strict.answer} ({'; '.join(parts)})"


def in_short(models: Mapping[str, Results]) -> dict[str, object]:
    """Each question's answer in words and the tests behind it, for each model."""
    tests = by_model(models)
    return {"answers": in_words(tests), "tests": [test.row("model") for test in tests]}


def in_words(tests: Sequence[Tested]) -> list[str]:
    return [
        f"**{QUESTIONS[question]}** {'; '.join(answers_of(list(question_tests)))}."
        for question, question_tests in groupby(tests, key=lambda test: test.question)
    ]


def answers_of(tests: Sequence[Tested]) -> list[str]:
    """`answer_text` for each place that one question's tests are of."""
    places = dict.fromkeys(test.subject for test in tests)
    return [answer_text([test for test in tests if test.subject == place]) for place in places]

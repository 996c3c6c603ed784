"""Test the paper's two claims on measured results.

Does pruning high heads cost more accuracy than pruning random sets of the same size, and does it lower bias?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pandas as pd

from ccs.analysis.ablation_sets import ALIKE, Alike
from ccs.batch.pages import interval, p_text
from ccs.errors import InputError
from ccs.metrics import stats
from ccs.metrics.stats import Effect, Ranked, signed
from ccs.results import Results, queries
from ccs.results.schema import ONE_POOL
from research.holm import holm

ACCURACY, SKEW, GAP = "accuracy (points)", "MaxSkew", "logit gap (cross-fitted)"
HURT = f"{ACCURACY}: high minus random"
LOWERS, MORE = f"{SKEW}: high minus none", f"{SKEW}: high minus random"
NARROWS, NARROWS_MORE = f"{GAP}: high minus none", f"{GAP}: high minus random"
QUESTIONS: Mapping[str, str] = {
    HURT: "Does pruning the high heads hurt accuracy more than pruning random heads?",
    LOWERS: "Does pruning the high heads lower MaxSkew?",
    MORE: "Does pruning the high heads lower MaxSkew more than pruning random heads?",
    NARROWS: "Does pruning the high heads lower the logit gap between groups?",
    NARROWS_MORE: "Does pruning the high heads lower the logit gap more than pruning random heads?",
}
"""Each asks whether the named difference is below zero."""
MATCHED: Mapping[Alike, str] = {
    "number": "number",
    "layers": "number and layers",
    "variance": "number, layers and variance",
}
"""What random sets have in common with the high heads, in words."""


@dataclass(frozen=True)
class Tested:
    """One test of a question.

    Attributes:
        question: A key of `QUESTIONS`.
        subject: The dataset or model.
        effect: The difference; accuracy in percentage points.
        alike: The property in which random sets match the high heads; None without random sets.
        n_heads: Number of high heads.
        adjusted: P-value, adjusted for all tests of this kind in one table.
    """

    question: str
    subject: str
    effect: Effect
    alike: Alike | None = None
    n_heads: int = 0
    adjusted: float = float("nan")

    @property
    def digits(self) -> int:
        """Decimal places of the effect."""
        return 1 if self.question.startswith(ACCURACY) else 3

    @property
    def unit(self) -> str:
        """Unit of the effect, with a space before it."""
        return " points" if self.question.startswith(ACCURACY) else ""

    @property
    def answer(self) -> stats.Conclusion:
        """Whether the difference is below zero, at an adjusted p of 5%."""
        return stats.conclusion(replace(self.effect, p_value=self.adjusted), expected="below")

    @property
    def figure(self) -> str:
        """The effect as it is printed, without its unit."""
        return signed(self.effect.value, self.digits)

    @property
    def rank(self) -> str:
        """The rank among random sets, such as "3 of 201"; empty without random sets."""
        return f"{self.effect.rank} of {self.effect.of}" if isinstance(self.effect, Ranked) else ""

    @property
    def detectable(self) -> str:
        """The minimum detectable effect at 80% power, or a dash."""
        smallest = stats.minimum_detectable(self.effect)
        return f"{smallest:.{self.digits}f}" if np.isfinite(smallest) else "–"

    def row(self, place: str) -> dict[str, str]:
        """Return the test as a row of a table, with the subject in the column `place`."""
        per_head = self.effect.times(1 / self.n_heads).value if self.n_heads else None
        return {
            "difference": self.question,
            "random sets alike in": "–" if self.alike is None else MATCHED[self.alike],
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
    """Return the mean of effects that share images or models, such as one model's on several sets.

    The correlation of their errors is unknown and assumed to be 1: the interval is as wide as theirs are on
    average, and p is the normal one for that width.

    Raises:
        InputError: If there are no effects.
    """
    if not effects:
        raise InputError("There are no effects to take the mean of.")
    if len(effects) == 1:
        return effects[0]
    value = float(np.mean([effect.value for effect in effects]))
    half = float(np.mean([effect.high - effect.low for effect in effects])) / 2
    return stats.effect_of(value, half / stats.DEVIATIONS)


def against_none(measure: str, frame: pd.DataFrame) -> Effect | None:
    """Return the mean effect of ablating the high heads, or None if no difference was tested.

    Attributes of one dataset share its images, so their errors aren't taken to be independent.

    Args:
        measure: A key of `_measures`.
        frame: Rows of that measure.
    """
    rows = queries.of_ablation(frame, "high").dropna(subset="p_value")
    differences = [queries.difference(row) for _, row in rows.iterrows()]
    if not differences:
        return None
    return of_one_sample(differences).times(100 if measure == ACCURACY else 1)


def _measures(results: Results) -> dict[str, pd.DataFrame]:
    """Return rows per measure; the column `where` names the dataset and attribute."""
    measures = {ACCURACY: queries.top1(results), SKEW: queries.max_skew(results)}
    rows = results.table("bias")
    rows = rows[(rows["metric"] == f"{GAP} mean") & (rows["mode"] == "correct")]
    measures[GAP] = rows[~rows["dataset"].str.endswith(ONE_POOL)]
    return {
        name: rows.assign(where=rows["dataset"] + (", " + rows["attribute"] if name != ACCURACY else ""))
        for name, rows in measures.items()
    }


def _among_random(results: Results, alike: Alike) -> tuple[pd.Series, pd.DataFrame]:
    """Return the results of the high heads, and those of the random sets, one row each.

    Columns are (measure, where), for every dataset on which all were measured.
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
    """Test accuracy and skew on every dataset, against no ablation (Holm) and against random sets."""
    against = [
        Tested(f"{measure}: high minus none", str(place), effect, n_heads=_high(frame))
        for measure, frame in _measures(results).items()
        for place, rows in frame.groupby("where", sort=False)
        if (effect := against_none(measure, rows)) is not None
    ]
    return [*_adjusted(against), *_ranked(results)]


def _high(frame: pd.DataFrame) -> int:
    rows = queries.of_ablation(frame, "high")
    return int(rows["n_heads"].max()) if len(rows) else 0


def _ranked(results: Results, model: str | None = None, tests: int = 1) -> list[Tested]:
    """Rank the high heads among random sets, per dataset or on the mean over a model's datasets."""
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
            Tested(f"{measure}: high minus random", place, rank, alike, n_heads, rank.adjusted)
            for (measure, place), rank in zip(places, ranks, strict=True)
        ]
    return ranked


def _adjusted(tests: Sequence[Tested]) -> list[Tested]:
    """Adjust the p-values of the tests by Holm."""
    adjusted = holm([test.effect.p_value for test in tests])
    return [replace(test, adjusted=float(p)) for test, p in zip(tests, adjusted, strict=True)]


def by_model(models: Mapping[str, Results]) -> list[Tested]:
    """Test each question once per model and kind of random sets, on the mean over the model's datasets.

    p is adjusted over models and the questions of one kind. A model without high heads has no tests.
    """
    asking = sum(
        any(len(_among_random(model_results, alike)[0]) for alike in ALIKE)
        for model_results in models.values()
    )
    against, ranked = [], []
    for model, results in models.items():
        for measure, frame in _measures(results).items():
            question = f"{measure}: high minus none"
            if question in QUESTIONS and (effect := against_none(measure, frame)) is not None:
                against.append(Tested(question, model, effect))
        ranked += _ranked(results, model, asking)
    return sorted([*_adjusted(against), *ranked], key=lambda test: list(QUESTIONS).index(test.question))


def strictest(tests: Sequence[Tested]) -> list[Tested]:
    """Keep the test with the largest adjusted p among those that differ only in their random sets.

    Its conclusion holds for every kind of random sets, without a further adjustment.
    """
    strictest_tests: dict[tuple[str, str], Tested] = {}
    for test in tests:
        before = strictest_tests.setdefault((test.question, test.subject), test)
        if not test.adjusted <= before.adjusted:
            strictest_tests[test.question, test.subject] = test
    return list(strictest_tests.values())


def answer_text(tests: Sequence[Tested]) -> str:
    """Return the answer to one question for one model, with the ranks among every kind of random sets."""
    (strict,) = strictest(tests)
    ranks = [
        f"{test.rank} among random sets with the same {MATCHED[test.alike]}" for test in tests if test.alike
    ]
    parts = [f"{strict.figure}{strict.unit}", *(["rank " + ", ".join(ranks)] if ranks else [])]
    if strict.answer == "inconclusive":
        parts.append(f"minimum detectable effect {strict.detectable}{strict.unit}")
    return f"{strict.subject}: {strict.answer} ({'; '.join(parts)})"


def in_words(tests: Sequence[Tested]) -> list[str]:
    """Return each question with a nested list of the answers of all subjects."""
    return [
        "\n".join(
            [
                f"**{QUESTIONS[question]}**",
                *(f"    - {answer}" for answer in answers_of(list(question_tests))),
            ]
        )
        for question, question_tests in groupby(tests, key=lambda test: test.question)
    ]


def answers_of(tests: Sequence[Tested]) -> list[str]:
    """Return `answer_text` for each subject of one question's tests."""
    places = dict.fromkeys(test.subject for test in tests)
    return [answer_text([test for test in tests if test.subject == place]) for place in places]

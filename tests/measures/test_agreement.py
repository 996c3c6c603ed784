"""Agreement against SciPy, scikit-learn and krippendorff; a published worked example of alpha."""

from __future__ import annotations

import math

import krippendorff
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from ccs.errors import InputError
from ccs.measures import agreement

verdict = st.one_of(st.none(), st.booleans())


def reference_alpha(ratings: list[list[object]]) -> float:
    """Krippendorff's alpha by the package of that name; NaN where it is not defined."""
    units = [[r for r in unit if r is not None] for unit in zip(*ratings, strict=True)]
    values = list({rating for unit in units if len(unit) > 1 for rating in unit})
    if len(values) < 2:
        return math.nan
    counts = [[unit.count(value) for value in values] for unit in units if len(unit) > 1]
    return float(krippendorff.alpha(value_counts=counts, level_of_measurement="nominal"))


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=n, max_size=n), min_size=2, max_size=4
        )
    )
)
def test_alpha_against_the_package_krippendorff(ratings: list[list[str | None]]) -> None:
    found = agreement.krippendorff_alpha(ratings, draws=200)
    assert found.value == pytest.approx(reference_alpha([list(r) for r in ratings]), nan_ok=True)
    backwards = agreement.krippendorff_alpha(ratings[::-1], draws=200)
    assert backwards.value == pytest.approx(found.value, nan_ok=True)


def test_alpha_of_the_worked_example() -> None:
    """Four observers, twelve units, some missing: nominal alpha is 0.743 (Krippendorff 2011, section E)."""
    ratings = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    found = agreement.krippendorff_alpha(ratings)
    assert round(found.value, 3) == 0.743
    assert found.low < found.value < found.high


def test_alpha_where_it_is_not_defined() -> None:
    for ratings in ([[True, True], [True, True]], [[True, None], [None, False]], [[], []]):
        assert math.isnan(agreement.krippendorff_alpha(ratings).value)


@st.composite
def tables(draw: st.DrawFn, square: bool = False) -> tuple[list[int], list[int], np.ndarray]:
    """Two sides of ranks and their table of counts [1, r, c]."""
    levels = draw(st.integers(2, 4))
    left = draw(st.lists(st.integers(0, levels - 1), min_size=2, max_size=25))
    right = draw(st.lists(st.integers(0, levels - 1), min_size=len(left), max_size=len(left)))
    counts = np.zeros((1, levels, levels if square else levels + 1))
    for i, j in zip(left, right, strict=True):
        counts[0, i, j] += 1
    return left, right, counts


@given(tables(square=True))
def test_kappa_of_tables_against_scikit_learn(drawn: tuple[list[int], list[int], np.ndarray]) -> None:
    left, right, counts = drawn
    expected = cohen_kappa_score(left, right) if len({*left, *right}) > 1 else math.nan
    assert agreement.table_kappa(counts)[0] == pytest.approx(expected, nan_ok=True)


@given(tables())
def test_rank_correlations_of_tables_against_scipy(drawn: tuple[list[int], list[int], np.ndarray]) -> None:
    left, right, counts = drawn
    varied = len(set(left)) > 1 and len(set(right)) > 1
    rho = scipy.stats.spearmanr(left, right).statistic if varied else math.nan
    tau = scipy.stats.kendalltau(left, right).statistic if varied else math.nan
    assert agreement.table_spearman(counts)[0] == pytest.approx(rho, nan_ok=True, abs=1e-9)
    assert agreement.table_kendall(counts)[0] == pytest.approx(tau, nan_ok=True, abs=1e-9)


def plain_compare(people: list[list[bool | None]], judges: list[list[bool | None]]) -> dict[str, float]:
    """One person, one panel, pair by pair."""
    left, right, share = [], [], []
    for i, said in enumerate(people[0]):
        votes = [judge[i] for judge in judges]
        if said is not None and None not in votes:
            left.append(said)
            right.append(all(votes))
            share.append(sum(map(bool, votes)) / len(votes))
    kappa = cohen_kappa_score(left, right) if len({*left, *right}) > 1 else math.nan
    varied = len(set(left)) > 1 and len(set(share)) > 1
    return {
        "n": len(left),
        "same": np.mean(np.equal(left, right)) if left else math.nan,
        "cohen_kappa": kappa,
        "spearman_rho": scipy.stats.spearmanr(left, share).statistic if varied else math.nan,
        "kendall_tau": scipy.stats.kendalltau(left, share).statistic if varied else math.nan,
    }


@given(
    st.integers(1, 20).flatmap(
        lambda n: st.lists(st.lists(verdict, min_size=n, max_size=n), min_size=2, max_size=4)
    )
)
def test_compare_against_a_plain_reading(raters: list[list[bool | None]]) -> None:
    found = agreement.compare(raters[:1], raters[1:], draws=200)
    expected = plain_compare(raters[:1], raters[1:])
    assert found.n == expected["n"]
    for metric in agreement.METRICS:
        assert getattr(found, metric).value == pytest.approx(expected[metric], nan_ok=True), metric


def test_intervals_are_those_of_resampled_pairs() -> None:
    """Draws of counts give the same interval, up to chance, as resampling pairs one by one."""
    rng = np.random.default_rng(5)
    people = [bool(v) for v in rng.random(80) < 0.5]
    judges = [[bool(v) for v in np.where(rng.random(80) < 0.8, people, ~np.array(people))] for _ in range(2)]
    found = agreement.compare([people], judges, draws=4000, seed=1)
    kappas, taus = [], []
    panel = [all(votes) for votes in zip(*judges, strict=True)]
    share = [sum(votes) / 2 for votes in zip(*judges, strict=True)]
    for _ in range(150):
        rows = rng.integers(80, size=80)
        kappas.append(cohen_kappa_score([people[i] for i in rows], [panel[i] for i in rows]))
        taus.append(scipy.stats.kendalltau([people[i] for i in rows], [share[i] for i in rows]).statistic)
    for estimate, draws in ((found.cohen_kappa, kappas), (found.kendall_tau, taus)):
        assert [estimate.low, estimate.high] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.07)


def test_consensus_of_people_and_unanimity_of_judges() -> None:
    said: list[list[bool | None]] = [
        [True, True, None, None],
        [True, False, True, None],
        [False, None, None, None],
    ]
    assert agreement.consensus(said) == [True, None, True, None]
    assert agreement.unanimous(said[:2]) == [True, False, None, None]


def test_nothing_to_compare() -> None:
    found = agreement.compare([[None, True]], [[True, None]])
    assert found.n == 0
    assert math.isnan(found.cohen_kappa.value)
    with pytest.raises(InputError, match="same pairs"):
        agreement.compare([[True]], [[True, False]])
    with pytest.raises(InputError, match="same pairs"):
        agreement.compare([[True]], [])


def test_one_side_that_never_varies_has_no_coefficient() -> None:
    found = agreement.compare([[True, True, False]], [[True, True, True]])
    assert found.same.value == pytest.approx(2 / 3)
    assert found.cohen_kappa.value == 0
    assert math.isnan(found.spearman_rho.value)
    assert math.isnan(found.kendall_tau.value)


def test_each_two_judges_of_a_panel() -> None:
    panel = {
        "a": [True, True, False, None],
        "b": [True, False, False, True],
        "c": [None, None, None, None],
    }
    first, *rest = agreement.judge_pairs(panel)
    assert (first.left, first.right, first.n) == ("a", "b", 3)
    assert first.same == pytest.approx(2 / 3)
    assert first.cohen_kappa == pytest.approx(cohen_kappa_score([1, 1, 0], [1, 0, 0]))
    assert [pair.n for pair in rest] == [0, 0]
    assert all(math.isnan(pair.same) and math.isnan(pair.cohen_kappa) for pair in rest)
    with pytest.raises(InputError, match="same texts"):
        agreement.judge_pairs({"a": [True], "b": []})

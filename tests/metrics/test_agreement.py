"""Agreement of people and judges against SciPy, scikit-learn, and a published example of alpha."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from ccs.metrics import agreement

rater_ratings = st.integers(1, 20).map(lambda n: st.lists(st.none() | st.booleans(), min_size=n, max_size=n))


def test_krippendorff_alpha_matches_published_example():
    """Four observers, twelve units, missing values: nominal alpha is 0.743 (Krippendorff 2011, section E)."""
    ratings = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    alpha = agreement.krippendorff_alpha(ratings)
    assert round(alpha.value, 3) == 0.743
    assert alpha.low < alpha.value < alpha.high


def plain_agreement(people, judges):
    """Compare one person with the unanimous verdict of a panel."""
    ratings = zip(people[0], *judges, strict=True)
    pairs = [(answer, all(votes)) for answer, *votes in ratings if None not in (answer, *votes)]
    left, right = zip(*pairs, strict=True) if pairs else ((), ())
    varied = len(set(left)) > 1 and len(set(right)) > 1
    return {
        "n": len(left),
        "same": np.mean(np.equal(left, right)) if left else np.nan,
        "cohen_kappa": cohen_kappa_score(left, right) if len({*left, *right}) > 1 else np.nan,
        "spearman_rho": scipy.stats.spearmanr(left, right).statistic if varied else np.nan,
        "kendall_tau": scipy.stats.kendalltau(left, right).statistic if varied else np.nan,
    }


@given(rater_ratings.flatmap(lambda ratings: st.lists(ratings, min_size=2, max_size=4)))
def test_agreement_matches_reference(ratings):
    n, result = agreement.compare_with_people(ratings[:1], ratings[1:], draws=40)
    expected = plain_agreement(ratings[:1], ratings[1:])
    assert n == expected["n"]
    for metric in agreement.METRICS:
        assert result[metric].value == pytest.approx(expected[metric], nan_ok=True), metric


def test_intervals_match_resampled_pairs():
    rng = np.random.default_rng(5)
    people = [bool(v) for v in rng.random(80) < 0.5]
    judges = [[bool(v) for v in np.where(rng.random(80) < 0.8, people, ~np.array(people))] for _ in range(2)]
    _, result = agreement.compare_with_people([people], judges, draws=1500, seed=1)
    samples = []
    for _ in range(100):
        rows = rng.integers(80, size=80)
        drawn = ([[ratings[i] for i in rows] for ratings in raters] for raters in ([people], judges))
        samples.append(plain_agreement(*drawn))
    for metric in ("cohen_kappa", "kendall_tau"):
        ends = np.quantile([sample[metric] for sample in samples], [0.025, 0.975])
        assert [result[metric].low, result[metric].high] == pytest.approx(ends, abs=0.07)


def test_consensus_of_people_and_unanimity_of_judges():
    answers = [[True, True, None, None], [True, False, True, None], [False, None, None, None]]
    assert agreement.consensus(answers) == [True, None, True, None]
    assert agreement.unanimous(answers[:2]) == [True, False, None, None]

"""CCS, CCS@K, levels and CCR against plain references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs.errors import InputError
from ccs.texts import score

# [judges][texts], 1 to 5 judges, 1 to 7 texts.
panels = st.integers(1, 7).flatmap(
    lambda k: st.lists(
        st.lists(st.one_of(st.none(), st.booleans()), min_size=k, max_size=k), min_size=1, max_size=5
    )
)


@given(panels, st.sampled_from(score.RULES))
def test_ccs_against_a_plain_count(panel, rule):
    count: int | None = 0
    for text in range(len(panel[0])):
        said = [judge[text] for judge in panel]
        if None in said:
            count = None
            break
        yes, no = said.count(True), said.count(False)
        if (no == 0) if rule == "unanimous" else (yes > no):
            count += 1
    assert score.ccs(panel, rule) == count


def test_levels_of_the_study():
    assert [score.level(n, 5) for n in range(6)] == ["low", "low", "", "moderate", "", "high"]
    assert score.level(None, 5) == "unknown"
    with pytest.raises(InputError, match="6 with k = 5"):
        score.level(6, 5)


@pytest.mark.parametrize(
    ("k", "low", "moderate"), [(1, 0, None), (3, 0, 2), (7, 1, 4), (9, 1, 5), (11, 2, 6), (13, 2, 7)]
)
def test_levels_of_other_k(k, low, moderate):
    named = {n: score.level(n, k) for n in range(k + 1)}
    assert named.pop(k) == "high"
    assert [n for n, name in named.items() if name == "low"] == list(range(low + 1))
    assert [n for n, name in named.items() if name == "moderate"] == ([] if moderate is None else [moderate])


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_ccr_against_a_plain_count(given_labels):
    assert score.ccr([None, None, "Birds"]) == 0
    ratio = score.ccr(given_labels)
    if not given_labels:
        assert ratio is None
        return
    shared = [c for c in "abcd" if given_labels.count(c) > 1]
    assert ratio == len(shared) / len(given_labels)

"""CCS, CCS@K, levels and CCR against plain references and the study's printed figures."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs import paper
from ccs.errors import InputError
from ccs.texts import score

# [judges][texts], 1 to 5 judges, 1 to 7 texts.
panels = st.integers(1, 7).flatmap(
    lambda k: st.lists(
        st.lists(st.one_of(st.none(), st.booleans()), min_size=k, max_size=k), min_size=1, max_size=5
    )
)


@given(panels, st.sampled_from(score.RULES))
def test_ccs_against_a_plain_count(panel: list[list[bool | None]], rule: score.Rule) -> None:
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


def test_levels_of_the_study() -> None:
    assert [score.level(n, 5) for n in range(6)] == ["low", "low", "", "moderate", "", "high"]
    assert score.level(None, 5) == "unknown"
    with pytest.raises(InputError, match="6 with k = 5"):
        score.level(6, 5)


@pytest.mark.parametrize(
    ("k", "low", "moderate"), [(1, 0, None), (3, 0, 2), (7, 1, 4), (9, 1, 5), (11, 2, 6), (13, 2, 7)]
)
def test_levels_of_other_k(k: int, low: int, moderate: int | None) -> None:
    named = {n: score.level(n, k) for n in range(k + 1)}
    assert named.pop(k) == "high"
    assert [n for n, name in named.items() if name == "low"] == list(range(low + 1))
    assert [n for n, name in named.items() if name == "moderate"] == ([] if moderate is None else [moderate])


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_ccr_against_a_plain_count(given_labels: list[str]) -> None:
    assert score.ccr([None, None, "Birds"]) == 0
    ratio = score.ccr(given_labels)
    if not given_labels:
        assert ratio is None
        return
    shared = [c for c in "abcd" if given_labels.count(c) > 1]
    assert ratio == len(shared) / len(given_labels)


# What the study prints


def published_scores(name: str) -> list[int]:
    """The scores of a model's heads: as many of each as the printed shares say."""
    shares = paper.table("table10").rows[paper.model(name).paper_name]
    heads = len(paper.model(name).heads)
    return [n for n, share in enumerate(shares) if share is not None for _ in range(round(share * heads))]


@pytest.mark.parametrize("name", [model.paper_name for model in paper.models()])
def test_tables_2_and_10_agree_by_our_levels(name: str) -> None:
    scores = published_scores(name)
    assert len(scores) == len(paper.model(name).heads)
    levels = Counter(score.level(n, 5) for n in scores)
    listed = paper.head_labels(name)
    assert {level: levels[level] for level in listed} == {
        level: len(found) for level, found in listed.items()
    }

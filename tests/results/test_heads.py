"""Names of heads and sets of them: parsing inverts printing, sets behave as Python's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs import Head, HeadSet, InputError

heads = st.builds(Head, st.integers(0, 40), st.integers(0, 40), st.sampled_from("LT"))
head_sets = st.frozensets(heads, max_size=8)


@pytest.mark.parametrize("text", ["", "L11", "11.5", "L1.H", "L-1.H2", "L1.H2x", "L1 H2", "L١.H٢", "X1.H2"])
def test_what_is_no_head_is_refused_by_name(text):
    assert (Head.parse(" l11.h5 "), Head.parse("t2.h0")) == (Head(11, 5), Head(2, 0, "T"))
    with pytest.raises(InputError, match=r"is not the name of a head"):
        Head.parse(text)


@given(head_sets)
def test_every_set_survives_printing_with_spaces_or_commas(members):
    heads = HeadSet(members)
    assert HeadSet.parse(str(heads)) == heads
    assert HeadSet.parse(str(heads).replace(" ", ", ")) == heads
    assert list(heads) == sorted(members, key=lambda head: (head.tower, head.layer, head.head))
    assert heads.of_tower("L") | heads.of_tower("T") == heads
    assert all(str(head)[0] == "T" for head in heads.of_tower("T"))
    assert len(heads) == len(members)


@given(head_sets, head_sets)
def test_set_operators_are_those_of_python(a, b):
    x, y = HeadSet(a), HeadSet(b)
    assert x | y == HeadSet(a | b)
    assert x - y == HeadSet(a - b)
    assert x & y == HeadSet(a & b)
    assert x ^ y == HeadSet(a ^ b)
    assert isinstance(x | y, HeadSet)
    assert (x <= y) == (a <= b)
    assert (x == y) == (a == b)
    assert hash(x | y) == hash(y | x) == hash(a | b)  # equal sets of both types have one hash
    assert all((head in x) == (head in a) for head in a | b)

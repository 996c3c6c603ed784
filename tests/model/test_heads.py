"""Heads, sets of heads, and interventions: printed, parsed, and combined."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccs import Head, HeadSet, InputError, Intervention

heads = st.builds(Head, st.integers(0, 40), st.integers(0, 40), st.sampled_from("LT"))
head_sets = st.frozensets(heads, max_size=8)
changes = st.floats(-100, 100) | st.sampled_from([0, 1, "0.30", "mean", "erase:skin tone", "erase:age group"])


@given(st.dictionaries(heads, changes, max_size=8))
def test_intervention_is_parsed_as_printed(members):
    intervention = Intervention(members)
    for text in (str(intervention), re.sub(" (?=[LT])", ", ", str(intervention).replace("H", "h"))):
        assert Intervention.parse(text) == intervention
    assert list(intervention) == sorted(members, key=lambda head: (head.encoder, head.layer, head.head))
    assert str(intervention - HeadSet(intervention[1:])) == str(intervention[:1])
    assert all(str(head)[0] == "T" for head in intervention.of_encoder("T"))


@given(head_sets, head_sets)
def test_set_operators_match_python_sets(a, b):
    x, y = HeadSet(a), HeadSet(b)
    assert HeadSet.parse(str(x)) == x == Intervention(a)
    assert (x | y, x - y) == (HeadSet(a | b), HeadSet(a - b))
    assert (x & y, x ^ y) == (HeadSet(a & b), HeadSet(a ^ b))
    assert isinstance(x | y, HeadSet)
    assert (x <= y, x == y) == (a <= b, a == b)
    assert hash(x | y) == hash(Intervention(b | a)) == hash(a | b)  # equal sets of all types have one hash


def test_from_heads_accepts_all_forms():
    expected, zero = Intervention.parse("l5.h1 L4.H0=0.0, T1.H2=0"), Head(4, 0)
    assert str(expected) == "L4.H0 L5.H1 T1.H2"
    as_factors = {"L5.H1": 0, zero: 0.0, "T1.H2": "0"}
    for same in (str(expected), as_factors, [*expected, zero], expected[:], set(expected)):
        assert Intervention.from_heads(same) == expected == HeadSet(expected)
    scaled = Intervention.parse("L5.H1=0.50")
    assert str(scaled) == "L5.H1=0.5"
    assert scaled != HeadSet(scaled)
    for same in ({Head(5, 1): 0.5}, {"L5.H1": "0.5"}, {"L5.H1": np.float32(0.5)}):
        assert Intervention.from_heads(same) == scaled
    edited = Intervention.parse("L5.H0=erase:skin tone, L6.H1=0.3")
    assert [edited[head].attribute for head in edited] == ["skin tone", ""]
    with pytest.raises(InputError, match=r"call ccs\.edit_heads first"):
        edited.mean_output(edited[0])


INVALID_TEXTS = {
    "is not the name of a head": "L11;11.5;L1.H;L-1.H2;L1.H2x;L1 H2;L١.H٢;X1.H2;L5.H0 tone",
    "is neither a factor such as 0.3 nor .mean": "L9.H2=x;L9.H2=nan;L9.H2=;L5.H0=erase:;L5.H0=wipe:skin",
    "from -100 to 100": "L9.H2=1e9",
    "named twice": "L9.H2=0.3 L9.H2",
}


@pytest.mark.parametrize("message", INVALID_TEXTS)
def test_invalid_intervention_text_is_rejected(message):
    for text in INVALID_TEXTS[message].split(";"):
        with pytest.raises(InputError, match=message):
            Intervention.parse(text)


def test_invalid_heads_are_rejected():
    for fields in ((7.0, 1), (1, -1), (1, 1, "X"), (True, 1)):
        with pytest.raises(InputError):
            Head(*fields)
    for wrong in ({Head(1, 1): True}, 3.5):
        with pytest.raises(InputError):
            Intervention.from_heads(wrong)

"""The state of a screen as a link."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ccs import Head, HeadSet, InputError, Intervention
from ccs.app.html import for_visitors
from ccs.app.state import OWN, State, clean_line, split_texts

HEADS = st.builds(Head, st.integers(0, 30), st.integers(0, 30))
WORDS = st.text("abc é{}<&=+%#,'\"", min_size=1, max_size=20).map(clean_line).filter(bool)
FACTORS = st.sampled_from([0.0, 0.05, 0.3, 1.5, -2.0])
EMPTY = st.just("")
STATES = st.builds(
    State,
    tab=st.sampled_from(["heads", "classify", "paradox"]),
    model=WORDS,
    ablate=st.sets(HEADS, max_size=5).map(HeadSet)
    | st.dictionaries(HEADS, FACTORS, max_size=5).map(Intervention),
    head=st.none() | HEADS,
    text=st.integers(0, 4),
    example=EMPTY | st.sampled_from(["subjects:2", "photographs:0"]),
    classes=st.lists(WORDS, max_size=4, unique=True).map(tuple),
    template=EMPTY
    | st.tuples(WORDS, WORDS).map("{}".join).map(clean_line).filter(lambda text: text.count("{}") == 1),
    gallery=EMPTY | WORDS.filter(lambda name: not name.startswith(OWN)),
    attribute=EMPTY | WORDS,
    occupations=st.lists(WORDS, max_size=4, unique=True).map(tuple),
    k=st.integers(0, 9999),
    row=st.integers(0, 200),
    analysis=EMPTY | WORDS,
)


@given(STATES)
def test_link_round_trips_state(state):
    assert State(**dict(parse_qsl(state.query()))) == state


def test_link_accepts_only_scaling_and_erasing():
    assert State().query() == ""
    assert State(ablate="") == State()
    assert str(State(ablate="L7.H2=0.3 L6.H1 L5.H0=1").ablate) == "L6.H1 L7.H2=0.3"
    assert str(State(ablate="L6.H1=erase:skin tone L7.H2").ablate) == "L6.H1=erase:skin tone L7.H2"
    for text in ("L7.H2=mean", "T7.H3=erase:gender"):
        with pytest.raises(ValidationError, match=text.partition("=")[2]):
            State(ablate=text)


def test_split_texts_cleans_and_limits_input():
    assert split_texts("a dog, a cat ,, a dog") == ("a dog", "a cat")
    assert split_texts("👩\u200d⚕️, می\u200cخواهم, a\u200bb") == ("👩\u200d⚕️", "می\u200cخواهم", "a b")
    assert split_texts("red, white\nblue\n\n") == ("red, white", "blue")
    assert split_texts("a\x00b\u202ec\ud83d\x1b[31m") == ("a b c [31m",)
    with pytest.raises(InputError, match="1,000,000 characters; at most"):
        split_texts("x" * 10**6)
    with pytest.raises(InputError, match="at most 200"):
        split_texts("\n".join(map(str, range(201))))
    with pytest.raises(InputError, match="201 characters"):
        split_texts("x" * 201)


def test_error_messages_hide_internals():
    for error, message in (
        ("X is absent (ConnectError: [Errno -2] Name (x) not known); try photo.", "X is absent; try photo."),
        ("The file is no zip (BadZipFile: bad).", "The file is no zip."),
        ("It isn't here; put it into $CCS_DATA.", "It isn't here."),
        ("K is 4 (of 3).", "K is 4 (of 3)."),
    ):  # fmt: skip
        assert for_visitors(error) == message

"""Links and actions from strangers: each part, as it should not be, is taken or told in a sentence."""

from dataclasses import fields
from inspect import signature

import pytest

from ccs.errors import InputError
from ccs.ui.actions import ACTIONS
from ccs.ui.clicks import regions, update
from ccs.ui.links import open_link
from ccs.ui.state import State
from tests.support.ui_page import check

VALUES = {
    "long": "x" * 100_000,
    "control characters": "a\x00\x07\x1b[31m\r\n\u202eb",
    "lone surrogate": "\ud800",
    "superscript digit": "²",
    "NaN": "nan",
    "a negative number": "-1",
    "a million digits": "9" * 1_000_000,
    "a head of 5,000 digits": f"L{'9' * 5000}.H0",
    "a path": "../../../../etc/passwd",
    "a scheme of open_clip": "local-dir:/etc",
    "a host": "http://127.0.0.1:9/x",
    "a head of 10^6": "L1000000.H1000000",
    "heads without end": " ".join(f"L{i}.H{i}" for i in range(5000)),
    "markup": "<img src=x onerror=alert(1)>",
    "a template": "{}{{7*7}} {0.__class__} %s",
    "a mapping": "{'L0.H0': True}",
    "nothing": "",
}
NAMES = [field.name for field in fields(State)]


@pytest.mark.parametrize("kind", VALUES)
def test_a_bad_link_opens_a_screen(app, kind):
    for names in (*([name] for name in NAMES), NAMES):
        screen = open_link(app, dict.fromkeys(names, VALUES[kind]))
        assert screen.state.model in app.models
        assert screen.state.off <= app.heads(screen.state.model)
        assert (screen.state.tower, screen.state.second) == ("L", "")
        assert all(len(notice) < 400 and "Traceback" not in notice for notice in screen.session.notices)
        assert len(screen.state.query()) < 60_000


@pytest.mark.parametrize("do", sorted({*ACTIONS} - {"open"}))  # which takes a link
def test_a_bad_action_is_refused_or_shown_as_text(app, do):
    _, *names = signature(ACTIONS[do]).parameters
    for value in VALUES.values() if names else [""]:
        screen, said = open_link(app, {"tab": "paradox", "off": "none"}), ""
        before = screen.state
        try:
            update(screen, do, dict.fromkeys(names, value))
            shown = "".join(regions(screen, complete=False).values())
            check(shown)
            assert "<img src=x" not in shown
        except InputError as error:  # any other is a fault
            said = str(error)
        assert len(said) < 200
        assert screen.state == before or not said
        assert screen.state.model in app.models

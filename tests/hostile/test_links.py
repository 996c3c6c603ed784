"""Links from strangers: every part of one, as it should not be, opens a screen and says what was left out."""

from dataclasses import fields

import pytest

from ccs.ui.links import open_link
from ccs.ui.state import State

VALUES = {
    "long": "x" * 100_000,
    "control characters": "a\x00\x07\x1b[31m\r\n\u202eb",
    "lone surrogate": "\ud800",
    "superscript digit": "²",
    "NaN": "nan",
    "a million digits": "9" * 1_000_000,
    "a head of 5,000 digits": f"L{'9' * 5000}.H0",
    "a path": "../../../../etc/passwd",
    "a scheme of open_clip": "local-dir:/etc",
    "a head of 10^6": "L1000000.H1000000",
    "heads without end": " ".join(f"L{i}.H{i}" for i in range(5000)),
    "markup": "<img src=x onerror=alert(1)>",
    "a template": "{{7*7}} {0.__class__} %s",
    "nothing": "",
}
NAMES = [field.name for field in fields(State)]


@pytest.mark.parametrize("kind", VALUES)
def test_a_bad_link_opens_a_screen(app, kind):
    for names in (*([name] for name in NAMES), NAMES):
        screen = open_link(app, dict.fromkeys(names, VALUES[kind]))
        assert screen.state.model in app.models
        assert screen.state.off <= app.heads(screen.state.model)
        assert all(len(notice) < 400 and "Traceback" not in notice for notice in screen.session.notices)
        assert len(screen.state.query()) < 60_000

"""Links and forms of untrusted visitors: every bad part is used as text or refused in a sentence."""

from dataclasses import fields

import pytest

from ccs.app import page, routes, state
from ccs.errors import InputError
from tests.support.app_fixtures import check_html, open_screen, submit_form

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
NAMES = [field.name for field in fields(state.State)]


PATHS = [path for path, route in routes.ROUTES.items() if "files" not in route.form.model_fields]


@pytest.mark.parametrize("kind", VALUES)
def test_a_bad_link_opens_a_screen(app, kind):
    for names in (*([name] for name in NAMES), NAMES):
        screen = open_screen(app, dict.fromkeys(names, VALUES[kind]))
        assert screen.state.model in app.models
        assert screen.state.ablate <= app.heads_of_model(screen.state.model)
        assert screen.state.encoder == "L"
        assert all(len(notice) < 400 and "Traceback" not in notice for notice in screen.session.notices)
        assert len(screen.state.query()) < 60_000


@pytest.mark.parametrize("path", PATHS)
def test_a_bad_form_is_refused_or_shown_as_text(app, path):
    names = set(routes.ROUTES[path].form.model_fields)
    for value in VALUES.values() if names else [""]:
        screen, problem = open_screen(app, {"tab": "paradox"}), ""
        try:
            submit_form(screen, path, **dict.fromkeys(names, value))
        except InputError as error:  # any other is a fault
            problem = str(error)
        assert len(problem) < 300
        if problem:
            continue
        html = "".join(page.regions(screen, complete=False).values())
        check_html(html)
        assert "<img src=x" not in html
        assert screen.state.model in app.models

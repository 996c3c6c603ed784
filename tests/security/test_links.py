"""Links and forms of untrusted visitors: each malicious value is shown as text or rejected."""

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
    "negative number": "-1",
    "million digits": "9" * 1_000_000,
    "head of 5,000 digits": f"L{'9' * 5000}.H0",
    "path": "../../../../etc/passwd",
    "scheme of open_clip": "local-dir:/etc",
    "URL": "http://127.0.0.1:9/x",
    "head 10^6": "L1000000.H1000000",
    "5,000 heads": " ".join(f"L{i}.H{i}" for i in range(5000)),
    "markup": "<img src=x onerror=alert(1)>",
    "template": "{}{{7*7}} {0.__class__} %s",
    "mapping": "{'L0.H0': True}",
    "empty": "",
}
FIELDS = [field.name for field in fields(state.State)]


PATHS = [path for path, route in routes.ROUTES.items() if "files" not in route.form.model_fields]


@pytest.mark.parametrize("value", VALUES)
def test_malicious_link_opens_valid_screen(app, value):
    for names in (*([name] for name in FIELDS), FIELDS):
        screen = open_screen(app, dict.fromkeys(names, VALUES[value]))
        assert screen.state.model in app.models
        assert screen.state.ablate <= app.heads_of_model(screen.state.model)
        assert screen.state.encoder == "L"
        assert all(len(notice) < 400 and "Traceback" not in notice for notice in screen.session.notices)
        assert len(screen.state.query()) < 60_000


@pytest.mark.parametrize("path", PATHS)
def test_malicious_form_is_rejected_or_escaped(app, path):
    names = set(routes.ROUTES[path].form.model_fields)
    for value in VALUES.values() if names else [""]:
        screen, problem = open_screen(app, {"tab": "paradox"}), ""
        try:
            submit_form(screen, path, **dict.fromkeys(names, value))
        except InputError as error:  # other exceptions fail the test
            problem = str(error)
        assert len(problem) < 300
        if problem:
            continue
        html = "".join(page.regions(screen, complete=False).values())
        check_html(html)
        assert "<img src=x" not in html
        assert screen.state.model in app.models

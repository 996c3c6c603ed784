"""In a browser: scripts in the texts of tables and links don't run in any view."""

import json
from itertools import cycle
from urllib.parse import quote

import pytest

from ccs import results
from ccs.app.views import VIEWS
from tests.support import app_fixtures, app_sample, browser_fixtures

ATTACKS = (
    "<script>window.ran='text'</script>",
    "<img src=x onerror=\"window.ran='img'\">",
    "<svg onload=\"window.ran='svg'\">",
    '"><iframe srcdoc="<script>parent.ran=\'frame\'</script>">',
    "' onmouseover='window.ran=1' autofocus onfocus='window.ran=2' x='",
    "javascript:window.ran='link'",
    "{{window.ran='template'}}${window.ran='literal'}",
    "</textarea></style></script><script>window.ran='closed'</script>",
)
TEXTS = {"spans": ("text", "concept"), "labels": ("label",), "judgments": ("text", "label", "reason")}
TEXTS |= {"scores": ("label",)}


@pytest.fixture(scope="module")
def served_app(app, model, tmp_path_factory):
    """Serve tables with an attack in every text that a person or a model writes."""
    folder = tmp_path_factory.mktemp("results")

    def attack(table, rows):
        for row, text in zip(rows, cycle(ATTACKS)):
            row |= {column: f"{text} {row[column]}" for column in TEXTS.get(table, ()) if row[column]}

    app_sample.write_app_results(folder, ATTACKS[1].replace("/", ""), "f" * 64)
    file = app_sample.write_app_results(folder, "organism", model.weights_hash, attack) / "manifest.json"
    manifest = json.loads(file.read_text())
    for name in ("texts", "images", "settings", "versions"):
        manifest[name] = dict.fromkeys(manifest[name], ATTACKS[1]) | {ATTACKS[0]: ATTACKS[2]}
    manifest["created"] = ATTACKS[4]
    manifest["absent"] = [{"name": ATTACKS[0], "reason": ATTACKS[1]}]
    manifest["sets"] = [{**entry, "source": ATTACKS[1], "name": ATTACKS[2]} for entry in manifest["sets"]]
    file.write_text(json.dumps(manifest))
    yield from browser_fixtures.serve_app(app_fixtures.make_sibling_app(app, results.load(folder)))


def test_injected_scripts_do_not_run(visit):
    attack = quote(ATTACKS[1])
    parts = f"classes={attack}&find={attack}&occupations={attack}&template={attack}"
    page = visit(f"tab=heads&{parts}&model=organism&gallery={attack}&example={attack}")
    for tab in VIEWS:
        browser_fixtures.open_view(page, tab)
        page.hover("main, body")
        page.evaluate("Promise.all([...document.images].map(image => image.decode().catch(() => 0)))")
        assert page.evaluate("window.ran") is None, tab
        assert page.locator(".view").count() == 1, tab
        count_scripts = "document.querySelectorAll('#region-main script, #region-main iframe').length"
        assert page.evaluate(count_scripts) == 0, tab

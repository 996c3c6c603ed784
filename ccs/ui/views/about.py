"""The view About this run: where every figure comes from, what is a stand-in, and how to cite it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccs.ui.page.parts import csv_text, empty, esc, figure, head_row, scroll
from ccs.ui.records import Sheet
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.app import App

CITE = """@inproceedings{paradox2025,
  title     = {Pruning the Paradox: How {CLIP}'s Most Informative Heads Enhance Performance
               While Amplifying Bias},
  booktitle = {EMNLP},
  year      = {2025},
  note      = {arXiv:2503.11103}
}"""
LICENSES = (
    ("This program and the embedded models", "MIT"),
    ("Drawn pictures: OpenMoji glyphs", "CC BY-SA 4.0"),
    ("open_clip", "MIT"),
    ("Published figures to compare with", "quoted from arXiv 2503.11103"),
)


def render(app: App, session: Session, sheet: Sheet) -> str:
    """The view as HTML."""
    return _method() + _run(app, sheet) + _stand_ins(sheet) + _privacy() + _licenses()


def _method() -> str:
    return (
        '<div class="panel words"><h3>What this is</h3><p>CLIP scores how well a text fits a picture. Its '
        "image tower is built of layers of "
        "attention heads, and the image embedding is the sum of what heads and other parts write. <b>"
        "TEXTSPAN</b> finds, for each head of the "
        "last four layers, the texts that explain most of what it writes. A <b>label</b> names the concept "
        "these texts share; <b>judges</b> "
        "say of each text whether it fits. The <b>Concept Consistency Score (CCS)</b> of a head is the "
        "number of its texts that all judges "
        "accept. <b>Switching off</b> sets a head’s output to zero in the forward pass, without retraining; "
        "everything shown as "
        "“after” is computed by this very model at this very moment, and figures “in the tables” come from "
        "the run below.</p>"
        "<p>Every figure in the views has a unit, a “What is this?”, and buttons that save it as CSV or PNG. "
        "In the grid, arrow keys walk, "
        "Enter opens a head or switches it (as chosen above the grid), Space switches it, Ctrl+Z undoes, "
        "Ctrl+Shift+Z redoes. The address "
        "of the page always names the whole screen.</p></div>"
    )


def _run(app: App, sheet: Sheet) -> str:
    manifest = sheet.manifest
    source = f'<p class="muted">Results: {esc(app.collection.source)}.</p>'
    if not manifest:
        return (
            empty(
                "No run", f"There are no tables for {sheet.model}. Compute them with: python -m batch.compute"
            )
            + source
        )
    missing = "".join(
        f"<li>{esc(one.get('name'))}: {esc(one.get('reason'))}</li>"
        for one in manifest.get("absent") or ()
        if isinstance(one, Mapping)
    )
    if missing:
        missing = f"<h4>Asked for and not computed</h4><ul>{missing}</ul>"
    rows = list(flat(manifest))
    body = "".join(f'<tr><th scope="row">{esc(name)}</th><td>{esc(value)}</td></tr>' for name, value in rows)
    return figure(
        f"The run behind {sheet.model}",
        f'{source}<table class="facts"><tbody>{_facts(manifest)}</tbody></table>{missing}'
        f'<details class="more"><summary>The whole manifest, {len(rows)} entries</summary>'
        + scroll(f'<table class="facts"><tbody>{body}</tbody></table>')
        + "</details>",
        what="How the tables came about. The whole manifest has every fingerprint, seed, setting and "
        "version; the CSV holds all of it.",
        unit="as named",
        name="manifest",
        table=csv_text(["entry", "value"], rows),
    ) + _sets(manifest)


def _facts(manifest: Mapping[str, Any]) -> str:
    """What a reader asks first."""
    model, texts, images = (manifest.get(name, {}) for name in ("model", "texts", "images"))
    errors = [value for value in manifest.get("largest_error", {}).values() if isinstance(value, int | float)]
    seconds = manifest.get("measured", {}).get("seconds", {})
    total = (
        sum(v for v in seconds.values() if isinstance(v, int | float)) if isinstance(seconds, Mapping) else 0
    )
    judges = ", ".join(
        f"{judge['name']}{' (stand-in)' if judge.get('stand_in') else ''}"
        for judge in manifest.get("judges", ())
    )
    versions, settings = manifest.get("versions", {}), manifest.get("settings", {})
    facts = {
        "made": manifest.get("created"),
        "model": f"{model.get('name')}: {model.get('architecture')}, {model.get('layers')} layers of "
        f"{model.get('heads_a_layer')} heads",
        "weights": f"SHA-256 {str(model.get('weights_hash'))[:16]}…",
        "texts": f"{texts.get('count')} of the pool {texts.get('name')}",
        "images": f"{images.get('count')} of {images.get('name')}: {images.get('source')}",
        "labeler and judges": f"{manifest.get('labeler', {}).get('name')}; {judges}",
        "texts a head (K)": ", ".join(str(k) for k in (settings.get("k"), *settings.get("further_k", ()))),
        "largest error": f"{max(errors):.1e}, fast path against slow reference" if errors else "not recorded",
        "time": f"{total:.0f} seconds" if total else "not recorded",
        "version": f"clip-ccs {versions.get('clip-ccs', '?')}, PyTorch {versions.get('torch', '?')}, Python "
        f"{versions.get('python', '?')}",
    }
    return "".join(
        f'<tr><th scope="row">{esc(name)}</th><td>{esc(value)}</td></tr>' for name, value in facts.items()
    )


def _sets(manifest: Mapping[str, Any]) -> str:
    sets = [one for one in manifest.get("sets") or () if isinstance(one, Mapping)]
    if not sets:
        return ""
    rows = [
        [
            one.get("name"),
            one.get("kind"),
            one.get("count"),
            one.get("source"),
            _plain(one.get("templates") or []),
        ]
        for one in sets
    ]
    body = "".join(
        f'<tr><th scope="row">{esc(name)}</th><td>{esc(kind)}</td><td class=num>{esc(count)}</td>'
        f"<td>{esc(source)}</td><td>{esc(templates)}</td></tr>"
        for name, kind, count, source, templates in rows
    )
    header = head_row("set", "kind", "#pictures or clips", "from", "templates")
    return figure(
        "Data sets measured",
        scroll(f'<table class="sets">{header}<tbody>{body}</tbody></table>'),
        what="What accuracy, retrieval and bias were measured on. Fingerprints stand in the manifest.",
        unit="pictures or clips",
        name="sets",
        table=csv_text(["set", "kind", "count", "source", "templates"], rows),
    )


def flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """A manifest as (entry, value) rows; lists of names on one line, records one row a field."""
    if isinstance(value, Mapping):
        return [
            row for key, inner in value.items() for row in flat(inner, f"{name}.{key}" if name else str(key))
        ]
    if isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        return [
            row
            for number, inner in enumerate(value, 1)
            for row in flat(
                inner, f"{name}.{inner.get('name', number) if isinstance(inner, Mapping) else number}"
            )
        ]
    return [(name, _plain(value))]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_plain(one) for one in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(one)}" for key, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None or value == "" else str(value)


def _stand_ins(sheet: Sheet) -> str:
    manifest = sheet.manifest
    judges = [str(j["name"]) for j in manifest.get("judges", ()) if j.get("stand_in")]
    labeler = manifest.get("labeler", {})
    rows = []
    if judges:
        rows.append(
            f"Judges that are stand-ins: {', '.join(judges)}. They compare the texts’ own tags and are not "
            "the language models of the study."
        )
    if labeler.get("stand_in"):
        rows.append(
            f"The labeler {labeler['name']} takes the most specific concept that covers the most texts, by "
            "tags."
        )
    if sheet.model.startswith("organism"):
        rows.append(
            "The model is small and trained on drawn pictures; what holds for it need not hold for CLIP "
            "trained on photographs."
        )
        rows.append(
            "Drawn faces stand in for photographs of people: their groups are drawn, and known without error."
        )
    items = "".join(f"<li>{esc(row)}</li>" for row in rows) or "<li>Nothing in this run is a stand-in.</li>"
    return f'<div class="panel words"><h3>What is a stand-in</h3><ul>{items}</ul></div>'


def _privacy() -> str:
    return (
        '<div class="panel words"><h3>Your pictures</h3><p>They are read into memory, the uploaded file is '
        "deleted at once, and what is kept is gone an hour "
        "after you leave. Nothing is sent to another host; there are no analytics. Gender "
        "presentation and skin tone "
        "are groups of drawn faces, or labels that others gave; they say nothing about how a person is.</p>"
        "</div>"
    )


def _licenses() -> str:
    rows = "".join(
        f'<tr><th scope="row">{esc(what)}</th><td>{esc(terms)}</td></tr>' for what, terms in LICENSES
    )
    return (
        '<div class="panel words"><h3>Licences, and how to cite</h3><table class="facts"><tbody>'
        f"{rows}</tbody></table>"
        "<p>Cite the study whose measures these are, the method TEXTSPAN (Gandelsman, Efros and Steinhardt, "
        "ICLR 2024), and this "
        f'program with the version above.</p><pre tabindex="0">{esc(CITE)}</pre></div>'
    )

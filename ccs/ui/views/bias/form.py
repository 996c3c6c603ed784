"""What can be asked of the view Bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccs.ui.page.parts import button, esc, options
from ccs.ui.session import Session
from ccs.ui.views.bias.asked import Asked

if TYPE_CHECKING:
    from ccs.ui.app import App

TEMPLATES = (
    ("", "the gallery’s own"),
    ("study", "the study’s four"),
    ("a photo of a {}", "a photo of a {}"),
    ("{}", "as typed"),
)
TARGETS = (("pool", "the pool’s share"), ("uniform", "the same for all"))
WAYS = (
    ("", "correctly"),
    ("order", "with the study’s fault for FairFace by race"),
    ("aliased", "with its fault for SocialCounterfactuals"),
)


def form(app: App, session: Session, what: Asked) -> str:
    """The form as HTML."""
    from ccs import paper

    state, n = session.state, len(what.gallery.images)
    templates = list(TEMPLATES)
    if state.bias_template not in dict(templates):
        templates.append((state.bias_template, state.bias_template))
    listed = sorted({*what.gallery.occupations, *paper.occupations()})
    choices = options([("", "add one …"), *((o, o) for o in listed)], "")
    galleries = [
        (name, f"{name} ({len(app.galleries.get(name).images)} pictures)") for name in app.galleries.names
    ]
    study = len(paper.occupations())
    own = ""
    if set(what.gallery.occupations) != set(paper.occupations()):
        own = button(f"All {len(what.gallery.occupations)} of the gallery", "occupations", value="world")
    rare = " open" if state.fault or state.target != "pool" or state.bias_template else ""
    return (
        '<form class="panel ask" data-do="bias"><div class="row"><label class="field grow"><span>'
        "Occupations, one a line or between commas; any words will do</span>"
        '<textarea name="occupations" rows="2" maxlength="20000">'
        f"{esc(', '.join(what.occupations))}</textarea></label>"
        '<div class="stack"><label class="field"><span>From the lists</span><select data-add="occupations">'
        f"{choices}</select></label>"
        f'<div class="buttons">{button(f"All {study} of the study", "occupations", value="study")}{own}</div>'
        "</div></div>"
        f'<div class="row">{_select("Gallery", "gallery", galleries, what.gallery.name)}'
        f"{_select('Attribute', 'attribute', [(a, a) for a in what.gallery.groups], what.attribute)}"
        f'<label class="field"><span>Top K of {n}</span><input type="number" name="k" min="1" max="{n}" '
        f'value="{what.k}"></label><button type="submit" class="primary">Measure</button></div>'
        f'<details class="more"{rare}><summary>How it is measured</summary><div class="row">'
        f"{_select('Templates', 'template', templates, state.bias_template)}"
        f"{_select('Fair share is', 'target', TARGETS, state.target)}"
        f"{_select('Computed', 'fault', WAYS, state.fault)}</div></details></form>"
    )


def _select(
    label: str, name: str, choices: list[tuple[str, str]] | tuple[tuple[str, str], ...], now: str
) -> str:
    return (
        f'<label class="field"><span>{label}</span><select name="{name}">{options(choices, now)}</select>'
        "</label>"
    )

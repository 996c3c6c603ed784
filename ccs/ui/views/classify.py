"""The view Classify: what the model answers to the visitor's pictures, before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.measures.accuracy import class_weights
from ccs.model.model import Model
from ccs.ui.page.parts import (
    button,
    csv_text,
    empty,
    esc,
    figure,
    number,
    options,
    percent,
    points,
    select,
    waiting,
)
from ccs.ui.records import Sheet
from ccs.ui.service import attention
from ccs.ui.service.pictures import embed, load_example, looks, pictures, seen
from ccs.ui.service.uploads import Picture, data_url
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.app import App

SHOWN = 5
SIDE = 128  # pixels of an attention overlay
TEMPLATES = ("a photo of a {}", "a picture of a {}", "{}")
OWN = "the set’s own"


@dataclass(frozen=True)
class Comparison:
    """Probabilities [pictures, classes] with nothing off and with some heads off."""

    before: np.ndarray
    after: np.ndarray

    def ranks(self, after: bool) -> np.ndarray:
        """Rank from 1 of every class for every picture; equal probabilities in the classes' order."""
        order = np.argsort(-(self.after if after else self.before), axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None], axis=1)
        return ranks

    def margin(self, after: bool) -> np.ndarray:
        """First probability less the second [pictures]; 1 with a single class."""
        both = np.sort(self.after if after else self.before, axis=1)[:, ::-1]
        return np.asarray(both[:, 0] - both[:, 1]) if both.shape[1] > 1 else both[:, 0]


def compare(before: np.ndarray, after: np.ndarray, weights: np.ndarray, scale: float) -> Comparison:
    """Softmax of scaled cosines of unit embeddings [pictures, d] and unit class weights [classes, d]."""
    return Comparison(_softmax(scale * before @ weights.T), _softmax(scale * after @ weights.T))


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def asked(session: Session) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(classes, templates) in force: what was typed, else those of the example's set."""
    example = load_example(session.state.example)
    classes = session.state.classes or example.classes
    template = session.state.template
    return classes, (template,) if template else example.templates


def class_matrix(session: Session, model: Model) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes in force and their unit weights [classes, d], kept for the next click."""
    classes, templates = asked(session)
    key = ("classes", model.weights_hash, classes, templates)
    return classes, session.memory.get(key, lambda: class_weights(model, classes, templates))


def measure(session: Session, model: Model) -> tuple[tuple[str, ...], Comparison, np.ndarray]:
    """Classes, probabilities, and the cosine [pictures] between embeddings before and after."""
    classes, weights = class_matrix(session, model)
    before, after = embed(session, model, [HeadSet(), session.state.off])
    return classes, compare(before, after, weights, model.logit_scale), (before * after).sum(axis=1)


def check_template(template: str) -> str:
    """The template, if it says where the class goes; empty means the set's own."""
    if template and template.count("{}") != 1:
        raise InputError(f"The template {template!r} must hold {{}} once, where the class goes.")
    return template


@dataclass(frozen=True)
class Look:
    """Attention [pictures, tokens] before and after, None where no head is left that could look; `words`
    say whose."""

    words: str
    before: np.ndarray
    after: np.ndarray | None


def look(session: Session, model: Model) -> Look | None:
    """Where the last layer looks (the mean of its heads that are on), or the open head; None if not asked."""
    state, off = session.state, session.state.off
    if state.look == "none":
        return None
    if state.look == "head" and state.head is not None:
        layer, number, words = state.head.layer, state.head.head, f"{state.head} looks"
        after = None if state.head in off else looks(session, model, layer, off)[:, number]
        return Look(words, looks(session, model, layer, HeadSet())[:, number], after)
    layer = model.n_layers - 1
    on = [n for n in range(model.n_heads) if n not in off.in_layer(layer)]
    return Look(
        "the last layer looks",
        looks(session, model, layer, HeadSet()).mean(axis=1),
        looks(session, model, layer, off)[:, on].mean(axis=1) if on else None,
    )


def render(app: App, session: Session, sheet: Sheet, whole: bool = True) -> str:
    """The view as HTML. With `whole` False, without the answers of a model that is yet to be loaded."""
    form = _form(session)
    if not whole and session.state.model not in app.shelf.loaded():
        return form + waiting(session.state.model)
    try:
        model = app.shelf.get(session.state.model)
    except InputError as error:
        return form + empty("This model cannot answer here", str(error))
    classes, found, moved = measure(session, model)
    looked = look(session, model)
    small = seen(session, model)
    cards = "".join(
        _picture(p, classes, found, i, _pair(p, small[i], model, looked, i))
        for i, p in enumerate(pictures(session))
    )
    _, templates = asked(session)
    many = "the template" if len(templates) == 1 else f"{len(templates)} templates"
    what = (
        f"Zero-shot classification among {len(classes)} classes. Each class is written into {many} "
        f"({esc(', '.join(templates))}); the picture’s probability for a class is the softmax of "
        f"{model.logit_scale:.1f} times the cosine. <b>Before</b>: the whole model. <b>After</b>: the "
        "outputs of the heads switched off are zero in the forward pass. <b>Margin</b>: first probability "
        "less the second. Probabilities are among these classes only: even a picture of none of them gets "
        "100% in sum. <b>Looks</b>: the attention of the CLS token, lit where there is much of it."
    )
    return (
        form
        + _lead(session, sheet, found, moved)
        + figure(
            "Before and after",
            f'<div class="answers">{cards}</div>',
            what=what,
            unit="probability, %",
            name="classify",
            table=_saved(session, classes, found),
        )
    )


def _lead(session: Session, sheet: Sheet, found: Comparison, moved: np.ndarray) -> str:
    off, n = session.state.off, len(moved)
    flips = int((found.before.argmax(1) != found.after.argmax(1)).sum())
    if off:
        return (
            f"<p class=lead><b>{flips} of {n}</b> pictures get another answer with {len(off)} "
            f"{'head' if len(off) == 1 else 'heads'} off. The embeddings keep a mean similarity of "
            f"<b>{number(float(moved.mean()), 3)}</b> (1 is no change).</p>"
        )
    high = button("switch off the high-CCS heads", "preset", css="link", value="high")
    return (
        "<p class=lead>No head is switched off, so before and after agree. Click heads in the grid"
        f"{', or ' + high if sheet.level('high') else ''}.</p>"
    )


def _saved(session: Session, classes: tuple[str, ...], found: Comparison) -> str:
    return csv_text(
        ["picture", "class", "before", "after", "rank before", "rank after", "heads off"],
        [
            [
                p.name,
                c,
                f"{found.before[i, j]:.6f}",
                f"{found.after[i, j]:.6f}",
                found.ranks(False)[i, j],
                found.ranks(True)[i, j],
                session.state.off,
            ]
            for i, p in enumerate(pictures(session))
            for j, c in enumerate(classes)
        ],
    )


def _form(session: Session) -> str:
    state = session.state
    classes, _ = asked(session)
    choices = [("", OWN), *((t, t) for t in TEMPLATES)]
    if state.template and state.template not in TEMPLATES:
        choices.append((state.template, state.template))
    own = button("Classes of the example’s set", "own-classes") if state.classes else ""
    whose = [("", "of the last layer"), ("head", f"of {state.head}"), ("none", "not shown")]
    looks = select("Attention", "look", [one for one in whose if state.head or one[0] != "head"], state.look)
    return (
        '<form class="panel ask" data-do="classify"><div class="row"><label class="field grow"><span>'
        "Classes, one a line or "
        'between commas</span><textarea name="classes" rows="3" maxlength="20000">'
        f"{esc(', '.join(classes))}</textarea></label>"
        '<div class="stack"><label class="field"><span>Template</span><select name="template">'
        f"{options(choices, state.template)}</select></label>"
        '<label class="field"><span>or one of your own</span><input name="own" maxlength="200" '
        'placeholder="a drawing of a {}"></label></div></div>'
        f'<div class="row"><button type="submit" class="primary">Classify</button>{own}{looks}</div></form>'
    )


def _pair(picture: Picture, small: object, model: Model, looked: Look | None, index: int) -> str:
    """The picture, and beside it where the model looks, before and after."""
    from PIL import Image

    assert isinstance(small, Image.Image)
    shown = f'<figure><img src="{picture.thumb}" alt="{esc(picture.name)}"></figure>'
    if looked is None:
        return shown
    for title, maps in (("before", looked.before), ("after", looked.after)):
        if maps is None:
            shown += '<figure class="gone"><div>off</div><figcaption>after</figcaption></figure>'
            continue
        lit = data_url(attention.overlay(model, small, maps[index], SIDE))
        words = f"{esc(picture.name)}, lit where {esc(looked.words)}, {title}"
        shown += f'<figure><img src="{lit}" alt="{words}"><figcaption>{title}</figcaption></figure>'
    return shown


def _picture(picture: Picture, classes: tuple[str, ...], found: Comparison, index: int, images: str) -> str:
    before, after = found.before[index], found.after[index]
    ranks = found.ranks(False)[index], found.ranks(True)[index]
    listed = [j for j in np.argsort(ranks[0]) if ranks[0][j] <= SHOWN or ranks[1][j] <= SHOWN]
    listed.sort(key=lambda j: (ranks[1][j], ranks[0][j]))
    rows = "".join(
        f'<tr{" class=first" if ranks[1][j] == 1 else ""}><th scope="row">{esc(classes[j])}</th>'
        f'<td><span class="pair"><span class="bar before"><span style="width:{100 * before[j]:.2f}%"></span>'
        f"<b>{percent(before[j])}</b></span>"
        f'<span class="bar after"><span style="width:{100 * after[j]:.2f}%"></span><b>{percent(after[j])}</b>'
        "</span></span></td>"
        f'<td class="num">{_moved(int(ranks[0][j]), int(ranks[1][j]))}</td></tr>'
        for j in listed
    )
    first, new = classes[int(before.argmax())], classes[int(after.argmax())]
    verdict = (
        f'{esc(first)} <b class="flip">→ {esc(new)}</b>'
        if first != new
        else f'{esc(first)} <small class="muted">before and after</small>'
    )
    margins = float(found.margin(False)[index]), float(found.margin(True)[index])
    source = "drawn as" if picture.drawn else "file"
    return (
        f'<article class="answer"><div class="looks">{images}</div><div class="subject"><h4>{verdict}</h4>'
        f'<p class="muted">{source} <b>{esc(picture.name)}</b> · margin {percent(margins[0])} → '
        f"{percent(margins[1])} ({points(margins[1] - margins[0])})</p></div>"
        '<table><thead><tr><th scope="col">class</th><th scope="col"><i class="key before"></i>before '
        '<i class="key after"></i>after</th><th scope="col" class="num">rank</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></article>"
    )


def _moved(before: int, after: int) -> str:
    """A rank and how it changed, in words for a screen reader and a sign for the eye."""
    if before == after:
        return f"{after}"
    sign = "▲" if after < before else "▼"
    return f'{after} <span class="moved" title="was {before}">{sign}{abs(before - after)}</span>'

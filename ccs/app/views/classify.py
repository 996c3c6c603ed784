"""The view Classify: what the model answers to the visitor's images, before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from ccs.app.html import percent, program, render
from ccs.app.routes import Form, Long, Name, post
from ccs.app.services import examples
from ccs.app.services.examples import SHOWN, Example, example_names, parse_example
from ccs.app.services.uploads import InputImage
from ccs.app.session import Screen
from ccs.app.state import NO_HEADS, parse_template, split_texts
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, of_model
from ccs.bundled import unknown_words
from ccs.heads import TEXT, Head, HeadSet
from ccs.metrics import ranking
from ccs.metrics.accuracy import class_weights
from ccs.model.model import Model

LISTED = 5  # classes per image, before and after
LOWER = 0.25  # of what is lost without a head counts where its texts do not all fit one concept


class Answers(NamedTuple):
    """Probabilities [images, classes] with nothing off and with some heads off, and the cosine [images] of
    the embeddings.
    """

    classes: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray
    similarity: np.ndarray


def question(screen: Screen) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(classes, templates) in force: what was typed, else those of the example's set."""
    state = screen.state
    example = screen.app.example(state.example, state.model)
    return state.classes or example.classes, (state.template,) if state.template else example.templates


def made(screen: Screen) -> dict[str, str]:
    """What every row of a figure's CSV says of what is asked."""
    return {"template": " | ".join(question(screen)[1])}


def class_matrix(screen: Screen, off: HeadSet = NO_HEADS) -> np.ndarray:
    """Unit weights [classes, d] of the classes in force, with the text encoder's heads off; kept for the next
    click.
    """
    model, (classes, templates), off = screen.model, question(screen), off.of_encoder(TEXT)
    key = ("classes", model.weights_hash, classes, templates, off)
    return screen.session.memory.get(key, lambda: class_weights(model, classes, templates, off))


def measure(screen: Screen, off: HeadSet | None = None) -> Answers:
    """The answers to the images at hand; `off`: others than what is off."""
    model, plans = screen.model, [HeadSet(), screen.state.ablate if off is None else off]
    weights = [class_matrix(screen, plan) for plan in plans]
    before, after = screen.images.embed(model, plans)
    both = zip((before, after), weights, strict=True)
    first, second = (model.probabilities(rows @ own.T) for rows, own in both)
    return Answers(question(screen)[0], first, second, (before * after).sum(axis=1))


class Move(NamedTuple):
    """A picture's first answers with all heads on and with some off, the first one's probability in either,
    and the similarity of its embeddings."""

    image: str
    answer: str
    before: float
    after: float
    now: str
    similarity: float


def moves(screen: Screen, off: HeadSet | None = None) -> list[Move]:
    """What the heads that are off, or others, change in the answers to the pictures at hand."""
    classes, *found = measure(screen, off)
    return [
        Move(image.name, classes[b.argmax()], b.max(), a[b.argmax()], classes[a.argmax()], same)
        for image, b, a, same in zip(screen.images.shown, *found, strict=True)
    ]


@dataclass(frozen=True)
class Story:
    """The picture and the head without which its first answer loses most, with its probabilities by class.

    right: the answer that would be right, "" where that is not known. templates: what was asked with.
    """

    head: Head
    image: InputImage
    classes: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray
    right: str
    templates: tuple[str, ...]


def story(screen: Screen, here: bool = False) -> Story:
    """Of the pictures at hand, or without any of the visitor's own the first of every set of examples.

    A head without a high CCS is taken only where far more is lost. here: of the pictures at hand in any case.
    """
    model, records, state, uploads = screen.model, screen.records, screen.state, screen.session.uploads
    heads, example = list(model.heads), screen.app.example
    if here or uploads or state.classes:
        answers = () if uploads or state.classes else example(state.example, model.name).answers
        sets = [Example(screen.images.shown, *question(screen), answers)]
    else:
        sets = [example(f"{name}:0", model.name) for name in example_names(model.name)]
    counts = np.array([1.0 if records.head(head).level == "high" else LOWER for head in heads])

    def find() -> Story:
        found: list[tuple[float, Story]] = []
        plans = [HeadSet(), *(HeadSet([head]) for head in heads)]
        for one in sets:
            weights = class_weights(model, one.classes, one.templates)
            rows = model.embed_images(model.trunk([image.pixels for image in one.images]), plans)
            shares = np.stack([model.probabilities(of @ weights.T) for of in rows])
            for i, image in enumerate(one.images):
                first = int(shares[0, i].argmax())
                lost = (shares[0, i, first] - shares[1:, i, first]) * counts
                best = int(lost.argmax())
                about = heads[best], image, one.classes, shares[0, i], shares[1 + best, i]
                right = one.answers[i] if one.answers else ""
                found.append((float(lost[best]), Story(*about, right, one.templates)))
        return max(found, key=lambda one: one[0])[1]

    images = tuple(image.key for one in sets for image in one.images)
    classes = tuple(one.classes for one in sets)
    return screen.app.cache.get(("story", model.weights_hash, images, classes, state.analysis), find)


@post("classify/most")
def ablate_most(screen: Screen, form: Form) -> None:
    """Ablate the head whose ablation costs an image at hand most."""
    head = story(screen, here=True).head
    screen.set_ablation(HeadSet([head]))
    screen.change(head=head)


class ClassForm(Form):
    classes: Long = ""
    template: Name = ""


@post("classify")
def choose_classes(screen: Screen, form: ClassForm) -> None:
    """Classify into other classes, with another template."""
    typed, state = split_texts(form.classes), screen.state
    # The set's own classes, untouched, stay its own: another example then brings its own.
    if typed == screen.app.example(state.example, state.model).classes:
        typed = ()
    screen.change(classes=typed, template=parse_template(form.template))


@post("classify/reset")
def reset_classes(screen: Screen, form: Form) -> None:
    """Classify into the example's own classes."""
    screen.change(classes=())


class Classify(View):
    """Zero-shot answers with all heads on and with some off."""

    name = "classify"
    title = "Classify"
    purpose = "Zero-shot answers to images, before and after ablation."

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        state = screen.state
        return render(
            "classify.html",
            state=state,
            classes=question(screen)[0],
            answer=of_model(screen, complete, lambda model: _answers(screen, model)),
            why=of_model(screen, complete, lambda model: why(screen, model)),
            matter=claims.that_matter(screen.records),
            printed=screen.records.published,
            unknown=unknown_words(state.model, question(screen)[0]),
        )

    def program(self, screen: Screen) -> str:
        return lines(screen, screen.state.ablate)


def _answers(screen: Screen, model: Model) -> Figure:
    found, rows, answers = measure(screen), [], []
    classes = found.classes
    for image, before, after in zip(screen.images.shown, found.before, found.after, strict=True):
        table = list(zip(classes, before.tolist(), after.tolist(), strict=True))
        rows += [[image.name, name, round(b, 6), round(a, 6)] for name, b, a in table]
        best = {int(i) for shares in (before, after) for i in np.argsort(-shares, kind="stable")[:LISTED]}
        listed = sorted((table[i] for i in best), key=lambda one: (-one[2], -one[1]))
        answers.append((image, classes[before.argmax()], classes[after.argmax()], listed))
    turned = sum(first != now for _, first, now, _ in answers)
    shown = {"answers": answers, "turned": turned, "similarity": float(found.similarity.mean())}
    same = ranking.alike(classes, class_matrix(screen))
    shown |= {"n": len(classes), "templates": question(screen)[1], "model": model, "same": same}
    columns = ["image", "class", "before", "after"]
    return Figure("classify", "Before and after", "probability, %", columns, rows, shown, made=made(screen))


def why(screen: Screen, model: Model) -> Figure | None:
    """What speaks in each image for the answer rather than for the runner-up, and what with heads off."""
    classes, off, images = question(screen)[0], screen.state.ablate, screen.images
    if len(classes) < 2:
        return None
    plans = [HeadSet(), *([off] if off else [])]
    weights = np.stack([class_matrix(screen, plan) for plan in plans])
    cosines = images.embed(model, plans) @ weights.swapaxes(1, 2)  # [plans, images, classes]
    order = np.argsort(-cosines[0], axis=1, kind="stable")
    first, second, each = order[:, 0], order[:, 1], np.arange(len(order))
    along = weights[:, first] - weights[:, second]  # [plans, images, d]
    maps = np.stack(
        [images.sent(model, model.heads, one, at)[each, each] for one, at in zip(along, plans, strict=True)]
    )
    leads = cosines[:, each, first] - cosines[:, each, second]
    rows, shown = [], []
    for i, (image, picture) in enumerate(zip(images.shown, images.seen(model), strict=True)):
        answer, other, most = classes[first[i]], classes[second[i]], float(np.abs(maps[:, i]).max())
        rows += [[image.name, answer, other, *cells] for cells in examples.by_patch(*maps[:, i])]
        overlays = [examples.tinted(picture, one[i], most) for one in maps]
        shown.append((image.name, answer, other, list(zip(overlays, leads[:, i].tolist(), strict=True))))
    through = float(maps[0].sum() / leads[0].sum()) if leads[0].sum() else float("nan")
    columns = ["image", "answer", "runner-up", "row", "column", "all on", *(["off"] if off else [])]
    about = {"shown": shown, "off": off, "parts": percent(through, 0)}
    unit = "part of the difference of two cosines"
    return Figure("why", "Why this answer", unit, columns, rows, about, made=made(screen))


def lines(screen: Screen, ablate: HeadSet) -> str:
    """Lines of a program that loads the model and classifies the visitor's images before and after `off`."""
    state = screen.state
    classes, templates = question(screen)
    name, page = parse_example(state.example)
    return program("model", model=state.model, ablate=ablate) + program(
        "classify",
        uploads=[image.name for image in screen.session.uploads],
        example=name,
        first=page * SHOWN,
        last=(page + 1) * SHOWN,
        classes=classes,
        templates=templates,
    )

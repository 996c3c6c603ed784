"""The view Classify: the model's answers to the visitor's images, before and after ablation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from ccs.app.html import percent, program, render
from ccs.app.routes import Long, Name, post
from ccs.app.services import examples
from ccs.app.services.examples import SHOWN, Example, example_names, parse_example
from ccs.app.services.images import has_edits
from ccs.app.services.uploads import InputImage
from ccs.app.session import Screen
from ccs.app.state import NO_HEADS, parse_template, split_texts
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, with_model
from ccs.app.views.query import shareable
from ccs.bundled import unknown_words
from ccs.heads import TEXT, Head, HeadSet
from ccs.metrics import ranking
from ccs.metrics.accuracy import class_weights

if TYPE_CHECKING:
    from ccs.model.model import Model

LISTED = 5  # classes per image, before and after
LOW_WEIGHT = 0.25  # of what an ablation costs, for heads whose texts don't all fit one concept


class Answers(NamedTuple):
    """Probabilities [images, classes] before and after ablation, and the embeddings' cosines [images]."""

    classes: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray
    similarity: np.ndarray

    @property
    def firsts(self) -> list[tuple[str, str]]:
        """Each image's most probable class, before and after."""
        pairs = zip(self.before.argmax(axis=1), self.after.argmax(axis=1), strict=True)
        return [(self.classes[before], self.classes[after]) for before, after in pairs]

    @property
    def changed(self) -> int:
        """The number of images whose answer changes."""
        return sum(before != after for before, after in self.firsts)


def question(screen: Screen) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (classes, templates) in force: the visitor's, else those of the example."""
    state = screen.state
    example = screen.app.example(state.example, state.model)
    return state.classes or example.classes, (state.template,) if state.template else example.templates


def template_setting(screen: Screen) -> dict[str, str]:
    """Return the templates as a figure's setting."""
    return {"template": " | ".join(question(screen)[1])}


def class_matrix(screen: Screen, ablate: HeadSet = NO_HEADS) -> np.ndarray:
    """Return unit weights of the classes in force with text heads ablated, kept for later.

    Args:
        screen: The screen.
        ablate: Heads to ablate. Only those of the text encoder count.

    Returns:
        Weights [classes, d].

    Raises:
        InputError: If the model isn't available or is still being loaded.
    """
    model, (classes, templates), heads = screen.model, question(screen), ablate.of_encoder(TEXT)
    key = ("classes", model.weights_hash, classes, templates, heads)
    return screen.app.cache.get(key, lambda: class_weights(model, classes, templates, heads))


def measure_answers(screen: Screen, ablate: HeadSet | None = None) -> Answers:
    """Return the answers to the screen's images.

    Args:
        screen: The screen.
        ablate: Heads to ablate instead of the screen's.
    """
    model, sets = screen.model, [HeadSet(), screen.fitted if ablate is None else ablate]
    embedded = [screen.images.embed(model, heads) for heads in sets]
    before, after = (
        model.probabilities(images @ class_matrix(screen, heads).T)
        for images, heads in zip(embedded, sets, strict=True)
    )
    return Answers(question(screen)[0], before, after, (embedded[0] * embedded[1]).sum(axis=1))


@dataclass(frozen=True)
class Story:
    """The image and the head whose ablation costs its first answer most.

    Attributes:
        head: The head.
        image: The image.
        example: The example that has the image, with classes, templates, and right answers if they are known.
        before: Probabilities [classes].
        after: Probabilities [classes] with the head ablated.
        right: The right answer, "" if it isn't known.
    """

    head: Head
    image: InputImage
    example: Example
    before: np.ndarray
    after: np.ndarray
    right: str


def find_story(screen: Screen) -> Story:
    """Return the story of the visitor's images and classes, else that of the first images of all examples.

    A head without a high CCS is chosen only if it costs far more.
    """
    state, uploads, load = screen.state, screen.session.uploads, screen.app.example
    if uploads or state.classes:
        candidates = [Example(screen.images.originals, *question(screen), ())]
    else:
        candidates = [load(f"{name}:0", state.model) for name in example_names(state.model)]
    images = tuple((tuple(image.key for image in example.images), example.classes) for example in candidates)
    key = ("story", screen.model.weights_hash, images, state.analysis)
    return screen.app.cache.get(key, lambda: _search_story(screen, candidates))


def _search_story(screen: Screen, candidates: Sequence[Example]) -> Story:
    model, heads = screen.model, list(screen.model.heads)
    weights = [1.0 if screen.records.head(head).level == "high" else LOW_WEIGHT for head in heads]
    stories: list[tuple[float, Story]] = []
    for example in candidates:
        classes = class_weights(model, example.classes, example.templates)
        trunk = model.trunk([image.pixels for image in example.images])
        sets = model.embed_images(trunk, [HeadSet(), *(HeadSet([head]) for head in heads)])
        before, *after = (model.probabilities(images @ classes.T) for images in sets)
        for i, image in enumerate(example.images):
            first, right = before[i].argmax(), example.answers[i] if example.answers else ""
            costs = [
                (before[i, first] - table[i, first]) * w for table, w in zip(after, weights, strict=True)
            ]
            best = int(np.argmax(costs))
            stories.append(
                (costs[best], Story(heads[best], image, example, before[i], after[best][i], right))
            )
    return max(stories, key=lambda story: story[0])[1]


@post("classify")
def choose_classes(screen: Screen, classes: Long = "", template: Name = "") -> None:
    """Classify into other classes, with another template.

    Args:
        screen: The screen that the form changes.
        classes: The classes, one per line or separated by commas; "" for the example's own.
        template: The prompt, with `{}` where the class goes; "" for the example's own.

    Raises:
        InputError: For too many or too long classes, and for a template that doesn't hold `{}` once.
    """
    texts, state = split_texts(classes), screen.state
    unchanged = texts == screen.app.example(state.example, state.model).classes
    screen.change(classes=() if unchanged else texts, template=parse_template(template))


def render_classify(screen: Screen, complete: bool = True) -> Markup:
    """Return the view as HTML.

    Args:
        screen: The screen.
        complete: False to leave out the parts that need long work.
    """
    classes, model = question(screen)[0], screen.state.model
    return render(
        "classify.html",
        state=screen.state,
        records=screen.records,
        classes=classes,
        answer=with_model(screen, complete, partial(_answers, screen)),
        why=with_model(screen, complete, partial(explain_answers, screen)),
        matter=claims.that_matter(screen.records),
        unknown=unknown_words(model, classes),
    )


def _answers(screen: Screen, model: Model) -> Figure:
    answers = measure_answers(screen)
    rows, listed = [], []
    for image, *pair in zip(screen.images.originals, answers.before, answers.after, strict=True):
        table = list(zip(answers.classes, *(shares.tolist() for shares in pair), strict=True))
        rows += [[image.name, name, round(before, 6), round(after, 6)] for name, before, after in table]
        best = {int(i) for shares in pair for i in np.argsort(-shares, kind="stable")[:LISTED]}
        listed.append(sorted((table[i] for i in best), key=lambda row: (-row[2], -row[1])))
    values = {
        "answers": list(zip(screen.images.originals, answers.firsts, listed, strict=True)),
        "changed": answers.changed,
        "similarity": float(answers.similarity.mean()),
        "n": len(answers.classes),
        "templates": question(screen)[1],
        "model": model,
        "alike": ranking.alike(answers.classes, class_matrix(screen)),
    }
    columns = ["image", "class", "before", "after"]
    return Figure("classify", columns, rows, values, settings=template_setting(screen))


def explain_answers(screen: Screen, model: Model) -> Figure | None:
    """Return which patches support each image's answer rather than the runner-up, before and after.

    Args:
        screen: The screen.
        model: The screen's model.

    Returns:
        The figure, None with fewer than two classes.
    """
    classes, ablate, images = question(screen)[0], screen.fitted, screen.images
    if len(classes) < 2:
        return None
    sets = [HeadSet(), *([ablate] if ablate else [])]
    weights = np.stack([class_matrix(screen, heads) for heads in sets])
    embedded = np.stack([images.embed(model, heads) for heads in sets])
    cosines = embedded @ weights.swapaxes(1, 2)  # [sets, images, classes]
    first, second = np.argsort(-cosines[0], axis=1, kind="stable")[:, :2].T
    places = np.arange(len(first))
    along = weights[:, first] - weights[:, second]  # [sets, images, d]
    pairs = zip(along, sets, strict=True)
    maps = np.stack(
        [images.contribution_maps(model, model.heads, at, heads)[places, places] for at, heads in pairs]
    )
    leads = cosines[:, places, first] - cosines[:, places, second]
    rows, overlaid = [], []
    for i, (image, picture) in enumerate(zip(images.originals, images.inputs(model), strict=True)):
        answer, other, largest = classes[first[i]], classes[second[i]], float(np.abs(maps[:, i]).max())
        rows += [[image.name, answer, other, *cells] for cells in examples.patch_rows(*maps[:, i])]
        overlays = [examples.tint(picture, values, largest) for values in maps[:, i]]
        overlaid.append((image.name, answer, other, list(zip(overlays, leads[:, i].tolist(), strict=True))))
    share = float(maps[0].sum() / leads[0].sum()) if leads[0].sum() else float("nan")
    columns = ["image", "answer", "runner-up", "row", "column", "all on", *(["ablated"] if ablate else [])]
    values = {"images": overlaid, "ablate": ablate, "share": percent(share, 0)}
    return Figure("why", columns, rows, values, settings=template_setting(screen))


def classify_lines(screen: Screen, ablate: HeadSet) -> str:
    """Return a program that classifies the screen's images before and after these heads are ablated.

    Args:
        screen: The screen, which has the images, the classes, and the model.
        ablate: Heads to ablate, scale, or edit.
    """
    (classes, templates), (name, page) = question(screen), parse_example(screen.state.example)
    return program("model", model=screen.state.model, ablate=ablate) + program(
        "classify",
        fitted_on=shareable(screen.gallery) if has_edits(ablate) else "",
        uploads=[image.name for image in screen.session.uploads],
        example=name,
        first=page * SHOWN,
        last=(page + 1) * SHOWN,
        classes=classes,
        templates=templates,
    )


VIEW = View(
    "classify",
    "Classify",
    "Zero-shot answers to images, before and after ablation.",
    render_classify,
    lambda screen: classify_lines(screen, screen.state.ablate),
)

"""The view Classify: the model's answers to the visitor's images, before and after ablation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from ccs.analysis.classify import ClassTable, label_images
from ccs.app.html import program, render
from ccs.app.routes import Long, Name, post
from ccs.app.services import examples
from ccs.app.services.examples import SHOWN, Example, example_names, parse_example
from ccs.app.services.images import has_edits
from ccs.app.session import Screen
from ccs.app.state import NO_HEADS, parse_template, split_texts
from ccs.app.views import claims
from ccs.app.views.base import Figure, View, with_model
from ccs.app.views.query import shareable
from ccs.bundled import unknown_words
from ccs.heads import TEXT, Head, HeadSet
from ccs.metrics.accuracy import class_weights

if TYPE_CHECKING:
    from ccs.model.model import Model


def shown_example(screen: Screen) -> Example:
    """Return the images, classes, and templates in force: the visitor's, else those of the example."""
    state = screen.state
    example = screen.app.example(state.example, state.model)
    templates = (state.template,) if state.template else example.templates
    return Example(screen.images.originals, state.classes or example.classes, templates, ())


def class_matrix(screen: Screen, example: Example, ablate: HeadSet = NO_HEADS) -> np.ndarray:
    """Return unit weights [classes, d] of an example's classes with text heads ablated, kept for later.

    Args:
        screen: The screen, with the model.
        example: The example.
        ablate: Heads to ablate. Only those of the text encoder count.

    Raises:
        InputError: If the model isn't available or is still being loaded.
    """
    model, prompts, heads = screen.model, (example.classes, example.templates), ablate.of_encoder(TEXT)
    key = ("classes", model.weights_hash, *prompts, heads)
    return screen.app.cache.get(key, lambda: class_weights(model, *prompts, heads))


def measure_answers(
    screen: Screen, ablate: HeadSet | None = None, example: Example | None = None
) -> ClassTable:
    """Return the answers to images.

    Args:
        screen: The screen.
        ablate: Heads to ablate instead of the screen's.
        example: Images, classes, and templates instead of the screen's.
    """
    model, example = screen.model, example or shown_example(screen)
    sets = [NO_HEADS, screen.fitted if ablate is None else ablate]
    embedded = [screen.app.images(example.images).embed(model, heads) for heads in sets]
    texts = [class_matrix(screen, example, heads) for heads in sets]
    return label_images(model, example.classes, example.templates, embedded, texts, sets[1])


def answers_figure(screen: Screen, ablate: HeadSet, example: Example, head: Head | None = None) -> Figure:
    """Return the answers to images before and after an ablation.

    Args:
        screen: The screen, with the model.
        ablate: Heads to ablate, with fitted edits.
        example: Images, classes, and templates.
        head: The only head that is ablated, if the figure is about it.
    """
    table = measure_answers(screen, ablate, example)
    names = np.repeat([image.name for image in example.images], len(example.classes))
    settings = {**screen.settings, "template": " | ".join(example.templates)}
    settings |= {"ablated heads": str(head)} if head else {}
    values = {"result": table, "example": example, "model": screen.model}
    return Figure("classify", table.rows.assign(image=names), settings, str(head or ""), values)


class Story(NamedTuple):
    """The head and the image, rightly classified if that is known, that lose most by the head's ablation."""

    head: Head
    example: Example  # of this image alone


def find_story(screen: Screen) -> Story:
    """Return the story of the visitor's images and classes, else that of the first images of all examples.

    It is about a head with a high CCS if there is one.
    """
    app, state, model = screen.app, screen.state, screen.model
    if screen.session.uploads or state.classes:
        candidates = [shown_example(screen)]
    else:
        candidates = [app.example(f"{name}:0", state.model) for name in example_names(state.model)]
    heads = screen.records.level("high") or model.heads

    def search() -> Story:
        stories: list[tuple[float, Story]] = []
        for example in candidates:
            sets = [NO_HEADS, *(HeadSet([head]) for head in heads)]
            embedded = [app.images(example.images).embed(model, heads) for heads in sets]
            texts = class_matrix(screen, example).T
            shares = np.stack([model.probabilities(units @ texts) for units in embedded])
            first = shares[0].argmax(axis=1)
            costs = (shares[:1] - shares[1:])[:, np.arange(len(first)), first]  # [heads, images]
            if example.answers:
                costs = costs - (np.array(example.classes)[first] != np.array(example.answers))
            best, at = np.unravel_index(costs.argmax(), costs.shape)
            alone = replace(example, images=(example.images[at],))
            stories.append((float(costs.max()), Story(list(heads)[best], alone)))
        return max(stories, key=lambda story: story[0])[1]

    images = tuple((tuple(image.key for image in example.images), example.classes) for example in candidates)
    return app.cache.get(("story", model.weights_hash, images, state.analysis), search)


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


def render_classify(screen: Screen) -> Markup:
    """Return the view as HTML."""
    example = shown_example(screen)
    return render(
        "classify.html",
        state=screen.state,
        records=screen.records,
        classes=example.classes,
        parts=with_model(screen, partial(_parts, screen, example)),
        matter=claims.that_matter(screen.records),
        unknown=unknown_words(screen.state.model, example.classes),
    )


def _parts(screen: Screen, example: Example, model: Model) -> dict[str, object]:
    return {
        "answer": answers_figure(screen, screen.fitted, example),
        "why": with_model(screen, partial(explain_answers, screen)),
    }


def explain_answers(screen: Screen, model: Model) -> Figure | None:
    """Return which patches support each image's answer rather than the runner-up, before and after.

    Args:
        screen: The screen.
        model: The screen's model.

    Returns:
        The figure, None with fewer than two classes.
    """
    example, ablate, images = shown_example(screen), screen.fitted, screen.images
    classes = example.classes
    if len(classes) < 2:
        return None
    sets = [HeadSet(), *([ablate] if ablate else [])]
    weights = np.stack([class_matrix(screen, example, heads) for heads in sets])
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
    settings = {**screen.settings, "template": " | ".join(example.templates)}
    values = {"images": overlaid, "ablate": ablate, "share": share}
    return Figure("why", pd.DataFrame(rows, columns=columns), settings, values=values)


def classify_lines(screen: Screen, ablate: HeadSet) -> str:
    """Return a program that classifies the screen's images before and after these heads are ablated.

    Args:
        screen: The screen, which has the images, the classes, and the model.
        ablate: Heads to ablate, scale, or edit.
    """
    shown, (name, page) = shown_example(screen), parse_example(screen.state.example)
    return program("model", model=screen.state.model, ablate=ablate) + program(
        "classify",
        fitted_on=shareable(screen.gallery) if has_edits(ablate) else "",
        uploads=[image.name for image in screen.session.uploads],
        example=name,
        first=page * SHOWN,
        last=(page + 1) * SHOWN,
        classes=shown.classes,
        templates=shown.templates,
    )


VIEW = View(
    "classify",
    "Zero-shot answers to images, before and after ablation.",
    render_classify,
    lambda screen: classify_lines(screen, screen.state.ablate),
)

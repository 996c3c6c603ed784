"""The view Classify: the model's answers to the visitor's images, before and after ablation."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ccs.analysis.classify import ClassTable, label_images
from ccs.app.html import program
from ccs.app.routes import Long, Name, post
from ccs.app.services import images as overlays
from ccs.app.services.examples import Example, example_names
from ccs.app.session import Screen
from ccs.app.state import NO_HEADS, parse_template, split_texts
from ccs.app.views.base import Figure, View, if_ready
from ccs.bundled import unknown_words
from ccs.heads import Head, HeadSet

LISTED = 5  # classes of an image


def shown_example(screen: Screen) -> Example:
    """Return the images, classes, and templates in force: the visitor's, else those of the example."""
    state = screen.state
    example = screen.app.example(state.example, state.model)
    templates = (state.template,) if state.template else example.templates
    return Example(tuple(screen.images.originals), state.classes or example.classes, templates, ())


def measure_answers(screen: Screen, head: Head | None = None, example: Example | None = None) -> ClassTable:
    """Return the answers to images.

    Args:
        screen: The screen.
        head: The head to ablate instead of the screen's.
        example: Images, classes, and templates instead of the screen's.
    """
    model, example = screen.model, example or shown_example(screen)
    sets = [NO_HEADS, HeadSet([head]) if head else screen.fitted]
    images, prompts = screen.app.images(example.images), (example.classes, example.templates)
    ends = [(images.embed(model, heads), screen.embed_texts(*prompts, heads)) for heads in sets]
    return label_images(model, *prompts, ends, sets[1])


def answers_figure(screen: Screen, example: Example, head: Head | None = None) -> Figure:
    """Return the answers to images before and after an ablation.

    Args:
        screen: The screen, with the model and the ablated heads.
        example: Images, classes, and templates.
        head: The only head that is ablated, if the figure is about it.
    """
    table = measure_answers(screen, head, example)
    settings = {"template": " | ".join(example.templates)}
    settings |= {"ablated heads": str(head)} if head else {}
    order = np.argsort(-table.rows[["before", "after"]].max(axis=1), kind="stable")
    listed = [rows.head(LISTED).to_numpy().tolist() for _, rows in table.rows.iloc[order].groupby("image")]
    values = {"head": head, "result": table, "example": example, "listed": listed, "model": screen.model}
    rows = table.rows.assign(image=[example.images[i].name for i in table.rows["image"]])
    return Figure.of(screen, "classify", rows, settings, **values)


def find_story(screen: Screen) -> tuple[Head, Example]:
    """Return the head and the image, rightly classified if that is known, that lose most by its ablation.

    The image is one of the visitor's, else one of the first of all examples. The head has a high CCS if one
    has.
    """
    app, state, model = screen.app, screen.state, screen.model
    custom = [shown_example(screen)] if screen.session.uploads or state.classes else []
    names = [] if custom else example_names(state.model)

    def candidate(number: int) -> Example:
        return custom[number] if custom else app.example(f"{names[number]}:0", state.model)

    def search(head: Head) -> tuple[float, int, int]:
        candidates = [candidate(number) for number in range(len(custom or names))]
        images = app.images(tuple(image for example in candidates for image in example.images))
        embedded = np.stack([images.embed(model, heads) for heads in (NO_HEADS, HeadSet([head]))])
        ends, stories = np.cumsum([len(example.images) for example in candidates])[:-1], []
        for number, of_example in enumerate(np.split(embedded, ends, axis=1)):
            example = candidates[number]
            texts = screen.embed_texts(example.classes, example.templates).T
            before, after = (model.probabilities(embeddings @ texts) for embeddings in of_example)
            first = before.argmax(axis=1)
            costs = (before - after)[np.arange(len(first)), first]
            if example.answers:
                costs = costs - (np.array(example.classes)[first] != np.array(example.answers))
            stories.append((float(costs.max()), number, int(costs.argmax())))
        return max(stories)

    keys = [(tuple(image.key for image in e.images), e.classes, e.templates) for e in custom]
    heads = screen.records.level("high") or model.load().heads
    key = ("story", model.weights_hash, *names, *keys)
    stories = [(*app.cache.get((*key, head), partial(search, head)), head) for head in heads]
    _, number, at, head = max(stories)
    example = candidate(int(number))
    return head, replace(example, images=(example.images[int(at)],))


@post("classify")
def choose_classes(screen: Screen, classes: Long = "", template: Name = "") -> None:
    """Classify into other classes, with another template.

    Args:
        screen: The screen to change.
        classes: The classes, one per line or separated by commas; "" for the example's own.
        template: The prompt, with `{}` where the class goes; "" for the example's own.

    Raises:
        InputError: For too many or too long classes, and for a template that doesn't hold `{}` once.
    """
    texts, state = split_texts(classes), screen.state
    unchanged = texts == screen.app.example(state.example, state.model).classes
    screen.change(classes=() if unchanged else texts, template=parse_template(template))


def show_classify(screen: Screen) -> dict[str, Any]:
    """Return the answers to the images, and the reasons."""
    example = shown_example(screen)
    return {
        "classes": example.classes,
        "answer": if_ready(lambda: answers_figure(screen, example)),
        "why": if_ready(lambda: explain_answers(screen)),
        "unknown": unknown_words(screen.state.model, example.classes),
    }


def explain_answers(screen: Screen) -> Figure | None:
    """Return which patches support each image's answer, not the runner-up; None without a runner-up."""
    model, example, ablate, images = screen.model, shown_example(screen), screen.fitted, screen.images
    if len(classes := example.classes) < 2:
        return None
    sets = [NO_HEADS, ablate] if ablate else [NO_HEADS]
    weights = np.stack([screen.embed_texts(classes, example.templates, heads) for heads in sets])
    cosines = np.stack([images.embed(model, heads) for heads in sets]) @ weights.swapaxes(1, 2)
    first, second = np.argsort(-cosines[0], axis=1, kind="stable")[:, :2].T
    at = np.arange(len(first))
    leads = cosines[:, at, first] - cosines[:, at, second]  # [sets, images]
    along = zip(weights[:, first] - weights[:, second], sets, strict=True)
    maps = np.stack([images.maps(model, model.load().heads, v, heads)[at, at] for v, heads in along])
    texts = {"image": [image.name for image in images.originals]}
    texts |= {"answer": [classes[i] for i in first], "runner-up": [classes[i] for i in second]}
    rows = overlays.patch_table(texts, dict(zip(("all on", "ablated"), maps, strict=False)))
    share = float(maps[0].sum() / leads[0].sum()) if leads[0].sum() else float("nan")
    values = {"maps": maps.swapaxes(0, 1), "leads": leads.T, "inputs": images.inputs(model), "texts": texts}
    settings = {"template": " | ".join(example.templates)}
    return Figure.of(screen, "why", rows, settings, **values, ablate=ablate, share=share, draw=overlays)


def classify_lines(screen: Screen, ablate: HeadSet) -> str:
    """Return a program that classifies the screen's images before and after these heads are ablated.

    Args:
        screen: The screen, which has the images, the classes, and the model.
        ablate: Heads to ablate, scale, or edit.
    """
    return program("classify", screen=screen, ablate=ablate, example=shown_example(screen))


VIEW = View("classify", show_classify, lambda screen: classify_lines(screen, screen.state.ablate))

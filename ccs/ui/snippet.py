"""The screen as a Python program that gives the same figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccs.errors import InputError
from ccs.ui import bias, classify
from ccs.ui.galleries import DRAWN
from ccs.ui.pictures import SHOWN, parse_example, pictures
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.core import App


def snippet(app: App, session: Session) -> str:
    """A program for the view that is open; it prints what the view shows."""
    state = session.state
    start = f"import ccs\n\nmodel = ccs.load({state.model!r})\noff = ccs.HeadSet.parse({str(state.off)!r})\n"
    try:
        if state.tab == "bias":
            return start + _bias(app, session)
        if state.tab in ("paradox", "judges", "about"):
            return _tables(app, session)
        if state.tab == "heads" and state.head is not None:
            start = start.replace(repr(str(state.off)), repr(str(state.head)))
        return start + _classify(session)
    except InputError as error:
        return f"# {error}\n"


def _images(session: Session) -> str:
    if session.uploads:
        names = [picture.name for picture in pictures(session)]
        return f'from PIL import Image\n\nimages = [Image.open(name).convert("RGB") for name in {names!r}]\n'
    name, page = parse_example(session.state.example)
    return (
        "from ccs.world import sets\n\n"
        f"drawn = sets.classification_set({name!r})\n"
        f"images = [drawn.images[i * 7 % len(drawn.images)] for i in range({page * SHOWN}, "
        f"{(page + 1) * SHOWN})]\n"
    )


def _classify(session: Session) -> str:
    classes, templates = classify.asked(session)
    return (
        "\nimport numpy as np\nfrom ccs.zeroshot import class_weights\n"
        + _images(session)
        + f"classes = {list(classes)!r}\n"
        f"weights = class_weights(model, classes, {list(templates)!r})\n"
        'for name, heads in (("before", ccs.HeadSet()), ("after", off)):\n'
        "    logits = model.logit_scale * model.embed_images(images, heads) @ weights.T\n"
        "    shares = np.exp(logits - logits.max(axis=1, keepdims=True))\n"
        "    shares /= shares.sum(axis=1, keepdims=True)\n"
        "    for row in shares:\n"
        "        best = row.argsort()[::-1][:5]\n"
        '        print(name, ", ".join(f"{classes[i]} {row[i]:.4f}" for i in best))\n'
    )


def _bias(app: App, session: Session) -> str:
    what = bias.asked(app, session)
    drawn = DRAWN.get(what.gallery.name)
    if drawn is None:
        gallery = f"gallery = ...  # the labelled pictures of {what.gallery.name}, a ccs.datasets.BiasSet\n"
    else:
        gallery = f"from ccs.world import sets\n\ngallery = sets.bias_set({drawn!r})\n"
    fault = ', fault="order"' if what.faulty else ""
    return (
        "\nfrom ccs import bias\nfrom ccs.zeroshot import class_weights\n"
        + gallery
        + f"occupations = {list(what.occupations)!r}\n"
        f"texts = class_weights(model, occupations, {list(what.templates)!r})\n"
        "images = [gallery.images[i] for i in range(len(gallery.images))]\n"
        "plans = model.embed_images(images, [ccs.HeadSet(), off])\n"
        f"before, after = bias.measure_plans(plans, texts, gallery.groups[{what.attribute!r}], {what.k}, "
        f"target={what.target!r}{fault}, draws={bias.DRAWS})\n"
        'for name, result in (("before", before), ("after", after)):\n'
        '    print(name, result.max_skew.mean, "chance", result.max_skew.chance_mean)\n'
        "    for occupation, value in zip(occupations, result.max_skew.values):\n"
        '        print(name, f"{occupation} {value:.4f}")\n'
    )


def _tables(app: App, session: Session) -> str:
    results = app.collection.models.get(session.state.model)
    folder = "precomputed/organism" if results is None else str(results.folder)
    return (
        "from pathlib import Path\n\nfrom ccs import results\n\n"
        f"run = results.read(Path({folder!r}))\n"
        'print(run.manifest["created"], *run.tables)\n'
        'print(run.table("pruning"))\nprint(run.table("bias"))\n'
    )

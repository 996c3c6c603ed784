"""The screen as a Python program that gives the same figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ccs import results
from ccs.errors import InputError
from ccs.heads import Head
from ccs.ui.service.galleries import DRAWN
from ccs.ui.service.pictures import SHOWN, parse_example, pictures
from ccs.ui.session import Session
from ccs.ui.views import bias, classify, paradox

if TYPE_CHECKING:
    from ccs.ui.app import App


_ADDRESS = r"hf://datasets/[\w.-]+/[\w.-]+(@[\w./-]+)?"


def snippet(app: App, session: Session) -> str:
    """A program for the view that is open; it prints what the view shows."""
    state = session.state
    start = f"import ccs\n\nmodel = ccs.load({state.model!r})\noff = ccs.HeadSet.parse({str(state.off)!r})\n"
    try:
        match state.tab:
            case "bias":
                return start + _bias(app, session)
            case "paradox":
                return _paradox(app, session)
            case "judges" | "about":
                return _run(app, state.model) + _JUDGES
            case "heads" if state.head is not None:
                alone = start.replace(repr(str(state.off)), repr(str(state.head)))
                return _run(app, state.model) + _head(state.head) + alone + _classify(session)
        return start + _classify(session)
    except InputError as error:
        return f"# {error}\n"


def _run(app: App, model: str) -> str:
    """Lines that read the tables of a model as `run`."""
    found = app.collection.models.get(model)
    if found is None:
        raise InputError(f"There are no tables for {model}.")
    shipped, hub = found.folder.parent == results.PRECOMPUTED, re.search(_ADDRESS, app.collection.source)
    if hub:
        return f"from ccs import results\n\nrun = results.load({hub[0]!r}).models[{model!r}]\n"
    read = f"results.load().models[{model!r}]" if shipped else f"results.read(Path({str(found.folder)!r}))"
    path = "" if shipped else "from pathlib import Path\n\n"
    return f"{path}from ccs import results\n\nrun = {read}\n"


def _head(head: Head) -> str:
    return (
        f'texts = run.table("spans").query("layer == {head.layer} and head == {head.head}")\n'
        'for row in texts.itertuples():\n    print(row.rank + 1, row.text, f"{row.share:.1%}")\n\n'
    )


def _paradox(app: App, session: Session) -> str:
    chosen = paradox.axes(app, session)
    if chosen is None:
        raise InputError("There are no tables pruning and bias yet.")
    dataset, extra, metric = chosen[0].key.split("|")
    shown, attribute, target, mode = chosen[1].key.split("|")
    table, column = ("pruning", "subset") if metric == "top1" else ("retrieval", "direction")
    quality = {"dataset": dataset, column: extra, "metric": metric}
    fairness = {"dataset": shown, "attribute": attribute, "target": target, "mode": mode, "occupation": ""}
    return (
        _run(app, session.state.model)
        + _rows("quality", table, quality)
        + _rows("fairness", "bias", {**fairness, "metric": "MaxSkew mean"})
        + 'both = quality.merge(fairness, on=["plan", "seed", "heads"], suffixes=("", " of MaxSkew"))\n'
        'both = both[both["plan"] != "none"]\n'
        'print(both[["plan", "seed", "difference", "difference of MaxSkew"]].to_string(index=False))\n'
    )


def _rows(name: str, table: str, wanted: Mapping[str, str]) -> str:
    """Lines that choose the rows of a table; an empty seed, of a mean over seeds, becomes -1 to join on."""
    lines = [f'{name} = run.table({table!r})\n{name} = {name}.assign(seed={name}["seed"].fillna(-1))\n']
    lines += [f"{name} = {name}[{name}[{key!r}].fillna('') == {value!r}]\n" for key, value in wanted.items()]
    return "".join(lines)


_JUDGES = (
    'for name, said in run.table("judgments").groupby("judge")["verdict"]:\n'
    '    print(name, len(said), f"says yes {said.mean():.1%}, unscored {said.isna().mean():.1%}")\n'
    'print(run.manifest["created"], run.manifest["model"], run.manifest["versions"])\n'
)


def _images(session: Session) -> str:
    if session.uploads:
        names = [picture.name for picture in pictures(session)]
        return (
            "from pathlib import Path\n\nfrom ccs.ui.uploads import read  # turns, scales and crops as the "
            f"page does\n\nimages = [read(Path(name)).image for name in {names!r}]\n"
        )
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
        "\nimport numpy as np\nfrom ccs.measures.accuracy import class_weights\n"
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
    spec = app.galleries.specs.get(what.gallery.name)
    if spec is not None:
        gallery = f"from ccs.datasets.gallery import open_gallery\n\ngallery = open_gallery({spec!r})\n"
    elif drawn is None:
        gallery = f"gallery = ...  # the labelled pictures of {what.gallery.name}, a ccs.datasets.BiasSet\n"
    else:
        gallery = f"from ccs.world import sets\n\ngallery = sets.bias_set({drawn!r})\n"
    fault = f", fault={what.fault!r}" if what.fault else ""
    return (
        "\nfrom ccs.measures import bias\nfrom ccs.measures.accuracy import class_weights\n"
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

"""The view Heads: what one head encodes, by its texts, its images, and the effect of its ablation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup

import ccs
from ccs.app.html import program, render
from ccs.app.routes import Name, post
from ccs.app.services import examples
from ccs.app.services.galleries import PICTURES, world
from ccs.app.services.images import extremes
from ccs.app.services.records import HeadRecord
from ccs.app.session import Screen
from ccs.app.state import clean_line, parse_int
from ccs.app.views import claims, classify
from ccs.app.views.base import Empty, Figure, View, run_lines, with_model
from ccs.app.views.query import head_states
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, Head, HeadSet, Intervention

if TYPE_CHECKING:
    from ccs.model.model import Model

RESULTS = 6  # heads listed by a search


@post("heads/text")
def choose_text(screen: Screen, text: Name = "") -> None:
    """Rank images by another of the head's texts.

    Args:
        screen: The screen that the form changes.
        text: The text's number, from 0.

    Raises:
        InputError: If it isn't a whole number.
    """
    screen.change(text=parse_int(text, "text's number"))


@post("heads/find")
def search_heads(screen: Screen, text: Name = "") -> None:
    """Search the model's heads for a text.

    Args:
        screen: The screen that the form changes.
        text: The text; "" closes the search.

    Raises:
        InputError: If the text is too long.
    """
    screen.change(find=clean_line(text), tab="heads")


def prepare_heads(screen: Screen) -> None:
    """Embed the images that the heads rank, and search the heads."""
    app, model, text = screen.app, screen.model, screen.state.find
    app.galleries.images(world(model.name).pictures, screen.tell).contributions(model)
    if text and _search_result(screen) is None:
        screen.tell(0.5, f"Ranking heads by “{text}”")
        images = app.galleries.find(world(model.name).pictures)
        app.cache.get(("find", model.weights_hash, text), lambda: ccs.find_heads(model, text, images).rows)


def _search_result(screen: Screen) -> pd.DataFrame | None:
    table: pd.DataFrame | None = screen.app.cache.find(("find", screen.model.weights_hash, screen.state.find))
    return table


def render_heads(screen: Screen, complete: bool = True) -> Markup:
    """Return the view: the panel of one head, and a search over all.

    Args:
        screen: The screen.
        complete: False for the parts that need no long work.
    """
    state, head = screen.state, screen.state.head
    search = with_model(screen, complete, partial(_search, screen)) if state.find else None
    if head is None:
        return render("heads.html", record=None, state=state, search=search)
    record = screen.records.head(head)
    parts = with_model(screen, complete, partial(_panel, screen, record))
    texts = [] if head.encoder == TEXT else [_texts(screen, record)]
    return render(
        "heads.html",
        record=record,
        state=state,
        known=claims.describe_training(state.model, head),
        search=search,
        states=head_states(screen, head),
        parts=[*texts, *(parts if isinstance(parts, list) else [parts])],
    )


def _panel(screen: Screen, record: HeadRecord, model: Model) -> list[Figure | Empty]:
    """Return the parts of a head's panel that the model computes."""
    alone = _alone(screen, record.head)
    if record.head.encoder == TEXT:
        return [alone]
    maps = with_model(screen, True, lambda model: attention_maps(screen, model, record))
    return [maps, top_images(screen, record, screen.state.text), alone]


def _search(screen: Screen, model: Model) -> Figure | Empty:
    """Return the heads that encode the text best."""
    table, text = _search_result(screen), screen.state.find
    if table is None:
        return Empty(f"Heads that encode “{text}”", "The result follows in a moment.")
    columns = ["head", "rank", "share", "best", "best_share", "encodes"]
    rows = table[columns].head(RESULTS).to_numpy().tolist()
    concepts = [screen.records.head(Head.parse(row[0])).concept for row in rows]
    settings = {"text": text, "ablated heads": "", "gallery": world(model.name).pictures}
    return Figure("find", columns, rows, {"text": text, "concepts": concepts}, settings=settings)


def _texts(screen: Screen, record: HeadRecord) -> Figure | Empty:
    """Return the head's texts."""
    if not record.texts:
        unknown = "There are no tables for this head, so its concept is unknown."
        return Empty("No texts", f"{unknown} “Analyze this model”, below the grid, computes them.")
    judges = [verdict.judge for verdict in record.texts[0].verdicts]
    rows = []
    for i, text in enumerate(record.texts, 1):
        verdicts = (cell for verdict in text.verdicts for cell in (verdict.word, verdict.why))
        rows.append([record.head, i, text.text, text.concept, round(text.share, 6), *verdicts])
    columns = ["head", "rank", "text", "concept", "share"]
    columns += [f"{judge} {part}" for judge in judges for part in ("verdict", "reason")]
    values = {"record": record, "judges": judges, "chosen": screen.state.text}
    return Figure("texts", columns, rows, values, str(record.head), screen.records.origin)


def _alone(screen: Screen, head: Head) -> Figure:
    """Return the answers to the visitor's images with this head alone ablated."""
    answers, rows = classify.measure_answers(screen, HeadSet([head])), []
    for i, (image, (before, after)) in enumerate(zip(screen.images.originals, answers.firsts, strict=True)):
        shares = float(answers.before[i].max()), float(answers.after[i, answers.classes.index(before)])
        rows.append([image.name, before, *shares, after, float(answers.similarity[i])])
    columns = ["image", "answer", "before", "after", "answer after", "similarity"]
    settings = {**classify.template_setting(screen), "ablated heads": head}
    return Figure("alone", columns, rows, head=str(head), settings=settings)


def attention_maps(screen: Screen, model: Model, record: HeadRecord) -> Figure:
    """Return the head's attention over the visitor's images, and the contribution of each patch.

    Args:
        screen: The screen.
        model: The screen's model.
        record: The head's record.
    """
    head, images, text = record.head, screen.images, _text_of(record, screen.state.text)
    ablate = Intervention.from_heads(screen.fitted.of_encoder(IMAGE) - {head})
    maps = [images.attention(model, head.layer, ablate)[:, head.head]]
    others = claims.first_texts(screen.records)
    if text:
        along = _embed(screen, model, text)
        if len(others) > 1:
            along = along - _embed(screen, model, *others).mean(axis=0)
        maps.append(images.contribution_maps(model, HeadSet([head]), along, ablate)[:, 0])
    peak = max(float(maps[0].max()), 1 / maps[0][0].size)  # an even share, if it attends elsewhere
    largest, rows, mapped_images = float(np.abs(maps[-1]).max()), [], []
    for image, picture, look, *written in zip(images.originals, images.inputs(model), *maps, strict=True):
        rows += [[image.name, *cells] for cells in examples.patch_rows(look, *written)]
        overlays = [examples.tint(picture, values, largest) for values in written]
        mapped_images.append((image.name, [examples.highlight(picture, look, peak), *overlays], look))
    columns = ["image", "row", "column", *("attention", "written")[: len(maps)]]
    values = {
        "text": text,
        "contrasted": len(others) > 1,
        "largest": largest,
        "peak": peak,
        "images": mapped_images,
    }
    return Figure("where", columns, rows, values, str(head), {"ablated heads": ablate})


def _text_of(record: HeadRecord, number: int) -> str:
    """Return the head's text of that number, "" if it has none."""
    return record.texts[min(number, len(record.texts) - 1)].text if record.texts else ""


def _embed(screen: Screen, model: Model, *texts: str) -> np.ndarray:
    """Return the texts' unit embeddings [texts, d], kept for the next images."""
    return screen.app.cache.get(("texts", model.weights_hash, texts), lambda: model.embed_texts(texts))


def top_images(screen: Screen, record: HeadRecord, number: int = 0) -> Figure | Empty:
    """Return the images at both ends of a head's contribution.

    Args:
        screen: The screen.
        record: The head's record.
        number: The number of the text that ranks them; without texts, the contributions' main direction does.
    """
    app, model, head = screen.app, screen.model, record.head
    name, text = world(model.name).pictures, _text_of(record, number)
    contributions = app.cache.find(("contributions", model.weights_hash, name))
    if contributions is None:
        try:
            app.galleries.find(name)
            reason = f"{model.name} embeds {PICTURES} images first, which takes a while."
        except InputError as error:
            reason = str(error)
        return Empty(f"Images that move {head}", reason)
    along = _embed(screen, model, text)[0] if text else None
    ends = extremes(contributions[:, list(model.heads).index(head)], along)
    rows = [[i, text, round(z, 4)] for end in ends for i, z in end]
    titles = ("highest", "lowest") if text else ("one end", "other end")
    strips = [
        (title, [(i, app.face(name, i), z) for i, z in end]) for title, end in zip(titles, ends, strict=True)
    ]
    values = {"strips": strips, "pictures": app.galleries.find(name), "text": text}
    settings = {"gallery": name, "ablated heads": ""}
    columns = ["picture", "text", "standard deviations"]
    return Figure("top-activating", columns, rows, values, str(head), settings)


def heads_program(screen: Screen) -> str:
    """Return a program that prints the head's texts and classifies images without it."""
    head, ablate = screen.state.head, screen.state.ablate
    if head is None:
        return classify.classify_lines(screen, ablate)
    tables = "" if head.encoder == TEXT else run_lines(screen) + program("texts", head=head)
    return tables + classify.classify_lines(screen, HeadSet([head]))


VIEW = View(
    "heads",
    "Heads",
    "What each attention head encodes, described by texts.",
    render_heads,
    heads_program,
    prepare_heads,
)

"""The view Heads: what one head encodes, by its texts, its images, and the effect of its ablation."""

from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup

import ccs
from ccs.app.html import program
from ccs.app.routes import Long, Name, post, post_fields
from ccs.app.services import images as overlays
from ccs.app.services.galleries import world
from ccs.app.services.images import extremes
from ccs.app.services.records import HeadRecord
from ccs.app.session import Screen
from ccs.app.state import parse_ablation
from ccs.app.views import classify
from ccs.app.views.base import Figure, View, if_ready, run_lines
from ccs.heads import IMAGE, TEXT, Head, HeadSet, Intervention

SHOWN_HEADS = 6  # heads listed by a search


post_fields("heads/encoder", "encoder")
post_fields("heads/text", "text")  # another of the head's texts ranks images
post_fields("heads/find", "find", tab="heads")  # "" closes the search
post_fields("heads/ablate", "ablate")  # "" turns all heads on


@post("heads/inspect")
def inspect_head(screen: Screen, head: Name = "") -> None:
    """Show a head in the view Heads.

    Args:
        screen: The screen to change.
        head: One head of the model, such as `L7.H4`.

    Raises:
        InputError: If the text doesn't name one head, or the model doesn't have it.
    """
    (name,) = screen.app.require_heads(screen.state.model, HeadSet([Head.parse(head)]))
    screen.change(head=name, encoder=name.encoder, text=0, tab="heads")


@post("heads/toggle")
def toggle_heads(screen: Screen, head: Long = "") -> None:
    """Turn heads off, or on again if they are off, scaled, or edited.

    Args:
        screen: The screen to change.
        head: The heads, such as `L5.H0 L6.H1`.

    Raises:
        InputError: If the text doesn't name heads.
    """
    screen.change(ablate=screen.state.ablate ^ parse_ablation(head))


@post("heads/change")
def change_heads(screen: Screen, heads: Long = "") -> None:
    """Turn heads on or off, or scale or edit them; the others stay as they are.

    Args:
        screen: The screen to change.
        heads: The heads, each with its change, such as `L5.H0=1 L6.H1=erase:gender`; a factor of 1 turns a
            head on.

    Raises:
        InputError: If the text doesn't name heads.
    """
    screen.change(ablate=str(screen.state.ablate | Intervention.parse(heads)))


@post("heads/undo")
def undo(screen: Screen) -> None:
    """Go back to the previous ablation."""
    if screen.session.past:
        *screen.session.past, ablate = screen.session.past
        screen.change(ablate=ablate & screen.app.heads_of_model(screen.state.model))


def show_heads(screen: Screen) -> dict[str, Any]:
    """Return the panel of one head, and a search over all."""
    state = screen.state
    record = screen.records.head(state.head) if state.head else None
    return {
        "record": record,
        "search": if_ready(partial(_search, screen)) if state.find else "",
        "texts": _texts(screen, record) if record and record.texts else "",
        "parts": if_ready(partial(_panel, screen, record)) if record else "",
    }


def _panel(screen: Screen, record: HeadRecord) -> list[Figure | Markup]:
    """Return the parts of a head's panel that the model computes."""
    alone = classify.answers_figure(screen, classify.shown_example(screen), record.head)
    if record.head.encoder == TEXT:
        return [alone]
    top = partial(top_images, screen, record, screen.state.text)
    return [if_ready(partial(attention_maps, screen, record)), if_ready(top, "No images"), alone]


def _search(screen: Screen) -> Figure:
    """Return the heads that encode the visitor's text best."""
    app, model, text, name = screen.app, screen.model, screen.state.find, world(screen.state.model).pictures

    def search() -> pd.DataFrame:
        screen.tell(0.5, f"Ranking heads by “{text}”")
        return ccs.find_heads(model.load(), text, app.galleries.find(name, screen.tell)).rows

    rows = app.cache.get(("find", model.weights_hash, text), search).head(SHOWN_HEADS)
    rows = rows.assign(concept=[screen.records.head(Head.parse(head)).concept for head in rows["head"]])
    return Figure.of(screen, "find", rows, {"text": text, "ablated heads": "", "gallery": name})


def _texts(screen: Screen, record: HeadRecord) -> Figure:
    """Return the head's texts."""
    rows = []
    for i, text in enumerate(record.texts, 1):
        columns = {"head": str(record.head), "rank": i, "text": text.text, "concept": text.concept}
        columns["share"] = round(text.share, 6)
        for verdict in text.verdicts:
            columns |= {f"{verdict.judge} verdict": verdict.word, f"{verdict.judge} reason": verdict.why}
        rows.append(columns)
    values = {"head": record.head, "record": record, "chosen": screen.state.text}
    return Figure.of(screen, "texts", pd.DataFrame(rows), screen.records.origin, **values)


def attention_maps(screen: Screen, record: HeadRecord) -> Figure:
    """Return the head's attention over the visitor's images, and the contribution of each patch.

    Args:
        screen: The screen.
        record: The head's record.
    """
    model, images, head = screen.model, screen.images, record.head
    text = _text_of(record, screen.state.text)
    ablate = Intervention.from_heads(screen.fitted.of_encoder(IMAGE) - {head})
    maps = {"attention": images.attention(model, head.layer, ablate)[:, head.head]}
    others = tuple(other.texts[0].text for other in screen.records.heads.values() if other.texts)
    if text:
        mean = screen.embed_texts(others).mean(axis=0) if len(others) > 1 else 0
        along = screen.embed_texts((text,)) - mean
        maps["written"] = images.maps(model, HeadSet([head]), along, ablate)[:, 0]
    table = overlays.patch_table({"image": [image.name for image in images.originals]}, maps)
    values = {"head": head, "text": text, "contrasted": len(others) > 1, "maps": maps}
    values |= {"images": images.originals, "inputs": images.inputs(model), "draw": overlays}
    return Figure.of(screen, "where", table, {"ablated heads": str(ablate)}, **values)


def _text_of(record: HeadRecord, number: int) -> str:
    """Return the head's text of that number, "" if it has none."""
    return record.texts[min(number, len(record.texts) - 1)].text if record.texts else ""


def top_images(screen: Screen, record: HeadRecord, number: int = 0) -> Figure:
    """Return the images at both ends of a head's contribution.

    Args:
        screen: The screen.
        record: The head's record.
        number: The number of the text that ranks them; without texts, the contributions' main direction does.
    """
    app, model, head, text = screen.app, screen.model, record.head, _text_of(record, number)
    name = world(screen.state.model).pictures
    along = screen.embed_texts((text,))[0] if text else None
    ends = extremes(app.galleries.images(name, screen.tell).contributions(model, head), along)
    rows = [[i, text, round(z, 4)] for end in ends for i, z in end]
    table = pd.DataFrame(rows, columns=["picture", "text", "standard deviations"])
    values = {"head": head, "text": text, "strips": ends, "face": partial(app.face, name)}
    values["pictures"] = app.galleries.find(name)
    return Figure.of(screen, "top-activating", table, {"gallery": name, "ablated heads": ""}, **values)


def heads_program(screen: Screen) -> str:
    """Return a program that prints the head's texts and classifies images without it."""
    head = screen.state.head
    tables = run_lines(screen) + program("texts", head=head) if head and head.encoder == IMAGE else ""
    return tables + classify.classify_lines(screen, HeadSet([head]) if head else screen.state.ablate)


VIEW = View("heads", show_heads, heads_program)

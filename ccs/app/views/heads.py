"""The view Heads: what one head encodes, by its texts, its images, and the effect of its ablation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

import ccs
from ccs.app.html import program, render
from ccs.app.routes import Form, Name, post
from ccs.app.services import examples
from ccs.app.services.galleries import NEAREST, PICTURES, Written, extremes, nearest, world
from ccs.app.services.records import HeadRecord
from ccs.app.session import App, Screen
from ccs.app.state import clean_line, parse_int
from ccs.app.views import claims, classify
from ccs.app.views.base import Empty, Figure, View, of_model, run_lines
from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, Head, HeadSet, Intervention
from ccs.model.model import Model

Part = Figure | Empty | None
Strip = tuple[str, list[tuple[int, str, float]]]
FOUND = 6  # heads listed by a search


class TextForm(Form):
    text: Name = ""


@post("heads/text")
def choose_text(screen: Screen, form: TextForm) -> None:
    """Rank images by another of the head's texts."""
    screen.change(text=parse_int(form.text, "text's number"))


@post("heads/find")
def find_heads(screen: Screen, form: TextForm) -> None:
    """Search the model's heads for a text; without one, close the search."""
    screen.change(find=clean_line(form.text), tab=Heads.name)


class Heads(View):
    """The panel of one head, and a search over all."""

    name = "heads"
    title = "Heads"
    purpose = "What each attention head encodes, described by texts."

    def pending(self, screen: Screen) -> bool:
        seen = screen.app.galleries.written(screen.model) is not None
        return not seen or (bool(screen.state.find) and _found(screen) is None)

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        yield from screen.app.galleries.read(screen.model)
        if screen.state.find and _found(screen) is None:
            yield 0.5, f"Ranking heads by “{screen.state.find}”"
            model, name = screen.model, world(screen.state.model).pictures
            images = screen.app.galleries.find(name)
            screen.app.cache.get(
                _find_key(screen), lambda: ccs.find_heads(model, screen.state.find, images).rows
            )

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        state, head = screen.state, screen.state.head
        if head is None:
            return render("heads.html", record=None, state=state, search=None)
        record = screen.records.head(head)

        def live(model: Model) -> list[Part]:
            if head.encoder == TEXT:
                return [_prompts(screen, model, head), _alone(screen, head)]
            moved = moving(screen, record, state.text)
            pictures = screen.app.galleries.written(model)
            near = _nearest(screen, model, head, pictures) if pictures else None
            seen = of_model(screen, complete, lambda model: where(screen, model, record))
            return [seen, moved, near, _alone(screen, head)]

        parts = of_model(screen, complete, live)
        texts = None if head.encoder == TEXT else _texts(record, state.text, screen.records.made)
        return render(
            "heads.html",
            record=record,
            state=state,
            known=claims.panel(state.model, head),
            search=of_model(screen, complete, lambda model: _search(screen)) if state.find else None,
            parts=[texts, *([parts] if isinstance(parts, Empty) else parts)],
        )

    def program(self, screen: Screen) -> str:
        head, state = screen.state.head, screen.state
        if head is None:
            return classify.lines(screen, state.ablate)
        tables = "" if head.encoder == TEXT else run_lines(screen.app, state) + program("texts", head=head)
        return tables + classify.lines(screen, HeadSet([head]))


def _find_key(screen: Screen) -> tuple[str, ...]:
    return "find", screen.model.weights_hash, screen.state.find


def _found(screen: Screen) -> pd.DataFrame | None:
    table: pd.DataFrame | None = screen.app.cache.find(_find_key(screen))
    return table


def _search(screen: Screen) -> Figure | Empty:
    """Return the heads that encode the text best."""
    table, text = _found(screen), screen.state.find
    if table is None:
        return Empty(f"Heads that encode “{text}”", "The result follows in a moment.")
    columns = ["head", "rank", "share", "best", "best_share", "encodes"]
    rows = table[columns].head(FOUND).to_numpy().tolist()
    concepts = [screen.records.head(Head.parse(row[0])).concept for row in rows]
    shown = {
        "text": text,
        "listed": list(zip(rows, concepts, strict=True)),
        "any": any(row[-1] for row in rows),
    }
    made = {"text": text, "ablated heads": "", "gallery": world(screen.state.model).pictures}
    return Figure(
        "find",
        f"Heads that encode “{text}”",
        "share of the head’s variance, %",
        columns,
        rows,
        shown,
        made=made,
    )


def _texts(record: HeadRecord, chosen: int, made: Mapping[str, str]) -> Figure | Empty:
    """The head's texts. chosen: the number of the text that images are ranked by. made: of the tables."""
    if not record.texts:
        words = "There are no tables for this head, so its concept is unknown."
        return Empty("No texts", f"{words} “Analyze this model”, below the grid, finds out.")
    judges = [v.judge for v in record.texts[0].verdicts]
    rows = []
    for i, text in enumerate(record.texts, 1):
        said = (cell for one in text.verdicts for cell in (one.word, one.why))
        rows.append([record.head, i, text.text, text.concept, round(text.share, 6), *said])
    parts = [f"{judge} {part}" for judge in judges for part in ("verdict", "reason")]
    title, columns = (
        f"Texts that describe {record.head}",
        ["head", "rank", "text", "concept", "share", *parts],
    )
    shown = {"record": record, "judges": judges, "chosen": chosen}
    unit, of = "share of the head’s variance, %", str(record.head)
    return Figure("texts", title, unit, columns, rows, shown, of, made)


def _alone(screen: Screen, head: Head) -> Figure:
    """The answers to the visitor's images without this head alone."""
    title, rows = f"Ablate {head} alone: answers to these images", classify.moves(screen, HeadSet([head]))
    columns = ["image", "answer", "before", "after", "answer after", "similarity"]
    made = {**classify.made(screen), "ablated heads": head}
    return Figure("alone", title, "probability, %", columns, rows, of=str(head), made=made)


def where(screen: Screen, model: Model, record: HeadRecord) -> Figure:
    """Where the head looks in the visitor's images, and what it writes from there along one of its texts."""
    head, state, images = record.head, screen.state, screen.images
    text, firsts = _chosen(record, state.text), claims.first_texts(screen.records)
    off = Intervention.of(state.ablate.of_encoder(IMAGE) - {head})
    values = [images.looks(model, head.layer, off)[:, head.head]]
    if text:
        along = _embedded(screen, model, text)
        if len(firsts) > 1:
            along = along - _embedded(screen, model, *firsts).mean(axis=0)
        values.append(images.sent(model, HeadSet([head]), along, off)[:, 0])
    peak = max(float(values[0].max()), 1 / values[0][0].size)  # an equal share, where it looks elsewhere
    most, rows, maps = float(np.abs(values[-1]).max()), [], []
    for i, (image, picture) in enumerate(zip(images.shown, images.seen(model), strict=True)):
        look, *written = (one[i] for one in values)
        rows += [[image.name, *cells] for cells in examples.by_patch(look, *written)]
        drawn = examples.lit(picture, look, peak), *(examples.tinted(picture, one, most) for one in written)
        maps.append((image.name, drawn, look))
    n = len(values)
    title = " and ".join(("Attention", "contribution")[:n])
    unit = "; ".join(("share of attention", "part of the cosine")[:n])
    columns = ["image", "row", "column", *("attention", "written")[:n]]
    shown = {"along": text, "contrasted": len(firsts) > 1, "most": most, "peak": peak, "shown": maps}
    return Figure("where", title, unit, columns, rows, shown, str(head), {"ablated heads": off})


def _chosen(record: HeadRecord, number: int) -> str:
    """The head's text of that number, "" where it has none."""
    return record.texts[min(number, len(record.texts) - 1)].text if record.texts else ""


def _embedded(screen: Screen, model: Model, *texts: str) -> np.ndarray:
    """The texts' unit embeddings [texts, d], kept for the next pictures."""
    key = ("texts", model.weights_hash, texts)
    found: np.ndarray = screen.app.cache.get(key, lambda: model.embed_texts(texts))
    return found


def moving(screen: Screen, record: HeadRecord, text: int = 0) -> Figure | Empty:
    """Pictures along the head's text of that number, or where it has none, along what it writes most."""
    app, model = screen.app, screen.model
    head, name = record.head, world(model.name).pictures
    found = app.galleries.written(model)
    if found is None:
        try:
            app.galleries.find(name)
            words = f"They are looked for among {PICTURES} pictures, which takes this model a while."
        except InputError as error:
            words = str(error)
        return Empty(f"Images that move {head}", words)
    chosen = _chosen(record, text)
    along = _embedded(screen, model, chosen)[0] if chosen else None
    ends = extremes(found.direct[:, list(model.heads).index(head)], along)
    titles = ("highest", "lowest") if chosen else ("one end", "other end")
    pictures = app.galleries.find(name)
    return Figure(
        "top-activating",
        f"Images that move {head} {f'along “{chosen}”' if chosen else 'most'}",
        "standard deviations",
        ["picture", "text", "standard deviations"],
        [[i, chosen, round(z, 4)] for part in ends for i, z in part],
        {"ends": _strips(app, name, zip(titles, ends, strict=True)), "chosen": chosen, "pictures": pictures},
        of=str(head),
        made={"gallery": name, "ablated heads": ""},
    )


def _prompts(screen: Screen, model: Model, head: Head) -> Figure | Empty:
    """The prompts at the two ends of what a head of the text encoder writes."""
    classes, templates = classify.question(screen)
    prompts = [templates[0].replace("{}", name) for name in classes]
    if len(prompts) < 2:
        return Empty(f"Prompts that {head} tells apart", "Two or more classes in Classify show them.")
    key = ("prompts", model.weights_hash, head, tuple(prompts))
    direct = screen.app.cache.get(key, lambda: model.texts.contributions(prompts, HeadSet([head])).direct)
    ends = extremes(direct[:, 0], None)
    lines = [[(prompts[i], z) for i, z in pair] for pair in zip(*ends, strict=True)]
    rows = [[prompts[i], round(z, 4)] for i, z in (*ends[0], *ends[1][::-1])]
    title, unit = f"Prompts that {head} tells apart", "standard deviations"
    shown = {"lines": lines, "n": len(prompts)}
    return Figure("prompts", title, unit, ["prompt", unit], rows, shown, str(head), {"ablated heads": ""})


def _nearest(screen: Screen, model: Model, head: Head, pictures: Written) -> Figure:
    """The pictures nearest to the first image at hand: by this head alone, and by the whole embedding."""
    app, name, heads = screen.app, world(model.name).pictures, list(model.heads)
    image = screen.images.shown[0]
    found = nearest(pictures, *screen.images.contributions(model))
    by = {"by this head alone": found.alone[heads.index(head)], "by the whole embedding": found.whole}
    listed = {
        title: [(int(i), float(near[i])) for i in np.argsort(-near, kind="stable")[:NEAREST]]
        for title, near in by.items()
    }
    rows = [
        [title, rank, i, round(near, 5)]
        for title, part in listed.items()
        for rank, (i, near) in enumerate(part, 1)
    ]
    shown = {
        "image": image,
        "strips": _strips(app, name, listed.items()),
        "agreement": float(found.agreement[heads.index(head)]),
        "unlike": heads[int(found.agreement.argmin())],
        "least": float(found.agreement.min()),
        "pictures": app.galleries.find(name),
    }
    columns, title = ["by", "rank", "picture", "cosine"], f"Images nearest to {image.name}"
    made = {"gallery": name, "ablated heads": ""}
    return Figure("nearest", title, "cosine", columns, rows, shown, str(head), made)


def _strips(app: App, name: str, rows: Iterable[tuple[str, Sequence[tuple[int, float]]]]) -> list[Strip]:
    """Rows of a set's images: a title, and of each image its number, its small image and a figure."""
    return [(title, [(i, app.face(name, i), value) for i, value in part]) for title, part in rows]

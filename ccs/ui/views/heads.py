"""The view Heads: what one head has learned, by its texts, its images, and what its absence does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from markupsafe import Markup

from ccs.errors import InputError
from ccs.heads import TEXT, Head, HeadSet
from ccs.intervention import Intervention
from ccs.model.maps import on_patches
from ccs.model.model import Model
from ccs.ui.actions import Action, Fields, change, parse_heads
from ccs.ui.html import percent, program, render
from ccs.ui.service import patches, top_activating
from ccs.ui.service.galleries import PICTURES, world
from ccs.ui.service.records import HeadRecord, JudgeVerdict
from ccs.ui.service.top_activating import NEAREST
from ccs.ui.session import Session
from ccs.ui.shared import App
from ccs.ui.state import State, parse_int
from ccs.ui.views import claims, classify, second
from ccs.ui.views.base import Empty, Figure, View, of_model, run_lines
from ccs.ui.views.screen import Screen

Part = Figure | Empty | None


def _inspect(app: App, session: Session, fields: Fields) -> None:
    heads = parse_heads(app, session, str(fields.get("head", "")))
    if len(heads) != 1:
        raise InputError(f"One head is looked at, not {len(heads)}.")
    (head,) = heads
    change(session, head=head, tower=head.tower, text=0, tab=Heads.name)


def _text(app: App, session: Session, fields: Fields) -> None:
    change(session, text=parse_int(fields.get("index"), "text’s number"))


def _guess(app: App, session: Session, fields: Fields) -> None:
    claims.guess(session, fields.get("value"))


class Heads(View):
    """The card of one head."""

    name = "heads"
    title = "Heads"
    purpose = "What each attention head writes about, by the texts that describe it."
    actions: ClassVar[Mapping[str, Action]] = {
        "inspect": _inspect,
        "text": _text,
        "guess": _guess,
        "second": second.choose,
    }

    def models(self, state: State) -> tuple[str, ...]:
        return (state.model, state.second) if state.second else (state.model,)

    def pending(self, screen: Screen) -> bool:
        seen = top_activating.find(screen.app.cache, screen.model) is not None
        return not seen or (second.wanted(screen) and not second.pairs(screen))

    def prepare(self, screen: Screen) -> Iterator[tuple[float, str]]:
        yield from look(screen)
        if second.wanted(screen):
            yield from second.prepare(screen)

    def render(self, screen: Screen, complete: bool = True) -> Markup:
        state, head = screen.state, screen.state.head
        if head is None:
            return render("views/heads.html", record=None)
        record = screen.records.head(head)

        def live(model: Model) -> list[Part]:
            if head.tower == TEXT:
                return [_prompts(screen, model, head), _alone(screen, head)]
            moved = moving(screen, record, state.text)
            pictures = top_activating.find(screen.app.cache, model)
            near = _nearest(screen, model, head, pictures) if pictures else None
            seen = of_model(screen, complete, lambda model: where(screen, model, record))
            return [seen, moved, near, second.figure(screen, head), _alone(screen, head)]

        found = of_model(screen, complete, live)
        return render(
            "views/heads.html",
            record=record,
            state=state,
            session=screen.session,
            known=claims.card(screen.session),
            free=claims.FREE,
            parts=[
                None if head.tower == TEXT else _texts(record, state.text),
                *([found] if isinstance(found, Empty) else found),
            ],
        )

    def snippet(self, screen: Screen) -> str:
        head, state = screen.state.head, screen.state
        if head is None:
            return classify.lines(screen, state.off)
        if head.tower == TEXT:
            return classify.lines(screen, HeadSet([head]))
        tables = run_lines(screen.app, state) + program("texts", head=head)
        return tables + classify.lines(screen, HeadSet([head]))


def look(screen: Screen) -> Iterator[tuple[float, str]]:
    """Look at the pictures that may move a head; InputError where they cannot be had."""
    app, model = screen.app, screen.model
    name = world(model.name).pictures
    for share in app.galleries.fetched(name):
        yield share, f"Fetching {PICTURES} photographs from the Hub, once"
    for share in top_activating.collect(app.cache, model, app.galleries.find(name)):
        yield share, f"Looking at {PICTURES} pictures"


def _texts(record: HeadRecord, chosen: int) -> Figure | Empty:
    """The head's texts. chosen: the number of the text that images are ranked by."""
    if not record.texts:
        words = "There are no tables for this head, so what it writes about is not known."
        return Empty("No texts", f"{words} “Take it apart here”, below the grid, finds out.")
    judges = [v.judge for v in record.texts[0].verdicts]
    rows = [
        [record.head, i, t.text, t.concept, round(t.share, 6),
         *(cell for v in t.verdicts for cell in (verdict_word(v), v.why))]
        for i, t in enumerate(record.texts, 1)
    ]  # fmt: skip
    said = [f"{judge} {part}" for judge in judges for part in ("verdict", "reason")]
    return Figure(
        "texts",
        f"Texts that describe {record.head}",
        "share of the head’s variance, %",
        ["head", "rank", "text", "concept", "share", *said],
        rows,
        {"record": record, "judges": judges, "chosen": chosen, "word": verdict_word},
        of=str(record.head),
    )


def verdict_word(said: JudgeVerdict) -> str:
    """A verdict as a word: yes, no or unscored."""
    return "unscored" if said.verdict is None else "yes" if said.verdict else "no"


def _alone(screen: Screen, head: Head) -> Figure:
    """The answers to the visitor's images without this head alone."""
    return Figure(
        "alone",
        f"{head} alone switched off, on these images",
        "probability, %",
        ["image", "answer", "before", "after", "answer after", "similarity"],
        classify.moves(screen, HeadSet([head])),
        of=str(head),
    )


def where(screen: Screen, model: Model, record: HeadRecord) -> Figure:
    """Where the head looks in the visitor's images, and what it writes from there along one of its texts."""
    head, state, shown = record.head, screen.state, screen.images.shown
    text = _chosen(record, state.text)
    looks = screen.images.looks(model, head.layer, state.image_off)[:, head.head]
    values = [on_patches(model, looks)]
    if text:
        along = _along(screen, model, text)[None]
        values += [
            screen.images.sent(model, HeadSet([head]), along, Intervention.of(state.image_off - {head}))[:, 0]
        ]
    most = float(np.abs(values[-1]).max())
    rows = [
        [image.name, y, x, *(round(float(one[i, y, x]), 8) for one in values)]
        for i, image in enumerate(shown)
        for y, x in np.ndindex(values[0].shape[1:])
    ]
    pictures = screen.images.seen(model)
    return Figure(
        "where",
        "Where it looks, and what it writes there" if text else "Where it looks",
        "share of attention; part of the cosine" if text else "share of attention",
        ["image", "row", "column", "attention", *(["written"] if text else [])],
        rows,
        {
            "head": head,
            "along": text,
            "contrast": ", less the mean of the first texts of all heads"
            if len(claims.first_texts(screen.records)) > 1
            else "",
            "most": most,
            "shown": [
                (
                    image.name,
                    patches.lit(picture, values[0][i]),
                    patches.tinted(picture, values[1][i], most) if text else None,
                    percent(float(values[0][i].sum()), 0),
                    [percent(float(end), 1) for end in (values[0][i].min(), values[0][i].max())],
                )
                for i, (image, picture) in enumerate(zip(shown, pictures, strict=True))
            ],
        },
        of=str(head),
    )


def _chosen(record: HeadRecord, number: int) -> str:
    """The head's text of that number, "" where it has none."""
    return record.texts[min(number, len(record.texts) - 1)].text if record.texts else ""


def _along(screen: Screen, model: Model, text: str) -> np.ndarray:
    """The text's embedding [d] less the mean of the heads' first texts."""
    firsts = claims.first_texts(screen.records)
    key = ("first texts", model.weights_hash, tuple(firsts))
    mean: np.ndarray = screen.app.cache.get(key, lambda: model.embed_texts(firsts).mean(0))
    along: np.ndarray = model.embed_texts([text])[0]
    return along - mean if len(firsts) > 1 else along


def moving(screen: Screen, record: HeadRecord, text: int = 0) -> Figure | Empty:
    """Pictures along the head's text of that number, or where it has none, along what it writes most."""
    app, model = screen.app, screen.model
    head, name = record.head, world(model.name).pictures
    found = top_activating.find(app.cache, model)
    if found is None:
        try:
            app.galleries.find(name)
            words = f"They are looked for among {PICTURES} pictures, which takes this model a while."
        except InputError as error:
            words = str(error)
        return Empty(f"Images that move {head}", words)
    chosen = _chosen(record, text)
    along = model.embed_texts([chosen])[0] if chosen else None
    ends = top_activating.extremes(found.direct[:, list(model.heads).index(head)], along)
    titles = ("farthest toward it", "farthest away from it") if chosen else ("at one end", "at the other")
    pictures = app.galleries.find(name)
    return Figure(
        "top-activating",
        f"Images that move {head} {f'along “{chosen}”' if chosen else 'most'}",
        "standard deviations",
        ["picture", "text", "standard deviations"],
        [[i, chosen, round(z, 4)] for part in ends for i, z in part],
        {
            "ends": [
                (title, [(i, app.face(name, i), z) for i, z in part])
                for title, part in zip(titles, ends, strict=True)
            ],
            "chosen": chosen,
            "pictures": pictures,
        },
        of=str(head),
    )


def _prompts(screen: Screen, model: Model, head: Head) -> Figure | Empty:
    """The prompts at the two ends of what a head of the text tower writes."""
    classes, templates = classify.asked(screen.state)
    prompts = [templates[0].replace("{}", name) for name in classes]
    if len(prompts) < 2:
        return Empty(f"Prompts that {head} tells apart", "Two or more classes in Classify show them.")
    key = ("prompts", model.weights_hash, head, tuple(prompts))
    direct = screen.app.cache.get(key, lambda: model.texts.contributions(prompts, HeadSet([head])).direct)
    ends = top_activating.extremes(direct[:, 0], None)
    lines = [[(prompts[i], z) for i, z in pair] for pair in zip(*ends, strict=True)]
    return Figure(
        "prompts",
        f"Prompts that {head} tells apart",
        "standard deviations",
        ["prompt", "standard deviations"],
        [[prompts[i], round(z, 4)] for i, z in (*ends[0], *ends[1][::-1])],
        {"lines": lines, "n": len(prompts)},
        of=str(head),
    )


def _nearest(screen: Screen, model: Model, head: Head, pictures: top_activating.Seen) -> Figure:
    """The pictures nearest to the first image at hand: by this head alone, and by the whole embedding."""
    app, name, heads = screen.app, world(model.name).pictures, list(model.heads)
    image = screen.images.shown[0]
    found = top_activating.nearest(pictures, *screen.images.contributions(model))
    both = [("by this head alone", found.alone[heads.index(head)]), ("by the whole embedding", found.whole)]
    nearest = [
        (title, [(int(i), float(near[i])) for i in np.argsort(-near, kind="stable")[:NEAREST]])
        for title, near in both
    ]
    return Figure(
        "nearest",
        f"Pictures nearest to {image.name}",
        "cosine",
        ["by", "rank", "picture", "cosine"],
        [
            [title, rank, i, round(near, 5)]
            for title, part in nearest
            for rank, (i, near) in enumerate(part, 1)
        ],
        {
            "image": image,
            "head": head,
            "strips": [
                (title, [(i, app.face(name, i), near) for i, near in part]) for title, part in nearest
            ],
            "agreement": float(found.agreement[heads.index(head)]),
            "unlike": heads[int(found.agreement.argmin())],
            "least": float(found.agreement.min()),
            "pictures": app.galleries.find(name),
        },
        of=str(head),
    )

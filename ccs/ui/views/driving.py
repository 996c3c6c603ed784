"""What drives a head: of some drawn pictures, those whose contribution lies farthest along a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ccs.model.model import Model
from ccs.ui.page.parts import button, csv_text, empty, esc, figure, signed
from ccs.ui.records import Card
from ccs.ui.service.galleries import chunk
from ccs.ui.service.uploads import data_url
from ccs.ui.session import Session

if TYPE_CHECKING:
    from ccs.ui.app import App

DRAWN = 300  # drawn pictures among which the most and the least driving are looked for
SEED = 4
SIDE = 96
EXTREMES = 6


@dataclass(frozen=True)
class Extremes:
    """Pictures by how far they move a head along a text: (index, standard deviations from the mean)."""

    most: tuple[tuple[int, float], ...]
    least: tuple[tuple[int, float], ...]


def extremes(direct: np.ndarray, text: np.ndarray, n: int = EXTREMES) -> Extremes:
    """Pictures whose contribution `direct` [images, d] lies farthest along `text` [d], and against it.

    Contributions are centered, so the score is the deviation from the mean picture, in standard deviations.
    """
    along = (direct - direct.mean(axis=0)) @ text
    spread = float(along.std()) or 1.0
    order = np.argsort(-along, kind="stable")
    most = tuple((int(i), float(along[i] / spread)) for i in order[:n])
    least = tuple((int(i), float(along[i] / spread)) for i in order[::-1][:n])
    return Extremes(most, least)


@lru_cache(maxsize=1)
def drawn() -> tuple[tuple[str, ...], tuple[Image.Image, ...]]:
    """The drawn pictures with their captions, the same for every model and head."""
    from ccs.world import captions, sets

    whole = sets.image_set(DRAWN, seed=SEED)
    assert isinstance(whole.images, sets.Drawn)
    names = tuple(captions(scene)[0] for scene in whole.images.scenes)
    return names, tuple(whole.images[i] for i in range(DRAWN))


@lru_cache(maxsize=DRAWN)
def _thumb(index: int) -> str:
    return data_url(drawn()[1][index], SIDE)


def known(app: App, model: Model) -> np.ndarray | None:
    """Direct effects [pictures, heads, d] of the model's heads in their order; None before `collect`."""
    found = app.driving.find(model.weights_hash)
    return found if isinstance(found, np.ndarray) else None


def collect(app: App, model: Model) -> Iterator[float]:
    """See the drawn pictures through the model, where that has not been done: yields the share done."""
    if known(app, model) is not None:
        return
    images, size = drawn()[1], chunk(model)
    direct = np.empty((len(images), len(model.heads), model.dim), np.float32)
    for start in range(0, len(images), size):
        part = list(images[start : start + size])
        direct[start : start + len(part)] = model.contributions(part, model.heads).direct
        yield (start + len(part)) / len(images)
    app.driving.get(model.weights_hash, lambda: direct)


def render(app: App, session: Session, model: Model, card: Card, whole: bool, text: int | None = None) -> str:
    """The figure, by the head's text of that number (the chosen one where none is given).

    With `whole` False only where the pictures have been seen already.
    """
    if not card.texts:
        return ""
    chosen = card.texts[min(session.state.text if text is None else text, len(card.texts) - 1)]
    direct = known(app, model)
    if direct is None and whole:
        for _ in collect(app, model):
            pass
        direct = known(app, model)
    if direct is None:
        again = button("Look for them", "show")
        return empty(
            f"Pictures that move {card.head} along “{chosen.text}”",
            f"They are looked for among {DRAWN} drawn pictures, which takes this model a while.",
            again,
        )
    names = drawn()[0]
    found = extremes(direct[:, list(model.heads).index(card.head)], model.embed_texts([chosen.text])[0])
    rows = "".join(
        f'<h4>{title}</h4><div class="strip small">'
        + "".join(
            f'<figure title="{esc(names[i])}"><img src="{_thumb(i)}" alt="{esc(names[i])}"><figcaption>'
            f"{signed(z, 1)}</figcaption></figure>"
            for i, z in part
        )
        + "</div>"
        for title, part in (("most towards", found.most), ("most away from", found.least))
    )
    saved = csv_text(
        ["picture", "text", "standard deviations"],
        [[names[i], chosen.text, f"{z:.4f}"] for i, z in (*found.most, *found.least)],
    )
    return figure(
        f"Pictures that move it along “{chosen.text}”",
        f'<div class="ends">{rows}</div>',
        what=f"Of {DRAWN} drawn pictures, those whose contribution through this head lies farthest along the "
        "text, and farthest the other way: direct effects, in standard deviations from the mean picture. "
        "Click another text above to rank by it.",
        unit="standard deviations",
        name=f"driving-{card.head}",
        table=saved,
    )

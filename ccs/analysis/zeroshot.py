"""A model by texts alone, in one call: its accuracy on a set, and which heads write about a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ccs.data import ClassificationSet, ImageSet, RetrievalSet
from ccs.data.open import open_dataset, open_images
from ccs.errors import InputError, require_seed
from ccs.heads import IMAGE, TEXT, HeadSet, Intervention
from ccs.metrics import accuracy as measures
from ccs.metrics.stats import Effect
from ccs.model.head_statistics import collect_moments
from ccs.progress import BAR
from ccs.texts.pools import load_pool
from ccs.texts.textspan import explained

if TYPE_CHECKING:
    from ccs.model.model import Model

ALL = "all"
"""What stands for the class in the row of all images."""
AMONG = 0.05
"""A head writes about a text that is among the first of the pool, this share of it. A rule of thumb: on the
organism it names a head for 54% of 131 texts that its world shows, and for 6% of 352 that it does not.
"""
MOST_SKIPPED = 0.01
"""The share of images that may be unreadable without anybody having said so."""
_AT_ONCE = 256  # images
_TIE = 1e-6  # relative difference of scores that is rounding


@dataclass(frozen=True, repr=False)
class AccuracyTable:
    """What `accuracy` measured.

    about: the choices behind the figures (model, weights, set, template, images, heads off, ...). skipped:
    images that cannot be read, and why. rows: of all images and of each class, with the columns `class`,
    `images`, `value` (the share of 1 that is assigned to its own class) and, with heads off, `before`; the
    row of all also has `low`, `high` (95% interval), `difference`, `difference_low`, `difference_high`,
    `p_value`, paired over images. doubt: what to look at where the model with all heads on is near chance.

        >>> from ccs import accuracy
        >>> accuracy("organism", "world/subjects", max_images=8)
        <AccuracyTable of organism on world/subjects: 1.000, see .rows>
    """

    about: Mapping[str, Any]
    rows: pd.DataFrame
    skipped: tuple[str, ...] = ()
    doubt: str | None = None

    def __repr__(self) -> str:
        about, first = self.about, self.rows.iloc[0]
        return f"<AccuracyTable of {about['model']} on {about['set']}: {first['value']:.3f}, see .rows>"


def accuracy(
    model: Model | str,
    data: ClassificationSet | str,
    classes: Sequence[str] | None = None,
    *,
    off: HeadSet | str | None = None,
    template: str | None = None,
    max_images: int | None = None,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> AccuracyTable:
    """Zero-shot accuracy: an image is assigned to the class whose prompts' mean embedding is nearest.

    Args:
        model: from `ccs.load`, or what it takes.
        data: from `ccs.open_dataset`, or what it takes: "cifar10", a folder of classes, a Parquet file, ...
        classes: the names of the classes in prompts, in the order of their numbers (see `ccs.open_dataset`).
        off: heads of either tower to switch off; the accuracy then also has the difference that it makes.
        template, max_images: as in `ccs.open_dataset`. These and `classes` are not for a set that is opened.
        skip_unreadable: also where more than 1% of the images cannot be read.
        seed: of the intervals. device: where a model is loaded that is given by name.

    Raises InputError for what does not fit, with what is allowed.

        >>> found = accuracy("organism", "world/subjects", max_images=40)
        >>> bool(found.rows["value"][0] > 0.5)    # a share of 1; the first row is of all images
        True
    """
    require_seed(seed)
    if isinstance(data, str):
        found = open_dataset(data, max_images=max_images, classes=classes, template=template)
    else:
        found = data
        if (classes, template, max_images) != (None, None, None):
            raise InputError("A set that is opened has its classes, template and images: give its name.")
    if not isinstance(found, ClassificationSet):
        raise InputError(f"{found.name} is not a set of images with classes.")
    skipped = require_readable(found, skip_unreadable)
    model, heads = loaded(model, device), Intervention.of(off)
    seen, read = model.at_means(heads.of_tower(IMAGE), found.images), heads.of_tower(TEXT)
    images = embedded(model, found, [HeadSet(), seen])
    weights = [measures.class_weights(model, found.classes, found.templates, off) for off in (None, read)]
    before, after = (
        measures.accuracy(*each, found.labels, seed) for each in zip(images, weights, strict=True)
    )
    row: dict[str, Any] = {"class": ALL, "images": after.n, **vars(after.top1)}
    if heads:
        row |= difference(before.top1.value, measures.compare(after, before, seed=seed))
    rows = [row]
    for number, name in enumerate(found.classes):
        own = after.labels == number
        row = {"class": name, "images": int(own.sum())}
        for column, one in (("value", after), *([("before", before)] if heads else [])):
            row[column] = float(one.correct[own].mean()) if own.any() else np.nan
        rows.append(row)
    about = {
        "model": model.name,
        "weights": model.weights_hash[:16],
        "set": found.name,
        "source": found.source,
        "template": " | ".join(found.templates),
        "prompt": found.templates[0].replace("{}", found.classes[0]),
        "skipped": len(skipped),
        "off": str(heads),
    }
    doubt = measures.near_chance(before.top1.value, before.top1.low, len(found.classes))
    return AccuracyTable(about=about, rows=pd.DataFrame(rows), skipped=skipped, doubt=doubt)


def find_heads(
    model: Model | str,
    text: str,
    images: ImageSet | str = "world",
    *,
    pool: str | None = None,
    max_images: int = 500,
    device: str = "cpu",
) -> pd.DataFrame:
    """The scored heads of a model by how much of what they write lies along a text, the first first.

    All texts have a direction in common, along which some heads vary whatever is asked. So the pool's mean is
    taken from every text first.

    Args:
        model: from `ccs.load`, or what it takes; `device` is where one is loaded that is given by name.
        text: such as "dogs".
        images: from `ccs.open_images`, or what it takes; at most `max_images` of a set opened here. Heads
            write about what images show: without a dog among them no head writes about dogs.
        pool: the texts that it is held against, as `--texts` of `clip-ccs compute`; by default `world` for
            drawn images and `photographs` for others.

    Returns a row per head: `head`; `rank`, the text's place among the pool's by TEXTSPAN's criterion (1: no
    text of the pool explains more); `share` of the head's variance along what sets the text apart; `best`,
    the pool's text that explains most, and `best_share`; `about`, whether the rank is within AMONG.

    Raises InputError for an empty text, or what does not fit, with what is allowed.

        >>> found = find_heads("organism", "a red background", max_images=40)
        >>> len(found), bool(found["rank"].is_monotonic_increasing)
        (24, True)
    """
    if not (text := " ".join(text.split())):
        raise InputError("There is no text to look for.")
    model = loaded(model, device)
    if isinstance(images, str):
        images = open_images(images, max_images)
    pool = pool or ("world" if images.name.startswith("world") else "photographs")
    texts = [one for one in load_pool(pool).texts if one.casefold() != text.casefold()]
    n, shown = len(images.images), images.images
    batches = ([shown[i] for i in range(at, min(at + _AT_ONCE, n))] for at in range(0, n, _AT_ONCE))
    moments = collect_moments(model, batches)
    units = model.embed_texts([text, *texts])
    rows = []
    for head, (scores, shares) in explained(moments, units - units[1:].mean(axis=0)).items():
        best, rank = 1 + int(scores[1:].argmax()), 1 + int((scores[1:] > scores[0] * (1 + _TIE)).sum())
        rows.append(
            {"head": str(head), "rank": rank, "share": shares[0], "best": texts[best - 1]}
            | {"best_share": shares[best], "about": rank <= AMONG * len(texts) and shares[0] > 0}
        )
    return pd.DataFrame(rows).sort_values(["rank", "share"], ascending=[True, False], ignore_index=True)


def loaded(model: Model | str, device: str) -> Model:
    """The model, or the one of that name."""
    if not isinstance(model, str):
        return model
    from ccs.model.model import load  # which imports PyTorch

    return load(model, device=device)


def require_readable(data: ImageSet | RetrievalSet, skip_unreadable: bool) -> tuple[str, ...]:
    """The images that were skipped because they cannot be read; InputError where they are more than 1%."""
    skipped = tuple(one for one in data.skipped if not one.startswith("occupation "))
    whole = len(data.clips if isinstance(data, RetrievalSet) else data.images) + len(skipped)
    if len(skipped) > MOST_SKIPPED * whole and not skip_unreadable:
        raise InputError(
            f"{len(skipped)} of the {whole} images of {data.name} cannot be used (for example {skipped[0]}); "
            "mend or remove them, or leave them out with --skip-unreadable (in Python, skip_unreadable=True)."
        )
    return skipped


def embedded(model: Model, data: ImageSet, plans: list[HeadSet]) -> np.ndarray:
    """Unit embeddings [plans, images, dim], with a bar."""
    parts = []
    with BAR.get()(total=len(data.images), desc="images", leave=False, disable=None) as bar:
        for start in range(0, len(data.images), _AT_ONCE):
            some = list(data.images[start : start + _AT_ONCE])
            parts.append(model.embed_images(some, plans))
            bar.update(len(some))
    return np.concatenate(parts, axis=1)


def difference(before: float, effect: Effect) -> dict[str, float]:
    """The columns that a row has where heads are off."""
    ends = {"difference": effect.value, "difference_low": effect.low, "difference_high": effect.high}
    return {"before": before, **ends, "p_value": effect.p_value}

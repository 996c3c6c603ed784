"""The accuracy of a model on any set of images with classes, in one call: no TEXTSPAN, no judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ccs.errors import InputError
from ccs.heads import IMAGE, TEXT, HeadSet
from ccs.intervention import Intervention
from ccs.measures import accuracy as measures
from ccs.pruning.fairness import embedded, require_readable
from ccs.sets.kinds import ClassificationSet
from ccs.sets.open import open_set

if TYPE_CHECKING:
    from ccs.model.model import Model

ALL = "all"
"""What stands for the class in the row of all images."""


@dataclass(frozen=True, repr=False)
class AccuracyTable:
    """What `accuracy` measured.

    about: the choices behind the figures (model, weights, set, template, images, heads off, ...). skipped:
    images that cannot be read, and why. rows: of all images and of each class, with the columns `class`,
    `images`, `value` (the share of 1 that is assigned to its own class) and, with heads off, `before`; the
    row of all also has `low`, `high` (95% interval), `difference`, `difference_low`, `difference_high`,
    `p_value`, paired over images.

        >>> from ccs import accuracy
        >>> accuracy("organism", "world/subjects", max_images=8)
        <AccuracyTable of organism on world/subjects: 1.000, see .rows>
    """

    about: Mapping[str, Any]
    rows: pd.DataFrame
    skipped: tuple[str, ...] = ()

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
        data: from `ccs.open_set`, or what it takes: "cifar10", a folder of classes, a Parquet file, ...
        classes: the names of the classes in prompts, in the order of their numbers (see `ccs.open_set`).
        off: heads of either tower to switch off; the accuracy then also has the difference that it makes.
        template, max_images: as in `ccs.open_set`. These and `classes` are not for a set that is opened.
        skip_unreadable: also where more than 1% of the images cannot be read.
        seed: of the intervals. device: where a model is loaded that is given by name.

    Raises InputError for what does not fit, with what is allowed.

        >>> found = accuracy("organism", "world/subjects", max_images=40)
        >>> bool(found.rows["value"][0] > 0.5)    # a share of 1; the first row is of all images
        True
    """
    if isinstance(data, str):
        found = open_set(data, max_images=max_images, classes=classes, template=template)
    else:
        found = data
        if (classes, template, max_images) != (None, None, None):
            raise InputError("A set that is opened has its classes, template and images: give its name.")
    if not isinstance(found, ClassificationSet):
        raise InputError(f"{found.name} is not a set of images with classes.")
    skipped = require_readable(found, skip_unreadable)
    if isinstance(model, str):
        from ccs.model.model import load  # which imports PyTorch

        model = load(model, device=device)
    heads = Intervention.of(off)
    seen, read = model.at_means(heads.of_tower(IMAGE), found.images), heads.of_tower(TEXT)
    images = embedded(model, found, [HeadSet(), seen])
    weights = [measures.class_weights(model, found.classes, found.templates, off) for off in (None, read)]
    before, after = (
        measures.accuracy(*each, found.labels, seed) for each in zip(images, weights, strict=True)
    )
    row: dict[str, Any] = {"class": ALL, "images": after.n, "value": after.top1.value}
    row |= {"low": after.top1.low, "high": after.top1.high}
    if heads:
        effect = measures.compare(after, before, seed=seed)
        row |= {"before": before.top1.value, "difference": effect.value, "difference_low": effect.low}
        row |= {"difference_high": effect.high, "p_value": effect.p_value}
    rows = [row]
    for number, name in enumerate(found.classes):
        own = after.labels == number
        row = {"class": name, "images": int(own.sum())}
        row["value"] = float(after.correct[own].mean()) if own.any() else np.nan
        if heads:
            row["before"] = float(before.correct[own].mean()) if own.any() else np.nan
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
    return AccuracyTable(about=about, rows=pd.DataFrame(rows), skipped=skipped)

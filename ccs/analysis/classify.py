"""Which of some classes does each image show, before and after ablation?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from PIL import Image

from ccs.analysis.accuracy import identical_names
from ccs.analysis.inputs import Names, embed_ends, load_model, read_names
from ccs.analysis.result import Chart, Result, describe_model
from ccs.data import ImageSet
from ccs.data.open import open_images
from ccs.errors import InputError
from ccs.heads import HeadSet, Intervention
from ccs.metrics.ranking import alike

if TYPE_CHECKING:
    from ccs.model.handle import ModelHandle
    from ccs.model.model import Model

TEMPLATE = "a photo of a {}"


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ClassTable(Result):
    """The result of `ccs.classify`. A notebook shows its plot.

    Attributes:
        about: the model, classes, prompts, and ablated heads behind the numbers.
        rows: one row per image and class, in their order. Columns: `image`, its number; `class`; `before` and
            `after` ablation, the probability of the class, equal without ablation; `difference`.
        alike: classes whose prompts the model encodes identically.
        doubt: a warning about these classes, or None.
    """

    alike: tuple[tuple[str, ...], ...] = ()
    doubt: str | None = None

    @cached_property
    def best(self) -> pd.DataFrame:
        """Each image's most probable class, `before` and `after`."""
        firsts = {
            column: self.rows.loc[self.rows.groupby("image")[column].idxmax()].set_index("image")["class"]
            for column in ("before", "after")
        }
        return pd.DataFrame(firsts)

    @property
    def changed(self) -> int:
        """The number of images whose most probable class changes."""
        return int((self.best["before"] != self.best["after"]).sum())

    def _chart(self, max_rows: int, image: int = 0) -> Chart:
        members = self.rows[self.rows["image"] == image]
        if members.empty:
            raise InputError(f"There is no image {image}; there are {self.rows['image'].nunique()}, from 0.")
        rows, title = members.nlargest(max_rows, "after").iloc[::-1], f"{self.about['model']}, image {image}"
        return Chart(rows=rows, names=rows["class"], xlabel="probability", title=title, label="probability")


def classify(
    model: Model | str,
    images: ImageSet | Iterable[Image.Image] | Image.Image | str,
    classes: Names,
    template: Names = TEMPLATE,
    *,
    ablate: HeadSet | str | None = None,
    max_images: int | None = None,
    device: str = "cpu",
) -> ClassTable:
    """Return the probability of each class for each image.

    Args:
        model: from `ccs.load`, or a name that it takes.
        images: images, or one, or a dataset from `ccs.open_images`, or a name that it takes.
        classes: names, or one text with commas between them.
        template: the prompt, with `{}` for the class, or several, whose embeddings are averaged.
        ablate: heads of either encoder to ablate, such as "L8.H11 L9.H2=0.3".
        max_images: maximum number of images, drawn at random, of a dataset opened here.
        device: for a model given by name.

    Returns:
        ClassTable: one row per image and class, before and after ablation.

    Raises:
        InputError: If an argument does not fit; the message says what is allowed.

    Example:
        >>> from ccs import open_images
        >>> classify("organism", open_images("world", 2), "cat, dog").rows.shape
        (4, 5)
    """
    names = read_names(classes, "class")
    templates = (template,) if isinstance(template, str) else read_names(template, "template")
    if isinstance(images, str | PathLike):
        images = open_images(images, max_images)
    elif max_images is not None:
        raise InputError("Opened images are classified whole; leave out the number of images.")
    pictures = images.images if isinstance(images, ImageSet) else images
    pictures = [pictures] if isinstance(pictures, Image.Image) else pictures
    pictures = pictures if isinstance(pictures, Sequence) else list(pictures)
    if not len(pictures):
        raise InputError("There are no images to classify.")
    model, ablation = load_model(model, device), Intervention.from_heads(ablate)
    ends = embed_ends(model, pictures, names, templates, ablation)
    return label_images(model, names, templates, ends, ablation)


def label_images(
    model: Model | ModelHandle,
    classes: Sequence[str],
    templates: Sequence[str],
    ends: Sequence[tuple[np.ndarray, np.ndarray]],
    ablate: HeadSet,
) -> ClassTable:
    """Return the probability of each class for each embedded image.

    Args:
        model: that embedded them.
        classes: names.
        templates: the prompts.
        ends: embeddings of images [n, d] and of classes [classes, d], before and, with ablation, after it.
        ablate: the heads that are ablated in the second pair of `ends`.

    Returns:
        ClassTable: as `classify` returns it.
    """
    probabilities = [model.probabilities(units @ weights.T) for units, weights in ends]
    before, after = probabilities[0], probabilities[-1]
    rows = pd.DataFrame(
        {
            "image": np.repeat(np.arange(len(before)), len(classes)),
            "class": np.tile(np.array(classes, object), len(before)),
            "before": before.ravel(),
            "after": after.ravel(),
            "difference": (after - before).ravel(),
        }
    )
    question = {"classes": len(classes), "template": " | ".join(templates), "ablate": str(ablate)}
    same, description = alike(classes, ends[0][1]), describe_model(model) | question
    return ClassTable(about=description, rows=rows, alike=same, doubt=identical_names(same))

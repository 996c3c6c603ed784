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
        about: Model, classes, prompts, and ablated heads behind the numbers.
        rows: One row per image and class, in their order. Columns: `image`, its number; `class`; `before` and
            `after` ablation, the probability of the class, equal without ablation; `difference`.
        alike: Classes whose prompts the model encodes identically.
        doubt: Warning about these classes, or None.
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
        model: A model from `ccs.load`, or its name.
        images: One image, several images, a dataset from `ccs.open_images`, or a name or path that it
            accepts.
        classes: Names of the classes: a list of texts, or one text with commas between them.
        template: Prompt with `{}` for the class, or several prompts, whose embeddings are averaged.
        ablate: Heads of either encoder to ablate, such as "L8.H11 L9.H2=0.3".
        max_images: Maximum number of images, drawn at random. Only for a dataset given by name.
        device: Device for a model given by name, as in `ccs.load`.

    Returns:
        ClassTable: One row per image and class, before and after ablation.

    Raises:
        InputError: If an argument does not fit; the message says what is allowed.

    Examples:
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
        model: Model that computed the embeddings.
        classes: Names of the classes.
        templates: Prompts with `{}` for the class.
        ends: Embeddings of images [n, d] and of classes [classes, d], before and, with ablation, after.
        ablate: Heads that are ablated in the second pair of `ends`.

    Returns:
        ClassTable: The same as from `classify`.
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

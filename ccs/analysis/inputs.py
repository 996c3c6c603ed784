"""Arguments that the questions of `ccs.analysis` share: models, lists of names, datasets, embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ccs.data import ClassificationSet, ImageSet, RetrievalSet
from ccs.data.open import open_dataset
from ccs.errors import InputError, require_texts
from ccs.heads import IMAGE, TEXT, HeadSet
from ccs.metrics.accuracy import class_weights
from ccs.metrics.stats import Effect, Estimate

if TYPE_CHECKING:
    from ccs.model.model import Model

MOST_SKIPPED = 0.01
"""The share of images that may be unreadable unless the caller allows more."""
AT_ONCE = 256
"""Images that are embedded together."""
FEWEST_IMAGES = {
    "head statistics": (100, "images"),
    "accuracy": (30, "images"),
    "bias": (10, "images per group"),
    "heads": (100, "images"),
}
"""Result -> the smallest useful number, and of what.

Head statistics of fewer images than a head has dimensions (64 in the usual models) have too low a rank for
five texts to be told apart. With 30 images the 95% interval of an accuracy of 50% is 36 points wide; with ten
images per group, one image moves a MaxSkew by 0.1.
"""
VALUE_COLUMNS = (
    *("before", "after", "low", "high"),
    *("difference", "difference_low", "difference_high", "p_value"),
)
NO_CHANGE = Effect(0.0, 0.0, 0.0, 1.0)
Names = Iterable[str] | str
Embeddings = Sequence[NDArray[np.floating]] | NDArray[np.floating]


def load_model(model: Model | str, device: str) -> Model:
    """Return the model, or load the one with that name.

    Args:
        model: a model, or a name that `ccs.load` takes.
        device: for a model given by name.
    """
    if not isinstance(model, str):
        return model
    from ccs import load  # imports PyTorch

    return load(model, device=device)


def read_names(names: Names, kind: str) -> tuple[str, ...]:
    """Return a list of names from any iterable of texts, or from one text with commas between the names.

    Args:
        names: a list, tuple, Series, array, or generator of texts, or a text such as "judge, nurse".
        kind: a noun for the error, such as "occupation".

    Raises:
        InputError: Without names, for an empty name, or for anything that isn't a text.
    """
    if isinstance(names, str):
        texts = list(filter(None, (name.strip() for name in names.split(","))))
    else:
        texts = [text.strip() for text in require_texts(names)]
    if not texts:
        raise InputError(f"At least one {kind} is needed.")
    if "" in texts:
        raise InputError(f"The {kind} at place {texts.index('')} is empty; remove it or give it a name.")
    return tuple(texts)


def open_classes(
    dataset: ClassificationSet | str,
    classes: Names | None = None,
    template: str | None = None,
    max_images: int | None = None,
    skip_unreadable: bool = True,
) -> ClassificationSet:
    """Return images with classes, opened if they are given by name.

    Args:
        dataset: from `ccs.open_dataset`, or a name that it takes.
        classes: names of the classes in prompts, of a dataset opened here.
        template: the prompt, of a dataset opened here.
        max_images: maximum number of images of a dataset opened here.
        skip_unreadable: continue if more than 1% of the images cannot be read.

    Raises:
        InputError: If the dataset has no classes.
    """
    opened: object = dataset
    if isinstance(dataset, str):
        names = None if classes is None else read_names(classes, "class")
        opened = open_dataset(dataset, max_images=max_images, classes=names, template=template)
    if not isinstance(opened, ClassificationSet):
        raise InputError(f"{getattr(opened, 'name', opened)} is not a dataset with classes.")
    require_readable(opened, skip_unreadable)
    return opened


def require_readable(data: ImageSet | RetrievalSet, skip_unreadable: bool) -> tuple[str, ...]:
    """Return the images that were skipped because they cannot be read.

    Args:
        data: an opened set.
        skip_unreadable: allow more than 1% of them.

    Raises:
        InputError: If they are more than 1% and `skip_unreadable` is False.
    """
    skipped = data.skipped
    whole = len(data.clips if isinstance(data, RetrievalSet) else data.images) + len(skipped)
    if len(skipped) > MOST_SKIPPED * whole and not skip_unreadable:
        raise InputError(
            f"{len(skipped)} of the {whole} images of {data.name} cannot be used (for example {skipped[0]}); "
            "fix or remove them, or leave them out with --skip-unreadable (in Python, skip_unreadable=True)."
        )
    return skipped


def embed_ablations(model: Model, images: Sequence[Any], ablations: Sequence[HeadSet]) -> np.ndarray:
    """Return unit embeddings [ablations, images, dim], and show a progress bar on a terminal.

    Args:
        model: embeds the images.
        images: n images.
        ablations: the heads to ablate in each set.
    """
    parts = []
    with tqdm(total=len(images), desc="images", leave=False, disable=None) as bar:
        for start in range(0, len(images), AT_ONCE):
            batch = [images[i] for i in range(start, min(start + AT_ONCE, len(images)))]
            parts.append(model.embed_images(batch, list(ablations)))
            bar.update(len(batch))
    return np.concatenate(parts, axis=1)


def embed_classes(
    model: Model, images: Sequence[Any], names: Sequence[str], templates: Sequence[str], ablate: HeadSet
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return unit embeddings of images [2, n, d] and of classes [classes, d], before and after ablation.

    Args:
        model: embeds both.
        images: n images, of which mean outputs are those.
        names: of the classes.
        templates: the prompts, whose embeddings are averaged.
        ablate: heads of either encoder.
    """
    in_images = model.at_means(ablate.of_encoder(IMAGE), images)
    heads = (None, ablate.of_encoder(TEXT))
    texts = [class_weights(model, names, templates, in_texts) for in_texts in heads]
    return embed_ablations(model, images, [HeadSet(), in_images]), texts


def describe_model(model: Model) -> dict[str, Any]:
    """Return the first entries of a result's `about`."""
    return {"model": model.name, "weights": model.weights_hash[:16]}


def value_columns(before: float, after: Estimate, change: Effect) -> dict[str, float]:
    """Return the columns of a number before and after ablation, with its interval and the paired change.

    Args:
        before: without ablation.
        after: with it.
        change: the paired change.
    """
    values = (before, after.value, after.low, after.high, *vars(change).values())
    return dict(zip(VALUE_COLUMNS, values, strict=True))


def warn_if_small(result: str, n: int) -> str | None:
    """Warn if a result comes from too few images.

    Args:
        result: A key of `FEWEST_IMAGES`.
        n: The number of images, or of those of the smallest group.

    Returns:
        The warning, for the result's `about` or a manifest; None if there are enough.
    """
    smallest, unit = FEWEST_IMAGES[result]
    if n >= smallest:
        return None
    message = f"Too few {unit} for {result}: {n}. Results mean little below {smallest}."
    warnings.warn(message, UserWarning, stacklevel=3)
    return message

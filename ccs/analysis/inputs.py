"""Arguments shared by the functions of `ccs.analysis`: models, names, datasets, and people; embeddings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ccs import paper
from ccs.data import BaseSet, BiasSet, ClassificationSet, ImageSet, Lazy
from ccs.data.open import open_dataset, open_gallery, open_images
from ccs.errors import InputError, require_texts
from ccs.heads import IMAGE, TEXT, HeadSet, changes
from ccs.metrics.ranking import unit
from ccs.texts.prompts import load_prompts

if TYPE_CHECKING:
    from ccs.model.model import Model

AT_ONCE = 256
"""Images that are embedded together."""
TEXTS_AT_ONCE = 4096
MEAN = "mean"
"""Name of the rows with the mean over all occupations, in the column `occupation`."""
SMALLEST = 10
"""Smallest number of people in a crossed group. With fewer, its share of the top K is mostly noise."""
Names = Iterable[str] | str
Embeddings = Sequence[NDArray[np.floating]] | NDArray[np.floating]
_PRONOUNS = ("someone", "somebody")
_NO_ARTICLE = re.compile(r"(a|an|the) |.*(people|men|women|children|[^s]s)$", re.IGNORECASE)


def load_model(model: Model | str, device: str) -> Model:
    """Return the model, or load the one with that name.

    Args:
        model: A model from `ccs.load`, or its name.
        device: Device for a model given by name, as in `ccs.load`.

    Raises:
        InputError: If it is neither.
    """
    if isinstance(model, str | PathLike):
        from ccs import load  # imports PyTorch

        return load(str(model), device=device)
    if not hasattr(model, "embed_texts"):
        raise InputError(f"Expected a model from ccs.load or its name, not {type(model).__name__}.")
    return model


def read_names(names: Names, kind: str) -> tuple[str, ...]:
    """Return a list of names from any iterable of texts, or from one text with commas between the names.

    Args:
        names: A list, tuple, Series, array, or generator of texts, or one text with commas, such as "judge,
            nurse".
        kind: Noun for the error message, such as "occupation".

    Raises:
        InputError: If there are no names, or a name is empty or isn't a text.
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
        dataset: Images with classes: a dataset from `ccs.open_dataset`, or a name or path that it accepts.
        classes: Names of the classes in prompts, for a dataset given by name.
        template: Prompt with `{}` for the class, for a dataset given by name.
        max_images: Maximum number of images of a dataset given by name.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.

    Raises:
        InputError: If the dataset has no classes.
    """
    opened: object = dataset
    if not isinstance(dataset, BaseSet):
        names = None if classes is None else read_names(classes, "class")
        opened = open_dataset(dataset, max_images=max_images, classes=names, template=template)
    if not isinstance(opened, ClassificationSet):
        raise InputError(f"{getattr(opened, 'name', opened)} is not a dataset with classes.")
    opened.require_readable(skip_unreadable)
    return opened


def open_unlabeled(images: ImageSet | str, max_images: int | None) -> ImageSet:
    """Return images, opened if they are given by name.

    Args:
        images: Images without labels, from `ccs.open_images`, or a name or path that it accepts.
        max_images: Maximum number of images of a dataset given by name.

    Raises:
        InputError: If they are neither.
    """
    opened = images if isinstance(images, BaseSet) else open_images(images, max_images)
    if not isinstance(opened, ImageSet):
        raise InputError(f"Expected images from ccs.open_images or their name, not {type(images).__name__}.")
    return opened


def open_people(
    gallery: BiasSet | str,
    attribute: str | Sequence[str] | None = None,
    max_images: int | None = None,
    *,
    skip_unreadable: bool = True,
    smallest: int = SMALLEST,
) -> tuple[BiasSet, str, Mapping[str, int]]:
    """Return people with groups, opened if they are given by name, and the attribute to use.

    Args:
        gallery: People with groups: a gallery from `ccs.open_gallery`, or a name or path that it accepts.
        attribute: Column of groups, or several columns to cross: a list, or one text with commas between the
            names. By default gender, or else the first column.
        max_images: Maximum number of images of a gallery given by name.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        smallest: Smallest number of people in a crossed group. People in smaller groups are left out.

    Returns:
        tuple: The gallery, the attribute, and the number of people left out of crossed groups, by group.

    Raises:
        InputError: If the attribute is unknown, crossed groups are too small, or it isn't a gallery.
    """
    if not isinstance(attribute, str | None):
        attribute = ",".join(require_texts(attribute))
    if not isinstance(gallery, BaseSet):
        gallery = open_gallery(gallery, attribute=_split(attribute or ""), max_images=max_images)
    if not isinstance(gallery, BiasSet):
        raise InputError(f"{getattr(gallery, 'name', gallery)} is not a gallery of people with groups.")
    gallery.require_readable(skip_unreadable)
    attribute = attribute or gallery.main
    if attribute in gallery.groups:
        return gallery, attribute, {}
    gallery, left_out = cross_groups(gallery, attribute, smallest)
    return gallery, attribute, left_out


def cross_groups(
    gallery: BiasSet, attribute: str, smallest: int = SMALLEST
) -> tuple[BiasSet, Mapping[str, int]]:
    """Add crossed groups to a gallery, such as "woman, dark" for the attribute "gender,skin tone".

    Args:
        gallery: People with groups.
        attribute: Names of the gallery's attributes, with commas between them.
        smallest: Smallest number of people in a crossed group. People in smaller groups are left out of the
            gallery.

    Returns:
        tuple: The gallery with `attribute` among its groups, and the number of people left out, by group.

    Raises:
        InputError: If an attribute is unknown or named twice, or fewer than two crossed groups are left.
    """
    names = _split(attribute)
    if unknown := [name for name in names if name not in gallery.groups]:
        raise InputError(
            f"{gallery.name} has no attribute {unknown[0][:40]!r}; it has {', '.join(gallery.groups)}."
        )
    if len(set(names)) < len(names) or len(names) < 2:
        raise InputError(f"Crossed groups need two or more different attributes, not {attribute[:60]!r}.")
    parts = zip(*(gallery.groups[name].tolist() for name in names), strict=True)
    crossed = np.array([", ".join(map(str, part)) for part in parts])
    counts = Counter(crossed.tolist())
    small = {group: count for group, count in sorted(counts.items()) if count < smallest}
    if len(counts) - len(small) < 2:
        raise InputError(
            f"Fewer than two groups of {attribute!r} have {smallest} people or more; the largest has "
            f"{max(counts.values())}. Cross fewer attributes or use a larger gallery."
        )
    groups, k = {**gallery.groups, attribute: crossed}, min(gallery.k[name] for name in names)
    if not small:
        return replace(gallery, groups=groups, k={**gallery.k, attribute: k}), small
    rows = np.flatnonzero(~np.isin(crossed, list(small)))
    arrays = ((name, getattr(gallery, name)) for name in ("digests", "pools", "units"))
    included: dict[str, Any] = {name: None if array is None else array[rows] for name, array in arrays}
    return replace(
        gallery,
        images=Lazy(gallery.images.__getitem__, rows.tolist()),
        groups={name: values[rows] for name, values in groups.items()},
        k={**gallery.k, attribute: max(1, len(rows) // 10)},
        **included,
    ), small


def _split(attribute: str) -> list[str]:
    return [name for part in attribute.split(",") if (name := part.strip())]


def format_left_out(left_out: Mapping[str, int]) -> str:
    """Return the groups that are too small, such as "3 woman, dark", or ""."""
    return ", ".join(f"{count} {group}" for group, count in left_out.items())


def set_question(
    gallery: BiasSet,
    occupations: Names | None = None,
    template: str | None = None,
    top: int | None = None,
    prompts: str | None = None,
) -> BiasSet:
    """Return the gallery with the given occupations, template, and K; those not given stay as they are.

    Args:
        gallery: People with groups.
        occupations: As in `ccs.bias`. Repeated names count once.
        template: Prompt with `{}` for the occupation.
        top: K, the length of the top list. By default the gallery's, or a tenth of the images that an
            occupation ranks. If K is close to their number, every ranking has nearly the same top list, and
            MaxSkew carries no information.
        prompts: Name of a prompt set (`ccs.texts.prompts`), in place of occupations and template.

    Raises:
        InputError: If K is below 1 or above half of these images, the template doesn't hold one `{}`, or a
            name is empty or isn't a text.
    """
    if prompts is not None:
        if occupations is not None or template is not None:
            raise InputError("A prompt set has its own names and template; give either it or those.")
        prompt_set = load_prompts(prompts)
        gallery = replace(gallery, occupations=prompt_set.names, templates=prompt_set.templates)
    if template is not None:
        if not isinstance(template, str) or template.count("{}") != 1:
            raise InputError(f"Expected one {{}}, for the occupation, in the template; got {template!r}.")
        gallery = replace(gallery, templates=(template,))
    if occupations is not None:
        gallery = replace(gallery, occupations=tuple(dict.fromkeys(read_names(occupations, "occupation"))))
    if MEAN in gallery.occupations:
        raise InputError(f"{MEAN!r} is the name of the row of means; give the occupation another name.")
    ranked = fewest_ranked(gallery)
    largest = max(1, ranked // 2)
    k = {name: gallery.k.get(name, max(1, ranked // 10)) if top is None else top for name in gallery.groups}
    for number in k.values():
        if isinstance(number, bool) or number not in range(1, largest + 1):
            needs = f"a ranking of {ranked} images needs a K of 1 to {largest}, at most half of them"
            raise InputError(f"K is {number!r}, but {needs}.")
    return replace(gallery, k={name: int(number) for name, number in k.items()})


def fewest_ranked(gallery: BiasSet) -> int:
    """Return the smallest number of images that an occupation of the gallery ranks, if it has any."""
    sizes = Counter[str]() if gallery.pools is None else Counter(gallery.pools.tolist())
    return min((sizes[name] for name in gallery.occupations if sizes[name]), default=len(gallery.images))


def has_order_fault(dataset: str, attribute: str) -> bool:
    """Return whether the paper's code divides by another group's share for a dataset and attribute.

    For FairFace by race, it lists the pool's counts in the order in which groups first appear in the file,
    and the top K's counts in alphabetical order. Then it divides the i-th by the i-th. MaxSkew of random
    rankings sums to about 56 over 104 occupations instead of about 10. Gender is not affected.

    Args:
        dataset: Name of the dataset.
        attribute: Column of groups.
    """
    return dataset.startswith("fairface") and attribute == "race"


def in_prompts(gallery: BiasSet) -> tuple[str, ...]:
    """Return the occupations as they are written in the gallery's prompts.

    The paper's templates have no article ("A photo of judge"). In them, the paper's occupations get its own
    spelling ("Judge"), and all others get an article.
    """
    if tuple(gallery.templates) != paper.templates():
        return tuple(gallery.occupations)
    known = {name.casefold(): name for name in paper.occupations()}
    return tuple(known.get(name.casefold()) or _with_article(name) for name in gallery.occupations)


def _with_article(name: str) -> str:
    return name if _NO_ARTICLE.match(name) else str(_inflect().a(name))


@cache
def _inflect() -> Any:
    import inflect  # a slow import

    engine = inflect.engine()
    engine.defan("usher.*")  # otherwise "us" at the start is read as in "user"
    return engine


def embed_occupations(model: Model, gallery: BiasSet, ablate: HeadSet | None = None) -> NDArray[np.float32]:
    """Return unit text embeddings [occupations, d], means over the templates.

    Args:
        model: Model that embeds the prompts.
        gallery: Gallery with occupations and templates.
        ablate: Heads of the text encoder to ablate.
    """
    return embed_names(model, in_prompts(gallery), gallery.templates, ablate)


def embed_names(
    model: Any, names: Sequence[str], templates: Sequence[str], ablate: HeadSet | None = None
) -> NDArray[np.float32]:
    """Embed names in templates: the unit mean of each template's unit text embedding (Radford et al. 2021).

    Args:
        model: A `Model`, or an object with its `embed_texts`.
        names: Names of classes or occupations. Pronouns, such as "someone", are used without the template's
            article.
        templates: Prompts with `{}` for the name.
        ablate: Heads of the text encoder to ablate.

    Returns:
        Unit embeddings [names, d], the weights of a zero-shot classifier.

    Raises:
        InputError: If there are no names or templates, or a template lacks `{}`.
    """
    if isinstance(names, str) or not len(names) or not len(templates):
        raise InputError(f"Prompts need lists of names and templates; got {names!r} and {templates!r}.")
    for template in templates:
        if "{}" not in template:
            raise InputError(f"The template {template!r} must hold {{}} where the name goes.")
    bare = [re.sub(r"\ban? {}", "{}", template) for template in templates]
    means, step = [], max(1, TEXTS_AT_ONCE // len(templates))
    for start in range(0, len(names), step):
        part = names[start : start + step]
        written = ((bare if name in _PRONOUNS else templates, name) for name in part)
        texts = [template.replace("{}", name) for of_name, name in written for template in of_name]
        rows = model.embed_texts(texts, ablate=ablate) if ablate else model.embed_texts(texts)
        units = unit(rows, "text embeddings")
        means.append(units.reshape(len(part), len(templates), -1).mean(axis=1))
    return unit(np.concatenate(means), "text embeddings").astype(np.float32)


def embed_ablations(model: Model, images: Sequence[Any], ablations: Sequence[HeadSet]) -> np.ndarray:
    """Return unit embeddings [ablations, images, dim], and show a progress bar on a terminal.

    Args:
        model: Model that embeds the images.
        images: Images to embed.
        ablations: Heads to ablate in each set.
    """
    parts = []
    with tqdm(total=len(images), desc="images", leave=False, disable=None) as bar:
        for start in range(0, len(images), AT_ONCE):
            batch = [images[i] for i in range(start, min(start + AT_ONCE, len(images)))]
            parts.append(model.embed_images(batch, list(ablations)))
            bar.update(len(batch))
    return np.concatenate(parts, axis=1)


def embed_ends(
    model: Model,
    images: Sequence[Any],
    names: Sequence[str],
    templates: Sequence[str],
    ablate: HeadSet,
    groups: Mapping[str, NDArray[Any]] | None = None,
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return unit embeddings of images [n, d] and names [names, d], before and, with ablation, after.

    Args:
        model: Model that embeds the images and names.
        images: Images to embed [n]. Mean outputs are taken over the same images.
        names: Names of classes or occupations.
        templates: Prompts with `{}` for the name. Their embeddings are averaged.
        ablate: Heads of either encoder to ablate.
        groups: Attribute -> group of each image [n], on which edits are fitted.
    """
    in_images, in_texts = model.at_means(ablate.of_encoder(IMAGE), images), ablate.of_encoder(TEXT)
    if groups and any(change.attribute for _, change in changes(in_images)):
        from ccs.model.editing import fit_edits  # imports PyTorch

        in_images, _ = fit_edits(model, in_images, images, groups)
    if in_texts:
        model.texts.encoder.require_heads(in_texts)
    units = embed_ablations(model, images, [HeadSet(), in_images] if in_images else [HeadSet()])
    of_texts = [None, in_texts] if in_texts else [None]
    texts = [embed_names(model, names, templates, heads) for heads in of_texts]
    return [(units[0], texts[0]), (units[-1], texts[-1])][: len(units) + len(texts) - 1]

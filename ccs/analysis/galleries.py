"""People with groups: opened, crossed by several attributes, with the occupations of a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccs import paper
from ccs.analysis.inputs import Names, read_names, require_readable
from ccs.data import BiasSet, Lazy
from ccs.data.open import open_gallery
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics.accuracy import class_weights
from ccs.texts.prompts import load_prompts

if TYPE_CHECKING:
    from ccs.model.model import Model

NOUNS = {"woman", "man", "girl", "boy", "female", "male"}
"""Groups that are nouns in prompts; others get "person"."""
SMALLEST = 10
"""Fewest people in a crossed group. With fewer, its share of the top K is mostly noise."""


def open_people(
    gallery: BiasSet | str,
    attribute: str | None = None,
    max_images: int | None = None,
    *,
    skip_unreadable: bool = True,
    smallest: int = SMALLEST,
) -> tuple[BiasSet, str, Mapping[str, int]]:
    """Return people with groups, opened if they are given by name, and the attribute in force.

    Args:
        gallery: from `ccs.open_gallery`, or a name that it takes.
        attribute: the column of groups, or several with commas between them, which are crossed; by default
            gender, or else the first.
        max_images: maximum number of images of a gallery opened here.
        skip_unreadable: continue if more than 1% of the images cannot be read.
        smallest: fewest people in a crossed group.

    Returns:
        tuple: the gallery, the attribute, and the number of people left out of crossed groups, by group.

    Raises:
        InputError: For an unknown attribute, or too few people in crossed groups.
    """
    if isinstance(gallery, str):
        gallery = open_gallery(gallery, attribute=_split(attribute or ""), max_images=max_images)
    require_readable(gallery, skip_unreadable)
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
        gallery: people with groups.
        attribute: names of the gallery's attributes with commas between them.
        smallest: fewest people in a crossed group. People in smaller groups are left out of the gallery.

    Returns:
        tuple: the gallery with `attribute` among its groups, and the number of people left out by group.

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


def name_person(group: str) -> str:
    """Return a person of a group: "man" as it is, "dark" as "dark person", "woman, dark" as "dark woman"."""
    words = group.split(", ")
    noun = next((word for word in words if word.lower() in NOUNS), "person")
    return " ".join([*(word for word in words if word != noun), noun])


def set_question(
    gallery: BiasSet,
    occupations: Names | None = None,
    template: str | None = None,
    top: int | None = None,
    prompts: str | None = None,
) -> BiasSet:
    """Return the gallery with these occupations, this template, and this K, or its own.

    Args:
        gallery: people with groups.
        occupations: as in `ccs.bias`; repeated names count once.
        template: with `{}` for the occupation.
        top: K; by default the gallery's, or a tenth of the images that an occupation ranks. Near their number
            every ranking has the same top, and MaxSkew says nothing.
        prompts: a named prompt set, in place of occupations and template.

    Raises:
        InputError: For a K below 1 or above half of these images, a template without one `{}`, and names that
            are no texts or empty.
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
    ranked = fewest_ranked(gallery)
    largest = max(1, ranked // 2)
    k = {name: gallery.k.get(name, max(1, ranked // 10)) if top is None else top for name in gallery.groups}
    for number in k.values():
        if isinstance(number, bool) or int(number) != number or not 1 <= number <= largest:
            needs = f"a ranking of {ranked} images needs a K of 1 to {largest}, at most half of them"
            raise InputError(f"K is {number}, but {needs}.")
    return replace(gallery, k={name: int(number) for name, number in k.items()})


def fewest_ranked(gallery: BiasSet) -> int:
    """Return the smallest number of images that an occupation of the gallery ranks, if it has any."""
    sizes = Counter[str]() if gallery.pools is None else Counter(gallery.pools.tolist())
    return min((sizes[name] for name in gallery.occupations if sizes[name]), default=len(gallery.images))


def in_prompts(gallery: BiasSet) -> tuple[str, ...]:
    """Return the occupations as the gallery's prompts hold them, with an article if one belongs there."""
    return paper.in_prompts(gallery.occupations, gallery.templates)


def embed_occupations(model: Model, gallery: BiasSet, ablate: HeadSet | None = None) -> NDArray[np.float32]:
    """Return unit text embeddings [occupations, d], means over the templates.

    Args:
        model: embeds the prompts.
        gallery: with occupations and templates.
        ablate: heads of the text encoder to ablate.
    """
    return class_weights(model, in_prompts(gallery), gallery.templates, ablate)

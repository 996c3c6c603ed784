"""What does a model do without the groups of an attribute in the outputs of some of its heads?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ccs.analysis.inputs import Names, load_model, open_classes, open_people, read_names
from ccs.analysis.result import describe_model, warn_if_small
from ccs.data import BiasSet, ClassificationSet
from ccs.errors import InputError
from ccs.heads import ERASE, Heads, Intervention, changes
from ccs.model.editing import DEFAULT_STRENGTH, Preserved, fit_edits
from ccs.model.export import WeightChange, changed_weights, export
from ccs.model.model import Model


class EditedModel(Model):
    """A model with edited heads, from `ccs.edit_heads`. It can be used wherever a model can.

    Attributes:
        edits: Edits as an intervention of the original model: `ccs.accuracy(original, dataset, ablate=edits)`
            compares both.
        rows: One row per edited head: `head`; `attribute`; `directions`, the number of directions removed
            from its output (a preserved one counts in part); `before` and `after`, the distance of the
            groups' mean outputs from their mean (root mean square over groups, at the CLS token and at the
            mean patch).
        about: Model, gallery, attribute, preserved dataset or texts, and strength behind the edits.

    Examples:
        >>> from ccs import edit_heads
        >>> edited = edit_heads("organism", "world/faces", "gender", heads="L7.H1")
        >>> list(edited.rows["head"]), str(edited.edits)
        (['L7.H1'], 'L7.H1=erase:gender')
    """

    edits: Intervention
    rows: pd.DataFrame
    about: Mapping[str, Any]

    def __init__(
        self, original: Model, edits: Intervention, rows: pd.DataFrame, about: Mapping[str, Any]
    ) -> None:
        edited = original.with_weights(changed_weights(original, WeightChange(edits)))
        self.__dict__.update(edited.__dict__)
        self._original, self.edits, self.rows, self.about = original, edits, rows, about
        self.name = f"{original.name} edited"

    def save(self, folder: str | Path) -> float:
        """Write the model to a new folder that open_clip or transformers loads, with a model card.

        Args:
            folder: Folder to create.

        Returns:
            The largest difference between its embeddings without this package and those of this model.

        Raises:
            InputError: As `ccs.model.export.export`.
        """
        about = self.about
        note = f"Fitted on {about['people']:,} people of {about['gallery']}"
        notes = [f"{note}, with {about['preserve']} preserved." if about["preserve"] else f"{note}."]
        return export(self._original, WeightChange(self.edits, notes=notes), folder)


def edit_heads(
    model: Model | str,
    gallery: BiasSet | str,
    attribute: str | None = None,
    heads: Heads | None = None,
    preserve: ClassificationSet | str | Names | None = None,
    *,
    strength: float = DEFAULT_STRENGTH,
    max_images: int | None = None,
    skip_unreadable: bool = False,
    device: str = "cpu",
) -> EditedModel:
    """Erase the groups of an attribute from the outputs of heads, in the weights.

    The directions in which the groups' mean outputs differ, at the CLS token and at the mean patch, are
    removed from each head's columns of its output projection. The projection's bias is adjusted so that the
    people's mean output stays the same. Layers are fitted in order, each on the activations after earlier
    edits.

    Args:
        model: A model from `ccs.load`, or its name.
        gallery: People with groups, on whom edits are fitted, as in `ccs.bias`.
        attribute: Column of groups. By default gender, or else the first column.
        heads: Heads of the image encoder to edit, such as "L5.H0 L6.H1". By default all scored heads.
        preserve: Images with classes that heads should still distinguish (a dataset or its name, as in
            `ccs.accuracy`), or a list of texts whose directions heads should still write. None preserves
            nothing and erases completely.
        strength: Strength of the preservation, from 0 (complete erasure) to 1 (no change). It has no effect
            if nothing is preserved.
        max_images: Maximum number of images of each dataset given by name. Synthetic people are all used.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        device: Device for a model given by name, as in `ccs.load`.

    Returns:
        EditedModel: The model with edited weights.

    Raises:
        InputError: If an argument does not fit, such as a strength outside 0 to 1, or heads with a factor.

    Examples:
        >>> from ccs import edit_heads
        >>> edited = edit_heads("organism", "world/faces", "gender", heads="L7.H1")
        >>> edited.embed_texts(["a judge"]).shape
        (1, 160)
    """
    if not 0 <= strength <= 1:
        raise InputError(f"The strength is a number from 0 (erase) to 1 (preserve), not {strength}.")
    model = load_model(model, device)
    people, attribute, _ = open_people(gallery, attribute, max_images, skip_unreadable=skip_unreadable)
    preserved, name = None, ""
    if isinstance(preserve, ClassificationSet | str):
        dataset = open_classes(preserve, max_images=max_images)
        preserved, name = Preserved(dataset.images, dataset.labels, strength=strength), dataset.name
    elif preserve is not None:
        texts = read_names(preserve, "text to preserve")
        preserved, name = Preserved(texts=model.embed_texts(texts), strength=strength), ", ".join(texts)
    chosen = model.heads if heads is None else Intervention.from_heads(heads)
    if not chosen or not all(change.ablates for _, change in changes(chosen)):
        raise InputError(f"Expected heads to edit, such as L5.H0, without a change; got {str(chosen)!r}.")
    edits, rows = fit_edits(
        model,
        Intervention(dict.fromkeys(chosen, f"{ERASE}{attribute}")),
        people.images,
        people.groups,
        preserved,
    )
    description = describe_model(model) | {
        "gallery": people.name,
        "attribute": attribute,
        "people": len(people.images),
        "heads": str(chosen),
        "preserve": name,
        "strength": strength if preserved else 0.0,
        "warning": warn_if_small("bias", min(Counter(people.groups[attribute].tolist()).values())),
    }
    return EditedModel(model, edits, pd.DataFrame(rows), description)

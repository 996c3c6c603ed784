"""How many images does a model assign to their class by text alone (zero-shot)?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ccs.analysis import inputs
from ccs.analysis.result import NO_CHANGE, Chart, Result, describe_model, value_columns, warn_if_small
from ccs.data import ClassificationSet
from ccs.errors import InputError, require_seed
from ccs.heads import HeadSet, Intervention
from ccs.metrics import accuracy as zeroshot
from ccs.metrics.ranking import alike

if TYPE_CHECKING:
    from ccs.model.model import Model

ALL = "all"
"""The name of all images in the column `class`."""


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class AccuracyTable(Result):
    """The result of `ccs.accuracy`. A notebook shows its plot.

    Attributes:
        about: Model, dataset, prompts, ablated heads, and images behind the numbers.
        rows: One row for all images, then one per class. Columns: `class`; `images`, their number; `before`
            and `after` ablation, shares of 1, equal without ablation; `low` and `high`, the 95% interval of
            `after` (for classes, Wilson's). The row of all images also has `difference`, `difference_low`,
            `difference_high`, and `p_value`, paired over images.
        alike: Classes whose prompts the model encodes identically. Images are assigned only to the first of
            them.
        groups: With `attribute`, one row per class and group, the lowest accuracy first. Columns: `class`;
            `group`; `images`; `before` and `after`; `low` and `high`, the 95% interval of `after` (Wilson's).
        doubt: Warning that the numbers may mislead, or None.
        skipped: Images that cannot be read, with the reason.

    Examples:
        >>> from ccs import accuracy
        >>> accuracy("organism", "world/subjects", max_images=8).subject
        'organism on world/subjects'
    """

    alike: tuple[tuple[str, ...], ...] = ()
    groups: pd.DataFrame = field(default_factory=pd.DataFrame)
    doubt: str | None = None
    skipped: tuple[str, ...] = ()

    def _chart(self, max_rows: int) -> Chart:
        rows = pd.concat([self.rows.iloc[1:].nsmallest(max_rows, "after").iloc[::-1], self.rows.iloc[:1]])
        label = "ablated" if self.about["ablate"] else "accuracy"
        return Chart(rows=rows, names=rows["class"], xlabel="accuracy", label=label)


def accuracy(
    model: Model | str,
    dataset: ClassificationSet | str,
    classes: inputs.Names | None = None,
    *,
    ablate: HeadSet | str | None = None,
    attribute: str | None = None,
    template: str | None = None,
    max_images: int | None = None,
    skip_unreadable: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> AccuracyTable:
    """Measure zero-shot accuracy: an image is assigned to the class with the nearest mean prompt embedding.

    Args:
        model: A model from `ccs.load`, or its name.
        dataset: Images with classes: a dataset from `ccs.open_dataset`, or a name or path that it accepts.
        classes: Names of the classes in prompts, in the order of their numbers. Only for a dataset given by
            name.
        ablate: Heads of either encoder to ablate, such as "L8.H11 L9.H2=0.3".
        attribute: Column of groups that may be spuriously related to the classes, such as the place in
            Waterbirds. Accuracy is then also measured for each class within each group. The lowest is the
            worst-group accuracy.
        template: Prompt with `{}` for the class. Only for a dataset given by name.
        max_images: Maximum number of images, drawn at random from each class. Only for a dataset given by
            name.
        skip_unreadable: Whether to continue if more than 1% of the images cannot be read.
        seed: Random seed for resampling.
        device: Device for a model given by name, as in `ccs.load`.

    Returns:
        AccuracyTable: One row for all images and one per class, before and after ablation.

    Raises:
        InputError: If an argument does not fit the others; the message says what is allowed.

    Examples:
        >>> table = accuracy("organism", "world/subjects", max_images=40)
        >>> bool(table.rows["after"][0] > 0.5)
        True
    """
    require_seed(seed)
    if isinstance(dataset, ClassificationSet) and (classes, template, max_images) != (None, None, None):
        raise InputError("An opened dataset has classes, a template, and images; pass a name to set them.")
    dataset = inputs.open_classes(dataset, classes, template, max_images, skip_unreadable)
    if attribute is not None and attribute not in dataset.groups:
        listed = ", ".join(dataset.groups) or "none"
        raise InputError(f"{dataset.name} has no column of groups {attribute!r}; its columns: {listed}.")
    model, ablation = inputs.load_model(model, device), Intervention.from_heads(ablate)
    ends = inputs.embed_ends(model, dataset.images, dataset.classes, dataset.templates, ablation)
    results = [zeroshot.accuracy(*pair, dataset.labels, seed) for pair in ends]
    before, after = results[0], results[-1]
    change = NO_CHANGE if after is before else zeroshot.compare_accuracies(after, before, seed=seed)
    whole = {"class": ALL, "n": after.n} | value_columns(before.top1.value, after.top1, change)
    labels = {"class": np.array(dataset.classes, object)[dataset.labels]}
    correct = before.correct, after.correct
    of_class = zeroshot.group_rates(labels, *correct).set_index("class").reindex(dataset.classes)
    rows = pd.concat([pd.DataFrame([whole]), of_class.reset_index()], ignore_index=True)
    rows["n"], groups = rows["n"].fillna(0).astype(int), pd.DataFrame()
    if attribute is not None:
        groups = zeroshot.group_rates(labels | {"group": dataset.groups[attribute]}, *correct)
        groups = groups.sort_values("after", ignore_index=True, kind="stable")
    description = describe_model(model) | {
        "dataset": dataset.name,
        "source": dataset.source,
        "template": " | ".join(dataset.templates),
        "prompt": dataset.templates[0].replace("{}", dataset.classes[0]),
        "skipped": len(dataset.skipped),
        "ablate": str(ablation),
        "attribute": attribute or "",
        "warning": warn_if_small("accuracy", after.n),
    }
    same = alike(dataset.classes, ends[0][1])
    doubts = [
        zeroshot.near_chance(before.top1.value, before.top1.low, len(dataset.classes)),
        identical_names(same),
    ]
    return AccuracyTable(
        about=description,
        rows=rows.rename(columns={"n": "images"}),
        alike=same,
        groups=groups.rename(columns={"n": "images"}),
        doubt=" ".join(filter(None, doubts)) or None,
        skipped=dataset.skipped,
    )


def identical_names(groups: tuple[tuple[str, ...], ...]) -> str | None:
    """Return a warning about class names that the model encodes identically, or None if there are none.

    Args:
        groups: Groups of such names (`ccs.metrics.ranking.alike`).
    """
    if not groups:
        return None
    listed = "; ".join(", ".join(name[-40:] for name in group[:4]) for group in groups[:3])
    return (
        f"The model encodes the prompts of {sum(map(len, groups))} names identically ({listed}): it assigns "
        f"images only to the first class of each group. Give them names that differ in the first 77 tokens."
    )

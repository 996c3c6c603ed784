"""Score maps by masks of photographs, with the protocol of Gandelsman et al. 2024 (arXiv 2310.05916).

The map is the contribution of each patch through all heads along the text of the predicted class (ImageNet's
1,000 classes, 80 templates) minus the mean text. It is interpolated, negative values are set to zero, and it
is scaled to at most one. Pixels above the map's mean are the predicted object. Accuracy and intersection over
union are over the pixels of all images. Average precision is per image, and counts object and background.

The authors' code resizes a mask to a square but crops its image. We crop both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
import open_clip
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from pyarrow.parquet import read_schema
from sklearn.metrics import average_precision_score
from tqdm import tqdm

from ccs.analysis.inputs import embed_names
from ccs.app.services.images import as_model_input
from ccs.batch.pages import in_brackets, markdown_table
from ccs.data import DatasetRecord, Lazy, templates
from ccs.data.decoding import decode
from ccs.data.files import OnDisk
from ccs.data.parquet import read_parquet
from ccs.errors import InputError
from ccs.heads import HeadSet
from ccs.metrics.stats import interval
from ccs.model.maps import attention, heatmap
from ccs.model.model import Model
from research.maps.judged_maps import CONTRAST, DRAWS, LOOKS, Bools, Judged, enlarged

_BATCH = 8


def read_column(path: str, name: str) -> Lazy[Image.Image]:
    """Return the images in a column of a Parquet file.

    Args:
        path: The file.
        name: The column.

    Raises:
        InputError: If it has no such column.
    """
    if name not in read_schema(path).names:
        raise InputError(f"{path} has no column {name!r}.")
    rows = read_parquet({path: OnDisk(path)}, DatasetRecord(name=path, kind="images", image=name), path)
    return Lazy(decode, Lazy(rows.read, range(rows.count)))


def run(
    model: Model,
    photographs: Sequence[Image.Image],
    shown: Sequence[Image.Image],
    classes: Sequence[str] = open_clip.IMAGENET_CLASSNAMES,
    prompts: Sequence[str] = (),
) -> dict[str, Judged]:
    """Score the map, and the attention of the last layer's heads, on images with masks.

    Args:
        model: The model.
        photographs: The images.
        shown: Each image's mask; pixels of its object aren't black.
        classes: The classes whose texts give the map.
        prompts: Templates of the texts. Default: ImageNet's.

    Returns:
        The scores of each method.
    """
    weights = embed_names(model, classes, prompts or templates("imagenet"))
    all_heads = HeadSet(model.encoder.all_heads)
    last = all_heads.of_layer(max(head.layer for head in all_heads))
    parts_by_method: dict[str, list[Judged]] = {LOOKS: [], CONTRAST: []}
    for start in tqdm(range(0, len(photographs), _BATCH), "photographs", unit=f" x {_BATCH}"):
        rows = range(start, min(start + _BATCH, len(photographs)))
        images = [photographs[row] for row in rows]
        white = [shown[row].convert("L").point(lambda value: 255 * (value > 0)) for row in rows]
        mask_inputs = model.preprocess([mask.convert("RGB") for mask in white])
        masks = [np.asarray(as_model_input(model, mask_input))[..., 0] > 127 for mask_input in mask_inputs]
        answers = weights[(model.embed_images(images) @ weights.T).argmax(1)]
        maps = heatmap(model, images, answers - weights.mean(0), all_heads)
        parts_by_method[CONTRAST].append(judge([maps[i, i] for i in range(len(rows))], masks))
        parts_by_method[LOOKS].append(judge(list(attention(model, images, last).mean(1)), masks))
    names = [field.name for field in fields(Judged)]
    return {
        name: Judged(**{of: np.concatenate([vars(part)[of] for part in parts]) for of in names})
        for name, parts in parts_by_method.items()
    }


def judge(maps: Sequence[NDArray[np.floating]], masks: Sequence[Bools]) -> Judged:
    """Score maps by masks.

    Args:
        maps: One map per image [rows, columns].
        masks: Masks, each [height, width].
    """
    precision, cut, union = [], [], []
    for patch_map, object_pixels in zip(maps, masks, strict=True):
        values = enlarged(patch_map, object_pixels.shape).clip(0)
        values = (values - values.min()) / max(float(np.ptp(values)), 1e-12)
        above = values > values.mean()
        sides = ((above, object_pixels), (~above, ~object_pixels))
        cut.append([(predicted & actual).sum() for predicted, actual in sides])
        union.append([(predicted | actual).sum() for predicted, actual in sides])
        truth, confidences = (
            np.concatenate([~object_pixels, object_pixels], axis=None),
            np.concatenate([1 - values, values], axis=None),
        )
        precision.append(average_precision_score(truth, confidences))
    return Judged(np.array(precision), np.array(cut, float), np.array(union, float))


def summary(judged_by_method: Mapping[str, Judged]) -> str:
    """Write the table in Markdown, with 95% intervals over photographs."""
    rows = []
    for name, judged in judged_by_method.items():
        n = len(judged.precision)
        drawn = np.random.default_rng(20).multinomial(n, np.full(n, 1 / n), DRAWS)
        weights = np.concatenate([np.ones((1, n)), drawn])
        precision, overlap = judged.figures(weights)
        correct = weights @ judged.cut.sum(1)
        accuracy = correct / (correct + weights @ (judged.union - judged.cut)[:, 0])
        measures = {"pixel accuracy": accuracy, "mIoU": overlap, "mAP": precision}
        rows.append(
            {"map": name} | {key: in_brackets(interval(v[0], v[1:]), 3) for key, v in measures.items()}
        )
    return markdown_table(pd.DataFrame(rows))

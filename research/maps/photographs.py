"""Maps against masks of photographs, as Gandelsman et al. 2024 judge them (arXiv 2310.05916).

Along the class that the model answers, of ImageNet's 1,000 with its 80 templates, less the mean of all: what
each patch sends through all heads. Interpolated, what is below zero is set to zero and the largest value to
one. Pixels above the map's mean are taken for the thing: accuracy and intersection over union are of pixels
of all images, average precision of each image's, in which thing and ground both count as something to find.

Where their code squeezes a mask to the square that its image is cropped to, here the mask is cropped as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
import open_clip
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from tqdm import tqdm

from ccs.app.services.examples import as_model_input
from ccs.batch.pages import in_brackets, table
from ccs.data import ImageSet, templates
from ccs.heads import HeadSet
from ccs.metrics.accuracy import class_weights
from ccs.metrics.stats import interval
from ccs.model.maps import attention, heatmap
from ccs.model.model import Model
from research.maps.judged_maps import CONTRAST, DRAWS, LOOKS, Bools, Judged, enlarged

_BATCH = 8


def run(
    model: Model,
    data: ImageSet,
    classes: Sequence[str] = open_clip.IMAGENET_CLASSNAMES,
    prompts: Sequence[str] = (),
) -> dict[str, Judged]:
    """What the map reaches on images with masks, and beside it the attention of the last layer's heads."""
    weights = class_weights(model, classes, prompts or templates("imagenet"))
    every = HeadSet(model.encoder.all_heads)
    last = every.of_layer(max(head.layer for head in every))
    found: dict[str, list[Judged]] = {LOOKS: [], CONTRAST: []}
    for start in tqdm(range(0, len(data.images), _BATCH), "photographs", unit=f" x {_BATCH}"):
        rows = range(start, min(start + _BATCH, len(data.images)))
        images = [data.images[row] for row in rows]
        shown = model.preprocess([data.masks[row].convert("RGB") for row in rows])
        masks = [np.asarray(as_model_input(model, one))[..., 0] > 127 for one in shown]
        answers = weights[(model.embed_images(images) @ weights.T).argmax(1)]
        maps = heatmap(model, images, answers - weights.mean(0), every)
        found[CONTRAST].append(judge([maps[i, i] for i in range(len(rows))], masks))
        found[LOOKS].append(judge(list(attention(model, images, last).mean(1)), masks))
    names = [one.name for one in fields(Judged)]
    return {
        name: Judged(**{of: np.concatenate([vars(part)[of] for part in parts]) for of in names})
        for name, parts in found.items()
    }


def judge(maps: Sequence[NDArray[np.floating]], masks: Sequence[Bools]) -> Judged:
    """Judge each map [rows, columns] by its mask [height, width]."""
    precision, cut, union = [], [], []
    for found, own in zip(maps, masks, strict=True):
        values = enlarged(found, own.shape).clip(0)
        values = (values - values.min()) / max(float(np.ptp(values)), 1e-12)
        above = values > values.mean()
        sides = ((above, own), (~above, ~own))
        cut.append([(one & other).sum() for one, other in sides])
        union.append([(one | other).sum() for one, other in sides])
        truth, told = np.concatenate([~own, own], axis=None), np.concatenate([1 - values, values], axis=None)
        precision.append(average_precision_score(truth, told))
    return Judged(np.array(precision), np.array(cut, float), np.array(union, float))


def summary(found: Mapping[str, Judged]) -> str:
    """The table in Markdown; 95% intervals are over photographs."""
    rows = []
    for name, one in found.items():
        n = len(one.precision)
        drawn = np.random.default_rng(20).multinomial(n, np.full(n, 1 / n), DRAWS)
        weights = np.concatenate([np.ones((1, n)), drawn])
        precision, overlap = one.figures(weights)
        correct = weights @ one.cut.sum(1)
        accuracy = correct / (correct + weights @ (one.union - one.cut)[:, 0])
        told = {"pixel accuracy": accuracy, "mIoU": overlap, "mAP": precision}
        rows.append({"map": name} | {key: in_brackets(interval(v[0], v[1:]), 3) for key, v in told.items()})
    return table(pd.DataFrame(rows))

"""Compare labels and CCS before and after an edit: `python -m research.editing.labels MODEL ATTRIBUTE`."""

from __future__ import annotations

import sys

import pandas as pd

from ccs.analysis.edit_heads import edit_heads
from ccs.analysis.evidence import read_heads
from ccs.data import synthetic
from ccs.data.open import open_images
from ccs_benchmark import planted_models


def compare_labels(name: str, attribute: str) -> pd.DataFrame:
    """Compute every head's label and CCS before and after an edit of all heads that preserves classes.

    Args:
        name: A model of the benchmark.
        attribute: The attribute to erase.
    """
    model = planted_models.load(name)
    preserve = synthetic.classification_set("occupations", seed=77)
    edited = edit_heads(model, "world/faces", attribute, preserve=preserve)
    images = open_images("world", 500)
    before, after = (read_heads(version, images, "world").scores for version in (model, edited))
    return pd.DataFrame(
        {
            "head": str(head),
            "label": before[head].label,
            "label_after": after[head].label,
            "ccs": before[head].ccs,
            "ccs_after": after[head].ccs,
        }
        for head in before
    )


if __name__ == "__main__":
    print(compare_labels(*sys.argv[1:3]).to_string())

"""Write preference.md: general preference or stereotype, for the bundled models on the plain faces.

`python -m research.world.preference_table`
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from ccs.analysis.inputs import embed_names
from ccs.batch.pages import in_brackets, markdown_table
from ccs.data import BiasSet, synthetic
from ccs.files import write_text
from ccs.metrics import preference
from ccs.metrics.ranking import cosines
from ccs.model.model import Model
from ccs_benchmark import variants

FILE = Path(__file__).with_name("preference.md")
NATURAL = tuple(f"organism-natural-{number}-all" for number in range(5))
MODELS = ("organism", "organism-control", "organism-planted", *NATURAL)
PROMPTS = ("person", "blorple")


def main() -> int:
    """Print the split of group scores for each model."""
    gallery = synthetic.bias_set("faces")
    base = variants.load(MODELS[0])  # every model here has its lower layers
    trunk = base.trunk(list(gallery.images))
    rows = []
    for name in MODELS:
        model = variants.load(name)
        units = model.embed_images(trunk)
        rows += [{"model": name, **row(model, units, gallery, attribute)} for attribute in gallery.groups]
    write_text(FILE, HEAD + markdown_table(pd.DataFrame(rows)) + "\n")
    print(FILE)
    return 0


def row(model: Model, units: np.ndarray, gallery: BiasSet, attribute: str) -> dict[str, str]:
    """Return a line of the table.

    Args:
        model: the model.
        units: embeddings of the people [n, d].
        gallery: the people.
        attribute: of their groups.
    """
    groups, k = gallery.groups[attribute], gallery.k[attribute]
    texts = embed_names(model, gallery.occupations, gallery.templates)
    scores = model.logit_scale * cosines(texts, units)
    split = preference.split(scores, groups)
    firsts = preference.first_groups(gallery.occupations, scores, groups, k)
    neutral = cosines(embed_names(model, PROMPTS, gallery.templates), units)
    alone = preference.first_groups(PROMPTS, neutral, groups, k)
    counted = Counter(first.group for first in firsts).most_common()
    share = split.share
    return {
        "attribute": attribute,
        "general share": in_brackets(share, 2) if share.value == share.value else "–",
        "by chance, at most": f"{split.chance.high:.2f}" if share.value == share.value else "–",
        "verdict": split.verdict,
        "first group of 20 occupations": ", ".join(f"{group} {count}" for group, count in counted),
        **{f"“{prompt.prompt}”": listed(prompt) for prompt in alone},
    }


def listed(prompt: preference.FirstGroup) -> str:
    """Return whom a prompt puts first, or that a random ranking would do the same."""
    return "as by chance" if prompt.by_chance else f"{prompt.group} {prompt.share:.0%}"


HEAD = """# General preference or stereotype

Written by `python -m research.world.preference_table`. 600 plain faces, 20 occupations. The general share is
the part of the squared group scores that all occupations share (`ccs.metrics.preference`), with its 95%
interval; a dash means that group scores are no larger than with shuffled groups. The last columns have the
group that a neutral and a nonsense prompt put first, with its share of the first 60 faces.

"""

if __name__ == "__main__":
    sys.exit(main())

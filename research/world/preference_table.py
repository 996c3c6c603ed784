"""Write preference.md: general preference or stereotype, for the bundled models on plain faces.

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
    """Split the group scores of each model and write the document."""
    gallery = synthetic.bias_set("faces")
    base = variants.load(MODELS[0])  # all models share its lower layers
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
    """Return a row of the table.

    Args:
        model: The model.
        units: Image embeddings [n, d].
        gallery: The gallery.
        attribute: Attribute of the groups.
    """
    groups, k = gallery.groups[attribute], gallery.k[attribute]
    texts = embed_names(model, gallery.occupations, gallery.templates)
    scores = model.logit_scale * cosines(texts, units)
    split = preference.split(scores, groups)
    firsts = preference.first_groups(gallery.occupations, scores, groups, k)
    neutral = cosines(embed_names(model, PROMPTS, gallery.templates), units)
    neutral_firsts = preference.first_groups(PROMPTS, neutral, groups, k)
    group_counts = Counter(first.group for first in firsts).most_common()
    share = split.share
    return {
        "attribute": attribute,
        "general share": in_brackets(share, 2) if share.value == share.value else "–",
        "chance, at most": f"{split.chance.high:.2f}" if share.value == share.value else "–",
        "verdict": split.verdict,
        "first group of 20 occupations": ", ".join(f"{group} {count}" for group, count in group_counts),
        **{f"“{prompt.prompt}”": listed(prompt) for prompt in neutral_firsts},
    }


def listed(prompt: preference.FirstGroup) -> str:
    """Return the group that a prompt ranks first and its share, or "chance" if MaxSkew isn't above chance."""
    return "chance" if prompt.by_chance else f"{prompt.group} {prompt.share:.0%}"


HEAD = """# General preference or stereotype

Written by `python -m research.world.preference_table`. 600 plain faces, 20 occupations. The *general share*
is the part of the squared group scores that all occupations share (`ccs.metrics.preference`), with its 95%
interval. *Chance, at most*: the upper end of its 95% range with the groups of each prompt shuffled. A dash
means no evidence of any preference: group scores are no larger than with shuffled groups. The last columns
have the group that a neutral and a nonsense prompt rank first, with its share of the first 60 faces; *chance*
means that MaxSkew isn't above that of random rankings.

"""

if __name__ == "__main__":
    sys.exit(main())

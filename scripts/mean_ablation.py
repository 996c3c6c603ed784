"""Sets of heads zeroed, and held at their mean: python -m scripts.mean_ablation writes docs/mitigation.md.

Zeroing takes away what a head writes of every image too, and can overstate what it does (arXiv 2604.14433).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MODEL = "organism"
KINDS = ("high", "moderate", "low", "random")
SEEDS = 5
"""Random sets."""
ABOUT = f"""## Zero, or the mean

Zero takes away what a head writes of every image too, which can overstate what the head does (arXiv
2604.14433); its mean over the images leaves that in place. The study's plans, on `{MODEL}`, at zero as in its
tables, and at the mean.
"""


def main() -> None:
    """Measure the plans of the models' tables, and bring the page up to date."""
    from ccs.batch.pages import table
    from ccs_benchmark.documents import bring_up_to_date

    bring_up_to_date(
        ROOT / "docs" / "mitigation.md",
        "means",
        f"{ABOUT}\n{table(pd.DataFrame(measured(MODEL)))}",
        "python -m scripts.mean_ablation",
    )


def measured(name: str) -> list[dict[str, str]]:
    """A row per kind of plan: accuracy and MaxSkew at zero and at the mean; of random sets the mean."""
    from ccs import HeadSet, Intervention, load, results
    from ccs.analysis.evidence import Subject
    from ccs.analysis.task import Sets
    from ccs.heads import MEAN, HeadChange
    from ccs.metrics import accuracy

    model = load(name)
    subject = Subject(model, Sets.synthetic())
    whole = subject.whole("gender")
    found = (
        results.read(results.PRECOMPUTED / name)
        .table("pruning")[["ablation", "seed", "heads"]]
        .drop_duplicates()
        .fillna({"seed": 10**6})
    )
    plans = [
        (row.ablation, HeadSet.parse(row.heads))
        for row in found[found["ablation"].isin(KINDS)].itertuples()
        if row.ablation != "random" or (row.heads and row.seed < SEEDS)
    ]
    every, held = (
        [HeadSet(), *(off for _, off in plans)],
        dict.fromkeys(model.heads, HeadChange(replacement=MEAN)),
    )

    def embedded(images: Any) -> np.ndarray:
        """With heads at zero, then at their mean over these images."""
        means = model.at_means(Intervention(held), images)
        return model.embed_images(images, [*every, *(means.subset(off) for off in every[1:])])

    figures = [
        {
            "accuracy": 100 * float(accuracy.correct(one, whole.class_weights, whole.labels).mean()),
            **{kind: subject.whole(kind).max_skew(units) for kind in ("gender", "skin tone")},
        }
        for units, one in zip(embedded(whole.people), embedded(whole.things), strict=True)
    ]
    zeroed, at_mean = figures[1 : len(every)], figures[len(every) :]
    rows = [_row("nothing", 1, figures[0], figures[0])]
    for kind in KINDS:
        own = [place for place, (plan, _) in enumerate(plans) if plan == kind]
        if own:
            both = (
                {key: float(np.mean([some[i][key] for i in own])) for key in figures[0]}
                for some in (zeroed, at_mean)
            )
            rows.append(_row(kind, len(own), *both))
    return rows


def _row(plan: str, sets: int, zeroed: Mapping[str, float], at_mean: Mapping[str, float]) -> dict[str, str]:
    words = {"accuracy": "accuracy (%)", "gender": "MaxSkew by gender", "skin tone": "by skin tone"}
    digits = {"accuracy": 1}
    told = {
        f"{word}: {how}": f"{of[key]:.{digits.get(key, 2)}f}"
        for key, word in words.items()
        for how, of in (("zero", zeroed), ("mean", at_mean))
    }
    return {"off": plan if sets == 1 else f"{plan}, {sets} sets", **told}


if __name__ == "__main__":
    main()

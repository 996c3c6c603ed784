"""Compare zero ablation with mean ablation: `python -m scripts.mean_ablation` updates docs/mitigation.md.

Zero ablation also removes the mean of a head's output over images, which can overstate its effect (arXiv
2604.14433).
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
"""Number of random sets."""
ABOUT = f"""## Zero or mean ablation

Zero ablation also removes the mean of a head's output over images, which can overstate its effect (arXiv
2604.14433). Mean ablation keeps it. The table compares both for the paper's ablation sets on `{MODEL}`.
"""


def main() -> None:
    """Measure the ablation sets of the model's tables, and update the page."""
    from ccs.batch.pages import table
    from ccs_benchmark.documents import bring_up_to_date

    bring_up_to_date(
        ROOT / "docs" / "mitigation.md",
        "means",
        f"{ABOUT}\n{table(pd.DataFrame(compare_ablations(MODEL)))}",
        "python -m scripts.mean_ablation",
    )


def compare_ablations(name: str) -> list[dict[str, str]]:
    """Return accuracy and MaxSkew under zero and mean ablation, one row per kind of ablation set."""
    from ccs import HeadSet, Intervention, load, results
    from ccs.analysis.evidence import Subject
    from ccs.analysis.task import Sets
    from ccs.heads import MEAN, HeadChange
    from ccs.metrics import accuracy

    model = load(name)
    subject = Subject(model, Sets.synthetic())
    whole = subject.whole("gender")
    plan_rows = (
        results.read(results.PRECOMPUTED / name)
        .table("pruning")[["ablation", "seed", "heads"]]
        .drop_duplicates()
        .fillna({"seed": 10**6})
    )
    plans = [
        (row.ablation, HeadSet.parse(row.heads))
        for row in plan_rows[plan_rows["ablation"].isin(KINDS)].itertuples()
        if row.ablation != "random" or (row.heads and row.seed < SEEDS)
    ]
    ablations = [HeadSet(), *(heads for _, heads in plans)]
    at_means = dict.fromkeys(model.heads, HeadChange(replacement=MEAN))

    def embedded(images: Any) -> np.ndarray:
        """Embed images under zero ablation, then under mean ablation, of each set."""
        means = model.at_means(Intervention(at_means), images)
        return model.embed_images(images, [*ablations, *(means.subset(heads) for heads in ablations[1:])])

    numbers = [
        {
            "accuracy": 100
            * float(accuracy.correct(control_units, whole.class_weights, whole.labels).mean()),
            **{kind: subject.whole(kind).max_skew(units) for kind in ("gender", "skin tone")},
        }
        for units, control_units in zip(embedded(whole.people), embedded(whole.things), strict=True)
    ]
    zeroed, at_mean = numbers[1 : len(ablations)], numbers[len(ablations) :]
    rows = [_row("none", 1, numbers[0], numbers[0])]
    for kind in KINDS:
        places = [place for place, (plan, _) in enumerate(plans) if plan == kind]
        if places:
            means = (
                {key: float(np.mean([results[i][key] for i in places])) for key in numbers[0]}
                for results in (zeroed, at_mean)
            )
            rows.append(_row(kind, len(places), *means))
    return rows


def _row(plan: str, sets: int, zeroed: Mapping[str, float], at_mean: Mapping[str, float]) -> dict[str, str]:
    words = {"accuracy": "accuracy (%)", "gender": "MaxSkew by gender", "skin tone": "by skin tone"}
    digits = {"accuracy": 1}
    cells = {
        f"{word}: {replacement}": f"{numbers[key]:.{digits.get(key, 2)}f}"
        for key, word in words.items()
        for replacement, numbers in (("zero", zeroed), ("mean", at_mean))
    }
    return {"ablated": plan if sets == 1 else f"{plan}, {sets} sets", **cells}


if __name__ == "__main__":
    main()

"""Measure two ablations on fresh galleries: faces from seeds that weren't used for training or search.

    python -m research.world.fresh_galleries        # writes research/world/fresh_galleries.{json,md}

Each gallery has 600 synthetic faces from one seed. The unit of analysis is the gallery: each gives one
difference, and the interval is Student's t over galleries. The heads are those of the project's README (for
gender) and those of the bundled search for skin tone (`organism.search.json`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ccs
from ccs.files import write_text
from ccs_benchmark.bases import across_bases, t_quantile

SEEDS = range(72_000, 72_008)
README_HEADS, SEARCHED_HEADS = "L4.H1 L4.H3", "L4.H1 L4.H2 L4.H3"
CASES = (
    ("organism", "skin tone", SEARCHED_HEADS),
    ("organism-control", "skin tone", SEARCHED_HEADS),
    ("organism", "gender", README_HEADS),
    ("organism-control", "gender", README_HEADS),
)
HERE = Path(__file__).parent


def measure(model: str, attribute: str, heads: str, seeds: range = SEEDS) -> dict[str, Any]:
    """Measure one ablation on one fresh gallery per seed.

    Args:
        model: Name of a bundled model.
        attribute: "gender" or "skin tone".
        heads: Heads to ablate.
        seeds: Seeds of the galleries.

    Returns:
        Mean MaxSkew of each gallery before and after ablation, and the mean difference with its interval.
    """
    loaded, before, after = ccs.load(model), [], []
    for seed in seeds:
        gallery = ccs.open_gallery("world/faces", seed=seed)
        row = ccs.bias(loaded, gallery, attribute=attribute, ablate=heads).of("MaxSkew").loc[["mean"]]
        before += row["before"].tolist()
        after += row["after"].tolist()
    differences = [new - old for new, old in zip(after, before, strict=True)]
    effect = across_bases(differences)
    return {
        "model": model,
        "attribute": attribute,
        "heads": heads,
        "seeds": list(seeds),
        "before": before,
        "after": after,
        "difference": effect.value,
        "low": effect.low,
        "high": effect.high,
        "standard_error": (effect.high - effect.value) / t_quantile(effect.n),
        "p_value": effect.p_value,
        "lower": sum(difference < 0 for difference in differences),
    }


def as_markdown(results: list[dict[str, Any]]) -> str:
    """Format the results as Markdown."""
    lines = [
        "# The demo's ablations on fresh galleries",
        "",
        f"`python -m research.world.fresh_galleries`: {len(SEEDS)} galleries of 600 synthetic faces (seeds "
        f"{SEEDS[0]} to {SEEDS[-1]}), mean MaxSkew over the occupations, t interval and sign-flip p over "
        "galleries.",
        "",
        "| model | attribute | ablated heads | before | after | difference [95% CI] | s.e. | p | lower in |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in results:
        n = len(case["seeds"])
        numbers = [f"{sum(case[column]) / n:.3f}" for column in ("before", "after")]
        numbers.append("{difference:+.3f} [{low:+.3f}, {high:+.3f}]".format(**case))
        numbers += [f"{case['standard_error']:.3f}", f"{case['p_value']:.3f}", f"{case['lower']} of {n}"]
        lines.append(f"| {case['model']} | {case['attribute']} | {case['heads']} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all cases and write the results."""
    results = [measure(*case) for case in CASES]
    write_text(HERE / "fresh_galleries.json", json.dumps(results, indent=1) + "\n")
    write_text(HERE / "fresh_galleries.md", as_markdown(results))
    print(as_markdown(results))


if __name__ == "__main__":
    main()

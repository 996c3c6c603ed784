"""Train and measure the five base models: `python -m research.bases --help`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
from scipy.stats import spearmanr

from ccs import paper
from ccs.analysis.inputs import embed_names
from ccs.batch.pages import in_brackets, markdown_table
from ccs.cli.command_line import Command
from ccs.cli.options import at_least
from ccs.files import write_text
from ccs_benchmark.bases import across_bases
from ccs_benchmark.documents import bring_up_to_date

if TYPE_CHECKING:
    from ccs.model.model import Model

HERE = Path(__file__).parent
MEASURED, README = HERE / "bases.json", HERE / "README.md"
SCENES, LINEUPS = 81_920, 1_536
SHOWN = 4_000
"""Images per dataset for accuracy. The bundled 300 images would give a standard error of up to 3 points."""
NUMBERS = (5, 7, 9, 11, 13)
"""Values of K, the number of texts per head."""
PURE, MIXED = 0.9, 1 / 3
"""The smallest purity of a pure head, and that of a mixed one."""
_SKEW = ("gap gender", "gap skin tone", "MaxSkew gender", "MaxSkew skin tone")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Train the missing models, measure all, and write the README's tables.

    Existing files are kept, and the same command continues an interrupted training.
    """

    bases: Annotated[int, at_least(1)] = 5
    """Number of base models, of seeds 0, 1, ..."""
    runs: Path = Path("runs")
    """Folder for activations, checkpoints, and logs"""


def _run(args: Settings) -> None:
    _train(range(args.bases), args.runs)
    bring_up_to_date(README, "bases", written(_measure(MEASURED)), "python -m research.bases")
    print(README)


def _train(seeds: Sequence[int], runs: Path) -> None:
    from ccs_benchmark import variants
    from research.bases import organisms, training
    from research.planted.family import BASE
    from research.planted.frozen_images import Images

    missing = {
        s: file for s in seeds if not (file := variants.FOLDER / f"organism-base-{s}.safetensors").exists()
    }
    whole = organisms.missing()
    if not missing and not whole:
        return
    base = variants.load(BASE, device="auto")
    images = Images(base, runs, SCENES, LINEUPS)
    captions = training.Captions(images, runs)
    for seed, file in missing.items():
        trainer = training.Trainer(training.Settings(seed), base, images, captions)
        trainer.train(runs)
        trainer.write(file)
    for name in whole:
        organisms.make(name, base, images, captions, runs)


def _measure(file: Path) -> dict[str, dict[str, Any]]:
    """Measure each model; stored results of the same weights are reused."""
    from ccs.data.synthetic import CLASSES
    from ccs.heads import HeadSet
    from ccs_benchmark import variants
    from research.bases import organisms
    from research.planted.bench import Bench
    from research.planted.family import BASE
    from research.world import head_shares

    held = json.loads(file.read_text("utf-8")) if file.exists() else {}
    base = variants.load(BASE)
    bench, sets = Bench(base), {name: _accuracy(base, name) for name in CLASSES}
    bases = (name for name in variants.names() if name.startswith("organism-base-"))
    for name in (BASE, *organisms.WORLDS, *bases):
        model = variants.load(name)
        key = {"weights": model.weights_hash, "numbers": list(NUMBERS), "images": SHOWN}
        if key.items() <= held.get(name, {}).items():
            continue
        scores_by_k = bench.consistencies(model, NUMBERS)
        held[name] = key | {
            "ccs": {
                str(k): {str(head): score.ccs for head, score in head_scores.items()}
                for k, head_scores in scores_by_k.items()
            },
            "purity": {
                str(head): max(factor_shares.values())
                for head, factor_shares in head_shares.measured(model).items()
            },
            "accuracy": {name: right(model) for name, right in sets.items()},
            **bench.show(model, [HeadSet()])[0],
        }
        write_text(file, json.dumps(held) + "\n")
    return dict(held)


def _accuracy(base: Model, name: str) -> Callable[[Model], float]:
    """Return a function that measures the accuracy of models that share the base's lower layers."""
    from ccs.data.synthetic import classification_set
    from ccs.metrics import accuracy

    things = classification_set(name, SHOWN)
    trunk = base.trunk(things.images)
    classes = embed_names(base, things.classes, things.templates)
    return lambda model: float(accuracy.correct(model.embed_images(trunk), classes, things.labels).mean())


def written(held: dict[str, dict[str, Any]]) -> str:
    """Write the README's tables: CCS levels, accuracy, bias, and the correlation of CCS with purity."""
    levels, gaps, right = [], [], []
    for name, measured in held.items():
        counted = Counter(max(ccs, 1) for ccs in measured["ccs"]["5"].values())
        columns = {5: "CCS 5", 4: "4", 3: "3", 2: "2", 1: "0 or 1"}
        levels.append({"model": name, **{title: str(counted[at]) for at, title in columns.items()}})
        gaps.append({"model": name, **{metric: f"{measured[metric]:.2f}" for metric in _SKEW}})
        right.append(
            {"model": name, **{set_name: f"{share:.1%}" for set_name, share in measured["accuracy"].items()}}
        )
    for studied in paper.models():  # the paper prints three levels only
        printed = paper.head_sets(studied.paper_name)
        of = {level: f"{len(level_heads)} of {len(studied.heads)}" for level, level_heads in printed.items()}
        levels.append(
            {"model": studied.paper_name, "CCS 5": of["high"], "3": of["moderate"], "0 or 1": of["low"]}
        )
    tables = (markdown_table(pd.DataFrame(rows).fillna("–")) for rows in (levels, right, gaps))
    return "\n\n".join([*tables, purity(held)])


def purity(held: dict[str, dict[str, Any]]) -> str:
    """Correlate CCS with purity at each K, over the heads of the base models."""
    bases = {name: measured for name, measured in held.items() if name.startswith("organism-base-")}
    rows = []
    for k in NUMBERS:
        heads = pd.DataFrame(
            {"base": name, "ccs": measured["ccs"][str(k)][head], "purity": head_purity}
            for name, measured in bases.items()
            for head, head_purity in measured["purity"].items()
        )
        pure, high = heads["purity"] >= PURE, heads["ccs"] == k
        mixed = heads["purity"].between(MIXED, PURE, inclusive="left")
        between = ~high & (heads["ccs"] > k // 5)
        by_base = [
            spearmanr(base_heads["ccs"], base_heads["purity"])[0] for _, base_heads in heads.groupby("base")
        ]
        rho = across_bases(by_base)
        rows.append(
            {"K": str(k), "rank correlation": in_brackets(rho, 2)}
            | {"by base": ", ".join(f"{base_rho:.2f}" for base_rho in by_base)}
            | _precision_and_recall("pure", pure, high)
            | _precision_and_recall("mixed", mixed, between)
        )
    return (
        "*Purity* is the largest share of a head's variance that one factor of the images explains. *Rank "
        "correlation*: of CCS with purity over the heads of a base model, mean over base models with "
        f"Student's 95% interval. *Pure*: purity of {PURE:.0%} or more, predicted by a CCS of K. *Mixed*: "
        "purity from a third, predicted by a CCS between low and high."
        f"\n\n{markdown_table(pd.DataFrame(rows))}"
    )


def _precision_and_recall(kind: str, there: pd.Series, flagged: pd.Series) -> dict[str, str]:
    """Return precision and recall of flagging heads."""
    hits = int((there & flagged).sum())
    of = {"precision": int(flagged.sum()), "recall": int(there.sum())}
    shares = {name: f"{hits / n:.0%}" if n else "–" for name, n in of.items()}
    return {f"{kind}: {name}": f"{shares[name]} ({hits} of {n})" for name, n in of.items()}


main = Command(Settings, _run, interrupted="Stopped; the same command continues where it stopped.")

if __name__ == "__main__":
    sys.exit(main())

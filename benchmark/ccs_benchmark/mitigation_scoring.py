"""Cells and tables of mitigations: one cell is one mitigation on one model, attribute, and split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from ccs.analysis.evidence import Subject
from ccs.analysis.inputs import embed_names
from ccs.analysis.mitigate import Half
from ccs.analysis.mitigations import NOTHING, Fitted, Mitigation, Units, masked_heads
from ccs.data import synthetic
from ccs.errors import InputError
from ccs.metrics import accuracy, bias
from ccs.model.encoder import Trunk
from ccs.model.model import Model
from ccs_benchmark import planted_models, variants
from ccs_benchmark.mitigations import METHODS, SHARED, UNLABELED
from ccs_benchmark.protocol import one_pass, with_free_reading
from ccs_benchmark.scoring import (
    KEY,
    TOOK,
    by_model,
    joined,
    means,
    of_cases,
    read_cells,
    store_cells,
    synthetic_sets,
    with_stored_cells,
)

CELLS = Path(__file__).with_name("cells") / "mitigation.parquet"
ORACLE = "weights put back"
"""The oracle's name in the cells: the base model's weights replace those that learned the bias."""
BIAS = ("max_skew", "ndkl", "score_gap")
FIGURES = (*BIAS, "accuracy", "occupations", "retrieval", "other_skew", "moved", "group_accuracy")
CHANCE = tuple(f"{name}_chance" for name in BIAS)
COLUMNS = ("base", *KEY, *FIGURES, *CHANCE, "passes", "took", "where")
Tell = Callable[[str], None]
SHUFFLES = 20
"""Random groups, for the chance level of the group score gap."""
PAIRS = 100
"""Images with captions, for retrieval."""
OCCUPATIONS, RETRIEVAL = "occupations", "retrieval"


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images (a trunk), texts [c, d], and the index of each image's text: `labels` [n]."""

    images: Trunk
    texts: NDArray[np.float32]
    labels: NDArray[np.int64]


class BaseImages:
    """Activations of synthetic images in the layers that all models of a base model share.

    Args:
        base: The base model. Its models have the same text encoder.
    """

    def __init__(self, base: Model) -> None:
        self.base, (self.people, self.controls) = base, synthetic_sets()
        self.trunks = base.trunk(self.people.images), base.trunk(self.controls.images)
        self.extras = synthetic_extras(base)
        self._fresh: dict[int, Trunk] = {}

    def fresh_people(self, people: Any, seed: int) -> Trunk:
        """Return the activations of the fresh faces of a split.

        Args:
            people: The faces, which depend on the seed only.
            seed: Random seed for the split.
        """
        if seed not in self._fresh:
            self._fresh[seed] = self.base.trunk(people)
        return self._fresh[seed]


def synthetic_extras(model: Model) -> dict[str, LabeledImages]:
    """Return synthetic images of people at work with their props, and of scenes with captions."""
    workers, clips = synthetic.classification_set("occupations"), synthetic.retrieval_set(PAIRS)
    names = embed_names(model, workers.classes, workers.templates)
    captions = model.embed_texts([texts[0] for texts in clips.captions])
    frames = [clip[len(clip) // 2] for clip in clips.clips]
    return {
        OCCUPATIONS: LabeledImages(model.trunk(workers.images), names, workers.labels),
        RETRIEVAL: LabeledImages(model.trunk(frames), captions, np.arange(len(frames))),
    }


class ScoredHalf(Half):
    """Fresh faces, held-out prompts and control images, and further held-out images.

    Args:
        subject, attribute, seed: As for `Half`.
        images: Images embedded by the model's base.
    """

    def __init__(self, subject: Subject, attribute: str, seed: int, images: BaseImages) -> None:
        super().__init__(*subject.split(attribute, seed))
        self.extras = images.extras
        self.images |= {name: extra.images for name, extra in self.extras.items()}
        self.images["people"] = images.fresh_people(self.task.people, seed)

    @cached_property
    def chance_levels(self) -> dict[str, float]:
        """Chance levels of MaxSkew, NDKL, and group score gap, from random rankings or groups."""
        units, rng = self.before["people"], np.random.default_rng(0)
        shuffled = [replace(self.task, groups=rng.permutation(self.task.groups)) for _ in range(SHUFFLES)]
        measured = bias.measure(units, self.task, draws=40)
        return {
            "max_skew_chance": measured.max_skew.chance_mean.value,
            "ndkl_chance": measured.metrics["NDKL"].chance_mean.value,
            "score_gap_chance": float(np.mean([task.score_gap(units) for task in shuffled])),
        }

    def judge(self, options: Sequence[Fitted], model: Model | None = None) -> list[dict[str, float]]:
        """Return FIGURES of each option.

        Args:
            options: The mitigations.
            model: Another model with the same lower layers and text encoder.
        """
        embedded = self.embed_options(options, model)
        return [self.figures(option, units) for option, units in zip(options, embedded, strict=True)]

    def figures(self, fitted: Fitted, units: Mapping[str, Units]) -> dict[str, float]:
        """Compute FIGURES of an option from its embeddings; accuracies are shares of 1.

        Args:
            fitted: The mitigation.
            units: Name of a set of images -> embeddings.
        """
        people, task = units["people"], fitted.on_task(self.task)
        measured = bias.measure(people, task, draws=40).metrics
        skews = {name: metric.mean.value for name, metric in measured.items()}
        extras = {
            name: _share_right(units[name], fitted.on_texts(extra.texts), extra.labels)
            for name, extra in self.extras.items()
        }
        return {
            "max_skew": skews["MaxSkew"],
            "ndkl": skews["NDKL"],
            "score_gap": task.score_gap(people),
            "accuracy": _share_right(units["controls"], task.class_weights, task.labels),
            **{name: extras.get(name, math.nan) for name in (OCCUPATIONS, RETRIEVAL)},
            **self.side_effects(fitted, units),
        }


def _share_right(units: Units, texts: NDArray[np.float32], labels: Any) -> float:
    return float(accuracy.correct(units, texts, labels).mean())


def names() -> tuple[str, ...]:
    """Return the names of the benchmark's mitigations."""
    return tuple(METHODS)


def learned(name: str) -> tuple[str, tuple[str, ...], str]:
    """Look up the bias of a benchmark model.

    Args:
        name: Name of a bundled model, or a file with planted heads.

    Returns:
        Its base model, the attributes of its bias, and the start of its weights' hash.

    Raises:
        InputError: For another model.
    """
    if name in variants.names():
        facts = variants.known(name)
        attributes = ("gender", "skin tone") if facts.get("world") == "skewed" else ()
        return facts.get("base", name), attributes, variants.weights(name)
    truth = planted_models.truth(name)
    return truth.base, truth.attributes, planted_models.weights(name)


def score(
    method: Mitigation,
    models: Iterable[str] | None = None,
    splits: int = 1,
    *,
    tell: Tell = print,
) -> pd.DataFrame:
    """Measure how much a mitigation lowers a known bias, and what it costs, next to the known mitigations.

    Args:
        method: A function of `ccs.analysis.evidence.Evidence` that returns a `Fitted`.
        models: Names of models with a planted or learned bias. Default: those with stored cells of the known
            mitigations.
        splits: Number of independent splits into halves.
        tell: Function that is called with a line of text for each case.

    Returns:
        The `table`.

    Raises:
        InputError: For another model.
    """
    name = getattr(method, "__name__", "method")
    places = sorted(set(read_cells(CELLS)["model"])) if models is None else list(models)
    return table(with_stored_cells(run({name: method}, places, splits, tell=tell), CELLS))


def run(
    mitigations: Mapping[str, Mitigation],
    places: Sequence[str],
    splits: int,
    *,
    file: Path | None = None,
    tell: Tell = print,
) -> pd.DataFrame:
    """Measure mitigations, nothing, and the oracle.

    Args:
        mitigations: Name -> function from evidence to a `Fitted`.
        places: Names of models.
        splits: Number of splits into halves.
        file: File of cells. A case that has all its cells there isn't measured again.
        tell: Function that is called with a line of text for each case.

    Returns:
        The cells, a row per case and mitigation.
    """
    parts, wanted, images, known_base = [], {NOTHING: METHODS[NOTHING], **mitigations}, None, ""
    for place in sorted(places, key=lambda name: learned(name)[0]):
        (origin, attributes, weights), subject = learned(place), None
        for attribute, seed in product(attributes, range(splits)):
            case = dict(zip(KEY, (place, weights, attribute, seed), strict=False))
            there = of_cases(read_cells(file) if file else joined([]), pd.DataFrame([case]))
            if {*wanted, ORACLE} <= set(there["method"]):
                parts.append(there)
                continue
            if images is None or known_base != origin:
                images, known_base = BaseImages(variants.load(origin)), origin
            if subject is None:
                loaded = planted_models.load(place)
                subject = Subject(loaded, images.people, images.controls, images.trunks, fresh=True)
            tell(f"{place}, {attribute}, split {seed}")
            half = ScoredHalf(subject, attribute, seed, images)
            rows = [{"base": origin} | case | row for row in _cells(half, wanted, images.base)]
            parts.append(pd.DataFrame(rows, columns=list(COLUMNS)))
            if file:
                store_cells(parts[-1], file)
    return joined(parts)


def _cells(half: ScoredHalf, mitigations: Mapping[str, Mitigation], base: Model) -> list[dict[str, Any]]:
    """Measure the cells of one case, without the columns that name it."""
    fitted, costs, plain = dict[str, Fitted](), dict[str, float](), one_pass(half.evidence)
    evidence, spared = with_free_reading(half.evidence)
    with FlopCounterMode(display=False) as counted:
        if SHARED & set(mitigations):
            masked_heads(evidence)
    ranking = counted.get_total_flops() / plain
    for name, method in mitigations.items():
        with FlopCounterMode(display=False) as counted:
            fitted[name] = method(evidence)
        costs[name] = (counted.get_total_flops() - sum(spared)) / plain + ranking * (name in SHARED)
        spared.clear()
    figures = dict(zip(fitted, half.judge(list(fitted.values())), strict=True))
    figures[ORACLE] = half.judge([Fitted()], base)[0]
    took = 1 - figures[ORACLE]["score_gap"] / figures[NOTHING]["score_gap"]
    acts_on = {name: where(fit) for name, fit in fitted.items()} | {ORACLE: "weights"}
    rows = []
    for name, method_figures in figures.items():
        details = {"passes": costs.get(name, 0.0), "took": took, "where": acts_on[name]}
        rows.append({"method": name, **method_figures, **half.chance_levels, **details})
    return rows


def where(fitted: Fitted) -> str:
    """Return where a mitigation acts, in words."""
    parts = {"heads": fitted.heads, "image embeddings": fitted.images, "text embeddings": fitted.texts}
    return ", ".join(name for name, part in parts.items() if part) or "nowhere"


def table(cells: pd.DataFrame) -> pd.DataFrame:
    """Summarize cells: a row per mitigation, by rising MaxSkew, nothing and the oracle first.

    Args:
        cells: Cells of mitigations. Cases whose bias wasn't learned (TOOK) are left out.

    Returns:
        Means over base models of the means over their models, a model's attributes and splits averaged first,
        of each of FIGURES with Student's 95% interval over base models (`_low`, `_high`). MaxSkew, NDKL, and
        `score_gap` have chance levels (`_chance`). `accuracy` is on subjects, `occupations` with tools,
        `retrieval` is R@1; `other_skew` is MaxSkew by the other attribute, `moved` how far embeddings of
        subjects move. `passes`: the cost of fitting. `labels`: whether people's groups are needed. `where`:
        where it acts. `models`, `bases`, `cases`: how many.

    Raises:
        InputError: If no case is left.
    """
    took, models, rows = cells[cells["took"] >= TOOK], by_model(cells, FIGURES + CHANCE), []
    for name, method_cells in took.groupby("method"):
        theirs = models[models["method"] == name]
        row: dict[str, Any] = {"method": name, "models": len(theirs)}
        row |= {"bases": method_cells["base"].nunique(), "cases": len(method_cells)} | means(theirs, FIGURES)
        row |= {figure: float(theirs[figure].mean()) for figure in CHANCE}
        row |= {"passes": method_cells["passes"].median(), "where": method_cells["where"].iloc[0]}
        row["labels"] = name not in UNLABELED | {ORACLE}
        rows.append(row)
    if not rows:
        raise InputError("None of these models learned the bias.")
    rows.sort(key=lambda row: (row["method"] not in (NOTHING, ORACLE), row["max_skew"]))
    return pd.DataFrame(rows).set_index("method")

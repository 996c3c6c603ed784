"""Measure ablation and edits of the same heads on models with known bias, on held-out faces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccs.analysis.carriers import learned_mask
from ccs.analysis.evidence import Evidence, Reading, rank_heads
from ccs.analysis.inputs import embed_names
from ccs.analysis.mitigations import Affine, least_change
from ccs.analysis.task import Task, draw_people, make_task, on_people
from ccs.data import synthetic
from ccs.heads import Head, HeadSet, Intervention
from ccs.metrics import accuracy
from ccs.model.editing import DEFAULT_STRENGTH, Preserved, fit_edits
from ccs.model.encoder import Trunk
from ccs.model.model import Model
from ccs_benchmark import planted_models, variants
from ccs_benchmark.mitigation_scoring import learned

ATTRIBUTES = ("gender", "skin tone")
SIZES = (2, 4, 8)
"""Numbers of ablated heads, ranked by the learned mask."""
EDITED = 4
"""Number of edited heads, ranked by the learned mask. All heads are edited, too."""
WEAK = 0.5
"""A second strength of preservation, with which less is erased."""
FIT_SEED, TEST_SEED = 77, 40
"""Seeds of the labeled images to preserve (for fitting) and of the faces (for measuring)."""
NOTHING, LEACE = "nothing", "LEACE on embeddings"


class Images:
    """Activations that all models of a base model share, because they differ only from layer 4 on.

    Args:
        base: The base model.
    """

    def __init__(self, base: Model) -> None:
        self.faces = synthetic.bias_set()
        fresh = draw_people(self.faces, "gender", TEST_SEED)
        assert fresh is not None
        preserved_sets = [
            synthetic.classification_set(name, seed=FIT_SEED) for name in ("occupations", "subjects")
        ]
        self.labels = np.concatenate(
            [[f"{dataset.name} {label}" for label in dataset.labels] for dataset in preserved_sets]
        )
        self.controls = synthetic.classification_set("subjects")
        self.workers = synthetic.classification_set("occupations")
        self.seen = base.trunk(self.faces.images)
        trunk: Any = base.trunk(fresh.images)
        self.fresh = replace(fresh, images=trunk)
        self.preserved = Trunk.joined([base.trunk(dataset.images) for dataset in preserved_sets])
        self.tests = {dataset.name: base.trunk(dataset.images) for dataset in (self.controls, self.workers)}


def measure_case(model: Model, images: Images, attribute: str) -> pd.DataFrame:
    """Measure all conditions on one model and attribute.

    Args:
        model: A model with a bias.
        images: Activations of its base.
        attribute: The attribute to erase.

    Returns:
        A row per condition: `max_skew`, `other_skew` (MaxSkew by the other attribute), and accuracy on
        `occupations` and `subjects` as shares of 1.
    """
    task = make_task(model, images.faces, images.controls, attribute)
    task = replace(task, people=images.seen, controls=images.tests[images.controls.name])
    evidence = Evidence(model=model, task=task, names={}, read=_refuse_reading)
    order = rank_heads(learned_mask(evidence))
    conditions = dict(_conditions(model, images, attribute, order))
    unseen = on_people(task, images.fresh, attribute)
    people = model.embed_images(images.fresh.images, list(conditions.values()))
    tests = {
        name: model.embed_images(trunk, list(conditions.values())) for name, trunk in images.tests.items()
    }
    leace = _leace(model, images, evidence)
    rows = []
    for place, name in enumerate(conditions):
        units = {test: embedded[place] for test, embedded in tests.items()}
        rows.append({"condition": name} | _measure(model, images, unseen, attribute, people[place], units))
        if name == NOTHING:
            moved = {test: leace(embedded) for test, embedded in units.items()}
            rows.append(
                {"condition": LEACE} | _measure(model, images, unseen, attribute, leace(people[place]), moved)
            )
    return pd.DataFrame(rows).assign(heads=" ".join(map(str, order[: max(SIZES)])))


def _refuse_reading() -> Reading:
    raise AssertionError("The learned mask uses no texts.")


def _conditions(
    model: Model, images: Images, attribute: str, order: tuple[Head, ...]
) -> Iterator[tuple[str, HeadSet]]:
    def edited(heads: HeadSet, strength: float = 0.0) -> Intervention:
        """Return an intervention that erases the attribute from these heads.

        Args:
            heads: The heads.
            strength: The weight of the labeled images to preserve. Default: 0, none.
        """
        change = Intervention(dict.fromkeys(heads, f"erase:{attribute}"))
        preserve = Preserved(images.preserved, images.labels, strength=strength) if strength else None
        return fit_edits(model, change, images.seen, images.faces.groups, preserve)[0]

    yield NOTHING, HeadSet()
    for size in SIZES:
        yield f"ablation, {size}", HeadSet(order[:size])
    for name, heads in ((str(EDITED), HeadSet(order[:EDITED])), ("all", model.heads)):
        yield f"edit, {name}", edited(heads)
        yield f"edit at {DEFAULT_STRENGTH}, {name}", edited(heads, DEFAULT_STRENGTH)
    yield f"edit at {WEAK}, all", edited(model.heads, WEAK)


def _leace(model: Model, images: Images, evidence: Evidence) -> Affine:
    people, preserved = evidence.units, model.embed_images(images.preserved)
    return least_change(people, evidence.codes, np.concatenate([people, preserved]))


def _measure(
    model: Model,
    images: Images,
    unseen: Task,
    attribute: str,
    people: np.ndarray,
    tests: dict[str, np.ndarray],
) -> dict[str, float]:
    (other,) = set(ATTRIBUTES) - {attribute}
    row = {
        "max_skew": unseen.mean_max_skew(people),
        "other_skew": replace(unseen, groups=images.fresh.groups[other]).mean_max_skew(people),
    }
    for dataset in (images.workers, images.controls):
        weights = embed_names(model, dataset.classes, dataset.templates)
        right = accuracy.correct(tests[dataset.name], weights, dataset.labels)
        row[dataset.name.removeprefix("world/")] = float(right.mean())
    return row


def cases() -> list[tuple[str, str, str]]:
    """Return base model, model, and attribute of every case, models with a learned bias first."""
    names = [name for name in variants.names() if "natural" in name] + list(planted_models.names())
    all_cases = [(learned(name)[0], name, attribute) for name in names for attribute in learned(name)[1]]
    families = ("attention", "all", "planted", "mlps")
    family = {name: next(word for word in families if word in name) for _, name, _ in all_cases}
    return sorted(all_cases, key=lambda case: (families.index(family[case[1]]), case[0]))


def measure_cases(file: Path) -> None:
    """Measure the cases missing from a table, and add each when it is done."""
    base, images = "", None
    for origin, name, attribute in cases():
        known = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=["model", "attribute"])
        if ((known["model"] == name) & (known["attribute"] == attribute)).any():
            continue
        if origin != base or images is None:
            base, images = origin, Images(variants.load(origin))
        rows = measure_case(planted_models.load(name), images, attribute)
        rows = rows.assign(base=base, model=name, attribute=attribute)
        pd.concat([known, rows] if len(known) else [rows]).to_csv(file, index=False, float_format="%.5f")
        print(f"{name}, {attribute}: measured", flush=True)

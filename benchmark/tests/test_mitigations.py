"""Mitigations: their defining properties, slow references, and the score on held-out people."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

import ccs
import ccs_benchmark
from ccs import HeadSet, InputError
from ccs.analysis.evidence import group_means
from ccs.analysis.mitigations import Affine, Fitted, least_change, name_embeddings, span, why_not_in_weights
from ccs.analysis.task import halves, make_task
from ccs_benchmark import mitigation_scoring as scoring
from ccs_benchmark.mitigations import METHODS, NOTHING, UNLABELED, UNSAVED

pytestmark = pytest.mark.usefixtures("small")

PLANTED = "organism-planted-04"


def remaining_score_gap(evidence, fitted):
    """The group score gap after a mitigation, on the people that it was fitted on."""
    units = fitted.on_images(evidence.model.embed_images(evidence.people, fitted.heads))
    return replace(evidence.task, prompts=fitted.on_texts(evidence.prompts)).score_gap(units)


@pytest.mark.parametrize("name", [name for name in METHODS if name != NOTHING])
def test_mitigation_lowers_the_score_gap(evidence, name):
    fitted = METHODS[name](evidence)
    assert bool(why_not_in_weights(evidence.model, fitted)) == (name in UNSAVED)
    before = remaining_score_gap(evidence, Fitted())
    if name in ("heads of high CCS off", "as many at random off", "CLIP-clip", "SFID"):
        # not fitted to the groups, or on single dimensions
        assert remaining_score_gap(evidence, fitted) != before
    else:
        assert remaining_score_gap(evidence, fitted) < 0.9 * before
    assert set(scoring.where(fitted).split(", ")) <= {"heads", "image embeddings", "text embeddings"}


def test_unlabeled_mitigations_do_not_depend_on_groups(evidence):
    random_groups = np.random.default_rng(4).permutation(np.asarray(evidence.task.groups))
    other = replace(evidence, task=replace(evidence.task, groups=random_groups))
    for name in (*UNLABELED - {NOTHING}, "projection"):
        gaps = [remaining_score_gap(evidence, METHODS[name](variant)) for variant in (evidence, other)]
        assert (gaps[0] == gaps[1]) == (name in UNLABELED)


def test_projection_equalizes_group_means_only(evidence):
    fitted = METHODS["projection"](evidence)
    means = group_means(evidence.units, evidence.codes)
    moved = means @ fitted.images.matrix.T
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-12)
    np.testing.assert_array_equal(Affine.without(np.eye(3)[:2])(np.float32([[0, 0, 1]])), [[0, 0, 1]])


def test_leace_erases_groups_with_the_smallest_change():
    """Three groups with different means; no linear classifier finds them after the erasure."""
    rng, codes = np.random.default_rng(3), np.arange(600) % 3
    x = rng.standard_normal((600, 8)) @ rng.standard_normal((8, 8)) + 3 * rng.standard_normal((3, 8))[codes]
    erasure = least_change(x, codes, x)
    moved = x @ erasure.matrix.T + erasure.shift
    assert LogisticRegression(max_iter=5000).fit(x, codes).score(x, codes) > 0.9
    refitted = LogisticRegression(C=1e6, max_iter=5000).fit(moved, codes)
    assert np.abs(refitted.coef_).max() < 1e-3  # it predicts by the groups' shares
    means, moved_means = (np.stack([of[codes == code].mean(0) for code in range(3)]) for of in (x, moved))
    np.testing.assert_allclose(moved_means, moved_means[[0, 0, 0]], atol=1e-8)
    differences = (means - means.mean(axis=0))[:2]  # any erasure maps them to zero
    for scale in np.repeat((0.001, 0.03, 1.0), 50):
        noise = scale * rng.standard_normal((8, 8))
        other = erasure.matrix + noise - noise @ differences.T @ np.linalg.pinv(differences.T)
        np.testing.assert_allclose(other @ differences.T, 0, atol=1e-7)
        centered = x - x.mean(axis=0)  # an erasure moves least if it keeps the mean
        change = np.square(centered @ other.T - centered).sum(axis=1).mean()
        # up to the shrinkage of the covariance
        assert change > np.square(moved - x).sum(axis=1).mean() * (1 - 1e-3)


def test_closed_form_equalizes_both_shares(evidence):
    name_vectors = name_embeddings(evidence)
    (axis,) = span(name_vectors - name_vectors.mean(axis=0))
    unit = np.random.default_rng(1).standard_normal(len(axis))
    unit /= np.linalg.norm(unit)
    along_axis = axis * (axis @ unit)
    across_axis = unit - along_axis
    a, b = np.linalg.norm(along_axis), np.linalg.norm(across_axis)

    def at(t):
        return np.sqrt(1 - t**2) * across_axis / b + t * along_axis / a

    t = brentq(lambda t: t / a - (1 - at(t) @ unit) / (1 - b), 0, a)
    fitted = METHODS["closed form"](evidence)
    np.testing.assert_allclose(fitted.on_images(unit[None].astype(np.float32))[0], at(t), atol=1e-6)


def ablate_carriers(evidence):
    """A custom mitigation: ablate the planted heads, and drop the first dimension."""
    keep = np.eye(evidence.model.dim)
    keep[0, 0] = 0
    return Fitted(HeadSet(ccs_benchmark.truth(PLANTED).carriers("gender")), images=Affine(keep))


def test_mitigation_cell_equals_a_slow_copy_of_the_protocol(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "PAIRS", 10)
    file = tmp_path / "cells.parquet"
    cells = scoring.run({"ablate_carriers": ablate_carriers}, [PLANTED], 1, file=file)
    table = scoring.table(cells)
    assert {NOTHING, scoring.ORACLE} == set(table.index[:2])
    assert table.loc["ablate_carriers", "max_skew"] < table.loc[NOTHING, "max_skew"]
    row = cells[cells["attribute"] == "gender"].set_index("method").loc["ablate_carriers"]
    model, sets = ccs_benchmark.load(PLANTED), scoring.synthetic_sets()
    _, held_out = halves(make_task(model, *sets, "gender"), 0)
    faces = ccs.open_gallery("world/faces", seed=500_000)  # no method was fitted on them
    held_out = replace(held_out, people=faces.images, groups=faces.groups["gender"], k=faces.k["gender"])
    ablated = HeadSet(ccs_benchmark.truth(PLANTED).carriers("gender"))

    def mitigated_embeddings(images):
        units = model.embed_images(images, ablated)
        units[:, 0] = 0
        return units / np.linalg.norm(units, axis=1, keepdims=True)

    people, controls = map(mitigated_embeddings, (held_out.people, held_out.controls))
    assert row["max_skew"] == pytest.approx(held_out.mean_max_skew(people), abs=1e-6)
    assert row["score_gap"] == pytest.approx(held_out.score_gap(people), abs=1e-6)
    assert row["accuracy"] == ((controls @ held_out.class_weights.T).argmax(axis=1) == held_out.labels).mean()
    cosines = (controls * model.embed_images(held_out.controls)).sum(1)
    assert row["moved"] == pytest.approx(1 - cosines.mean(), abs=1e-5)
    assert row["where"] == "heads, image embeddings"
    before, after = (cells[cells["method"] == name].iloc[0] for name in (NOTHING, scoring.ORACLE))
    assert before["took"] == pytest.approx(1 - after["score_gap"] / before["score_gap"])
    # All cells are read from the file.
    assert len(scoring.run({"ablate_carriers": None}, [PLANTED], 1, file=file)) == len(cells)


def test_only_models_with_a_learned_skew_are_scored():
    with pytest.raises(InputError, match="isn't a model with a planted bias"):
        scoring.score(ablate_carriers, ["organism"])
    row = {"base": "b", "model": "m", "weights": "w", "attribute": "gender", "seed": 0, "method": NOTHING}
    row |= dict.fromkeys((*scoring.FIGURES, *scoring.CHANCE), 0.5) | {"passes": 1.0, "where": "nowhere"}
    with pytest.raises(InputError, match="None of these models learned"):
        scoring.table(pd.DataFrame([row | {"took": 0.1}]))
    took = [row | {"took": 0.8}, row | {"took": 0.8, "model": "n", "max_skew": 0.7}]
    table = scoring.table(pd.DataFrame(took))
    assert table.loc[NOTHING, ["max_skew", "models", "bases"]].tolist() == [0.6, 2, 1]

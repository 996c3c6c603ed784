"""Scores of localization methods: protocol, stored cells, means over base models, and natural track."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy

import ccs
import ccs_benchmark
from ccs import Head, HeadSet, InputError
from ccs.analysis import carriers, localize
from ccs.analysis.evidence import Evidence, group_names, rank_heads
from ccs.analysis.task import halves, make_task
from ccs.metrics import stats
from ccs_benchmark import natural, protocol, scoring, separation
from ccs_benchmark.__main__ import main
from ccs_benchmark.bases import across_bases
from ccs_benchmark.methods import METHODS, RANDOM
from ccs_benchmark.protocol import average_precision, cramers_v, precision
from ccs_benchmark.scoring import PLANTED

pytestmark = pytest.mark.usefixtures("small")

NAME = "organism-planted-16"
CARRIERS = "L4.H5 L6.H0"


def carriers_first(evidence):
    """A custom method that knows the planted heads."""
    planted = ccs_benchmark.truth(NAME).carriers("gender")
    return {head: float(head in planted) for head in evidence.model.heads}


def test_cell_equals_a_slow_copy_of_the_protocol():
    cells, failed = scoring.run({"direct": METHODS["direct effect"]}, [NAME], 1, attributes=["gender"])
    assert not failed
    row = cells.set_index("method").loc["direct"]
    model, sets = ccs_benchmark.load(NAME), scoring.synthetic_sets()
    fitted_half, held_out_half = halves(make_task(model, *sets, "gender"), 0)
    names = group_names("gender", ["man", "woman"])
    task = replace(fitted_half, people=model.trunk(fitted_half.people))
    evidence = Evidence(model=model, task=task, names=names, read=lambda: None)
    order = rank_heads(METHODS["direct effect"](evidence), 0)
    assert row["heads"] == " ".join(map(str, order))
    assert row["average_precision"] == average_precision(order, HeadSet.parse(CARRIERS))
    off = HeadSet(order[:2])
    before, after = model.embed_images(held_out_half.people, [HeadSet(), off])
    taken = held_out_half.mean_max_skew(before) - held_out_half.mean_max_skew(after)
    assert row["max_skew_taken"] == pytest.approx(taken, abs=1e-6)
    logits = model.embed_images(held_out_half.controls, [HeadSet(), off]) @ held_out_half.class_weights.T
    before, after = (logits.argmax(2) == held_out_half.labels).mean(1)
    assert row["accuracy_lost"] == pytest.approx(before - after)
    assert row["passes"] == pytest.approx(1, abs=0.1)


def fail(evidence):
    return {}["nothing"]


def test_custom_method_is_scored_and_a_failing_one_reported(capsys, tmp_path):
    table = ccs_benchmark.score(carriers_first, models=NAME, splits=1)
    assert f"{NAME}, gender, split 0" in capsys.readouterr().out
    assert table.index[0] == PLANTED
    assert table.loc["carriers_first", "average_precision"] > 0.5

    command = ["--models", NAME, "--splits", "1", "--cells", str(tmp_path / "cells.parquet")]
    assert main([*command, "--attribute", "gender", "--method", "benchmark.tests.test_scoring:fail"]) == 2
    assert "fail failed: KeyError: 'nothing' (test_scoring.py, line" in "".join(capsys.readouterr())
    methods = {"bad": protocol.checked("bad", lambda _: {}), "random": METHODS["random"]}
    cells, failed = scoring.run(methods, [NAME], 1, attributes=["gender"])
    assert failed == {"bad": "The method bad returned no score for L4.H0."}
    assert set(cells["method"]) == {PLANTED, "random"}


def test_repeated_run_computes_only_missing_cells(tmp_path):
    file, progress = tmp_path / "cells.parquet", []
    options = {"file": file, "attributes": ["gender"], "tell": progress.append}
    methods = {"random": METHODS["random"]}
    first, _ = scoring.run(methods, [NAME], 1, **options)
    again, _ = scoring.run(methods, [NAME], 1, **options)
    assert len(progress) == 1
    pd.testing.assert_frame_equal(again.reset_index(drop=True), first.reset_index(drop=True))
    all_cells, _ = scoring.run(methods | {"CAV": METHODS["concept activation vectors"]}, [NAME], 2, **options)
    assert [line.split(": ")[1] for line in progress] == ["random", "CAV", "random, CAV"]
    assert len(all_cells) == len(scoring.read_cells(file)) == 6
    scoring.store_cells(scoring.read_cells(file).assign(weights="0" * 16, seed=5), file)
    assert set(scoring.read_cells(file)["weights"]) == {"0" * 16}  # cells of other weights replace them


def test_scores_are_means_over_equally_weighted_models():
    known = {"weights": "w", "took": 0.8, "passes": 2.0, "heads": ""}
    rows = [
        known
        | {"model": model, "base": model, "attribute": attribute, "seed": seed, "method": method}
        | dict.fromkeys(scoring.FIGURES, value)
        for model, attributes in (("a", ("gender", "skin tone")), ("b", ("gender",)))
        for attribute, seed in product(attributes, range(2))
        for method, value in (("one", 0.8 if model == "a" else 0.4), ("two", 0.3))
    ]
    weak = [row | {"model": "c", "base": "c", "took": 0.1} for row in rows[:2]]
    table = scoring.table(pd.DataFrame(rows + weak), "one")
    assert table.loc["one", "average_precision"] == pytest.approx(0.6)
    assert table.loc["two", "models"] == 2
    assert table.loc["two", "difference"] == pytest.approx(0.3)
    assert table.loc["one", "average_precision_low"] < 0.6 < table.loc["one", "average_precision_high"]
    with pytest.raises(InputError, match="None of these models learned"):
        scoring.table(pd.DataFrame(weak))


def test_localize_compares_carriers_with_random_sets():
    people, controls = scoring.synthetic_sets()
    model = ccs_benchmark.load(NAME)
    result = ccs.localize(model, people, attribute="gender", method=carriers_first, preserve=controls)
    assert set(result.heads) <= set(HeadSet.parse(CARRIERS))
    assert result.rows[result.rows["carries"]]["head"].tolist() == list(map(str, result.heads))
    skews = result.effects[result.effects["metric"] == "MaxSkew"].set_index("ablation")
    assert skews.loc["carriers", "after"] < skews.loc["carriers", "before"] == skews.loc["none", "after"]
    drawn = [HeadSet.parse(heads) for heads in skews.loc["random:layers", "heads"]]
    assert len(set(drawn)) == len(drawn) == 5  # the five other heads of its layer
    assert [head.layer for head in drawn[0]] == sorted(head.layer for head in result.heads)
    assert all(len(heads) == len(result.heads) for heads in drawn)
    assert 0 < result.p_value <= 1


def test_carriers_end_where_two_more_heads_lower_no_gap():
    for gaps, expected_count in (
        ((1.0, 0.5, 0.2, 0.19, 0.18, 0.18), 2),
        ((1.0, 0.96, 0.1, 0.09, 0.09, 0.09), 2),  # the first has an effect only together with the second
        ((1.0, 0.5, 0.49, 0.47, 0.2, 0.2), 1),  # a later effect is ignored
        ((1.0, 0.97, 0.95, 0.5, 0.5, 0.5), 0),
        ((1.0, 1.1, 1.2, 1.2, 1.2, 1.2), 0),
        ((0.0,) * 6, 0),
    ):
        order = [Head(4, number) for number in range(5)]
        evidence = SimpleNamespace(score_gap_without=lambda ablated, gaps=gaps: gaps[len(ablated)])
        assert localize.first_carriers(evidence, order) == tuple(order[:expected_count])
        assert protocol.names_any(evidence, order) == (expected_count > 0)


def test_rankings_are_scored_against_planted_heads():
    order = [Head(0, h) for h in (3, 1, 4, 0, 2)]
    planted = HeadSet([Head(0, 3), Head(0, 4)])
    assert average_precision(order, planted) == pytest.approx((1 + 2 / 3) / 2)
    assert precision(order, planted) == 0.5
    assert average_precision(order, HeadSet([Head(0, 3), Head(9, 9)])) == 0.5
    with pytest.raises(InputError, match="planted"):
        precision(order, HeadSet())


def test_cramers_v_equals_manual_value():
    prompts, groups = np.eye(2), ["a"] * 4 + ["b"] * 4
    people = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 0]]
    assert cramers_v(people, prompts, groups) == pytest.approx(0.5)  # chi square 2 of 8 people
    assert cramers_v(np.eye(2)[[0] * 8], prompts, groups) == 0


def test_agreement_weighs_the_strongest_heads_most():
    shares = {Head(4, n): share for n, share in enumerate((0.5, 0.3, 0.1, 0.05, 0.03, 0.02))}
    right = tuple(shares)
    first, last = [right[1], right[0], *right[2:]], [*right[:4], right[5], right[4]]
    agreements = [natural.agreement(order, shares) for order in (right[::-1], first, last, right)]
    assert agreements == sorted(agreements)
    assert (agreements[0], agreements[-1]) == pytest.approx((-1, 1))


def test_true_shares_get_the_best_natural_scores(tmp_path):
    name, file = "organism-natural-0-attention", tmp_path / "cells.parquet"
    attribute, shares = next(iter(natural.truth(name).items()))
    methods = {"true shares": lambda _: dict(shares), RANDOM: METHODS[RANDOM]}
    cells, failed = scoring.run(methods, [name], 1, track=scoring.NATURAL, attributes=[attribute], file=file)
    assert not failed
    table = scoring.table(cells, "true shares", scoring.NATURAL)
    assert table.index[0] == natural.TRUTH
    figures = table.loc["true shares", ["gap_share", "agreement", "area"]].tolist()
    assert figures == pytest.approx([1, 1, 1], abs=0.01)  # equal shares have no order
    assert table.loc["true shares", "max_skew_taken"] == table.loc[natural.TRUTH, "max_skew_taken"]
    assert table.loc[RANDOM, "gap_share"] < 0.6
    assert table.loc[RANDOM, "difference"] > 0
    assert list(scoring.read_cells(file)["method"]) == sorted([natural.TRUTH, "true shares", RANDOM])


def test_reported_reliability_equals_bundled_cells():
    for place, track in enumerate((scoring.PLANTED_HEADS, scoring.NATURAL)):
        cells = scoring.read_cells(track.file)
        table = scoring.table(cells[~cells["base"].isin(scoring.DEVELOPMENT)], track=track)
        for name, known in carriers.RELIABILITY.items():
            assert table.loc[name, track.figures[0]] == pytest.approx(known[place], abs=0.0051)
    assert set(carriers.METHODS) < set(carriers.RELIABILITY)


def test_methods_without_a_difference_share_a_letter():
    rng = np.random.default_rng(0)
    levels = {"a": 1.0, "b": 0.95, "c": 0.5, "d": 0.45, "e": 0.1}
    rows = [
        {"base": base, "model": base, "method": method, "score": level + rng.normal(0, 0.08)}
        for base in "vwxyz"
        for method, level in levels.items()
    ]
    marks, detectable = separation.display(pd.DataFrame(rows), list(levels), "score")
    for row in separation.differences(pd.DataFrame(rows), list(levels), "score").itertuples():
        shared = bool(set(marks[row.first]) & set(marks[row.second]))
        assert shared == (row.low <= 0 <= row.high)
    assert not set(marks["a"]) & set(marks["e"])
    assert 0.05 < detectable < 0.4


@pytest.mark.parametrize(("n", "lowest_p", "detectable"), [(2, 0.5, 16.33), (5, 0.0625, 3.76)])
def test_means_over_bases_have_t_intervals(n, lowest_p, detectable):
    base_of = np.repeat(np.arange(n), 2)  # two models of each base
    values = 0.3 + np.random.default_rng(n).normal(size=2 * n)
    effect = across_bases(values, base_of)
    assert effect.p_value >= lowest_p
    means = values.reshape(n, 2).mean(axis=1)
    expected = scipy.stats.ttest_1samp(means, 0).confidence_interval()
    assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high))
    assert across_bases(np.abs(means)).p_value == lowest_p
    assert stats.minimum_detectable(effect) == pytest.approx(scipy.stats.sem(means) * detectable, rel=2e-3)


def test_single_base_has_an_infinite_interval():
    effect = across_bases([0.4, 0.6], ["a", "a"])
    assert (effect.value, effect.p_value, effect.low) == (0.5, 1.0, -np.inf)
    with pytest.raises(InputError, match="one per value"):
        across_bases([0.4], ["a", "b"])

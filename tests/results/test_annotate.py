"""The sheet for people is blind, stratified and checked when it is read; the agreement table."""

import math
import shutil
from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest

from ccs import results
from ccs.batch import annotate
from ccs.metrics import agreement
from tests.support.results_sample import HASH, write_results

MODELS = ("organism", "organism-control", "ViT-B-32/openai")
JUDGES = ("a judge", "b judge", "tags")
read = partial(pd.read_csv, dtype=str, keep_default_na=False)


def judgment_rows(model, seed):
    """Judgments of three judges on 60 texts; now and then one is unscored."""
    rng, rows = np.random.default_rng(seed), []
    for head, rank, judge in product(range(12), range(5), JUDGES):
        row = {"model": model, "weights": HASH[:16], "layer": 6, "head": head, "rank": rank, "judge": judge}
        row |= {"text": f"text {head}-{rank}, said {model}", "label": f"Concept {head % 3}", "reason": ""}
        verdict = rng.choice(np.array([True, False, None]), p=[0.7, 0.27, 0.03])
        rows.append(row | {"verdict": verdict, "cause": "refusal" if verdict is None else ""})
    return rows


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for seed, model in enumerate(MODELS):
        write_results(folder, model, {"judgments": judgment_rows(model, seed)})
    return folder


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Intervals of 20 draws: test_agreement.py has those of as many as a user gets."""
    for measure in (agreement.compare_with_people, agreement.krippendorff_alpha):
        monkeypatch.setitem(measure.__kwdefaults__, "draws", 20)


def pairs_in(folder):
    models = results.load(folder).models.values()
    return [pair for model_results in models for pair in annotate.pairs_of(model_results.table("judgments"))]


def fill(path, pairs, answer, spoil=lambda rows: None):
    """Write answers into a sheet: `answer(pair)` for each row; `spoil` may change the rows after that."""
    known = {pair.id: pair for pair in pairs}
    rows = read(path).to_dict("records")
    for row in rows:
        row["answer"] = answer(known[row["id"]])
    spoil(rows)
    pd.DataFrame(rows).to_csv(path, index=False)


def panel_says(pair):
    return "yes" if all(pair.verdicts.values()) else "No"


def test_the_sample_is_stratified(collection):
    pairs = pairs_in(collection)
    chosen = annotate.sample(pairs, 100, seed=1)
    assert len({pair.id for pair in chosen}) == 100

    def strata(subset, model):
        scored = [[*pair.verdicts.values()] for pair in subset if pair.model == model]
        return Counter(votes.count(True) for votes in scored if None not in votes)

    for model in MODELS:
        here, there = strata(chosen, model), strata(pairs, model)
        assert here.total() in (33, 34)
        for votes, count in there.items():
            assert abs(here[votes] - count * here.total() / there.total()) <= 1.5


def test_a_spreadsheet_runs_no_text(tmp_path):
    rows = [row | {"text": f"=SUM({i})", "label": "@x"} for i, row in enumerate(judgment_rows(MODELS[0], 0))]
    write_results(tmp_path, MODELS[0], {"judgments": rows})
    out, location = tmp_path / "sheet.csv", ["--results", str(tmp_path)]
    assert annotate.main(["export", *location, "--out", str(out)]) == 0
    assert {cell[:2] for cell in read(out)[["text", "concept"]].to_numpy().flat} == {"'=", "'@"}
    fill(out, pairs_in(tmp_path), panel_says)
    assert annotate.main(["import", str(out), *location, "--out", str(tmp_path / "found.parquet")]) == 0


def test_people_who_agree_with_the_panel_by_a_sheet_that_is_blind(collection, tmp_path, capsys):
    sheet, out = tmp_path / "ann.csv", tmp_path / "agreement.csv"
    location = ["--results", str(collection), "--out"]
    assert annotate.main(["export", *location, str(sheet)]) == 0
    assert annotate.main(["export", *location, str(sheet)]) == 2
    assert "may hold answers" in capsys.readouterr().err
    rows = read(sheet)
    known = {pair.id: [pair.id, pair.text, pair.concept, ""] for pair in pairs_in(collection)}
    assert [*rows] == ["id", "text", "concept", "answer"]
    assert rows.to_numpy().tolist() == [known[key] for key in rows["id"]]
    assert len(rows) == 100
    fill(sheet, pairs_in(collection), panel_says)
    arguments = ["import", str(sheet), *location, str(out)]
    assert annotate.main(arguments) == 0
    rows = pd.read_csv(out, keep_default_na=False, na_values={name: [""] for name in ("value", "published")})
    assert sorted(rows.model.unique()) == sorted([*MODELS, "all"])
    whole = rows[(rows.model == "all") & (rows.people == "ann") & (rows.judges == "panel")]
    metric_values = whole.set_index("metric").value
    assert list(metric_values[[*agreement.METRICS]]) == pytest.approx([1] * 4)  # all of the same verdicts
    assert (set(whole.n), set(rows.judges)) == ({100}, {"panel", *JUDGES})
    published = rows[rows.published.notna()]
    assert set(published.model) == {"ViT-B-32/openai"}
    printed = {"cohen_kappa": 0.821, "spearman_rho": 0.737, "kendall_tau": 0.781}
    assert dict(zip(published.metric, published.published, strict=True)) == printed


def test_several_people(collection):
    pairs = pairs_in(collection)
    chosen = annotate.sample(pairs, 40)
    ann = {pair.id: panel_says(pair) == "yes" for pair in chosen}
    bob = {key: yes if i % 4 else (None if i % 8 else not yes) for i, (key, yes) in enumerate(ann.items())}
    rows = pd.DataFrame(annotate.agreement_rows(pairs, {"ann": ann, "bob": bob}))
    whole = rows[rows.model == "all"].set_index(["people", "judges", "metric"])
    assert whole.loc[("ann", "panel", "cohen_kappa"), "value"] == 1
    assert whole.loc[("bob", "panel", "same"), "n"] == 35
    together = whole.loc[("people", "panel", "cohen_kappa")]
    assert together.value == 1  # where two people differ there is a tie, which is left out
    assert (together.n, together.left_out) == (35, 5)
    assert whole.loc[("people", "", "krippendorff_alpha")].value < 1
    assert not math.isnan(whole.loc[("", "panel", "krippendorff_alpha"), "value"])


def test_no_sheet_is_overwritten_or_mistaken_and_semicolons_are_read(collection, tmp_path, capsys):
    sheet, people, location = tmp_path / "ann.csv", tmp_path / "people.csv", ["--results", str(collection)]
    assert annotate.main(["export", *location, "--out", str(sheet), "--n", "6"]) == 0
    fill(sheet, pairs_in(collection), panel_says)
    shutil.copy(sheet, people)
    filled = sheet.read_bytes()
    for words, message in (
        (["import", str(sheet), "--out", str(sheet)], f"other than people.csv and --out {sheet}"),
        (["import", str(sheet), str(people)], "other than people.csv"),
        (["import"], "import takes sheets"),
        (["export", str(sheet)], "export takes none"),
    ):
        assert annotate.main([*words, *location]) == 2
        assert message in capsys.readouterr().err
    assert sheet.read_bytes() == filled
    out = ["--out", str(tmp_path / "agreement.csv")]
    for mark in ";\t":
        pd.read_csv(people).to_csv(sheet, sep=mark, index=False)
        assert annotate.main(["import", str(sheet), *location, *out]) == 0


def test_unknown_answers_are_named_by_row(collection, tmp_path, capsys):
    sheet, out, location = tmp_path / "ann.csv", tmp_path / "out.csv", ["--results", str(collection)]
    for spoil, message in (
        (lambda rows: rows[1].update(answer="maybe"), "row 3: 'maybe' is not an answer"),
        (lambda rows: rows[1].update(text="other"), "row 3: no pair in --results"),
        (lambda rows: rows.append(rows[0]), "row 8: the id"),
        (lambda rows: [row.update(answer="") for row in rows], "holds no answers"),
    ):
        sheet.unlink(missing_ok=True)
        assert annotate.main(["export", *location, "--out", str(sheet), "--n", "6"]) == 0
        fill(sheet, pairs_in(collection), lambda _: "y", spoil)
        assert annotate.main(["import", str(sheet), *location, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()

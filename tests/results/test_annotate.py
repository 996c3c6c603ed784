"""Annotation sheets for people: stratified, without verdicts, and checked on import; the agreement table."""

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
read_sheet = partial(pd.read_csv, dtype=str, keep_default_na=False)


def judgment_rows(model, seed):
    """Verdicts of three judges on 60 texts, a few of them missing."""
    rng, rows = np.random.default_rng(seed), []
    for head, rank, judge in product(range(12), range(5), JUDGES):
        row = {"model": model, "weights": HASH[:16], "layer": 6, "head": head, "rank": rank, "judge": judge}
        row |= {"text": f"text {head}-{rank}, said {model}", "label": f"Concept {head % 3}", "reason": ""}
        verdict = rng.choice(np.array([True, False, None]), p=[0.7, 0.27, 0.03])
        rows.append(row | {"verdict": verdict, "cause": "refusal" if verdict is None else ""})
    return rows


@pytest.fixture(scope="module")
def results_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for seed, model in enumerate(MODELS):
        write_results(folder, model, {"judgments": judgment_rows(model, seed)})
    return folder


@pytest.fixture(autouse=True)
def few_bootstrap_draws(monkeypatch):
    """20 draws; tests/metrics/test_agreement.py checks the intervals with the default number."""
    for measure in (agreement.compare_with_people, agreement.krippendorff_alpha):
        monkeypatch.setitem(measure.__kwdefaults__, "draws", 20)


def read_pairs(folder):
    models = results.load(folder).models.values()
    return [pair for model_results in models for pair in annotate.pairs_of(model_results.table("judgments"))]


def fill_sheet(path, pairs, answer, change=lambda rows: None):
    """Write `answer(pair)` into each row of a sheet, then apply `change` to its rows."""
    pair_by_id = {pair.id: pair for pair in pairs}
    rows = read_sheet(path).to_dict("records")
    for row in rows:
        row["answer"] = answer(pair_by_id[row["id"]])
    change(rows)
    pd.DataFrame(rows).to_csv(path, index=False)


def panel_answer(pair):
    return "yes" if all(pair.verdicts.values()) else "No"


def test_sample_is_stratified_by_model_and_votes(results_folder):
    pairs = read_pairs(results_folder)
    chosen = annotate.sample(pairs, 100, seed=1)
    assert len({pair.id for pair in chosen}) == 100

    def count_by_votes(subset, model):
        verdicts = [[*pair.verdicts.values()] for pair in subset if pair.model == model]
        return Counter(votes.count(True) for votes in verdicts if None not in votes)

    for model in MODELS:
        chosen_counts, counts = count_by_votes(chosen, model), count_by_votes(pairs, model)
        assert chosen_counts.total() in (33, 34)
        for votes, count in counts.items():
            expected = count * chosen_counts.total() / counts.total()
            assert abs(chosen_counts[votes] - expected) <= 1.5


def test_sheet_escapes_spreadsheet_formulas(tmp_path):
    rows = [row | {"text": f"=SUM({i})", "label": "@x"} for i, row in enumerate(judgment_rows(MODELS[0], 0))]
    write_results(tmp_path, MODELS[0], {"judgments": rows})
    sheet, location = tmp_path / "sheet.csv", ["--results", str(tmp_path)]
    assert annotate.main(["export", *location, "--out", str(sheet)]) == 0
    assert {cell[:2] for cell in read_sheet(sheet)[["text", "concept"]].to_numpy().flat} == {"'=", "'@"}
    fill_sheet(sheet, read_pairs(tmp_path), panel_answer)
    assert annotate.main(["import", str(sheet), *location, "--out", str(tmp_path / "table.parquet")]) == 0


def test_sheet_hides_verdicts_and_import_computes_agreement(results_folder, tmp_path, capsys):
    sheet, out = tmp_path / "ann.csv", tmp_path / "agreement.csv"
    location = ["--results", str(results_folder), "--out"]
    assert annotate.main(["export", *location, str(sheet)]) == 0
    assert annotate.main(["export", *location, str(sheet)]) == 2
    assert "may hold answers" in capsys.readouterr().err
    rows, pairs = read_sheet(sheet), read_pairs(results_folder)
    row_by_id = {pair.id: [pair.id, pair.text, pair.concept, ""] for pair in pairs}
    assert [*rows] == ["id", "text", "concept", "answer"]
    assert rows.to_numpy().tolist() == [row_by_id[key] for key in rows["id"]]
    fill_sheet(sheet, pairs, panel_answer)
    assert annotate.main(["import", str(sheet), *location, str(out)]) == 0
    rows = pd.read_csv(out, keep_default_na=False, na_values={name: [""] for name in ("value", "published")})
    assert sorted(rows.model.unique()) == sorted([*MODELS, "all"])
    of_all_models = rows[(rows.model == "all") & (rows.people == "ann") & (rows.judges == "panel")]
    values = of_all_models.set_index("metric").value
    assert list(values[[*agreement.METRICS]]) == pytest.approx([1] * 4)  # ann's answers are the panel's
    assert (set(of_all_models.n), set(rows.judges)) == ({100}, {"panel", *JUDGES})
    published = rows[rows.published.notna()]
    assert set(published.model) == {"ViT-B-32/openai"}
    printed = {"cohen_kappa": 0.821, "spearman_rho": 0.737, "kendall_tau": 0.781}
    assert dict(zip(published.metric, published.published, strict=True)) == printed


def test_agreement_of_several_people_leaves_out_ties(results_folder):
    pairs = read_pairs(results_folder)
    ann = {pair.id: panel_answer(pair) == "yes" for pair in annotate.sample(pairs, 40)}
    bob = {key: yes if i % 4 else (None if i % 8 else not yes) for i, (key, yes) in enumerate(ann.items())}
    rows = pd.DataFrame(annotate.agreement_rows(pairs, {"ann": ann, "bob": bob}))
    of_all_models = rows[rows.model == "all"].set_index(["people", "judges", "metric"])
    assert of_all_models.loc[("ann", "panel", "cohen_kappa"), "value"] == 1
    assert of_all_models.loc[("bob", "panel", "same"), "n"] == 35
    together = of_all_models.loc[("people", "panel", "cohen_kappa")]
    assert (together.value, together.n, together.left_out) == (1, 35, 5)
    assert of_all_models.loc[("people", "", "krippendorff_alpha")].value < 1
    assert not math.isnan(of_all_models.loc[("", "panel", "krippendorff_alpha"), "value"])


def test_sheets_are_not_overwritten(results_folder, tmp_path, capsys):
    sheet, reserved = tmp_path / "ann.csv", tmp_path / "people.csv"
    location = ["--results", str(results_folder)]
    assert annotate.main(["export", *location, "--out", str(sheet), "--n", "6"]) == 0
    fill_sheet(sheet, read_pairs(results_folder), panel_answer)
    shutil.copy(sheet, reserved)
    filled = sheet.read_bytes()
    for arguments, message in (
        (["import", str(sheet), "--out", str(sheet)], f"other than people.csv and --out {sheet}"),
        (["import", str(sheet), str(reserved)], "other than people.csv"),
        (["import"], "import takes sheets"),
        (["export", str(sheet)], "export takes none"),
    ):
        assert annotate.main([*arguments, *location]) == 2
        assert message in capsys.readouterr().err
    assert sheet.read_bytes() == filled
    for separator in ";\t":
        pd.read_csv(reserved).to_csv(sheet, sep=separator, index=False)
        assert annotate.main(["import", str(sheet), *location, "--out", str(tmp_path / "out.csv")]) == 0


def test_invalid_sheet_rows_are_rejected_by_number(results_folder, tmp_path, capsys):
    sheet, out, location = tmp_path / "ann.csv", tmp_path / "out.csv", ["--results", str(results_folder)]
    assert annotate.main(["export", *location, "--out", str(sheet), "--n", "6"]) == 0
    empty, pairs = sheet.read_bytes(), read_pairs(results_folder)
    for change, message in (
        (lambda rows: rows[1].update(answer="maybe"), "row 3: 'maybe' is not an answer"),
        (lambda rows: rows[1].update(text="other"), "row 3: no pair in --results"),
        (lambda rows: rows.append(rows[0]), "row 8: the id"),
        (lambda rows: [row.update(answer="") for row in rows], "holds no answers"),
    ):
        sheet.write_bytes(empty)
        fill_sheet(sheet, pairs, lambda _: "y", change)
        assert annotate.main(["import", str(sheet), *location, "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()

"""The report: published beside measured, and tests of the study's questions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ccs import paper, replication, results
from ccs.analysis.ablation_sets import ALIKE, PlanName
from ccs.batch import pages as document
from ccs.batch.report import build, published
from ccs.batch.report import questions as report_questions
from ccs.batch.report.__main__ import main as report
from ccs.errors import InputError
from ccs.metrics.stats import Ranked
from scripts import report as docs
from tests.support import report_sample
from tests.support.report_sample import line, run, section
from tests.support.results_sample import write


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return run(report_sample.write_results(folder / "results"), folder / "out")


def test_without_results_the_published_side_stands_alone():
    text = document.as_markdown(build(results.Collection({}, "nowhere"), None))
    for key, table in paper.tables().items():
        if key not in ("table4", "open_clip", "v1-table2", *replication.REPEATED):
            assert f"{table.number}. {table.title}" in text, key
    assert "| **All** |  | 496 | 0 | 0 |" in text
    table5 = section(text, "### Table 5. Zero-shot accuracy: CIFAR-10, CIFAR-100, Food-101")
    assert line(table5, "ViT-B-32-OpenAI")[1:4] == ["75.68", "71.31", "73.61"]


def test_published_beside_measured(measured):
    table5 = section(measured, "### Table 5. Zero-shot accuracy: CIFAR-10, CIFAR-100, Food-101")
    none = line(table5, "ViT-B-32-OpenAI", "cifar100/original")
    assert none[2:8] == ["65.08", "64.23", "[63.23, 65.23]", "-0.85", "✓", "none, cifar100"]
    assert none[8] == "64.23"  # open_clip's own
    assert line(table5, "", "column")[-1] == "with the heads found here"
    assert (none[-1], line(table5, "ViT-B-32-OpenAI", "cifar100/high")[-1]) == ("–", "–")
    high = line(table5, "ViT-B-32-OpenAI", "cifar100/high")
    assert high[2:8] == ["56.07", "20.00", "[19.00, 21.00]", "-36.07", "✗", "published-high, cifar100"]
    assert "*Heads found here: labels by " in table5
    cifar10 = line(table5, "ViT-B-32-OpenAI", "cifar10/original")
    assert (cifar10[3], cifar10[7], cifar10[9]) == ("75.68", "none, cifar10-jpeg", "89.83")
    assert line(table5, "ViT-B-32-OpenAI", "food101/low")[2:7] == ["82.12", "–", "–", "–", "–"]
    # A model without results keeps its printed row.
    assert line(table5, "ViT-L-14-LAION")[1:4] == ["88.29", "86.48", "88.19"]
    # The faulty metric beside the correct one and chance.
    table8 = section(measured, "### Table 8. MaxSkew@900 on FairFace, summed over 104 occupations")
    row = line(table8, "ViT-B-32-OpenAI", "race/original")
    assert (row[3], *row[6:8]) == ("61.8", "✓", "none, fairface-1.25, as-published")
    assert row[-2].startswith("20.0")
    assert row[-1] == "0.1 [0.1, 0.2]"


def test_an_organism_has_its_own_section_where_tests_answer_the_studys_questions(measured):
    own = measured.split("## Measured: organism\n")[1].split("\n## ")[0]
    accuracy = line(section(own, "### Accuracy by plan"), "high (8)")
    assert accuracy[1] == "50.0 (-40.0: -41.0 to -39.0)"
    assert "world/faces, race (K = 60 of 500): 0.090 [0.050, 0.200]" in own
    assert "mean MaxSkew in bf16 is within 0.0125 of float32's" in own
    against_none = line(measured, "accuracy (points): high off less none off", "–", "world/subjects")
    assert against_none[3:7] == ["-40.0", "-41.0 to -39.0", "–", "0.001"]
    assert against_none[7] == "0.002"  # Holm, of two tests
    assert against_none[9:] == ["-5.00", "confirmed"]
    against_random = line(measured, "MaxSkew: high off less random off", "number", "world/faces, race")
    assert (against_random[3], against_random[-1]) == ("-0.308", "confirmed")
    assert against_random[5:8] == ["1 of 61", "0.016", "0.016"]


def test_concentrated_concepts_by_layer_and_spelling(measured, tmp_path):
    """Two high heads of one concept in layer 5, none in layer 4; then with two spellings of it."""
    own = section(measured, "### Concentrated concepts")
    columns = ["high heads", "shared, as given", "CCR, as given", "shared, normalized", "CCR, normalized"]
    assert line(own, "layer")[1:] == columns
    assert line(own, "L4")[1:] == ["0", "0", "–", "0", "–"]
    assert line(own, "all")[1:] == line(own, "L5")[1:] == ["2", "1", "0.500", "1", "0.500"]
    spelled = [
        {key: row[key] for key in ("model", "weights", "layer", "head", "label")}
        | {"given": "colours" if row["head"] == 5 else "Colors", "labeler": "openai:gpt"}
        for row in report_sample.score_rows("m")
    ]
    tables = {"labels": spelled, "ccr": report_sample.ccr_rows("m", "colours"), "scores": []}
    for row, one in zip(report_sample.score_rows("m"), spelled, strict=True):
        tables["scores"].append(row | {"label": one["given"]})
    write(tmp_path / "two", "m", tables)
    measured = run(tmp_path / "two", tmp_path / "out")
    assert line(measured, "all", "2")[2:] == ["0", "0.000", "1", "0.500"]
    assert line(measured, "L5.H5")[1] == "colours (normalized: Colors)"


def test_a_strangers_text_is_one_line_of_one_cell_without_markup():
    grid = document.table(pd.DataFrame({"a|b": ["x"], "n": ["1|2"]}))
    assert grid.splitlines() == [r"| a\|b | n |", "| :--- | ---: |", r"| x | 1\|2 |"]
    evil = "x\n\n# Not measured\n<img src=//a.b/c.png> ![y](//a.b) < 3"
    safe = r"x # Not measured &lt;img src=//a.b/c.png> ![y]\(//a.b) < 3"
    assert document.table(pd.DataFrame({"name": [evil]})).splitlines()[2] == f"| {safe} |"
    nothing = {"printed": "", "tests": [], "answers": []}
    blocks = document.fill("report", source=evil, models=[evil], notices=[evil], **nothing)
    assert "\n".join(blocks).count(safe) == 3
    assert not any(line.startswith("# Not") for block in blocks for line in block.splitlines())


def test_people_beside_the_panel(tmp_path):
    base = {"model": "ViT-B-32/openai", "people": "ann", "judges": "panel", "n": 40, "left_out": 2}
    base |= {"value": 0.7, "low": 0.6, "high": 0.8}
    rows = [{**base, "metric": "cohen_kappa", "published": 0.821}, {**base, "metric": "same"}]
    pd.DataFrame(rows).to_parquet(tmp_path / "agreement.parquet")
    text = run(
        report_sample.write_results(tmp_path), tmp_path, "--agreement", f"{tmp_path}/agreement.parquet"
    )
    table4 = section(text, "### Table 4. Agreement of people with language models")
    shown = line(table4, "ViT-B-32/openai", "ann", "panel")[3:]
    assert shown == ["40", "0.70 [0.60, 0.80]", "0.821", "0.70 [0.60, 0.80]"]


def test_what_is_no_agreement_and_where_nothing_can_be_written_is_a_sentence(tmp_path, capsys):
    path = tmp_path / "agreement.parquet"
    for write_it, said in (
        (lambda: None, "There is no file"),
        (lambda: path.write_text("no parquet"), "not a readable parquet file"),
        (lambda: pd.DataFrame({"a": [1]}).to_parquet(path), "is not what"),
    ):
        write_it()
        with pytest.raises(InputError, match=said):
            published.read_agreement(path)
    assert report(["--results", str(tmp_path), "--out", str(path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def around(drawn, none, high, n=100):
    """A measure under each plan: random sets of all kinds at `drawn`, give or take 0.01."""
    rng, values = np.random.default_rng(0), {"none": none, "high": high}
    for name in map(str, map(PlanName.random, ALIKE)):
        values |= {f"{name}@{seed}": drawn + 0.01 * rng.normal() for seed in range(n)} | {name: drawn}
    return values


def model_of(changed, high, *, colors=100):
    """Random sets and the high heads lower every measure by about 0.1; these change one by `high`."""
    top1, skew, gap = (
        (0.5, 0.6, 0.6 + (high if name == changed else -0.1))
        for name in ("top1", "MaxSkew", report_questions.GAP)
    )
    pruning = report_sample.pruning_rows("organism", "world/subjects", around(*top1))
    pruning += report_sample.pruning_rows("organism", "world/colors", around(*top1, colors))
    bias = [
        row | {"metric": f"{name} mean", "attribute": attribute}
        for name, values in (("MaxSkew", skew), (report_questions.GAP, gap))
        for row in report_sample.bias_rows("organism", "world/faces", around(*values))
        if row["metric"] == "MaxSkew mean"
        for attribute in ("gender", "skin tone")
    ]
    tables = {"pruning": pd.DataFrame(pruning), "bias": pd.DataFrame(bias)}
    return results.Results("organism", Path(), tables, {})


@pytest.mark.parametrize(
    ("measure", "question", "high", "answer"),
    [
        ("top1", report_questions.HURT, -0.2, "confirmed"),
        ("top1", report_questions.HURT, -0.102, "inconclusive"),
        ("MaxSkew", report_questions.MORE, -0.2, "confirmed"),
        (report_questions.GAP, report_questions.NARROWS_MORE, 0.0, "rejected"),
    ],
)
def test_whether_high_heads_carry_more_than_random_sets_like_them(measure, question, high, answer):
    """The models differ in one measure alone, and so do the answers; two of them are the README's."""
    model = model_of(measure, high)
    found = [one for one in report_questions.by_model({"organism": model}) if one.alike]
    asked = {name: [one for one in found if one.question == name] for name in report_questions.QUESTIONS}
    said = {name: report_questions.said(tests) for name, tests in asked.items() if tests}
    readme = docs.answers({"organism": model})
    assert set(said) == {report_questions.HURT, report_questions.MORE, report_questions.NARROWS_MORE}
    for name, text in said.items():
        expected = answer if name == question else "inconclusive"
        assert text.startswith(f"organism: {expected} (")
        assert ("minimum detectable effect" in text) == (expected == "inconclusive")
        assert text.count("of 101 among sets alike in") == 3
        if name != report_questions.NARROWS_MORE:
            assert f"**{report_questions.QUESTIONS[name]}** {text.split(';')[0]}" in readme
    assert [one.alike for one in asked[question]] == list(ALIKE)
    (strictest,) = report_questions.strictest(asked[question])
    assert strictest.adjusted == max(one.adjusted for one in asked[question])
    by_set = [one for one in report_questions.tests_of(model) if one.alike and one.question == question]
    assert {one.answer for one in by_set} == {answer}


def test_a_set_with_only_some_of_the_random_sets_is_left_out():
    tests = [one for one in report_questions.tests_of(model_of("top1", -0.2, colors=3)) if one.alike]
    assert "world/colors" not in {one.where for one in tests}
    assert {one.effect.of for one in tests if isinstance(one.effect, Ranked)} == {101}

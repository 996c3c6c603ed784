"""The report on models that were trained together: searches, people beside judges."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from batch.report.sections import agreement as report_agreement
from batch.report.sections import questions
from ccs import results
from ccs.errors import InputError
from tests.support.organism_sample import write_organisms
from tests.support.report_sample import line, run, section


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organism, its control, and a search of the organism's heads."""
    return write_organisms(tmp_path_factory.mktemp("organisms") / "results")


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(folder, tmp_path_factory.mktemp("out"))[0]


def test_the_search_stands_beside_high_and_random_heads(report: str) -> None:
    own = section(report, "### Search: few heads, less skew")
    assert line(own, "searched", "L5.H5")[2:] == [
        "0.300 [0.200, 0.400]", "-0.300 (-0.350 to -0.250, p 0.010)", "89.0",
        "-1.0 (-2.0 to +0.0, p 0.200)", "✓",
    ]  # fmt: skip
    assert line(own, "random 0", "L4.H0 L4.H1")[-1] == "–"
    assert "The 2 high heads: MaxSkew -0.100" in own
    assert line(own, "none")[2] == "0.600 [0.500, 0.700] ⌈2"
    assert "found this very set 1 times of 2. How often each head was found: L5.H5 2, L5.H4 1." in own


def test_every_model_is_asked_every_question(folder: Path) -> None:
    models = results.load(folder).models
    found = questions.by_model(models)
    asked = [questions.HURT, questions.LOWERS, questions.MORE]  # of no logit gap in these tables
    assert [(one.question, one.where) for one in found] == [
        (question, model) for question in asked for model in models
    ]
    assert all(one.adjusted >= min(1, 2 * one.effect.p_value) for one in found)


def test_people_beside_the_panel(folder: Path, tmp_path: Path) -> None:
    base = {"model": "ViT-B-32/openai", "people": "ann", "judges": "panel", "n": 40, "left_out": 2}
    base |= {"value": 0.7, "low": 0.6, "high": 0.8}
    rows = [{**base, "metric": "cohen_kappa", "published": 0.821}, {**base, "metric": "same"}]
    pd.DataFrame(rows).to_parquet(tmp_path / "agreement.parquet")
    text, _ = run(folder, tmp_path / "out", "--agreement", str(tmp_path / "agreement.parquet"))
    table4 = section(text, "### Table 4. Agreement of people with language models")
    row = line(table4, "ViT-B-32/openai", "ann", "panel")
    assert row[3:] == ["40", "0.70 [0.60, 0.80]", "0.821", "0.70 [0.60, 0.80]"]


def test_what_is_no_agreement_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "agreement.parquet"
    with pytest.raises(InputError, match="There is no file"):
        report_agreement.read(path)
    path.write_text("no parquet")
    with pytest.raises(InputError, match="not a readable parquet file"):
        report_agreement.read(path)
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(InputError, match="is not what"):
        report_agreement.read(path)

"""The report: the paper's numbers next to measured ones."""

import pandas as pd
import pytest

from ccs import paper, results
from ccs.batch import pages, report
from tests.support.report_sample import MODEL, bias_rows, find_row, find_section, pruning_rows
from tests.support.results_sample import write_results

TABLE_5 = "## Table 5. Zero-shot accuracy: CIFAR-10, CIFAR-100, Food-101"


@pytest.fixture(scope="module")
def measured_report(tmp_path_factory):
    """The report on results of a model of the paper that agree in part."""
    folder = tmp_path_factory.mktemp("report")
    pruning = pruning_rows(MODEL, "cifar100", {"none": 0.6423, "published-high": 0.2})
    pruning += pruning_rows(MODEL, "cifar10-jpeg", {"none": 0.7568})
    pruning += pruning_rows(MODEL, "cifar10", {"none": 0.8983})
    faces = bias_rows(MODEL, "fairface-1.25", {"none": 20.0})
    faces += [row | {"attribute": "gender"} for row in faces]
    faces += bias_rows(MODEL, "fairface-1.25", {"none": 61.8}, "as-published")
    write_results(folder, MODEL, {"pruning": pruning, "bias": faces})
    assert report.main(["--results", str(folder), "--out", str(folder / "out")]) == 0
    return (folder / "out" / "report.md").read_text()


def test_report_without_results_lists_printed_numbers():
    text = report.build(results.Collection({}, "nowhere"))
    for key, table in paper.tables().items():
        if key not in ("table4", "open_clip", "v1-table2", *report.REPEATED):
            assert f"{table.number}. {table.title}" in text, key
    assert "| **All** |  | 496 | 0 | 0 |" in text
    assert find_row(find_section(text, TABLE_5), "ViT-B-32-OpenAI")[1:4] == ["75.68", "71.31", "73.61"]


def test_report_compares_printed_with_measured_accuracy(measured_report):
    table5 = find_section(measured_report, TABLE_5)
    unablated = find_row(table5, "ViT-B-32-OpenAI", "cifar100/original")
    assert unablated[2:] == ["65.08", "64.23", "[63.23, 65.23]", "-0.85", "✓", "none, cifar100", "–"]
    high = find_row(table5, "ViT-B-32-OpenAI", "cifar100/high")
    assert high[2:] == ["56.07", "20.00", "[19.00, 21.00]", "-36.07", "✗", "published-high, cifar100", "–"]
    assert find_row(table5, "ViT-B-32-OpenAI", "cifar10/original")[7] == "none, cifar10-jpeg"
    assert find_row(table5, "ViT-B-32-OpenAI", "food101/low")[2:7] == ["82.12", "–", "–", "–", "–"]


def test_report_adds_correct_max_skew_to_the_released_codes(measured_report):
    table8 = find_section(measured_report, "## Table 8. MaxSkew@900 on FairFace, summed over 104 occupations")
    race = find_row(table8, "ViT-B-32-OpenAI", "race/original")
    assert (race[3], *race[6:8]) == ("61.8", "✓", "none, fairface-1.25, as-published")
    assert race[-3].startswith("20.0")
    assert race[-2] == "0.1 [0.1, 0.2]"
    # The fault doesn't change MaxSkew by gender.
    gender = find_row(table8, "ViT-B-32-OpenAI", "gender/original")
    assert (gender[3], gender[7]) == ("20.0", "none, fairface-1.25, correct")


def test_untrusted_text_cannot_add_markup_to_a_report():
    table = pages.markdown_table(pd.DataFrame({"a|b": ["x"], "n": ["1|2"]}))
    assert table.splitlines() == [r"| a\|b | n |", "| :--- | ---: |", r"| x | 1\|2 |"]
    text = "x\n\n# Not measured\n<img src=//a.b/c.png> ![y](//a.b) < 3"
    escaped = r"x # Not measured &lt;img src=//a.b/c.png> ![y]\(//a.b) < 3"
    assert pages.markdown_table(pd.DataFrame({"name": [text]})).splitlines()[2] == f"| {escaped} |"
    page = report.build(results.Collection({}, text, [text]))
    assert page.count(escaped) == 2
    assert "\n# Not" not in page

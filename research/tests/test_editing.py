"""The document on edits reports the values of its table."""

import pandas as pd
import pytest

from research.editing import document


def make_cells(ablation, strong, weak):
    """Cells of two base models, in which nothing has MaxSkew 1 and accuracy 0.9.

    Args:
        ablation: MaxSkew and accuracy after ablation.
        strong: MaxSkew and accuracy after the strong edit.
        weak: MaxSkew and accuracy after the weak edit.
    """
    results = {"nothing": (1.0, 0.9), "edit at 0.5, all": weak, "edit at 0.1, all": strong}
    results |= dict.fromkeys(("ablation, 2", "ablation, 4", "ablation, 8"), ablation)
    return pd.DataFrame(
        [
            {"base": base, "condition": condition, "max_skew": skew, "occupations": accuracy - shift}
            for base, shift in (("base-0", 0.0), ("base-1", 0.1))
            for condition, (skew, accuracy) in results.items()
        ]
    )


def test_costs_are_compared_at_equal_skew():
    text = document.equal_skew(make_cells((0.5, 0.7), strong=(0.4, 0.8), weak=(0.6, 0.88)), "Learned bias")
    # halfway between 0.88 and 0.8: 6 points, against 20
    row = "20.0 [20.0, 20.0] | 6.0 [6.0, 6.0] | 14.0 [14.0, 14.0] | 2 of 2"
    assert text.count(row) == 3


def test_base_models_that_edits_do_not_bring_to_the_skew_are_counted():
    cells = make_cells((0.5, 0.7), strong=(0.4, 0.8), weak=(0.6, 0.88))
    cells.loc[(cells["base"] == "base-1") & (cells["condition"] == "ablation, 4"), "max_skew"] = 0.1
    assert document.equal_skew(cells, "Learned bias").count("1 of 2") == 1


@pytest.mark.parametrize("family", document.FAMILIES)
def test_bundled_cells_have_every_condition(family):
    cells = pd.read_csv(document.DOCS.parent / "research" / "editing" / "frontiers.csv")
    words = document.FAMILIES[family]
    of_kind = cells[cells["model"].str.contains("|".join(f"-{word}" for word in words))]
    assert (of_kind.groupby(["model", "attribute"])["condition"].nunique() == len(document.NAMES)).all()

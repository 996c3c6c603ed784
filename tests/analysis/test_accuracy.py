"""Worst-group accuracy on a dataset in the layout of Waterbirds: library, command, audit, and mitigation."""

import numpy as np
import pandas as pd
import pytest

import ccs
from ccs.batch import accuracy as command
from ccs.data import synthetic
from tests.support.datasets_sample import write_images


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """Twenty-four images of two classes, most of each class at one of two places."""
    folder, numbers = tmp_path_factory.mktemp("birds"), np.arange(24)
    names = write_images(folder, synthetic.classification_set("subjects", 24).images)
    table = {"img_id": numbers, "img_filename": names, "y": numbers % 2, "split": 2}
    table |= {"place": (numbers + (numbers % 5 == 0)) % 2}
    pd.DataFrame(table).to_csv(folder / "metadata.csv", index=False)
    return ccs.open_dataset(str(folder), classes=("landbird", "waterbird"))


def test_accuracy_of_each_class_and_group(birds, faces, tiny_model):
    assert list(birds.groups) == ["place"]
    table = ccs.accuracy(tiny_model, birds, attribute="place", ablate="L5.H2")
    texts = tiny_model.embed_texts([birds.templates[0].replace("{}", name) for name in birds.classes])
    for column, heads in (("before", None), ("after", ccs.HeadSet.parse("L5.H2"))):
        right = (tiny_model.embed_images(birds.images, heads) @ texts.T).argmax(axis=1) == birds.labels
        assert table.rows.set_index("class").loc["all", column] == pytest.approx(right.mean())
        for row in table.groups.to_dict("records"):
            of_class = birds.labels == birds.classes.index(row["class"])
            members = of_class & (birds.groups["place"] == row["group"])
            assert row["images"] == members.sum()
            assert row[column] == pytest.approx(right[members].mean())
    assert len(table.groups) == 4
    options = {"prompts": "traits", "attributes": ["gender"], "ablate": "L5.H2"}
    audit = ccs.audit(tiny_model, faces, dataset=birds, **options)
    assert audit.section("worst group")["after"].iloc[0] == table.groups["after"].min()


def test_command_prints_and_writes_accuracy(birds, tiny_model, tiny_folder, tmp_path, capsys):
    table = ccs.accuracy(tiny_model, birds, ablate="L5.H2")
    arguments = ["--model", str(tiny_folder), "--dataset", birds.source, "--ablate", "L5.H2"]
    options = ["--classes", "landbird, waterbird", "--csv", str(tmp_path / "rows.csv")]
    assert command.main([*arguments, *options]) == 0
    printed, errors = capsys.readouterr()
    assert f"Accuracy {table.rows.set_index('class').loc['all', 'after']:.1%} [" in printed
    assert "Warning: With all heads on " in errors
    written = pd.read_csv(tmp_path / "rows.csv")[["class", "before", "after"]]
    pd.testing.assert_frame_equal(written, table.rows[["class", "before", "after"]])
    assert command.main([*arguments, "--classes", "bird"]) == 2
    assert "has 2 classes, but 1 names were given" in capsys.readouterr().err


def test_mitigate_reports_worst_group_accuracy(birds, faces, tiny_model):
    table = ccs.mitigate(tiny_model, faces, preserve=birds, methods="projection")
    worst = table.rows[table.rows["metric"] == "worst-group accuracy"].set_index("method")
    assert worst["after"].between(0, 1).all()
    assert np.isfinite(table.parts["general"]).all()

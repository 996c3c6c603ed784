"""`ccs.bias` and its command, against the plain computation."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import ccs
from ccs import HeadSet, InputError
from ccs.analysis import ablation_sets, inputs
from ccs.analysis.inputs import MEAN
from ccs.batch import bias as command
from ccs.metrics import group_gaps
from ccs.results import schema
from tests.support import bias_sample, compute_sample, datasets_sample

OFF = HeadSet.parse("L4.H1 L5.H2")


def figure(table, occupation, metric, column="after"):
    return table.rows.set_index(["occupation", "metric"]).loc[(occupation, metric), column]


def test_paths_and_lists_of_attributes_are_taken_as_text_is(tiny_model, random_images, tmp_path):
    for number, image in enumerate(random_images(40)):
        image.save(tmp_path / f"{number}.png")
    lines = [f"{number}.png,{'mw'[number % 2]},{'ab'[number // 20]}" for number in range(40)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,gender,race", *lines]))
    by_path = ccs.bias(tiny_model, tmp_path, "judge, nurse", attribute=["gender", "race"])
    by_text = ccs.bias(tiny_model, str(tmp_path), "judge, nurse", attribute="gender,race")
    assert by_path.to_json() == by_text.to_json()
    assert len(ccs.open_images(tmp_path).images) == 40


def test_every_figure_is_the_plain_one(tiny_model, gallery):
    """With heads of both encoders off."""
    text_off = HeadSet.parse("T0.H1 T1.H0")
    options = {"occupations": ["judge", "nurse"], "attribute": "race", "top": 12}
    table = ccs.bias(tiny_model, gallery, **options, ablate=OFF | text_off)
    groups, plain = gallery.groups["race"], {}
    for off, column in ((OFF, "after"), (HeadSet(), "before")):
        with ccs.ablate(tiny_model, text_off if off else HeadSet()):
            texts = inputs.embed_names(tiny_model, ["judge", "nurse"], gallery.templates)
        scores = texts @ tiny_model.embed_images(list(gallery.images), off).T
        for name, row in zip(("judge", "nurse"), scores, strict=True):
            ranked = list(groups[np.argsort(-row, kind="stable")])
            skews = bias_sample.reference_skews(ranked, dict(table.groups), 12)
            plain[name, column] = max(skews.values())
            assert figure(table, name, "MaxSkew", column) == pytest.approx(plain[name, column], abs=1e-6)
            whole = bias_sample.reference_ndkl(ranked, dict(table.groups), 12)
            assert figure(table, name, "NDKL", column) == pytest.approx(whole, abs=1e-6)
            if column == "after":  # groups may tie
                assert skews[figure(table, name, "MaxSkew", "group")] == pytest.approx(max(skews.values()))
    mean = np.mean([plain["judge", "after"], plain["nurse", "after"]])
    assert figure(table, MEAN, "MaxSkew") == pytest.approx(mean, abs=1e-6)
    alone = ccs.bias(tiny_model, gallery, **options, ablate=text_off)
    assert figure(alone, MEAN, "MaxSkew", "before") == figure(table, MEAN, "MaxSkew", "before")
    assert figure(alone, "judge", "AUC") != figure(alone, "judge", "AUC", "before")
    assert figure(table, MEAN, "MaxSkew", "ceiling") == pytest.approx(np.log(60 / 20))
    assert (table.about["k"], table.about["ablate"]) == (12, str(OFF | text_off))


NAMES = ("judge", "nurse", "JUDGE")  # of which two are one text to the model


def test_the_tables_hold_each_groups_share_of_the_top_k_and_only_means_of_random_sets(tiny_model, gallery):
    """Shares counted one image at a time; OFF is chosen, and drawn at random."""
    embedded = {off: tiny_model.embed_images(gallery.images, off) for off in (HeadSet(), OFF)}
    texts = inputs.embed_occupations(tiny_model, replace(gallery, occupations=NAMES))
    people = inputs.set_question(replace(gallery, groups={"gender": gallery.groups["gender"]}), NAMES, top=12)
    kinds = (("none", None, HeadSet()), ("chosen", None, OFF), ("random", 0, OFF))
    ablations = [ablation_sets.AblationSet(*kind) for kind in kinds]
    scale = tiny_model.logit_scale
    rows = compute_sample.measure_evaluation(
        people, ablations, texts, embedded.__getitem__, logit_scale=scale
    )
    groups = gallery.groups["gender"]
    shares = [row for row in rows if row["metric"].startswith(schema.TOP_SHARE)]
    assert len(shares) == 2 * 2 * 2  # plans, groups, occupations that are not one text
    for row in shares:
        units = embedded[OFF if row["ablation"] == "chosen" else HeadSet()]
        scores = units @ texts[NAMES.index(row["occupation"])]
        top = groups[np.argsort(-scores, kind="stable")[:12]]
        group = row["metric"].removeprefix(schema.TOP_SHARE)
        assert row["value"] == pytest.approx((top == group).mean())
        assert row["chance_low"] <= row["chance"] == (groups == group).mean() <= row["chance_high"]
        assert row["difference"] == pytest.approx(row["value"] - row["baseline"])
    drawn = [row for row in rows if row["ablation"] == "random"]
    metrics = ("MaxSkew", *group_gaps.PREFERENCES)
    assert {row["metric"] for row in drawn} == {f"{name} mean" for name in metrics}
    assert all(pd.isna([row["low"], row["p_value"]]).all() for row in drawn if row["seed"] == 0)
    ceiling = next(row["ceiling"] for row in rows if row["metric"] == "MaxSkew mean")
    assert ceiling == pytest.approx(np.log(60 / 20))  # all of the top 12 can be of a third of all


def test_a_table_of_bias_shows_itself(tiny_model, gallery):
    table = ccs.bias(tiny_model, gallery, attribute="gender", ablate="L3.H1")
    means = table.rows[table.rows["occupation"] == MEAN].set_index("metric")["after"]
    assert table.table.loc[MEAN].to_dict() == means.to_dict()
    lines = {line.get_label(): line.get_xdata() for line in table.plot(max_rows=2).lines}
    assert len(lines["all heads on"]) == 3
    assert table.of("MaxSkew").loc[MEAN, "before"] == lines["all heads on"][-1]
    assert table._repr_html_().count("<svg") == 1
    with pytest.raises(InputError, match="no metric 'skew'; there are MaxSkew, "):
        table.plot(metric="skew")


def test_the_command_on_a_folder(tiny_folder, tmp_path, random_images, capsys):
    datasets_sample.write_images(tmp_path / "people", random_images(24), ["old", "young", "young"])
    (tmp_path / "people" / "old" / "broken.png").write_bytes(b"no image")
    (tmp_path / "jobs.txt").write_text("judge\nnurse\n")
    line = ["--model", str(tiny_folder), "--gallery", str(tmp_path / "people")]
    line += ["--occupations", str(tmp_path / "jobs.txt"), "--ablate", "L5.H0"]
    files = ["--csv", str(tmp_path / "out.csv")]
    assert command.main([*line, *files]) == 2  # one of 25 is more than 1%
    assert "1 of the 25 images of people cannot be used (old/broken" in capsys.readouterr().err
    line += ["--skip-unreadable"]
    assert command.main([*line, *files]) == 0
    output, errors = capsys.readouterr()
    assert "24 images (old 8, young 16), K = 2, largest MaxSkew possible 1.10" in output
    assert "Skipped: old/broken.png" in errors
    written = pd.read_csv(tmp_path / "out.csv")
    assert (set(written["ablate"]), set(written["skipped"])) == ({"L5.H0"}, {1})


def test_names_of_any_kind_are_read_and_identical_ones_reported(tiny_model, gallery):
    names = ["judge", "nurse"]
    for kind in (", ".join(names), tuple(names), pd.Series(names), np.array(names), iter(names)):
        assert set(ccs.bias(tiny_model, gallery, kind).rows["occupation"]) == {MEAN, *names}
    once, twice = ccs.bias(tiny_model, gallery, names), ccs.bias(tiny_model, gallery, NAMES)
    assert (once.alike, twice.alike) == ((), (("judge", "JUDGE"),))
    means = [table.table.loc[MEAN].tolist() for table in (once, twice)]
    assert means[0] == pytest.approx(means[1])
    assert json.loads(once.to_json())["rows"][0]["occupation"] == MEAN
    letters = ccs.open_dataset("world/letters", max_images=12)
    for classes, same in (("cat", "Cat", "dog"), True), (("cat", "owl", "dog"), False):
        table = ccs.accuracy(tiny_model, replace(letters, classes=classes, labels=np.arange(12) % 3))
        assert table.alike == ((("cat", "Cat"),) if same else ())
        assert ("identically (cat, Cat)" in (table.doubt or "")) == same


def test_classify_is_the_plain_one(tiny_model, random_images):
    images = random_images(3)
    table = ccs.classify(tiny_model, images, "cat, dog", "a {}", ablate=OFF)
    texts = tiny_model.embed_texts(["a cat", "a dog"])
    for column, heads in (("before", HeadSet()), ("after", OFF)):
        plain = tiny_model.probabilities(tiny_model.embed_images(images, heads) @ texts.T)
        assert table.rows[column].to_numpy() == pytest.approx(plain.ravel(), abs=1e-6)
        assert list(table.best[column]) == [("cat", "dog")[i] for i in plain.argmax(1)]
    assert ccs.classify(tiny_model, images[0], "cat").rows["class"].tolist() == ["cat"]

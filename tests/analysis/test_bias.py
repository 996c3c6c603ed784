"""`ccs.bias`, `ccs.classify`, and the command `bias`, against plain computations."""

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

ABLATED = HeadSet.parse("L4.H1 L5.H2")


def cell(table, occupation, metric, column="after"):
    return table.rows.set_index(["occupation", "metric"]).loc[(occupation, metric), column]


def test_bias_accepts_paths_and_attribute_lists(tiny_model, random_images, tmp_path):
    for number, image in enumerate(random_images(40)):
        image.save(tmp_path / f"{number}.png")
    lines = [f"{number}.png,{'mw'[number % 2]},{'ab'[number // 20]}" for number in range(40)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,gender,race", *lines]))
    by_path = ccs.bias(tiny_model, tmp_path, "judge, nurse", attribute=["gender", "race"])
    by_text = ccs.bias(tiny_model, str(tmp_path), "judge, nurse", attribute="gender,race")
    assert by_path.to_json() == by_text.to_json()
    assert len(ccs.open_images(tmp_path).images) == 40


def test_bias_matches_plain_computation(tiny_model, gallery):
    """With ablated heads of both encoders."""
    text_heads = HeadSet.parse("T0.H1 T1.H0")
    options = {"occupations": ["judge", "nurse"], "attribute": "race", "top": 12}
    table = ccs.bias(tiny_model, gallery, **options, ablate=ABLATED | text_heads)
    groups, plain = gallery.groups["race"], {}
    for heads, column in ((ABLATED, "after"), (HeadSet(), "before")):
        with ccs.ablate(tiny_model, text_heads if heads else HeadSet()):
            texts = inputs.embed_names(tiny_model, ["judge", "nurse"], gallery.templates)
        scores = texts @ tiny_model.embed_images(list(gallery.images), heads).T
        for name, row in zip(("judge", "nurse"), scores, strict=True):
            ranked = list(groups[np.argsort(-row, kind="stable")])
            skews = bias_sample.reference_skews(ranked, dict(table.groups), 12)
            plain[name, column] = max(skews.values())
            assert cell(table, name, "MaxSkew", column) == pytest.approx(plain[name, column], abs=1e-6)
            ndkl = bias_sample.reference_ndkl(ranked, dict(table.groups), 12)
            assert cell(table, name, "NDKL", column) == pytest.approx(ndkl, abs=1e-6)
            if column == "after":  # groups may tie
                assert skews[cell(table, name, "MaxSkew", "group")] == pytest.approx(max(skews.values()))
    mean = np.mean([plain["judge", "after"], plain["nurse", "after"]])
    assert cell(table, MEAN, "MaxSkew") == pytest.approx(mean, abs=1e-6)
    alone = ccs.bias(tiny_model, gallery, **options, ablate=text_heads)
    assert cell(alone, MEAN, "MaxSkew", "before") == cell(table, MEAN, "MaxSkew", "before")
    assert cell(alone, "judge", "AUC") != cell(alone, "judge", "AUC", "before")
    assert cell(table, MEAN, "MaxSkew", "ceiling") == pytest.approx(np.log(60 / 20))
    assert (table.about["k"], table.about["ablate"]) == (12, str(ABLATED | text_heads))


NAMES = ("judge", "nurse", "JUDGE")  # the model encodes two of them identically


def test_rows_hold_top_shares_and_only_means_of_random_sets(tiny_model, gallery):
    """The same heads form a chosen set and a random one."""
    embedded = {heads: tiny_model.embed_images(gallery.images, heads) for heads in (HeadSet(), ABLATED)}
    texts = inputs.embed_occupations(tiny_model, replace(gallery, occupations=NAMES))
    people = inputs.set_question(replace(gallery, groups={"gender": gallery.groups["gender"]}), NAMES, top=12)
    kinds = (("none", None, HeadSet()), ("chosen", None, ABLATED), ("random", 0, ABLATED))
    ablations = [ablation_sets.AblationSet(*kind) for kind in kinds]
    measured = people, ablations, texts, embedded.__getitem__
    rows = compute_sample.measure_evaluation(*measured, logit_scale=tiny_model.logit_scale)
    groups = gallery.groups["gender"]
    shares = [row for row in rows if row["metric"].startswith(schema.TOP_SHARE)]
    assert len(shares) == 2 * 2 * 2  # ablation sets, groups, distinct occupations
    for row in shares:
        units = embedded[ABLATED if row["ablation"] == "chosen" else HeadSet()]
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
    assert ceiling == pytest.approx(np.log(60 / 20))  # one race, a third of all, can fill the top 12


def test_bias_table_has_chart_and_html(tiny_model, gallery):
    table = ccs.bias(tiny_model, gallery, attribute="gender", ablate="L3.H1")
    means = table.rows[table.rows["occupation"] == MEAN].set_index("metric")["after"]
    assert table.table.loc[MEAN].to_dict() == means.to_dict()
    lines = {line.get_label(): line.get_xdata() for line in table.plot(max_rows=2).lines}
    assert len(lines["all heads on"]) == 3
    assert table.of("MaxSkew").loc[MEAN, "before"] == lines["all heads on"][-1]
    assert table._repr_html_().count("<svg") == 1
    with pytest.raises(InputError, match="no metric 'skew'; there are MaxSkew, "):
        table.plot(metric="skew")


def test_command_measures_folder_and_skips_unreadable_images(tiny_folder, tmp_path, random_images, capsys):
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


def test_identical_names_are_reported(tiny_model, gallery):
    names = ["judge", "nurse"]
    for form in (", ".join(names), tuple(names), pd.Series(names), np.array(names), iter(names)):
        assert inputs.read_names(form, "occupation") == tuple(names)
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


def test_classify_matches_plain_probabilities(tiny_model, random_images):
    images = random_images(3)
    table = ccs.classify(tiny_model, images, "cat, dog", "a {}", ablate=ABLATED)
    texts = tiny_model.embed_texts(["a cat", "a dog"])
    for column, heads in (("before", HeadSet()), ("after", ABLATED)):
        plain = tiny_model.probabilities(tiny_model.embed_images(images, heads) @ texts.T)
        assert table.rows[column].to_numpy() == pytest.approx(plain.ravel(), abs=1e-6)
        assert list(table.best[column]) == [("cat", "dog")[i] for i in plain.argmax(1)]
    assert ccs.classify(tiny_model, images[0], "cat").rows["class"].tolist() == ["cat"]

"""batch.compute from the command line to the tables, on a tiny model."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import ccs
from ccs import HeadSet, results
from ccs.analysis.inputs import MEAN, embed_names, embed_occupations
from ccs.app import api, session
from ccs.batch import bias as bias_command
from ccs.batch.compute import Settings, inputs, measure, stages
from ccs.batch.compute import __main__ as compute
from ccs.batch.compute.run import Run
from ccs.data.open import open_dataset
from ccs.metrics import bias
from ccs.metrics.ranking import Ranking
from ccs.model.export import WeightChange, changed_weights
from tests.support.compute_sample import assert_same_tables, compute_arguments, read_outputs, run_compute
from tests.support.datasets_sample import write_images


def test_tables_are_valid_and_the_manifest_says_how(small_run):
    read = results.read_results(small_run / "tiny")
    assert set(read.tables) == {"spans", "labels", "judgments", "scores", "ccr", "pruning", "retrieval"}
    manifest = read.manifest
    assert manifest["images"]["count"] == 60
    assert manifest["judges"] == [{"name": "tags", "stand_in": True}]
    # two texts a head: a label always fits one of them, and one that fits both is rarer than not
    no_fit, one_fits, both_fit = manifest["chance_ccs"]
    assert no_fit == 0
    assert one_fits + both_fit == pytest.approx(1)
    assert one_fits > both_fit > 0
    assert max(manifest["largest_error"].values()) < 1e-5
    assert set(manifest["largest_error"]) == {"forward", "ablation", "contributions"}
    assert {entry["name"] for entry in manifest["sets"]} == {"world/letters", "world/clips"}
    spans, scores = read.table("spans"), read.table("scores").set_index(["layer", "head"])
    assert (len(spans), len(scores)) == (16 * 2, 16)
    sums = spans.groupby(["layer", "head"])["share"].sum()
    assert sums.to_numpy() == pytest.approx(scores["share"].to_numpy(), abs=1e-9)
    yes = read.table("judgments").groupby(["layer", "head"])["verdict"].sum()
    assert (yes == scores["ccs"]).all()


def accuracy_without(folder, model, off):
    """Accuracy on 40 images by open_clip's own pass of weights with the heads' columns at zero."""
    data = open_dataset("world/colors", max_images=40)
    weights = embed_names(model, data.classes, data.templates)
    copied = ccs.load(str(folder)).clip
    copied.load_state_dict(changed_weights(model, WeightChange(off)), strict=False)
    embedded = copied.encode_image(model.preprocess(data.images), normalize=True).detach().numpy()
    return float((np.argmax(embedded @ weights.T, axis=1) == data.labels).mean())


def test_ablated_accuracy_is_that_of_a_copy_with_zeroed_columns(tiny_folder, texts, tmp_path):
    """For heads of chosen layers. A head's total effect is what is lost without it."""
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--out", str(tmp_path), "--k", "2"]
    args += ["--dataset", "world/colors", "--eval-images", "40", "--max-images", "60", "--random-sets", "2"]
    assert run_compute([*args, "--layers", "1,4", "--ablate", "L1.H0 L1.H3 L4.H3"]) == 0
    run_tables, model = results.read_results(tmp_path / "tiny"), ccs.load(str(tiny_folder))
    assert set(run_tables.table("scores")["layer"]) == {1, 4}
    top1 = run_tables.table("pruning").query("metric == 'top1'")
    random_sets, mean = top1[top1["seed"].notna()], top1[top1["heads"] == ""].set_index("ablation")["value"]
    for row in pd.concat([top1[top1["ablation"].isin(["chosen", "high"])], random_sets]).itertuples():
        off = HeadSet.parse(row.heads)
        assert {head.layer for head in off} <= {1, 4}
        assert row.value == pytest.approx(accuracy_without(tiny_folder, model, off), abs=1e-9)
    for name, sets in random_sets.groupby("ablation"):
        assert mean[name] == pytest.approx(sets["value"].mean())
    rows = run_tables.table("heads").set_index(["layer", "head"])
    assert (len(rows), set(rows["measure"])) == (8, {"total effect"})
    assert (rows["q_value"].dropna() >= rows["p_value"].dropna() - 1e-12).all()
    whole = accuracy_without(tiny_folder, model, HeadSet())
    single = accuracy_without(tiny_folder, model, HeadSet([ccs.Head(4, 3)]))
    assert (mean["none"], rows.loc[(4, 3), "value"]) == pytest.approx((whole, single - whole), abs=1e-9)


def test_heads_without_a_score_are_reported(small_run, tiny_folder, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    shutil.copytree(small_run, tmp_path, dirs_exist_ok=True)
    judged = ["--judges", "openai:gpt-4o", "--budget", "0"]
    unnamed = "No label for 16 heads: a later run asks again: budget: "
    unscored = "openai:gpt-4o left 32 texts unscored: budget: "
    for options, why, refused in (
        (["--texts", "NOTICE"], "no judge", ""),
        ([*judged, "--labeler", "openai:gpt-4o"], "the labeler named no head", unnamed),
        (judged, "no head has every judge's verdict", unscored),
    ):
        assert compute.main([*compute_arguments(tiny_folder, texts, tmp_path), *options]) == 0
        printed = capsys.readouterr().out
        assert f"CCS: not scored, {why}" in printed
        assert refused in printed
        read = results.read_results(tmp_path / "tiny")
        assert len(read.table("spans")) == 16 * 2
        assert read.table("scores")["ccs"].isna().all()
        reasons = [absent["reason"] for absent in read.manifest["absent"]]
        assert any("16 of 16 heads have no CCS" in reason for reason in reasons)


COLUMNS = {"before": "baseline", "after": "value"} | {
    name: name for name in ("low", "high", "difference", "difference_low", "p_value", "chance", "chance_high")
}
"""Columns of `ccs.bias` and of the table bias."""


def test_command_api_and_tables_give_the_librarys_numbers(few_draws, tiny_folder, texts, tmp_path):
    """For crossed groups, with heads ablated."""
    model, crossed, heads = ccs.load(str(tiny_folder)), "gender,skin tone", "L4.H1 L5.H0"
    question = ["--model", str(tiny_folder), "--gallery", "world/faces", "--attribute", crossed]
    question += ["--occupations", "judge, nurse", "--ablate", heads]
    small = ["--texts", str(texts), "--k", "2", "--max-images", "20", "--random-sets", "1", "--layers", "4,5"]
    assert run_compute([*question, *small, "--out", str(tmp_path)]) == 0
    assert bias_command.main([*question, "--csv", str(tmp_path / "bias.csv")]) == 0
    app = session.App(results.load(tmp_path), [replace(ccs.open_gallery("world/faces"), name="ours")])
    app.model_cache.keep("tiny", model)
    answers = api.Api(app).measure_bias(["judge", "nurse"], "ours", crossed, heads, "tiny")
    printed = pd.read_csv(tmp_path / "bias.csv").to_dict("records")
    library = ccs.bias(model, "world/faces", ["judge", "nurse"], attribute=crossed, ablate=heads).rows
    table = results.read_results(tmp_path / "tiny").table("bias")
    table = table[(table["attribute"] == crossed) & (table["ablation"] == "chosen")]
    table = table.set_index(["occupation", "metric"])
    for expected, answer, line in zip(library.to_dict("records"), answers, printed, strict=True):
        mean = expected["occupation"] == MEAN
        key = ("", f"{expected['metric']} mean") if mean else (expected["occupation"], expected["metric"])
        for column, in_table in COLUMNS.items():
            value = pytest.approx(expected[column], abs=1e-6, nan_ok=True)
            assert table.loc[key, in_table] == value
            assert line[column] == value
            assert (np.nan if answer[column] is None else answer[column]) == value


def test_groups_that_are_too_small_are_reported(monkeypatch):
    faces, sentences = ccs.open_gallery("world/faces"), []
    crossed = (faces, "gender,skin tone", {"woman, dark": 3})
    monkeypatch.setattr(inputs, "open_people", lambda *_: crossed)
    settings = Settings(galleries=("world/faces",), attribute="gender,skin tone", suite="none")
    _, (people,), _ = inputs.open_all(settings, sentences.append)
    note = "gender,skin tone: left out groups of under 10 people: 3 woman, dark"
    assert sentences == [f"world/faces, {note}"]
    assert people.notes[-1] == note
    assert people.fingerprint != faces.fingerprint


def test_a_resumed_run_decodes_only_new_images_to_check_them(tmp_path, monkeypatch):
    decoded = []
    monkeypatch.setattr("ccs.data.rows.problem", lambda data: decoded.append(data) or "")
    settings = Settings(images=str(tmp_path / "images"), suite="none")
    for first, count in ((0, 3), (3, 1), (0, 0)):  # the images written before each run
        monkeypatch.setattr("ccs.data.rows.COMPLETE", COMPLETE := set())
        monkeypatch.setattr(inputs, "COMPLETE", COMPLETE)
        pictures = [Image.new("RGB", (9, 9), (first + i, 0, 0)) for i in range(count)]
        write_images(tmp_path / "images", pictures, [f"{first}"])
        images, _, _ = inputs.open_all(settings, print, tmp_path / "complete")
        assert len(decoded) == count
        decoded.clear()
    assert len(images.images) == 4


@pytest.mark.parametrize("limit", [1.0, 0.0])
def test_a_gpu_uses_half_precision_if_it_changes_little(tiny_folder, texts, tmp_path, monkeypatch, limit):
    """On the CPU in place of a GPU."""
    load = ccs.load
    monkeypatch.setattr(ccs, "load", lambda name, *, device, **options: load(name, device="cpu", **options))
    monkeypatch.setattr(measure, "LARGEST_CHANGES", dict.fromkeys(measure.LARGEST_CHANGES, limit))
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--out", str(tmp_path), "--max-images", "20"]
    args += ["--dataset", "world/colors", "--gallery", "world/faces", "--eval-images", "20"]
    settings = compute.main.parse(args).for_model(str(tiny_folder))
    checked = Run(settings, stages.Processes(device="cuda"), inputs.open_all(settings, print))
    assert checked.settings.precision == ("bf16" if limit else "fp32")
    changes = checked.precision["changes"]
    assert set(changes) == set(measure.LARGEST_CHANGES)
    assert 0 < changes["cosine"] < 0.1
    faces, models = checked.sets[1], [load(str(tiny_folder), precision=name) for name in ("fp32", "bf16")]
    rows = np.unique(np.linspace(0, len(faces.images) - 1, measure.SAMPLE).astype(int))
    task = Ranking(embed_occupations(models[1], faces), faces.groups[faces.main][rows], len(rows) // 10)
    images = [faces.images[row] for row in rows]
    units = [model.embed_images(images) for model in (*models, checked.model)]
    skews = [bias.means(embedded, task)["MaxSkew"] for embedded in units]
    assert changes["MaxSkew"] == pytest.approx(abs(skews[1] - skews[0]), abs=1e-6)
    assert np.array_equal(units[2], units[1]) == (limit > 0)


def test_images_that_sets_share_are_embedded_once(texts, tmp_path, monkeypatch):
    """`one` has half of the images of `two`, in another order with other labels; alone it keeps nothing."""
    drawn = open_dataset("world/letters", max_images=40)
    letters = [drawn.classes[label] for label in drawn.labels]
    write_images(tmp_path / "two", drawn.images, [f"class {number}" for number in range(4)])
    write_images(tmp_path / "one", list(drawn.images)[::-2], letters[::-2])
    base = ["--model", "organism", "--texts", str(texts), "--max-images", "20", "--k", "2"]
    base += ["--random-sets", "2"]
    for name, sets, cache_bytes in (("alone", ["one"], 0), ("both", ["one", "two"], 1e9)):
        monkeypatch.setattr("ccs.batch.compute.run.KEPT_BYTES", cache_bytes)
        data = [word for part in sets for word in ("--dataset", str(tmp_path / part))]
        assert run_compute([*base, *data, "--out", str(tmp_path / name)]) == 0
    (embedded,) = (tmp_path / "both/.stages/organism").glob("embed*")
    assert embedded.name == "embed--two"
    assert list(embedded.glob("*.safetensors"))
    runs = (results.read_results(tmp_path / name / "organism") for name in ("alone", "both"))
    alone, of_both = (of_run.table("pruning") for of_run in runs)
    ours = of_both[of_both["dataset"] == "one"].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, alone, rtol=0, atol=1e-6)
    assert not list((tmp_path / "alone/.stages/organism").glob("embed*/*.safetensors"))  # nothing is kept


def shares(capsys, args):
    """What a run says that it does, and the shares that are done."""
    capsys.readouterr()
    assert compute.main([*args, "--progress", "json"]) == 0
    messages = [json.loads(line) for line in capsys.readouterr().err.split("\n") if line]
    return [entry["doing"].split(":")[0] for entry in messages], [entry["share"] for entry in messages]


def test_the_cut_changes_no_figure_and_one_bar_counts_all(small_run, tiny_folder, texts, tmp_path, capsys):
    args = compute_arguments(
        tiny_folder, texts, tmp_path, "--batch-size", "3", "--workers", "1", "--shard", "60"
    )
    doing, done = shares(capsys, args)
    assert_same_tables(small_run / "tiny", tmp_path / "tiny")
    parts = [f"{part}/world/{name}" for name in ("letters", "clips") for part in ("embed", "measure")]
    start = ["checks", "statistics", "texts", "spans", "labels", "judgments", "chance"]
    assert list(dict.fromkeys(doing)) == [*start, *parts]
    assert (done, done[0], done[-1]) == (sorted(done), 0, 1)
    shutil.rmtree(next((tmp_path / ".stages").glob("*/measure--world--clips")))
    doing, done = shares(capsys, args)  # the others are done, and not done again
    assert set(doing) == {"labels", "judgments", "measure/world/clips"}
    assert done[doing.index("measure/world/clips")] > 0.3
    assert done[-1] == 1


def test_a_run_again_mends_tables_and_redoes_what_a_setting_changes(small_run, tiny_folder, texts, tmp_path):
    done = shutil.copytree(small_run, tmp_path / "done", copy_function=shutil.copy2)

    def shards():
        return {path: path.stat().st_mtime_ns for path in (done / ".stages").rglob("*.*.*.*")}

    before, stamps = read_outputs(done), shards()
    (done / "tiny" / "spans.parquet").write_bytes(b"half")
    (done / "tiny" / "bias.parquet").write_bytes(b"of a run with more sets")
    again = compute_arguments(tiny_folder, texts, done)
    assert run_compute(again) == 0
    assert (read_outputs(done), shards()) == (before, stamps)
    assert run_compute([*again, "--k", "3"]) == 0
    unchanged_stages = {path.parent.name for path, _ in stamps.items() & shards().items()}
    assert {"statistics", "texts", "checks"} <= unchanged_stages
    assert "spans" not in unchanged_stages
    stamps, corrected = shards(), shutil.copytree(tiny_folder, tmp_path / "corrected" / "tiny")
    config = json.loads((corrected / "open_clip_config.json").read_text())
    config["preprocess_cfg"]["mean"] = [0.0, 0.0, 0.0]
    (corrected / "open_clip_config.json").write_text(json.dumps(config))
    assert run_compute([*compute_arguments(corrected, texts, done), "--k", "3"]) == 0
    assert {path.parent.name for path, _ in stamps.items() & shards().items()} == {"chance"}


def test_a_model_that_is_not_accessible_is_left_out(hub, tiny_folder, texts, tmp_path, capsys):
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--out", str(tmp_path), "--suite", "none"]
    assert compute.main([*args, "--model", "ViT-B-32/openai", "--max-images", "20"]) == 2
    assert "error: ViT-B-32/openai is left out: " in capsys.readouterr().out
    assert (tmp_path / "tiny" / "manifest.json").exists()

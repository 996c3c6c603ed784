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


def test_run_writes_valid_tables_and_a_manifest(small_run):
    run = results.read_results(small_run / "tiny")
    assert set(run.tables) == {"spans", "labels", "judgments", "scores", "ccr", "pruning", "retrieval"}
    manifest = run.manifest
    assert manifest["judges"] == [{"name": "tags", "stand_in": True}]
    # A label is that of one of the head's two texts, so at least one fits.
    no_fit, one_fits, both_fit = manifest["chance_ccs"]
    assert no_fit == 0
    assert one_fits + both_fit == pytest.approx(1)
    assert one_fits > both_fit > 0
    assert max(manifest["largest_error"].values()) < 1e-5
    assert set(manifest["largest_error"]) == {"forward", "ablation", "contributions"}
    spans, scores = run.table("spans"), run.table("scores").set_index(["layer", "head"])
    shares = spans.groupby(["layer", "head"])["share"].sum()
    assert shares.to_numpy() == pytest.approx(scores["share"].to_numpy(), abs=1e-9)
    accepted_texts = run.table("judgments").groupby(["layer", "head"])["verdict"].sum()
    assert (accepted_texts == scores["ccs"]).all()


def accuracy_of_zeroed_columns(folder, model, ablated):
    """Accuracy on 40 images by open_clip's own forward pass, with the heads' output columns set to zero."""
    data = open_dataset("world/colors", max_images=40)
    weights = embed_names(model, data.classes, data.templates)
    clip = ccs.load(str(folder)).clip
    clip.load_state_dict(changed_weights(model, WeightChange(ablated)), strict=False)
    embeddings = clip.encode_image(model.preprocess(data.images), normalize=True).detach().numpy()
    return float((np.argmax(embeddings @ weights.T, axis=1) == data.labels).mean())


def test_ablated_accuracy_equals_zeroed_columns(tiny_folder, texts, tmp_path):
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--out", str(tmp_path), "--k", "2"]
    args += ["--dataset", "world/colors", "--eval-images", "40", "--max-images", "60", "--random-sets", "2"]
    assert run_compute([*args, "--layers", "1,4", "--ablate", "L1.H0 L1.H3 L4.H3"]) == 0
    tables, model = results.read_results(tmp_path / "tiny"), ccs.load(str(tiny_folder))
    assert set(tables.table("scores")["layer"]) == {1, 4}
    top1 = tables.table("pruning").query("metric == 'top1'")
    random_sets, mean = top1[top1["seed"].notna()], top1[top1["heads"] == ""].set_index("ablation")["value"]
    for row in pd.concat([top1[top1["ablation"].isin(["chosen", "high"])], random_sets]).itertuples():
        ablated = HeadSet.parse(row.heads)
        assert {head.layer for head in ablated} <= {1, 4}
        assert row.value == pytest.approx(accuracy_of_zeroed_columns(tiny_folder, model, ablated), abs=1e-9)
    for name, rows in random_sets.groupby("ablation"):
        assert mean[name] == pytest.approx(rows["value"].mean())
    heads = tables.table("heads").set_index(["layer", "head"])
    assert (len(heads), set(heads["measure"])) == (8, {"total effect"})
    assert (heads["q_value"].dropna() >= heads["p_value"].dropna() - 1e-12).all()
    unablated = accuracy_of_zeroed_columns(tiny_folder, model, HeadSet())
    ablated = accuracy_of_zeroed_columns(tiny_folder, model, HeadSet.parse("L4.H3"))
    accuracies = mean["none"], heads.loc[(4, 3), "value"]
    assert accuracies == pytest.approx((unablated, ablated - unablated), abs=1e-9)


def test_missing_scores_are_explained(small_run, small_arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    shutil.copytree(small_run, tmp_path, dirs_exist_ok=True)
    judged = ["--judges", "openai:gpt-4o", "--budget", "0"]
    no_labels = "No label for 16 heads: a later run asks again: budget: "
    for options, reason, detail in (
        (["--texts", "NOTICE"], "no judge", ""),
        ([*judged, "--labeler", "openai:gpt-4o"], "the labeler named no head", no_labels),
        (judged, "no head has every judge's verdict", "openai:gpt-4o left 32 texts unscored: budget: "),
    ):
        assert compute.main([*small_arguments(tmp_path), *options]) == 0
        printed = capsys.readouterr().out
        assert f"CCS: not scored, {reason}" in printed
        assert detail in printed
        run = results.read_results(tmp_path / "tiny")
        assert run.table("scores")["ccs"].isna().all()
        assert any("16 of 16 heads have no CCS" in absent["reason"] for absent in run.manifest["absent"])


COLUMNS = ("low", "high", "difference", "difference_low", "p_value", "chance", "chance_high")
COLUMNS = {"before": "baseline", "after": "value"} | dict(zip(COLUMNS, COLUMNS, strict=True))
"""Columns of `ccs.bias` and of the table bias."""


def test_command_api_and_tables_equal_the_library(few_bias_draws, few_people, tiny_folder, texts, tmp_path):
    """Bias of crossed groups with ablated heads."""
    model, crossed, heads = ccs.load(str(tiny_folder)), "gender,skin tone", "L4.H1 L5.H0"
    question = ["--model", str(tiny_folder), "--gallery", "world/faces", "--attribute", crossed]
    question += ["--occupations", "judge, nurse", "--ablate", heads]
    sizes = ["--texts", str(texts), "--k", "2", "--max-images", "20", "--random-sets", "1", "--layers", "4,5"]
    assert run_compute([*question, *sizes, "--out", str(tmp_path)]) == 0
    assert bias_command.main([*question, "--csv", str(tmp_path / "bias.csv")]) == 0
    app = session.App(results.load(tmp_path), [replace(ccs.open_gallery("world/faces"), name="people")])
    app.model_cache.keep("tiny", model)
    answers = api.Api(app).measure_bias(["judge", "nurse"], "people", crossed, heads, "tiny")
    printed = pd.read_csv(tmp_path / "bias.csv").to_dict("records")
    library = ccs.bias(model, "world/faces", ["judge", "nurse"], attribute=crossed, ablate=heads).rows
    table = results.read_results(tmp_path / "tiny").table("bias")
    table = table[(table["attribute"] == crossed) & (table["ablation"] == "chosen")]
    table = table.set_index(["occupation", "metric"])
    for expected, answer, line in zip(library.to_dict("records"), answers, printed, strict=True):
        is_mean = expected["occupation"] == MEAN
        key = ("", f"{expected['metric']} mean") if is_mean else (expected["occupation"], expected["metric"])
        for column, table_column in COLUMNS.items():
            value = pytest.approx(expected[column], abs=1e-6, nan_ok=True)
            assert table.loc[key, table_column] == value
            assert line[column] == value
            assert (np.nan if answer[column] is None else answer[column]) == value


def test_groups_that_are_too_small_are_reported(monkeypatch):
    faces, messages = ccs.open_gallery("world/faces"), []
    crossed = (faces, "gender,skin tone", {"woman, dark": 3})
    monkeypatch.setattr(inputs, "open_people", lambda *_: crossed)
    settings = Settings(galleries=("world/faces",), attribute="gender,skin tone", suite="none")
    _, (people,), _ = inputs.open_all(settings, messages.append)
    note = "gender,skin tone: left out groups of under 10 people: 3 woman, dark"
    assert messages == [f"world/faces, {note}"]
    assert people.notes[-1] == note
    assert people.fingerprint != faces.fingerprint


def test_resumed_run_checks_only_new_images(tmp_path, monkeypatch):
    decoded = []
    monkeypatch.setattr("ccs.data.rows.problem", lambda data: decoded.append(data) or "")
    settings = Settings(images=str(tmp_path / "images"), suite="none")
    for first, count in ((0, 3), (3, 1), (0, 0)):  # images added before each run
        monkeypatch.setattr("ccs.data.rows.COMPLETE", COMPLETE := set())
        monkeypatch.setattr(inputs, "COMPLETE", COMPLETE)
        new_images = [Image.new("RGB", (9, 9), (first + i, 0, 0)) for i in range(count)]
        write_images(tmp_path / "images", new_images, [f"{first}"])
        images, _, _ = inputs.open_all(settings, print, tmp_path / "complete")
        assert len(decoded) == count
        decoded.clear()
    assert len(images.images) == 4


def test_gpu_uses_half_precision_if_accurate(few_people, tiny_folder, texts, tmp_path, monkeypatch):
    """On the CPU in place of a GPU."""
    load = ccs.load
    monkeypatch.setattr(ccs, "load", lambda name, *, device, **options: load(name, device="cpu", **options))
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--out", str(tmp_path), "--max-images", "20"]
    args += ["--dataset", "world/colors", "--gallery", "world/faces", "--eval-images", "20"]
    settings = compute.main.parse(args).for_model(str(tiny_folder))
    data = inputs.open_all(settings, print)
    _, (_, faces), _ = data
    models = [load(str(tiny_folder), precision=name) for name in ("fp32", "bf16")]
    rows = np.unique(np.linspace(0, len(faces.images) - 1, measure.SAMPLE).astype(int))
    task = Ranking(embed_occupations(models[1], faces), faces.groups[faces.main][rows], len(rows) // 10)
    images = [faces.images[row] for row in rows]
    embeddings = [model.embed_images(images) for model in models]
    skews = [bias.means(units, task)["MaxSkew"] for units in embeddings]
    for limit, precision in ((1.0, "bf16"), (0.0, "fp32")):
        monkeypatch.setattr(measure, "LARGEST_CHANGES", dict.fromkeys(measure.LARGEST_CHANGES, limit))
        run = Run(settings, stages.Processes(device="cuda"), data)
        assert run.settings.precision == precision
        changes = run.precision["changes"]
        assert set(changes) == set(measure.LARGEST_CHANGES)
        assert 0 < changes["cosine"] < 0.1
        assert changes["MaxSkew"] == pytest.approx(abs(skews[1] - skews[0]), abs=1e-6)
        assert np.array_equal(run.model.embed_images(images), embeddings[1]) == (precision == "bf16")


def test_images_in_two_datasets_are_embedded_once(tiny_folder, texts, tmp_path, monkeypatch):
    """The first dataset has half of the images of the second, in another order with other labels."""
    letters = open_dataset("world/letters", max_images=40)
    names = [letters.classes[label] for label in letters.labels]
    write_images(tmp_path / "two", letters.images, [f"class {number}" for number in range(4)])
    write_images(tmp_path / "one", list(letters.images)[::-2], names[::-2])
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--max-images", "20", "--k", "2"]
    args += ["--random-sets", "2"]
    for name, datasets, cache_bytes in (("alone", ["one"], 0), ("both", ["one", "two"], 1e9)):
        monkeypatch.setattr("ccs.batch.compute.run.KEPT_BYTES", cache_bytes)
        options = [word for dataset in datasets for word in ("--dataset", str(tmp_path / dataset))]
        assert run_compute([*args, *options, "--out", str(tmp_path / name)]) == 0
    (stage,) = (tmp_path / "both/.stages/tiny").glob("embed*")
    assert stage.name == "embed--two"
    assert list(stage.glob("*.safetensors"))
    runs = (results.read_results(tmp_path / name / "tiny") for name in ("alone", "both"))
    alone, both = (run.table("pruning") for run in runs)
    rows = both[both["dataset"] == "one"].reset_index(drop=True)
    pd.testing.assert_frame_equal(rows, alone, rtol=0, atol=1e-6)
    assert not list((tmp_path / "alone/.stages/tiny").glob("embed*/*.safetensors"))


def run_with_progress(capsys, args):
    """Runs batch.compute, and returns the steps that it reports and the shares done."""
    capsys.readouterr()
    assert compute.main([*args, "--progress", "json"]) == 0
    messages = [json.loads(line) for line in capsys.readouterr().err.split("\n") if line]
    return [entry["doing"].split(":")[0] for entry in messages], [entry["share"] for entry in messages]


def test_batch_sizes_change_no_result(small_run, small_arguments, tmp_path, capsys):
    args = small_arguments(tmp_path, "--batch-size", "3", "--workers", "1", "--shard", "60")
    steps, shares = run_with_progress(capsys, args)
    assert_same_tables(small_run / "tiny", tmp_path / "tiny")
    parts = [f"{part}/world/{name}" for name in ("letters", "clips") for part in ("embed", "measure")]
    first_steps = ["checks", "statistics", "texts", "spans", "labels", "judgments", "chance"]
    assert list(dict.fromkeys(steps)) == [*first_steps, *parts]
    assert (shares, shares[0], shares[-1]) == (sorted(shares), 0, 1)
    shutil.rmtree(next((tmp_path / ".stages").glob("*/measure--world--clips")))
    steps, shares = run_with_progress(capsys, args)
    assert set(steps) == {"labels", "judgments", "measure/world/clips"}
    assert shares[steps.index("measure/world/clips")] > 0.3
    assert shares[-1] == 1


def test_repeated_run_redoes_only_changed_stages(small_run, small_arguments, tiny_folder, texts, tmp_path):
    out = shutil.copytree(small_run, tmp_path / "out", copy_function=shutil.copy2)

    def modification_times():
        return {path: path.stat().st_mtime_ns for path in (out / ".stages").rglob("*.*.*.*")}

    outputs, times = read_outputs(out), modification_times()
    (out / "tiny" / "spans.parquet").write_bytes(b"half")
    (out / "tiny" / "bias.parquet").write_bytes(b"of a run with more datasets")
    args = small_arguments(out)
    assert run_compute(args) == 0
    assert (read_outputs(out), modification_times()) == (outputs, times)
    assert run_compute([*args, "--k", "3"]) == 0
    unchanged_stages = {path.parent.name for path, _ in times.items() & modification_times().items()}
    assert {"statistics", "texts", "checks"} <= unchanged_stages
    assert "spans" not in unchanged_stages
    times, changed_model = modification_times(), shutil.copytree(tiny_folder, tmp_path / "changed" / "tiny")
    config = json.loads((changed_model / "open_clip_config.json").read_text())
    config["preprocess_cfg"]["mean"] = [0.0, 0.0, 0.0]
    (changed_model / "open_clip_config.json").write_text(json.dumps(config))
    assert run_compute([*compute_arguments(changed_model, texts, out), "--k", "3"]) == 0
    assert {path.parent.name for path, _ in times.items() & modification_times().items()} == {"chance"}


def test_inaccessible_model_is_left_out(hub, tiny_folder, texts, tmp_path, capsys):
    args = ["--model", str(tiny_folder), "--texts", str(texts), "--out", str(tmp_path), "--suite", "none"]
    assert compute.main([*args, "--model", "ViT-B-32/openai", "--max-images", "20"]) == 2
    assert "error: ViT-B-32/openai is left out: " in capsys.readouterr().out
    assert (tmp_path / "tiny" / "manifest.json").exists()

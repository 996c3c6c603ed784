"""The command line: defaults of batch.compute, what its `--dry-run` says, mistakes in any command's words."""

import re
import sys
import warnings
from pathlib import Path

import pytest

from ccs import InputError, paper, results
from ccs.batch.compute import Settings
from ccs.batch.compute import __main__ as compute
from ccs.cli import command_line, options


def test_a_suite_has_the_studys_k_by_default_and_a_run_is_quick_unless_it_is_full():
    for settings, model, ks in (
        (Settings(), "ViT-B-32/openai", (5,)),
        (Settings(full=True), "organism", (5, 7, 9, 11, 13)),
        (Settings(suite="paper"), "ViT-B-32/openai", (5, 7, 9, 11, 13)),
        (Settings(suite="paper", ks=(7,)), "ViT-B-32/openai", (7,)),
    ):
        assert settings.for_model(model).all_ks == ks
    quick, full = (Settings(full=whole).for_model("organism") for whole in (False, True))
    assert (quick.max_images, quick.eval_images, quick.random_sets) == (600, 120, 10)
    assert (full.max_images, full.eval_images, full.random_sets) == (2000, 400, 200)


def test_the_study_is_one_word_and_what_is_given_beside_it_counts():
    study = compute.main.parse(["--paper"])
    assert study.models == tuple(model.name for model in paper.models())
    assert (study.images, study.texts, study.suite) == ("imagenet", "reference", "paper")
    assert (study.as_published, study.precision) == (True, "auto")
    arguments = ["--labeler", "tags", "--paper", "--model", "ViT-B-32/openai", "--texts=world"]
    parsed = compute.main.parse(arguments)
    assert (parsed.models, parsed.texts) == (("ViT-B-32/openai",), "world")
    assert (parsed.labeler, parsed.judges) == ("tags", "paper")


def test_numbers_are_whole_and_ranges_rise():
    """cyclopts would round a fraction; NaN is in no order; an empty range would stand for the default."""
    for words in (
        "--max-images 10.5",
        "--seed 1.5",
        "--budget nan",
        "--budget -1",
        "--k 7-5",
        "--layers 5-3",
    ):
        with pytest.raises(InputError, match=re.escape(words.split()[1])):
            compute.main.parse(words.split())
    for option in ("--out", "--texts", "--k"):
        with pytest.raises(InputError, match=f"{option}: It is empty"):
            compute.main.parse([option, ""])
    assert compute.main.parse(["--budget", "0", "--layers", "3-5"]).layers == (3, 4, 5)


def test_a_tilde_after_an_equals_sign_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compute.main.parse(["--out=~/new"]).out == tmp_path / "new"
    (tmp_path / "results").mkdir()
    assert results.load("~/results").source == "the folder results"


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_ends_no_command(closed, monkeypatch):
    monkeypatch.setattr("sys." + closed, None)
    monkeypatch.setenv("COLUMNS", "0")
    assert command_line.main(["report", "--help"]) == 0
    assert command_line.main(["report", "--results", "/nowhere"]) == 2
    getattr(sys, closed).close()


def test_split_chooses_that_of_all_images_given():
    parsed = compute.main.parse(["--images", "a", "--gallery", "b", "--gallery=c", "--split", "train"])
    assert (parsed.images, parsed.galleries, parsed.datasets) == ("a:train", ("b:train", "c:train"), ())
    with pytest.raises(InputError, match="--split requires --images, --dataset, --gallery, or --preserve"):
        compute.main.parse(["--split", "train"])


@pytest.fixture
def dry_run(tmp_path, monkeypatch, capsys):
    """The output of a dry run where there is no Hub, no key and nothing may be written."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    out = tmp_path / "out"

    def tell(*arguments, code=0):
        assert compute.main([*arguments, "--out", str(out)]) == code
        assert not out.exists()
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return tell


def test_names_are_those_of_a_file_or_written_out(tmp_path):
    (tmp_path / "names.txt").write_bytes("\ufeffjudge\r\n nurse \r\n\r\n".encode())
    assert options.read_names(str(tmp_path / "names.txt")) == ("judge", "nurse")
    assert options.read_names("St. Bernard") == ("St. Bernard",)
    for name, words in (("nurses.txt", "There is no file nurses"), ("nurses.csv", r"nurses\.csv is a table")):
        with pytest.raises(InputError, match=words):
            options.read_names(name)


def test_the_whole_study(dry_run):
    study = ("--paper", "--dry-run")
    output = dry_run(*study)
    assert all(re.search(rf"{re.escape(model.name)} .* GB of weights", output) for model in paper.models())
    assert re.search(r"imagenet-val +50,000 items +6\.30 GB .* log in .*license: ImageNet's terms", output)
    # datasets of one repository are downloaded once
    assert "Disk: 5.8 GB of weights, 81.4 GB of datasets " in output
    # 4 x 48 + 2 x 64 heads: one request to the labeler and two to each of three judges
    assert re.search(r"all +2,240 requests, \d+\.\d\d dollars\n", output)
    assert "2,240 LLM requests" in Path("docs/reproduce-the-paper.md").read_text()
    assert "fairface-600" not in output  # the page's part of a set is no set of the study
    on = {}
    for name in ("h100", "cpu"):
        printed = dry_run(*study, "--device-like", name)
        on[name] = [float(hours) for hours in re.findall(r"(\d+\.\d) (?:hours|for|to)", printed)]
        whole, passes, decoding, bias, fetching = on[name]
        assert whole == pytest.approx(max(passes, decoding) + bias + fetching, abs=0.3)
    assert on["h100"][1] < on["cpu"][1]
    assert f"Time: about {on['cpu'][0]} hours" in output  # there is no other device here
    assert "requires --dry-run" in dry_run("--device-like", "h100", code=2)
    assert dry_run("--paper", code=2).count("OPENAI_API_KEY") == 1  # nothing is loaded, nor said six times
    elsewhere = dry_run("--dry-run", "--dataset", "nope", "--images", "world/nope")
    assert re.findall(r"(\S+) +not counted", elsewhere) == ["world/nope", "nope"]


def test_the_prices_in_the_documents_are_those_printed(dry_run):
    arguments = ("--labeler", "openai", "--judges", "default", "--dry-run")
    page = Path("docs/judges.md").read_text()
    for name in ("organism", "ViT-B-32/openai", "ViT-L-14/openai"):
        printed = dry_run("--model", name, *arguments)
        heads = re.search(r"(\d+) heads", printed)[1]
        requests = re.search(r"all +(\d+) requests, (\S+)", printed)
        assert f"| {name} | {heads} | {requests[1]} | {requests[2]} |" in page


COMPUTE = "compute --model {tiny} --texts {texts} --out {out}"


MISTAKES = [
    ("compute --out {out} --model organsim", "organism"),
    (f"{COMPUTE} --k 400", "fewer than --k 400"),
    (f"{COMPUTE} --ablate L99.H1", "L99"),
    (f"{COMPUTE} --top 5", "--top requires --gallery."),
    (f"{COMPUTE} --dataset world/letters --dataset world/letters", "Two datasets are named"),
    ("compute --k 7,x", "'7,x' must be whole numbers or ranges of them, such as 5,7 or 8-11."),
    (f"{COMPUTE} --judges gpt", "is not a judge"),
    ("compute --out {out} --texts NOTICE --labeler compatible:a@http://localhost:9", "have a concept"),
    ("localize --model {tiny} --max-images 20 --method guessing", "no method 'guessing'; there are"),
    ("search --model {tiny} --max-images 20 --save --results /nowhere/at", "/nowhere/at"),
    ("audit --prompts nope", "no prompt set 'nope'"),
    ("audit --attribute gender,age", "no attribute 'age'"),
    ("audit --model organism --model organism", "same folder"),
    ("mitigate --out docs", "already exists; give a new folder for --out"),
    ("mitigate --method prayer", "no method 'prayer'; there are ablation, scaling"),
    ("mitigate --method LEACE --max-images 20 --out {out}/x", "can't hold LEACE: It adds a constant"),
    ("bias --gallery world/none --csv docs", "docs is a folder; give the name of a file"),
    ("export --model none --out NOTICE/x", "NOTICE/x cannot be written to: Not a directory"),
    ("report --results hf://datasets/a/b", "could not be loaded"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_a_mistake_is_answered_in_a_sentence(words, says, tiny_folder, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    assert command_line.main(words.format(tiny=tiny_folder, texts=texts, out=tmp_path).split()) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ")
    assert says in last
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_warning_is_a_line_without_source_code():
    assert command_line.run(lambda: None) == 0
    assert warnings.formatwarning(UserWarning("Few."), UserWarning, "file.py", 1) == "Warning: Few.\n"

"""The command line: defaults of batch.compute, its `--dry-run`, and errors of all commands."""

import re
import sys
from pathlib import Path

import pytest

from ccs import InputError, paper, results
from ccs.batch.compute import Settings
from ccs.batch.compute import __main__ as compute
from ccs.cli import command_line, options


def test_paper_suite_and_full_run_have_all_k():
    for settings, model, ks in (
        (Settings(), "ViT-B-32/openai", (5,)),
        (Settings(full=True), "organism", (5, 7, 9, 11, 13)),
        (Settings(suite="paper"), "ViT-B-32/openai", (5, 7, 9, 11, 13)),
        (Settings(suite="paper", ks=(7,)), "ViT-B-32/openai", (7,)),
    ):
        assert settings.for_model(model).all_ks == ks


def test_paper_option_sets_defaults_that_other_options_override():
    settings = compute.main.parse(["--paper"])
    assert settings.models == tuple(model.name for model in paper.models())
    assert (settings.images, settings.texts, settings.suite) == ("imagenet", "reference", "paper")
    assert (settings.as_published, settings.precision) == (True, "auto")
    arguments = ["--labeler", "tags", "--paper", "--model", "ViT-B-32/openai", "--texts=world"]
    settings = compute.main.parse(arguments)
    assert (settings.models, settings.texts) == (("ViT-B-32/openai",), "world")
    assert (settings.labeler, settings.judges) == ("tags", "paper")


def test_invalid_numbers_and_ranges_are_rejected():
    numbers = ("--max-images 10.5", "--seed 1.5", "--budget nan", "--budget -1")
    for arguments in (*numbers, "--k 7-5", "--layers 5-3"):
        with pytest.raises(InputError, match=re.escape(arguments.split()[1])):
            compute.main.parse(arguments.split())
    for option in ("--out", "--texts", "--k"):
        with pytest.raises(InputError, match=f"{option}: It is empty"):
            compute.main.parse([option, ""])
    assert compute.main.parse(["--budget", "0", "--layers", "3-5"]).layers == (3, 4, 5)


def test_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compute.main.parse(["--out=~/new"]).out == tmp_path / "new"
    (tmp_path / "results").mkdir()
    assert results.load("~/results").source == "the folder results"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_commands_work_without_an_output_stream(stream, monkeypatch):
    monkeypatch.setattr("sys." + stream, None)
    monkeypatch.setenv("COLUMNS", "0")
    assert command_line.main(["report", "--help"]) == 0
    assert command_line.main(["report", "--results", "/nowhere"]) == 2
    getattr(sys, stream).close()


def test_split_applies_to_all_datasets():
    settings = compute.main.parse(["--images", "a", "--gallery", "b", "--gallery=c", "--split", "train"])
    assert (settings.images, settings.galleries, settings.datasets) == ("a:train", ("b:train", "c:train"), ())
    with pytest.raises(InputError, match="--split requires --images, --dataset, --gallery, or --preserve"):
        compute.main.parse(["--split", "train"])


def test_names_are_read_from_a_text_file_or_the_argument(tmp_path):
    (tmp_path / "names.txt").write_bytes("\ufeffjudge\r\n nurse \r\n\r\n".encode())
    assert options.read_names(str(tmp_path / "names.txt")) == ("judge", "nurse")
    assert options.read_names("St. Bernard") == ("St. Bernard",)
    for name, error in (("nurses.txt", "There is no file nurses"), ("nurses.csv", r"nurses\.csv is a table")):
        with pytest.raises(InputError, match=error):
            options.read_names(name)


@pytest.fixture
def dry_run(tmp_path, monkeypatch, capsys):
    """Returns a function that returns the output of a run without a Hub, API keys, and written files."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    out = tmp_path / "out"

    def dry_run(*arguments, exit_status=0):
        assert compute.main([*arguments, "--out", str(out)]) == exit_status
        assert not out.exists()
        captured = capsys.readouterr()
        return captured.err if exit_status else captured.out

    return dry_run


def test_dry_run_estimates_downloads_requests_and_time(dry_run):
    options = ("--paper", "--dry-run", "--device-like")
    outputs = {device: dry_run(*options, device) for device in ("h100", "cpu")}
    output = outputs["cpu"]
    assert all(re.search(rf"{re.escape(model.name)} .* GB of weights", output) for model in paper.models())
    assert re.search(r"imagenet-val +50,000 items +6\.30 GB .* log in .*license: ImageNet's terms", output)
    # Datasets in one repository are downloaded once.
    assert "Disk: 5.8 GB of weights, 81.4 GB of datasets " in output
    # 4 x 48 + 2 x 64 heads, each with one request to the labeler and two to each of three judges
    assert re.search(r"all +2,240 requests, \d+\.\d\d dollars\n", output)
    assert "2,240 LLM requests" in Path("docs/reproduce-the-paper.md").read_text()
    assert "fairface-600" not in output  # the app's sample of a dataset isn't in the paper
    hours = {}
    for device, printed in outputs.items():
        hours[device] = [float(number) for number in re.findall(r"(\d+\.\d) (?:hours|for|to)", printed)]
        total, passes, decoding, bias, downloads = hours[device]
        assert total == pytest.approx(max(passes, decoding) + bias + downloads, abs=0.3)
    assert hours["h100"][1] < hours["cpu"][1]
    assert dry_run("--paper", "--dry-run") == output  # tests run on the CPU
    assert dry_run("--paper", exit_status=2).count("OPENAI_API_KEY") == 1


def test_dry_run_reports_unknown_sizes_and_needs_its_option(dry_run):
    assert "requires --dry-run" in dry_run("--device-like", "h100", exit_status=2)
    output = dry_run("--dry-run", "--dataset", "nope", "--images", "world/nope")
    assert re.findall(r"(\S+) +not counted", output) == ["world/nope", "nope"]


def test_documented_prices_equal_printed_ones(dry_run):
    page = Path("docs/judges.md").read_text()
    for name in ("organism", "ViT-B-32/openai", "ViT-L-14/openai"):
        output = dry_run("--model", name, "--labeler", "openai", "--judges", "default", "--dry-run")
        heads = re.search(r"(\d+) heads", output)[1]
        requests = re.search(r"all +(\d+) requests, (\S+)", output)
        assert f"| {name} | {heads} | {requests[1]} | {requests[2]} |" in page


COMPUTE = "compute --model {tiny} --texts {texts} --out {out}"
MISTAKES = [
    ("compute --out {out} --model organsim", "organism"),
    (f"{COMPUTE} --k 400", "fewer than --k 400"),
    (f"{COMPUTE} --ablate L99.H1", "L99"),
    (f"{COMPUTE} --top 5", "--top requires --gallery."),
    (f"{COMPUTE} --dataset world/letters --dataset world/letters", "Two datasets are named"),
    ("compute --k 7,x", "'7,x' must be whole numbers or ranges of them, such as 5,7 or 8-11."),
    ("compute --out {out} --texts NOTICE --labeler compatible:a@http://localhost:9", "have a concept"),
    ("localize --model {tiny} --max-images 20 --method guessing", "no method 'guessing'; there are"),
    ("search --model {tiny} --max-images 20 --save --results /nowhere/at", "/nowhere/at"),
    ("audit --prompts nope", "no prompt set 'nope'"),
    ("audit --model organism --model organism", "same folder"),
    ("mitigate --out docs", "already exists; give a new folder for --out"),
    ("mitigate --method prayer", "no method 'prayer'; there are ablation, scaling"),
    ("mitigate --model {tiny} --method LEACE --max-images 20 --out {out}/x", "can't hold LEACE: It adds a"),
    ("bias --gallery world/none --csv docs", "docs is a folder; give the name of a file"),
    ("export --model none --out NOTICE/x", "NOTICE/x cannot be written to: Not a directory"),
    ("report --results hf://datasets/a/b", "could not be loaded"),
]


@pytest.mark.usefixtures("few_people")
@pytest.mark.parametrize(("arguments", "error"), MISTAKES)
def test_command_error_is_clear(arguments, error, tiny_folder, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert command_line.main(arguments.format(tiny=tiny_folder, texts=texts, out=tmp_path).split()) == 2
    *_, last_line = capsys.readouterr().err.splitlines()
    assert last_line.startswith("error: ")
    assert error in last_line
    assert not list(tmp_path.rglob("*.parquet"))

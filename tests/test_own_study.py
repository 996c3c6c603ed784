"""The snippets of docs/your-own-study.md, as they stand, with a tiny model; the whole study, small."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import ccs
from ccs import results
from ccs.cli import command_line
from tests.support.app_page import rows
from tests.support.app_process import started
from tests.support.compute_sample import small_pool
from tests.support.datasets_sample import write_images
from tests.support.llm_server import CompatibleServer
from tests.support.tiny_model import write_tiny_model
from tests.support.visitor import Visitor

DOCUMENT = Path(__file__).parents[1] / "docs" / "your-own-study.md"
SECTIONS = re.split(r"^## ", DOCUMENT.read_text("utf-8"), flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def study(tmp_path_factory, pictures):
    folder = tmp_path_factory.mktemp("study")
    write_tiny_model(folder / "my_clip")
    write_images(folder / "pets", pictures(84)[60:], ["cat", "dog"])
    people = {"file": write_images(folder / "faces", pictures(60)), "gender": ["she", "he", "they"] * 20}
    people["age"] = [18 + i % 52 for i in range(60)]
    pd.DataFrame(people).to_csv(folder / "faces" / "labels.csv", index=False)
    small_pool(folder).rename(folder / "my_texts.csv")
    return folder


def command(line):
    """The exit code of a line `clip-ccs ...`, run in this process."""
    with contextlib.suppress(SystemExit):
        return command_line.main(shlex.split(line)[1:])
    return 0


def snippets(section):
    return re.findall(r"^```(sh|python)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def run(section, names, url=""):
    for language, block in snippets(section):
        if language == "python" and block.startswith("# "):
            Path(block.split()[1]).write_text(block)
        elif language == "python":
            exec(compile(block, "snippet", "exec"), names)
        else:
            for line in block.splitlines():
                assert command(line.replace("http://localhost:8000/v1", url)) == 0, line


def test_the_first_six_jobs_run_one_after_the_other(study, pictures, monkeypatch, capsys):
    monkeypatch.chdir(study)
    monkeypatch.syspath_prepend(str(study))
    with CompatibleServer() as server:
        names = {}
        for section in SECTIONS[:6]:
            run(section, names, server.base_url)
        assert server.asked
    sys.modules.pop("my_methods")
    said = capsys.readouterr().out
    assert "K 6 of 60, at most" in said
    ages = ccs.open_gallery("faces", attribute="age").groups["age"]
    assert ages.tolist()[:3] == ["10-19", "10-19", "20-29"]
    assert "chosen (2 heads)" in said
    assert "random:layers" in said
    assert {"occupation", "model", "gallery", "k"} <= set(pd.read_csv("bias.csv"))
    found = results.read(study / "results" / "my_clip")
    assert set(found.table("pruning")["dataset"]) == {"pets"}
    assert set(found.table("bias")["dataset"]) == {"faces"}
    assert len(results.read(study / "judged" / "my_clip").manifest["judges"]) == 2
    assert (study / "pruned" / "open_clip_model.safetensors").is_file()

    # Another set goes beside those that are there; the same set with other images replaces its figures.
    again = "clip-ccs compute --model my_clip --images pets --texts my_texts.csv --out results"
    write_images(study / "birds", pictures(92)[84:], ["owl", "wren"])
    # `--ablate` belongs to the plans: without it, what is there was made with others.
    assert command(f'{again} --dataset birds --ablate "L5.H1 L5.H2"') == 0
    assert "Kept in results/my_clip: the earlier results of faces, pets." in capsys.readouterr().out
    merged = results.read(study / "results" / "my_clip")
    assert set(merged.table("pruning")["dataset"]) == {"pets", "birds"}
    pd.testing.assert_frame_equal(merged.table("bias"), found.table("bias"))
    assert {one["name"] for one in merged.manifest["sets"]} == {"pets", "birds", "faces"}
    write_images(study / "pets", pictures(1), ["cat"])
    assert command(f"{again} --dataset birds") == 0
    replaced = (
        "Replaced in results/my_clip: the earlier results of pets, faces, birds (other images, ablate)."
    )
    assert replaced in capsys.readouterr().out

    # Another model of the same last name is refused.
    write_tiny_model(study / "other" / "my_clip", seed=5)
    before = (study / "results" / "my_clip" / "manifest.json").read_bytes()
    assert command(again.replace("my_clip", "other/my_clip")) == 2
    assert "has tables of other weights named 'my_clip'" in capsys.readouterr().err
    assert (study / "results" / "my_clip" / "manifest.json").read_bytes() == before


@pytest.mark.weekly
def test_the_page_opens_on_the_tables_and_a_real_run_is_tried_without_a_network(study, monkeypatch):
    """Jobs 7 and 8. What asks providers and the Hub for real is rehearsed by scripts.rehearse."""
    monkeypatch.chdir(study)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", str(DOCUMENT.parents[1]))
    run(SECTIONS[0], {})
    ((_, page),) = snippets(SECTIONS[6])
    line = shlex.split(page.replace("clip-ccs app", f"{sys.executable} -u -m ccs.app"))
    with started(os.environ, line, study) as (url, _), Visitor(url) as visitor:
        left = visitor.open(model="my_clip")["left"]
    assert rows("heads", left)[0]["head"] == "L2.H0"
    ((_, block),) = snippets(SECTIONS[7])
    login, dry, real, report, tried, publish = block.splitlines()
    assert login == "hf auth login"
    assert real.replace("--budget 5 --out results", "--dry-run") == dry
    assert tried.replace("--dry-run", "--space USER/SPACE --public") == publish
    for line in (dry, report, tried):
        assert command(line) == 0


@pytest.mark.weekly
def test_the_study_runs_from_one_command_to_the_app_without_a_hole(tmp_path):
    # A process of its own: the Hub's client reads its address when it is imported.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
    about = {"cwd": DOCUMENT.parents[1], "env": kept | {"OMP_NUM_THREADS": "1"}}
    command = [sys.executable, "-m", "scripts.rehearse", "--small", "--folder", str(tmp_path)]
    done = subprocess.run(command, **about, capture_output=True, text=True, check=False)
    said = f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    assert done.returncode == 0, said
    assert "\n0 missing results." in done.stdout, said
    assert (tmp_path / "results" / "ViT-B-32--openai" / "manifest.json").is_file()
    assert "## Figure 5. Text-to-video retrieval" in (tmp_path / "docs/report/report.md").read_text("utf-8")

"""All commands with custom models, images, texts, methods, and judges; a small rehearsal of the paper."""

import os
import shlex

import numpy as np
import pandas as pd
import pytest

import ccs
from ccs import results
from ccs.cli import command_line
from tests.support.compute_sample import write_small_pool
from tests.support.datasets_sample import write_images
from tests.support.llm_server import LLMServer
from tests.support.processes import run_python
from tests.support.tiny_model import write_tiny_model

COMPUTE = "clip-ccs compute --model my_clip --images pets --texts my_texts.csv"
COMMANDS = (
    f"{COMPUTE} --out results",
    "clip-ccs bias --model my_clip --gallery faces --attribute gender "
    '--occupations "judge, nurse" --csv bias.csv',
    f'{COMPUTE} --out results --dataset pets --template "a photo of a {{}}" --gallery faces '
    '--attribute gender --occupations "judge, nurse" --top 6 --ablate "L5.H1 L5.H2"',
    "clip-ccs search --model my_clip --gallery faces --attribute gender --occupations "
    '"judge, nurse, cook, pilot" --preserve pets --max-heads 2',
    'clip-ccs export --model my_clip --ablate "L5.H1 L5.H2" --out pruned',
    f"{COMPUTE} --out judged --labeler tags --judges compatible:small@URL,compatible:large@URL",
)


def score_gap(evidence):
    """Score heads by the distance between the groups' mean contributions along the prompts."""
    _, contributions = evidence.seen
    first, others = (contributions[mask].mean(0) for mask in (evidence.codes == 0, evidence.codes != 0))
    return dict(zip(evidence.model.heads, np.abs((first - others) @ evidence.prompts.T).mean(1), strict=True))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, random_images):
    folder = tmp_path_factory.mktemp("workspace")
    write_tiny_model(folder / "my_clip")
    write_images(folder / "pets", random_images(84)[60:], ["cat", "dog"])
    people = {"file": write_images(folder / "faces", random_images(60)), "gender": ["she", "he", "they"] * 20}
    pd.DataFrame(people).to_csv(folder / "faces" / "labels.csv", index=False)
    write_small_pool(folder).rename(folder / "my_texts.csv")
    return folder


def run_line(line):
    """Run a line `clip-ccs ...` in this process and return its exit code."""
    return command_line.main(shlex.split(line)[1:])


def test_all_commands_accept_custom_data(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    with LLMServer(provider="compatible") as server:
        for line in COMMANDS:
            assert run_line(line.replace("URL", server.base_url)) == 0, line
        assert server.requests
    capsys.readouterr()
    gallery = ccs.open_gallery("faces", attribute="gender")
    settings = {"template": "a photo of a {}", "top": 6, "ablate": "L5.H1"}
    table = ccs.bias("my_clip", gallery, ["judge", "nurse"], **settings).rows
    assert {"judge", "nurse"} <= set(table["occupation"])
    options = {"attribute": "gender", "occupations": "judge, nurse, cook, pilot", "preserve": "pets"}
    assert len(ccs.localize("my_clip", "faces", **options, method=score_gap).effects) > 0
    assert {"occupation", "model", "gallery", "k"} <= set(pd.read_csv("bias.csv"))
    first_results = results.read_results(workspace / "results" / "my_clip")
    assert set(first_results.table("pruning")["dataset"]) == {"pets"}
    assert set(first_results.table("bias")["dataset"]) == {"faces"}
    assert len(results.read_results(workspace / "judged" / "my_clip").manifest["judges"]) == 2

    # A second run replaces the tables of the first.
    rerun = f"{COMPUTE} --out results"
    assert run_line(f'{rerun} --dataset pets --ablate "L5.H1 L5.H2"') == 0
    assert "no longer has the earlier results of faces: name all" in capsys.readouterr().out
    replaced = results.read_results(workspace / "results" / "my_clip")
    assert [entry["name"] for entry in replaced.manifest["sets"]] == ["pets"]
    assert not len(replaced.table("bias"))

    # Another model with the same last name is rejected.
    write_tiny_model(workspace / "other" / "my_clip", seed=5)
    before = (workspace / "results" / "my_clip" / "manifest.json").read_bytes()
    assert run_line(rerun.replace("my_clip", "other/my_clip")) == 2
    assert "has tables of other weights named 'my_clip'" in capsys.readouterr().err
    assert (workspace / "results" / "my_clip" / "manifest.json").read_bytes() == before


@pytest.mark.weekly
def test_paper_rehearsal_has_no_missing_results(tmp_path):
    # In a new process, because the Hub's client reads its address at import.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CCS_"))}
    command = "-m", "scripts.rehearse", "--small", "--folder", tmp_path
    assert "\n0 missing results." in run_python(*command, env=environment | {"OMP_NUM_THREADS": "1"})
    assert (tmp_path / "results" / "ViT-B-32--openai" / "manifest.json").is_file()
    assert "## Figure 5. Text-to-video retrieval" in (tmp_path / "docs/report/report.md").read_text("utf-8")

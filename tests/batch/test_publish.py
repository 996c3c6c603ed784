"""batch.publish and ccs.results against a local server with the Hub's protocol."""

import copy
import os
from dataclasses import replace

import pytest
from huggingface_hub import close_session

from ccs import HeadSet, results
from ccs.batch import publish
from ccs.model import export
from ccs.results import searches
from tests.support import hub_server, local_server, processes
from tests.support.results_sample import make_manifest, write_sample_results

ADDRESS = "hf://datasets/user/ccs"


@pytest.fixture
def folder(tmp_path):
    write_sample_results(tmp_path / "results", "organism")
    return tmp_path / "results"


def publish_results(folder, *options):
    return publish.main(["--repo", "user/ccs", "--results", str(folder), *options])


def test_publish_adds_models_in_one_commit_and_keeps_others(hub, folder, tmp_path, capsys):
    for _ in range(2):
        assert publish_results(folder) == 0
    repository = hub.repositories["datasets", "user/ccs"]
    assert repository.private
    assert [commit.message for commit in repository.commits] == ["initial commit", "Results of organism"]
    assert f"{ADDRESS}@{repository.commits[-1].sha}." in capsys.readouterr().out
    before = hub.files("user/ccs")
    assert before["organism/spans.parquet"] == (folder / "organism/spans.parquet").read_bytes()
    write_sample_results(tmp_path / "more", "ViT-B-32/openai")
    assert publish_results(tmp_path / "more", "--public") == 0
    after = hub.files("user/ccs")
    assert not repository.private
    assert all(after[path] == data for path, data in before.items() if path != "README.md")
    assert "ViT-B-32--openai/bias.parquet" in after
    assert {"### organism", "### ViT-B-32/openai"} <= {*after["README.md"].decode().splitlines()}

    write_sample_results(folder, "organism", only=("spans", "scores"))  # tables of an earlier run are deleted
    assert publish_results(folder) == 0
    names = {path.removeprefix("organism/") for path in hub.files("user/ccs") if path.startswith("organism/")}
    assert names == {"spans.parquet", "scores.parquet", "manifest.json"}
    assert "ViT-B-32--openai/bias.parquet" in hub.files("user/ccs")


def test_model_name_cannot_add_markup_to_cards(tiny_model):
    name = "x\n\n# Not measured\n<img src=//a.b/c.png>"
    model = copy.copy(tiny_model)
    model.name, model.tag = name, ""
    exported = export.model_card(model, export.WeightChange(HeadSet()), 0.0, "open_clip")
    for card in (publish.dataset_card("user/ccs", {"m": make_manifest(name, {})}), exported):
        assert "x # Not measured &lt;img" in card
        assert "\n# Not" not in card


def test_searches_are_published_and_loaded(hub, folder, tmp_path):
    sources = [results.read_all(source, "").models["organism"] for source in (folder, results.PRECOMPUTED)]
    weights, bundled_weights = (source.manifest["model"]["weights_hash"] for source in sources)
    bundled_search, *_ = searches.beside(results.PRECOMPUTED, "organism", bundled_weights)
    search = replace(bundled_search, weights_hash=weights)
    assert publish_results(folder) == 0
    path = searches.keep(folder, search)
    assert publish_results(folder) == 0
    assert hub.files("user/ccs")["organism.search.json"] == path.read_bytes()
    downloaded = results.load(ADDRESS, cache=tmp_path / "cache").models["organism"].folder.parent
    assert searches.beside(downloaded, "organism", weights) == (search,)


def test_load_pins_revisions_and_falls_back_to_cache(hub, folder, tmp_path):
    cache = tmp_path / "cache"
    publish_results(folder)
    commit = hub.repositories["datasets", "user/ccs"].commits[-1].sha
    write_sample_results(folder, "second")
    publish_results(folder)

    pinned = results.load(f"{ADDRESS}@{commit}", cache=cache)
    assert list(pinned.models) == ["organism"]
    assert pinned.source == f"the Hub ({ADDRESS}@{commit}, commit {commit[:12]})"
    newest = results.load(ADDRESS, cache=cache)
    assert sorted(newest.models) == ["organism", "second"]

    hub.faults["."] = lambda _: hub_server.refuse_request(503, "busy")
    cached = results.load(ADDRESS, cache=cache)
    assert cached.source.split("commit")[1] == newest.source.split("commit")[1]
    assert "could not be loaded: status 503" in cached.notices[0]

    write_sample_results(tmp_path / "bundled", "organism")
    bundled = results.load(ADDRESS, fallback=tmp_path / "bundled", cache=tmp_path / "empty")
    assert bundled.source.startswith("the bundled results")
    assert bundled.notices[1] == f"There is no cached copy of {ADDRESS}."


def test_failed_commit_publishes_nothing_and_hides_the_token(hub, folder, capsys):
    for fault, message in (
        (lambda _: hub_server.refuse_request(409, "conflict"), "409 for user/ccs: somebody else changed it"),
        (local_server.drop_connection, "could not be reached for user/ccs"),
    ):
        hub.faults["POST .*/commit/"] = fault
        assert publish_results(folder) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert "Traceback" not in captured.err
        assert hub_server.TOKEN not in captured.err + captured.out
        (repository,) = hub.repositories.values()
        assert list(repository.commits[-1].files) == [".gitattributes"]


def test_unusable_proxy_is_explained(hub, folder, capsys, monkeypatch):
    close_session()  # the next one reads the environment
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    assert publish_results(folder) == 2
    assert "error: The Hub could not be reached for user/ccs: Using SOCKS" in capsys.readouterr().err


def test_published_tables_load_with_datasets(hub, folder, tmp_path):
    write_sample_results(folder, "ViT-B-32/openai")
    publish_results(folder)
    script = """
import datasets
for name in ("spans", "judgments", "bias", "heads"):
    table = datasets.load_dataset("user/ccs", name, split="train")
    assert len(table) == 4, (name, len(table))
assert set(table.unique("model")) == {"organism", "ViT-B-32/openai"}
assert datasets.load_dataset("user/ccs", split="train").column_names[4:6] == ["label", "k"]
"""
    env = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    processes.run_python("-c", script, env=env)

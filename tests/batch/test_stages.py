"""Stages of a run: reuse of finished shards, the lock of a folder, and requests to LLM judges."""

import json

import numpy as np
import pytest

from ccs import Head, InputError
from ccs.batch.compute.__main__ import main
from ccs.batch.compute.inputs import shards_of
from ccs.batch.compute.judge import Judging, score_heads
from ccs.batch.compute.stages import Processes, Store, locked, start
from ccs.texts import pools, textspan
from tests.support import llm_server


def test_world_size_without_launcher_is_ignored(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert start("cpu") == Processes(device="cpu")


def write_missing_shards(stage):
    with stage.working(3):
        for index in stage.missing:
            stage.write({"x": np.full(3, index, dtype=np.float32)}, index)


def test_stage_redoes_damaged_shards_and_those_of_other_inputs(tmp_path, monkeypatch):
    def open_stage(number):
        return Store(tmp_path, Processes()).stage("world/faces", {"a": number}, shards=3)

    stage = open_stage(1)
    write_missing_shards(stage)
    stage.paths[1].write_bytes(stage.paths[1].read_bytes()[:-1] + b"!")
    stage.paths[2].rename(stage.paths[2].with_name("00007" + stage.paths[2].name[5:]))
    (stage.folder / ".00000.1.tmp").write_text("half a shard")
    damaged = open_stage(1)
    assert damaged.missing == [1, 2]
    assert not list(damaged.folder.glob("*.tmp"))
    write_missing_shards(damaged)
    complete = open_stage(1)
    assert not complete.missing
    assert complete.read(2)["x"].tolist() == [2, 2, 2]
    changed = open_stage(2)
    assert changed.missing == [0, 1, 2]
    write_missing_shards(changed)
    assert len(list(changed.folder.glob("*.safetensors"))) == 3
    monkeypatch.setattr("ccs.batch.compute.stages.package_version", lambda: "9.9")
    assert open_stage(2).missing == [0, 1, 2]


def test_folder_is_locked_while_a_run_writes_to_it(tmp_path):
    for _ in range(2):
        with locked(tmp_path), pytest.raises(InputError, match="Another run is writing to"), locked(tmp_path):
            pass


@pytest.mark.parametrize("items", [0, 1, 127, 128, 129, 5000, 1_000_000_000])
def test_shards_cover_all_items(items):
    shards = shards_of(items)
    assert (sum(map(len, shards)), shards[-1].stop) == (items, items)
    assert len(shards) < 20_000


POOL = pools.load_pool("world")
HEADS = [Head(7, h) for h in range(4)]
TEXTS = {head: range(17 * head.head, 17 * head.head + 20, 5) for head in HEADS}
SPANS = {head: tuple(textspan.Span(POOL.texts[i], 0.1, i) for i in TEXTS[head]) for head in HEADS}


def label_or_judge(user, schema):
    """Label every head with a spelling of Diversity, and accept every second text."""
    if "concept" in schema["required"]:
        return json.dumps({"reason": "so", "concept": "Varied"})
    return llm_server.encode_verdicts({name: int(name[-1]) % 2 == 1 for name in schema["required"]})


def test_texts_of_main_k_are_judged_separately(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")

    def judge(spans, ks):
        arguments = ["--judges", server.spec, "--labeler", server.spec, "--k", ks]
        judging = Judging(main.parse([*arguments, "--out", str(tmp_path / ks)]), POOL)
        answers = judging.label(spans)
        labels = {head: answer.wording for head, answer in answers.items()}
        return answers, labels, judging.judge(spans, labels)

    with llm_server.LLMServer(label_or_judge) as server:
        answers, labels, rows = judge(SPANS, "2,3,4")
        questions = [json.loads(request.user) for request in server.requests]
        *_, rows_of_main_k = judge({head: spans[:2] for head, spans in SPANS.items()}, "2")
    assert {question.get("concept") for question in questions} == {None, "Varied"}
    assert {(answer.wording, answer.label) for answer in answers.values()} == {("Varied", "Diversity")}
    # per head: the label, the two texts of the main K, and the two further ones
    assert [len(question["texts"]) for question in questions] == [2] * 12
    assert rows_of_main_k == [row for row in rows if row["rank"] < 2]
    assert [len({row["rank"] for row in rows if row["head"] == head.head}) for head in HEADS] == [4] * 4
    scores, table = score_heads(SPANS, labels, rows, dict.fromkeys(HEADS, 1.0), (2, 3, 4))
    ccs = {k: {score.ccs for score in head_scores.values()} for k, head_scores in scores.items()}
    assert ccs == {2: {1}, 3: {2}, 4: {2}}
    assert [row["k"] for row in table] == [2] * 4 + [3] * 4 + [4] * 4
    assert table[-1]["share"] == pytest.approx(0.4)

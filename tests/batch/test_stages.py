"""How a run's work is cut, what of it stays done, and what is not whole is not trusted; who is asked what."""

import json

import numpy as np
import pytest

from ccs import Head, InputError
from ccs.batch.compute.__main__ import main
from ccs.batch.compute.inputs import shards_of
from ccs.batch.compute.judge import Judging, score_heads
from ccs.batch.compute.stages import Processes, Store, locked
from ccs.texts import pools, textspan
from tests.support import llm_server


def fill(stage):
    with stage.working(3):
        for index in stage.missing:
            stage.write({"x": np.full(3, index, dtype=np.float32)}, index)


def test_another_version_of_the_package_reuses_nothing(tmp_path, monkeypatch):
    def key():
        return Store(tmp_path, Processes()).stage("statistics", {"a": 1}).key

    before = key()
    monkeypatch.setattr("ccs.batch.compute.stages.package_version", lambda: "9.9")
    assert key() != before


def test_what_is_not_what_its_name_says_or_has_another_input_is_made_again(tmp_path):
    def stage_of(number):
        return Store(tmp_path, Processes()).stage("world/faces", {"a": number}, shards=3)

    stage = stage_of(1)
    fill(stage)
    stage.paths[1].write_bytes(stage.paths[1].read_bytes()[:-1] + b"!")
    stage.paths[2].rename(stage.paths[2].with_name("00007" + stage.paths[2].name[5:]))
    (stage.folder / ".00000.1.tmp").write_text("half a shard")
    again = stage_of(1)
    assert again.missing == [1, 2]
    assert not list(again.folder.glob("*.tmp"))
    fill(again)
    assert not (whole := stage_of(1)).missing
    assert whole.read(2)["x"].tolist() == [2, 2, 2]
    changed = stage_of(2)
    assert changed.missing == [0, 1, 2]
    fill(changed)
    assert len(list(changed.folder.glob("*.safetensors"))) == 3


def test_the_second_run_says_so_and_stops(tmp_path):
    for _ in range(2):  # a run that has ended holds nothing
        with locked(tmp_path), pytest.raises(InputError, match="Another run is writing to"), locked(tmp_path):
            pass


@pytest.mark.parametrize("items", [0, 1, 127, 128, 129, 5000, 1_000_000_000])
def test_shards_cover_everything_once(items):
    shards = shards_of(items)
    assert (sum(map(len, shards)), shards[-1].stop) == (items, items)
    assert len(shards) < 20_000


POOL = pools.load_pool("world")
HEADS = [Head(7, h) for h in range(4)]
SPANS = {
    head: tuple(textspan.Span(POOL.texts[17 * n + 5 * i], 0.1, 17 * n + 5 * i) for i in range(4))
    for n, head in enumerate(HEADS)
}


def name_or_judge(user, schema):
    """All labels are a spelling of Diversity; of the texts judged, those of an odd place are accepted."""
    if "concept" in schema["required"]:
        return json.dumps({"reason": "so", "concept": "Varied"})
    return llm_server.encode_verdicts({name: int(name[-1]) % 2 == 1 for name in schema["required"]})


def test_the_main_texts_are_asked_alone_about_the_label_as_given(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")

    def judge(spans, ks):
        arguments = ["--judges", server.spec, "--labeler", server.spec, "--k", ks]
        judging = Judging(main.parse([*arguments, "--out", str(tmp_path / ks)]), POOL)
        answers = judging.label(spans)
        labels = {head: answer.wording for head, answer in answers.items()}
        return answers, labels, judging.judge(spans, labels)

    with llm_server.LLMServer(name_or_judge) as server:
        answers, labels, rows = judge(SPANS, "2,3,4")
        questions = [json.loads(request.user) for request in server.requests]
        *_, alone = judge({head: spans[:2] for head, spans in SPANS.items()}, "2")
    assert {question.get("concept") for question in questions} == {None, "Varied"}
    assert {(answer.wording, answer.label) for answer in answers.values()} == {("Varied", "Diversity")}
    # labels, the texts of the main K, and the further ones
    assert [len(question["texts"]) for question in questions] == [2] * 12
    assert alone == [row for row in rows if row["rank"] < 2]
    assert [len({row["rank"] for row in rows if row["head"] == head.head}) for head in HEADS] == [4] * 4
    scores, table = score_heads(SPANS, labels, rows, dict.fromkeys(HEADS, 1.0), (2, 3, 4))
    ccs = {k: {score.ccs for score in head_scores.values()} for k, head_scores in scores.items()}
    assert ccs == {2: {1}, 3: {2}, 4: {2}}
    assert [row["k"] for row in table] == [2] * 4 + [3] * 4 + [4] * 4
    assert table[-1]["share"] == pytest.approx(0.4)

"""The stages that name and judge: several K in one question, and limits from the command line."""

import json

import pytest

from ccs.batch.compute import parse
from ccs.batch.compute.judge import Judging, score_heads
from ccs.batch.compute.stages import Processes, Store
from ccs.heads import Head
from ccs.texts.pools import load_pool
from ccs.texts.textspan import Span
from tests.support.llm_server import OpenAIServer, verdicts

POOL = load_pool("world")
HEADS = [Head(7, h) for h in range(4)]
SPANS = {
    head: tuple(Span(POOL.texts[17 * n + 5 * i], 0.1, 17 * n + 5 * i) for i in range(4))
    for n, head in enumerate(HEADS)
}


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")


def judging(out, *more):
    settings = parse(["--k", "2,3,4", "--out", str(out), *more])
    return Judging(settings, Store(out / "stages", Processes()), POOL)


def name_or_judge(user, schema):
    """All labels are a spelling of Diversity; of the texts judged, those of an odd place are accepted."""
    if "concept" in schema["required"]:
        return json.dumps({"reason": "so", "concept": "Varied"})
    return verdicts({name: int(name[-1]) % 2 == 1 for name in schema["required"]})


def test_the_main_texts_are_asked_alone_about_the_label_as_given(tmp_path):
    with OpenAIServer(name_or_judge) as server:
        asked = judging(tmp_path, "--judges", server.spec, "--labeler", server.spec)
        labels = asked.labels(SPANS)
        rows = asked.judgments(SPANS, labels)
        sizes = sorted(len(json.loads(seen.user)["texts"]) for seen in server.asked)
        judged = {json.loads(seen.user).get("concept") for seen in server.asked}
        below = judging(tmp_path / "two", "--judges", server.spec, "--labeler", server.spec, "--k", "2")
        fewer = {head: spans[:2] for head, spans in SPANS.items()}
        alone = below.judgments(fewer, below.labels(fewer))
    assert judged == {None, "Varied"}
    assert (set(labels.values()), set(asked.normal.values())) == ({"Varied"}, {"Diversity"})
    assert sizes == [2] * 12  # labels, the texts of the main K, and the further ones
    assert alone == [row for row in rows if row["rank"] < 2]
    assert [len({row["rank"] for row in rows if row["head"] == head.head}) for head in HEADS] == [4] * 4
    scores, table = score_heads(SPANS, labels, rows, dict.fromkeys(HEADS, 1.0), (2, 3, 4))
    assert {k: {score.ccs for score in found.values()} for k, found in scores.items()} == {
        2: {1}, 3: {2}, 4: {2},
    }  # fmt: skip
    assert [row["k"] for row in table] == [2] * 4 + [3] * 4 + [4] * 4
    assert table[-1]["share"] == pytest.approx(0.4)

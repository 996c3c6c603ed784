"""A panel as a whole: cache, interrupted runs, limits, and the budget; and the labeler."""

import json
import shutil
from dataclasses import replace

import pytest

from ccs import Head, InputError, paper
from ccs.judges.panel import Labeled, Labeler, Panel
from ccs.judges.question import Question, worked_examples
from ccs.texts.pools import make_pool
from tests.support.llm_server import SERVERS, LLMServer, reply, reply_error, reply_half, reply_refusal

QUESTIONS = [Question(f"Concept {n}", (f"text {n} a", f"text {n} b")) for n in range(6)]


def test_panel_combines_tags_and_models(settings):
    rows = [(f"text {n} a", f"Concept {n}") for n in "01"] + [(f"text {n} b", "Other") for n in "01"]
    with LLMServer() as server:
        panel = Panel(f"tags,{server.spec}", settings, tags=make_pool("small", rows))
        answers = panel.judge([*QUESTIONS[:2], Question("Empty", ())])
    verdicts = [[[j.verdict for j in texts] for texts in judges] for judges in answers]
    assert verdicts == [[[True, False], [True, True]]] * 2 + [[[], []]]
    assert [entry["stand_in"] for entry in panel.manifest_entries()] == [True, False]


@pytest.fixture
def limits(settings, tmp_path):
    """A budget of 2.50 dollars. A request can cost at most 1 dollar of output, and costs 0.20."""
    table = tmp_path / "prices.json"
    table.write_text('{"openai:gpt-4o": {"input": 0, "output": 10000}}')
    return replace(settings, budget=2.5, prices=table, max_tokens=100, concurrency=4)


def test_budget_is_not_exceeded(limits):
    questions = [replace(QUESTIONS[0], label=f"Concept {n}") for n in range(20)]
    with LLMServer() as server:
        panel = Panel(server.spec, limits)
        causes = [judges[0][0].cause for judges in panel.judge(questions)]
        # Before each request, its highest possible cost (1 dollar) must fit: (2.50 - 1) / 0.20 = 7.5
        assert len(server.requests) == 8
        assert panel.spending.spent == pytest.approx(0.2 * 8)
        assert causes.count("") == 8
        (refused,) = {*causes} - {""}
        assert "the request could exceed 2.50 dollars; raise --budget" in refused
        Panel(server.spec, replace(limits, budget=None)).judge(questions)
        assert len(server.requests) == 20  # paid answers were cached
    (spent,) = panel.spent(questions)
    assert (spent["calls"], spent["input_tokens"], spent["output_tokens"]) == (20, 2000, 400)
    assert spent["dollars"] == pytest.approx(4.0)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_refused_connection_is_free_and_lost_one_costs_maximum(limits, provider):
    with SERVERS[provider]() as server:
        limits.prices.write_text(json.dumps({server.name: {"input": 0, "output": 10000}}))
        panel = Panel(f"{server.name}@http://127.0.0.1:9/v1", limits)
        causes = [judges[0][0].cause for judges in panel.judge(QUESTIONS[:3])]
        assert [cause.partition(":")[0] for cause in causes] == ["connection"] * 3
        assert panel.spending.spent == 0
        server.queued_replies.append(reply_half)
        panel = Panel(server.spec, limits)
        assert panel.judge(QUESTIONS[:1])[0][0][0].verdict is True
        assert panel.spending.spent == pytest.approx(1 + 0.2)


def test_rejected_key_stops_run_and_keeps_answers(settings):
    with LLMServer() as server:
        server.queued_replies.extend([reply(), reply_error(401)])
        with pytest.raises(InputError, match="does not accept the key"):
            Panel(server.spec, replace(settings, concurrency=1)).judge(QUESTIONS)
        assert len(server.requests) == 2  # no more were sent
        Panel(server.spec, settings).judge([QUESTIONS[0], QUESTIONS[0]])
        assert len(server.requests) == 2  # equal questions are one request, whose answer is cached


def test_killed_run_resumes_without_repeating_requests(settings, tmp_path):
    """Resume with a copy of the cache from the moment of the fourth request, as a kill leaves it."""
    sequential, copy = replace(settings, concurrency=1), tmp_path / "copy"
    with LLMServer() as server:

        def copy_cache(*arguments):
            shutil.copytree(settings.cache.parent, copy)
            return reply()(*arguments)

        server.queued_replies.extend([reply()] * 3 + [copy_cache])
        Panel(server.spec, sequential).judge(QUESTIONS)
        messages = [request.user for request in server.requests]
        judged = Panel(server.spec, replace(sequential, cache=copy / settings.cache.name)).judge(QUESTIONS)
        assert [[text.verdict for text in texts] for (texts,) in judged] == [[True] * 2] * 6
        assert [request.user for request in server.requests[6:]] == messages[3:]


TEXTS = {Head(0, 1): ("a red door", "a blue sky", "green"), Head(0, 2): ("a lion", "a horse", "a beach")}


def answer_concept(user, schema):
    texts = json.loads(user)["texts"]
    return encode_concept("colours" if "a red door" in texts.values() else "ANIMAL")


def encode_concept(name):
    return json.dumps({"reason": "Most of them are.", "concept": name})


def test_labels_are_normalized_and_cached(settings):
    with LLMServer(answer_concept) as server:
        labels = Labeler(server.spec, settings).label(TEXTS)
        assert labels == {Head(0, 1): Labeled("Colors", "colours"), Head(0, 2): Labeled("Animals", "ANIMAL")}
        assert Labeler(server.spec, settings).label(TEXTS) == labels
    first, _ = server.requests
    assert all(json.dumps(example.label) in first.system for example in worked_examples(Head(0, 1), ()))
    assert list(json.loads(first.user)) == ["texts"]


def test_worked_examples_exclude_labeled_head():
    for example in paper.examples():
        by_name = worked_examples(example.head, ("x", "y"))
        by_texts = worked_examples(Head(0, 0), example.texts[:3])
        for chosen in (by_name, by_texts):
            assert len({chosen_example.texts for chosen_example in chosen}) == 5
            assert example not in chosen
    assert {example.level for example in worked_examples(Head(0, 0), ("x",))} == {"high", "moderate", "low"}


UNLABELED = [(reply_refusal, "refusal"), (reply(encode_concept("?!")), "off-schema: concept is empty")]


@pytest.mark.parametrize(("failure", "cause"), UNLABELED, ids=["refusal", "off-schema"])
def test_missing_label_has_cause_and_is_requested_again(settings, failure, cause):
    texts = {Head(0, 1): TEXTS[Head(0, 1)]}
    with LLMServer(answer_concept) as server:
        server.queued_replies.append(failure)
        (unlabeled,) = Labeler(server.spec, settings).label(texts).values()
        assert unlabeled.label is unlabeled.wording is None
        assert unlabeled.cause.startswith(cause)
        assert Labeler(server.spec, settings).label(texts)[Head(0, 1)].label == "Colors"

"""A panel as a whole: the cache, a kill, limits and the budget; and the labeler."""

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


def test_stand_ins_and_models_sit_in_one_panel(settings):
    rows = [(f"text {n} a", f"Concept {n}") for n in "01"] + [(f"text {n} b", "Other") for n in "01"]
    tags = make_pool("small", rows)
    with LLMServer() as server:
        panel = Panel(f"tags,{server.spec}", settings, tags=tags)
        answers = panel.judge([*QUESTIONS[:2], Question("Empty", ())])
    assert [[[j.verdict for j in texts] for texts in judges] for judges in answers] == [
        [[True, False], [True, True]],
        [[True, False], [True, True]],
        [[], []],
    ]
    assert [entry["stand_in"] for entry in panel.manifest_entries()] == [True, False]


@pytest.fixture
def limits(settings, tmp_path):
    """A budget of 2.5 dollars; each request may cost 1 dollar of output, and costs 0.2."""
    table = tmp_path / "prices.json"
    table.write_text('{"openai:gpt-4o": {"input": 0, "output": 10000}}')
    return replace(settings, budget=2.5, prices=table, max_tokens=100, concurrency=4)


def test_a_budget_stops_before_it_is_exceeded(limits):
    questions = [replace(QUESTIONS[0], label=f"Concept {n}") for n in range(20)]
    with LLMServer() as server:
        panel = Panel(server.spec, limits)
        causes = [judges[0][0].cause for judges in panel.judge(questions)]
        requests = len(server.requests)
        # 0.2 dollars each, and the most that one can cost (1 dollar) must still fit: (2.5 - 1) / 0.2 = 7.5
        assert requests == 8
        assert panel.spending.spent == pytest.approx(0.2 * requests)
        assert causes.count("") == requests
        (refused,) = {*causes} - {""}
        assert "the request could exceed 2.50 dollars; raise --budget" in refused
        Panel(server.spec, replace(limits, budget=None)).judge(questions)
        assert len(server.requests) == 20  # what was paid for was kept
    (spent,) = panel.spent(questions)
    assert (spent["calls"], spent["input_tokens"], spent["output_tokens"]) == (20, 2000, 400)
    assert spent["dollars"] == pytest.approx(4.0)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_refused_connection_costs_nothing_and_a_lost_one_the_most(limits, kind):
    with SERVERS[kind]() as server:
        limits.prices.write_text(json.dumps({server.name: {"input": 0, "output": 10000}}))
        panel = Panel(f"{server.name}@http://127.0.0.1:9/v1", limits)
        causes = [judges[0][0].cause for judges in panel.judge(QUESTIONS[:3])]
        assert [cause.partition(":")[0] for cause in causes] == ["connection"] * 3
        assert panel.spending.spent == 0
        server.queued_replies.append(reply_half)
        panel = Panel(server.spec, limits)
        assert panel.judge(QUESTIONS[:1])[0][0][0].verdict is True
        assert panel.spending.spent == pytest.approx(1 + 0.2)


def test_a_key_that_is_not_accepted_ends_the_run_and_what_had_arrived_is_kept(settings):
    with LLMServer() as server:
        server.queued_replies.extend([reply(), reply_error(401)])
        with pytest.raises(InputError, match="does not accept the key"):
            Panel(server.spec, replace(settings, concurrency=1)).judge(QUESTIONS)
        assert len(server.requests) == 2  # nothing was sent after the refusal of the key
        Panel(server.spec, settings).judge([QUESTIONS[0], QUESTIONS[0]])
        assert len(server.requests) == 2  # equal questions are one request, whose answer was kept


def test_killed_half_way_and_restarted_nothing_is_lost_or_asked_twice(settings, tmp_path):
    """On a copy of the cache from the moment of the fourth request, as a kill would leave it."""
    one_by_one, left = replace(settings, concurrency=1), tmp_path / "left"
    with LLMServer() as server:

        def leave(*arguments):
            shutil.copytree(settings.cache.parent, left)
            return reply()(*arguments)

        server.queued_replies.extend([reply()] * 3 + [leave])
        Panel(server.spec, one_by_one).judge(QUESTIONS)
        requests = [request.user for request in server.requests]
        judged = Panel(server.spec, replace(one_by_one, cache=left / settings.cache.name)).judge(QUESTIONS)
        assert [[text.verdict for text in texts] for (texts,) in judged] == [[True] * 2] * 6
        assert [request.user for request in server.requests[6:]] == requests[
            3:
        ]  # the fourth had no answer yet


TEXTS = {Head(0, 1): ("a red door", "a blue sky", "green"), Head(0, 2): ("a lion", "a horse", "a beach")}


def name_it(user, schema):
    texts = json.loads(user)["texts"]
    return concept("colours" if "a red door" in texts.values() else "ANIMAL")


def concept(name):
    return json.dumps({"reason": "Most of them are.", "concept": name})


def test_labels_are_given_by_five_examples_normalized_and_cached(settings):
    with LLMServer(name_it) as server:
        labels = Labeler(server.spec, settings).label(TEXTS)
        assert labels == {Head(0, 1): Labeled("Colors", "colours"), Head(0, 2): Labeled("Animals", "ANIMAL")}
        assert Labeler(server.spec, settings).label(TEXTS) == labels
    first, _ = server.requests
    assert all(json.dumps(example.label) in first.system for example in worked_examples(Head(0, 1), ()))
    assert list(json.loads(first.user)) == ["texts"]


def test_no_example_is_the_head_being_labeled():
    for example in paper.examples():
        by_name = worked_examples(example.head, ("x", "y"))
        by_texts = worked_examples(Head(0, 0), example.texts[:3])
        for chosen in (by_name, by_texts):
            assert len({shown_head.texts for shown_head in chosen}) == 5
            assert example not in chosen
    assert {example.level for example in worked_examples(Head(0, 0), ("x",))} == {"high", "moderate", "low"}


NO_LABEL = [(reply_refusal, "refusal"), (reply(concept("?!")), "off-schema: concept is empty")]


@pytest.mark.parametrize(("act", "cause"), NO_LABEL)
def test_no_label_comes_with_its_cause(settings, act, cause):
    texts = {Head(0, 1): TEXTS[Head(0, 1)]}
    with LLMServer(name_it) as server:
        server.queued_replies.append(act)
        (none,) = Labeler(server.spec, settings).label(texts).values()
        assert none.label is none.wording is None
        assert none.cause.startswith(cause)
        assert Labeler(server.spec, settings).label(texts)[Head(0, 1)].label == "Colors"

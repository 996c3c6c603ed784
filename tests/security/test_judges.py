"""Malicious judges: replies are scored or unscored with a cause, and API keys stay private."""

import json
from dataclasses import replace

import pytest

from ccs.judges.panel import Panel
from tests.judges.conftest import KEY, QUESTION, failure_cause, judge_question, keys  # noqa: F401 (fixture)
from tests.support.llm_server import LLMServer, never_reply, reply, reply_bomb, reply_endlessly, reply_error

REPLIES = {
    "endless reply": ([reply_endlessly] * 2, "timeout"),
    "no reply": ([never_reply] * 2, "timeout"),
    "huge error": ([reply_error(400, "x" * 10**6)], "rejected"),
    "reply of two megabytes": ([reply("x" * 2**21)] * 2, "connection"),
    "gzip bomb": ([reply_bomb] * 2, "connection"),
}


@pytest.mark.parametrize(("replies", "cause"), REPLIES.values(), ids=REPLIES)
def test_malicious_reply_is_unscored_with_cause(server, settings, replies, cause):
    limits = {"timeout": 0.25} if cause == "timeout" else {}
    assert cause in failure_cause(server, settings, *replies, retries=1, **limits)


@pytest.mark.parametrize("code", [302, 307])
def test_redirect_does_not_forward_api_key(server, settings, code):
    with LLMServer() as other:
        headers = {"Location": f"{other.url}{server.path}"}
        failure_cause(server, settings, reply_error(code, headers=headers))
        assert not other.requests


@pytest.mark.parametrize("token_count", [-100, 10**30, "many", None])
def test_implausible_usage_keeps_budget_and_answer(server, settings, token_count):
    """The budget charges the largest possible cost for an implausible token count."""
    server.usage = dict.fromkeys(server.usage, token_count)
    panel = Panel(server.spec, replace(settings, retries=0, budget=5.0))
    ((judgments,),) = panel.judge([QUESTION])
    assert {judgment.verdict for judgment in judgments} == {True}
    (spent,) = panel.spent([QUESTION])
    assert (spent["calls"], spent["calls_without_usage"], spent["input_tokens"]) == (1, 1, 0)
    if server.provider != "compatible":  # free
        assert 0 < panel.spending.spent == pytest.approx(spent["dollars"], abs=1e-6)
        assert panel.spending.spent < 5


def test_cached_reply_hides_api_key_and_invalid_unicode(server, settings):
    verdict = {"reason": f"Your key is {KEY} \ud800.", "verdict": True}
    server.queued_replies.append(reply(json.dumps({f"text_{n}": verdict for n in (1, 2, 3)})))
    judgments = judge_question(server, settings)
    verdicts = [(judgment.verdict, judgment.reason) for judgment in judgments]
    assert verdicts == [(True, "Your key is [key] ?.")] * 3
    assert judge_question(server, settings) == judgments  # from the cache
    assert len(server.requests) == 1

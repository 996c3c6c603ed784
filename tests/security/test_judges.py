"""Judges that are hostile: each question ends unscored with its cause, or scored as asked; no key travels."""

import json
from dataclasses import replace

import pytest

from ccs.judges.panel import Panel
from tests.judges.conftest import KEY, keys  # noqa: F401 (a fixture of every test)
from tests.judges.test_judges_providers import QUESTION, ask, cause_of
from tests.support.llm_server import (
    LLMServer,
    never_reply,
    reply,
    reply_endlessly,
    reply_error,
    reply_gzip_bomb,
)

ACTS = {
    "a reply without end": ([reply_endlessly] * 2, "timeout"),
    "no reply": ([never_reply] * 2, "timeout"),
    "a huge error": ([reply_error(400, "x" * 10**6)], "rejected"),
    "a reply of two megabytes": ([reply("x" * 2**21)] * 2, "connection"),
    "a reply that unfolds": ([reply_gzip_bomb] * 2, "connection"),
}


@pytest.mark.parametrize(("acts", "cause"), ACTS.values(), ids=ACTS)
def test_a_hostile_reply_is_unscored_with_its_cause(server, settings, acts, cause):
    limits = {"timeout": 0.25} if cause == "timeout" else {}
    assert cause in cause_of(server, settings, *acts, retries=1, **limits)


@pytest.mark.parametrize("code", [302, 307])
def test_a_redirect_takes_the_key_to_no_other_host(server, settings, code):
    with LLMServer() as other:
        cause_of(server, settings, *[reply_error(code, headers={"Location": f"{other.url}{server.path}"})])
        assert not other.requests


@pytest.mark.parametrize("lie", [-100, 10**30, "many", None])
def test_odd_usage_opens_no_budget_and_discards_no_answer(server, settings, lie):
    """A budget counts the tokens of replies; an implausible count is paid as the most it could be."""
    server.usage = dict.fromkeys(server.usage, lie)
    panel = Panel(server.spec, replace(settings, retries=0, budget=5.0))
    ((judgments,),) = panel.judge([QUESTION])
    assert {judgment.verdict for judgment in judgments} == {True}
    (spent,) = panel.spent([QUESTION])
    assert (spent["calls"], spent["calls_without_usage"], spent["input_tokens"]) == (1, 1, 0)
    if server.provider != "compatible":  # free
        assert 0 < panel.spending.spent == pytest.approx(spent["dollars"], abs=1e-6)
        assert panel.spending.spent < 5


def test_what_a_reply_says_is_kept_without_keys_and_as_valid_unicode(server, settings):
    verdict = {"reason": f"Your key is {KEY} \ud800.", "verdict": True}
    server.queued_replies.append(reply(json.dumps({f"text_{n}": verdict for n in (1, 2, 3)})))
    judgments = ask(server, settings)
    answers = [(judgment.verdict, judgment.reason) for judgment in judgments]
    assert answers == [(True, "Your key is [key] ?.")] * 3
    assert ask(server, settings) == judgments  # from the cache
    assert len(server.requests) == 1

"""The real SDK against a local server of each provider: successful replies and every cause of failure."""

import json
import logging
import re
from dataclasses import replace

import pytest

from ccs.errors import InputError
from ccs.judges.panel import Panel
from ccs.judges.question import Judgment
from tests.judges.conftest import KEY, QUESTION, VARIABLES, failure_cause, judge_question
from tests.support import llm_server


def test_question_is_sent_once_and_judgments_are_cached(server, settings, monkeypatch):
    verdicts = llm_server.encode_verdicts({"text_1": True, "text_2": True, "text_3": False})
    server.queued_replies.append(llm_server.reply(verdicts))
    judgments = judge_question(server, settings)
    assert judgments == [Judgment(server.name, yes, f"It is {yes}.", "") for yes in (True, True, False)]
    for variable in VARIABLES:
        monkeypatch.delenv(variable)
    assert judge_question(server, settings) == judgments  # cached judgments need no key
    (request,) = server.requests
    texts = dict(zip(("text_1", "text_2", "text_3"), QUESTION.texts, strict=True))
    assert json.loads(request.user) == {"concept": "Colors", "texts": texts}
    assert list(request.schema["properties"]) == request.schema["required"] == [*texts]
    assert "quoted data" in request.system
    assert "L1.H2" not in json.dumps(request.body)
    sent = [name for name, value in request.headers.items() if value.removeprefix("Bearer ") == KEY]
    assert sent == ["authorization"]
    assert not re.search("effort|thinking|temperature", json.dumps(request.body).lower())


QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRIED = {
    "unavailable": ([llm_server.reply_error(), llm_server.reply_error(529)], 0.0),
    "cut": ([llm_server.reply_half], 0.0),
    "rate limit": ([llm_server.reply_error(429, headers={"Retry-After": "0.3"})], 0.3),
    "quota per minute": ([llm_server.reply_error(429, QUOTA)], 0.0),
}


@pytest.mark.parametrize(("replies", "wait"), RETRIED.values(), ids=RETRIED)
def test_temporary_failure_is_retried_after_requested_wait(server, settings, replies, wait):
    server.queued_replies.extend(replies)
    assert [j.verdict for j in judge_question(server, settings)] == [True] * 3
    assert len(server.requests) == len(replies) + 1
    assert server.requests[-1].time - server.requests[0].time >= wait


BROKEN_PAGES = (("<html>", "text/html"), ("<html>", "application/json"), ("{}", "application/json"))
BROKEN = [llm_server.reply_raw(text, content_type=content) for text, content in BROKEN_PAGES]
MISSING_TEXTS = llm_server.reply(llm_server.encode_verdicts({"text_1": True}))
UNSCORED = {
    "refusal": ([llm_server.reply_refusal], "refusal: ", ""),
    "off-schema": ([MISSING_TEXTS], "off-schema: ", "'text_2' is a required property"),
    "rejected": ([llm_server.reply_error(400, "no such parameter")], "rejected: 400", ""),
    "rate limit": ([llm_server.reply_error(429, headers={"Retry-After": "3600"})], "rate limit: 429", ""),
    "unavailable": ([llm_server.reply_error()] * 3, "unavailable: 500", ""),
    "broken": (BROKEN, "broken reply", ""),
}


@pytest.mark.parametrize(("replies", "start", "end"), UNSCORED.values(), ids=UNSCORED)
def test_failure_is_unscored_with_cause(server, settings, replies, start, end):
    cause = failure_cause(server, settings, *replies)
    assert cause.startswith(start)
    assert cause.endswith(end)
    assert len(server.requests) == len(replies) + 1  # only temporary failures are retried, and one rerun


def test_truncated_reply_is_unscored_until_limit_is_raised(server, settings):
    server.queued_replies.append(llm_server.reply_truncated)
    limited = replace(settings, max_tokens=500)
    causes = {judgment.cause for judgment in judge_question(server, limited)}
    assert causes == {"truncated: at 500 tokens; raise --max-tokens"}
    raised = replace(limited, max_tokens=501)
    assert [judgment.verdict for judgment in judge_question(server, raised)] == [True] * 3
    bodies = [request.body for request in server.requests]
    assert [body.get("max_completion_tokens", body.get("max_tokens")) for body in bodies] == [500, 501]


PERMANENT = [
    (401, "no", "does not accept the key"),
    (404, "no", "is not a model"),
    (429, "Your prepayment credits are depleted.", "no credit or quota left"),
    (403, "You exceeded your current quota.", "no credit or quota left"),
    (400, "Your credit balance is too low to access the API.", "no credit or quota left"),
]


@pytest.mark.parametrize(("code", "reason", "message"), PERMANENT)
def test_permanent_failure_stops_run(server, settings, code, reason, message):
    server.queued_replies.append(llm_server.reply_error(code, reason))
    with pytest.raises(InputError, match=message):
        judge_question(server, settings)
    assert len(server.requests) == 1


def test_key_is_removed_from_errors_causes_logs_and_tables(server, settings, caplog):
    caplog.set_level(logging.INFO)
    echo = f"Incorrect API key provided: {KEY}. You sent Bearer {KEY}"
    cause = failure_cause(server, settings, llm_server.reply_error(400, echo))
    assert "[key]" in cause
    server.queued_replies.append(llm_server.reply_error(401, echo))
    panel = Panel(server.spec, settings)
    with pytest.raises(InputError) as error:
        panel.judge([replace(QUESTION, label="Doors")])
    reports = [cause, str(error.value), repr(error.value.__cause__), caplog.text]
    assert KEY not in "".join([*reports, repr(panel.manifest_entries())])
    assert error.value.__suppress_context__


def test_missing_key_is_reported_by_variable(server, settings, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable)
    if server.provider == "compatible":
        assert [j.verdict for j in judge_question(server, settings)] == [True] * 3
        return
    with pytest.raises(InputError, match=f"{server.provider.upper()}_API_KEY"):
        judge_question(server, settings)
    assert not server.requests


INVALID_ENVIRONMENTS = {
    "key with typographic dash": {"OPENAI_API_KEY": "sk\u2013abcdef"},
    "key on two lines": {"OPENAI_API_KEY": "sk-abc\ndef"},
    "proxy without its package": {"ALL_PROXY": "socks5://localhost:9"},
    "proxy of unknown protocol": {"ALL_PROXY": "ftp://localhost:9"},
    "missing certificates": {"SSL_CERT_FILE": "/nowhere.pem"},
    "port out of range": {"OPENAI_BASE_URL": "http://localhost:99999/v1"},
}


@pytest.mark.parametrize("variables", INVALID_ENVIRONMENTS.values(), ids=INVALID_ENVIRONMENTS)
def test_invalid_environment_variable_is_reported(settings, variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (name,) = variables
    with pytest.raises(InputError, match=name) as error:
        Panel("openai", settings).require_keys()
    assert "abc" not in str(error.value)


@pytest.mark.parametrize("host", ["localhost:99999", "[::::]:80"])
def test_invalid_address_is_reported(settings, host):
    with pytest.raises(InputError, match=re.escape(host)):
        Panel(f"compatible:m@http://{host}/v1", settings).require_keys()


def test_effort_and_temperature_are_sent(server, settings):
    if server.provider != "anthropic":
        ((judgments,),) = Panel(f"{server.spec}?effort=low&temperature=0", settings).judge([QUESTION])
        assert judgments[0].verdict is True
        (request,) = server.requests
        assert (request.body["reasoning_effort"], request.body["temperature"]) == ("low", 0)

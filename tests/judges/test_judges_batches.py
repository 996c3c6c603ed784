"""Batch APIs through the real SDKs: submit, leave, collect later, and never pay twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ccs.errors import InputError
from ccs.judges.cache import Cache
from ccs.judges.panel import Panel, judge_request, open_panel
from ccs.judges.question import Judgment, Question
from ccs.judges.settings import JudgeSettings
from tests.support.llm_providers import SERVERS, OpenAIServer
from tests.support.llm_server import Act, LLMServer, verdicts

QUESTIONS = [Question(f"L0.H{n}", f"Concept {n}", (f"text {n} a", f"text {n} b")) for n in range(4)]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(variable, "sk-test-0123456789abcdef")


@pytest.fixture(params=["anthropic", "google", "openai"])
def server(request: pytest.FixtureRequest) -> Iterator[LLMServer]:
    with SERVERS[request.param](answer_by_text) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path) -> JudgeSettings:
    return JudgeSettings(cache=tmp_path / "judges.sqlite", delay=0.01, retries=1, batch=True)


def answer_by_text(user: str, schema: object) -> str:
    """Yes to the first text of an even concept, so that answers given to the wrong question show."""
    even = any(f"Concept {n}" in user for n in (0, 2))
    return verdicts({"text_1": even, "text_2": not even})


EXPECTED = [[True, False], [False, True], [True, False], [False, True]]


def judge(server: LLMServer, settings: JudgeSettings) -> tuple[Panel, list[list[Judgment]]]:
    panel = open_panel(server.spec, settings)
    return panel, [judges[0] for judges in panel.judge(QUESTIONS)]


def seen(judgments: list[list[Judgment]]) -> list[list[bool | None]]:
    return [[j.verdict for j in each] for each in judgments]


def items(server: LLMServer) -> int:
    """How many questions the server's batches hold together."""
    return str([server.batches, getattr(server, "files", "")]).count("Concept ")


def test_the_life_of_a_batch(server: LLMServer, settings: JudgeSettings) -> None:
    panel, first = judge(server, settings)
    assert seen(first) == [[None, None]] * 4
    assert all(j.cause.startswith("pending: in a batch since") for each in first for j in each)
    assert (panel.pending, panel.tallies[0].requests, len(server.batches)) == (4, 4, 1)

    panel, again = judge(server, settings)  # still worked on: nothing is submitted twice
    assert seen(again) == [[None, None]] * 4
    assert (panel.pending, panel.tallies[0].requests, len(server.batches)) == (4, 0, 1)
    (waiting,) = panel.estimate(QUESTIONS)
    assert (waiting.pending, waiting.requests) == (4, 0)

    server.end_batches()
    panel, done = judge(server, settings)
    assert seen(done) == EXPECTED
    assert (panel.pending, panel.tallies[0].collected, len(server.batches)) == (0, 4, 1)
    assert panel.tallies[0].input_tokens == 400

    before = len(server.seen)
    assert judge(server, settings)[1] == done
    assert len(server.seen) == before
    assert not server.asked
    with Cache(settings.cache) as cache:
        assert not cache.open_batches(server.name)


def test_items_that_failed_are_unscored_and_asked_again_by_the_next_run(
    server: LLMServer, settings: JudgeSettings
) -> None:
    server.batch_acts.extend(
        [Act("refuse"), Act("status", message="overloaded"), Act("expire"), Act("truncate")]
    )
    judge(server, settings)
    server.end_batches()
    panel, judgments = judge(server, settings)
    causes = [each[0].cause for each in judgments]
    assert [cause.partition(":")[0] for cause in causes] == [
        "refusal",
        "rejected in the batch",
        "expired",
        "truncated",
    ]
    assert "overloaded" in causes[1]
    assert (seen(judgments), panel.pending, len(server.batches)) == ([[None, None]] * 4, 0, 1)
    judge(server, settings)
    server.end_batches()
    assert seen(judge(server, settings)[1]) == EXPECTED
    assert len(server.batches) == 2


def test_a_live_run_collects_too_and_never_asks_what_a_batch_holds(
    server: LLMServer, settings: JudgeSettings
) -> None:
    open_panel(server.spec, settings).judge(QUESTIONS[:2])
    live = replace(settings, batch=False)
    assert seen(judge(server, live)[1]) == [[None, None], [None, None], *EXPECTED[2:]]
    assert len(server.asked) == 2
    server.end_batches()
    assert seen(judge(server, live)[1]) == EXPECTED
    assert len(server.asked) == 2


@pytest.mark.parametrize("loss", ["cut", "status"])
def test_a_submission_whose_receipt_was_lost_is_found_again(
    server: LLMServer, settings: JudgeSettings, loss: str
) -> None:
    """The batch is there but its id never arrived, or the server failed before there was one."""
    server.submit_acts.append(Act(loss))
    judge(server, settings)
    assert len(server.batches) == 1
    server.end_batches()
    assert seen(judge(server, settings)[1]) == EXPECTED
    assert len(server.batches) == 1


def test_a_run_killed_between_submission_and_receipt_pays_once(
    server: LLMServer, settings: JudgeSettings
) -> None:
    """What such a run leaves: a batch written down without an id, that the provider has or has not."""
    judge(server, settings)
    with Cache(settings.cache) as cache:
        (batch,) = cache.open_batches(server.name)
        assert batch.id is not None
        cache.confirm_batch(batch.tag, None)  # type: ignore[arg-type]
    assert seen(judge(server, settings)[1]) == [[None, None]] * 4
    assert len(server.batches) == 1
    server.end_batches()
    assert seen(judge(server, settings)[1]) == EXPECTED
    assert len(server.batches) == 1


def test_a_run_killed_before_submission_submits_again(server: LLMServer, settings: JudgeSettings) -> None:
    (member,) = open_panel(server.spec, settings)._members
    requests = [judge_request(question) for question in QUESTIONS]
    with Cache(settings.cache) as cache:
        keys = [(member.provider.cache_key(request), request.schema) for request in requests]  # type: ignore[union-attr]
        cache.open_batch(server.name, keys, 60.0)
    judge(server, settings)
    server.end_batches()
    assert seen(judge(server, settings)[1]) == EXPECTED
    assert (len(server.batches), items(server)) == (1, 4)


def test_a_rejected_submission_leaves_nothing_pending(server: LLMServer, settings: JudgeSettings) -> None:
    server.submit_acts.append(Act("status", status=400, message="too many tokens enqueued"))
    panel, judgments = judge(server, settings)
    assert panel.pending == 0
    assert all("too many tokens enqueued" in each[0].cause for each in judgments)
    judge(server, settings)
    server.end_batches()
    assert seen(judge(server, settings)[1]) == EXPECTED


def test_a_key_that_is_not_accepted_leaves_nothing_pending(
    server: LLMServer, settings: JudgeSettings
) -> None:
    server.submit_acts.append(Act("status", status=401, message="no"))
    with pytest.raises(InputError, match="does not accept the key"):
        judge(server, settings)
    with Cache(settings.cache) as cache:
        assert not cache.open_batches(server.name)


def test_large_panels_are_split(settings: JudgeSettings) -> None:
    with OpenAIServer(answer_by_text) as server:
        judge(server, replace(settings, batch_size=3))
        assert len(server.batches) == 2
        server.end_batches()
        assert seen(judge(server, settings)[1]) == EXPECTED


def test_refresh_submits_once_and_takes_what_was_collected(settings: JudgeSettings) -> None:
    with OpenAIServer(answer_by_text) as server:
        open_panel(server.spec, replace(settings, batch=False)).judge(QUESTIONS)
        anew = replace(settings, refresh=("all",))
        server.answer = lambda user, schema: verdicts(dict.fromkeys(("text_1", "text_2"), True))
        assert judge(server, anew)[0].pending == 4
        server.end_batches()
        assert seen(judge(server, anew)[1]) == [[True, True]] * 4
        assert len(server.batches) == 1


def test_a_budget_holds_for_a_batch_before_it_is_sent(settings: JudgeSettings, tmp_path: Path) -> None:
    """100 tokens of output at most, at half price: half a dollar each."""
    own = tmp_path / "prices.json"
    own.write_text('{"date": "2030-01-01", "models": {"openai:gpt-4o": {"input": 0, "output": 10000}}}')
    limits = replace(settings, budget=1.2, prices=own, max_tokens=100)
    with OpenAIServer(answer_by_text) as server:
        panel, judgments = judge(server, limits)
        assert panel.pending == 2
        assert [each[0].cause.partition(":")[0] for each in judgments] == ["pending"] * 2 + ["budget"] * 2
        assert panel.tallies[0].dollars == pytest.approx(1.0)
        assert items(server) == 2


def test_a_server_without_batches_is_asked_at_once(settings: JudgeSettings) -> None:
    with SERVERS["compatible"](answer_by_text) as server:
        assert seen(judge(server, settings)[1]) == EXPECTED
        assert not server.batches

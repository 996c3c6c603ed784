"""A panel of judges: opened from a line of text, asked all at once, estimated before anything is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ccs.errors import InputError
from ccs.judges.caller import Caller, Tally, ask_all
from ccs.judges.estimates import Estimate, estimate
from ccs.judges.prices import Prices, Spending
from ccs.judges.provider import Provider, Request
from ccs.judges.question import (
    JUDGE_INSTRUCTIONS,
    Judge,
    Judgment,
    Question,
    judge_prompt,
    judge_schema,
    parse_judgments,
    unscored,
)
from ccs.judges.settings import JudgeSettings, JudgeSpec, parse_panel

_ANSWER_TOKENS = 40  # a reason of 15 words with its verdict and the JSON around it


class Panel:
    """Judges that answer the same questions. See `open_panel`."""

    def __init__(self, members: Sequence[Caller | Judge], settings: JudgeSettings, prices: Prices) -> None:
        self._members = tuple(members)
        self.settings = settings
        self.prices = prices
        self.pending = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(_name(member) for member in self._members)

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What each language model was asked so far, what that used and cost."""
        return tuple(member.tally for member in self._members if isinstance(member, Caller))

    def judge(self, questions: Sequence[Question]) -> list[list[list[Judgment]]]:
        """Return judgments as [question][judge][text], judges in the panel's order.

        Cached answers need no request; what cannot be settled now is unscored with its cause. `pending` then
        says how many answers a later run will find in batches. Raises InputError (a missing key or package,
        or one that the server does not accept), with every answer received by then in the cache.
        """
        requests = [(question.head_key, judge_request(question)) for question in questions if question.texts]
        callers = [member for member in self._members if isinstance(member, Caller)]
        jobs = [(caller, *keyed(caller, requests)) for caller in callers]
        outcomes = dict(zip(callers, ask_all(jobs, self.settings.cache) if jobs else [], strict=True))
        self.pending = sum(
            outcome.cause.startswith("pending") for each in outcomes.values() for outcome in each.values()
        )
        columns: list[list[list[Judgment]]] = []
        for member in self._members:
            if isinstance(member, Caller):
                columns.append([_judgments(member, question, outcomes[member]) for question in questions])
            else:
                columns.append(member.judge(questions))
        return [list(row) for row in zip(*columns, strict=True)]

    def estimate(self, questions: Sequence[Question]) -> tuple[Estimate, ...]:
        """Return what `judge` would send, a judge; neither keys nor the network are needed."""
        requests = [(question.head_key, judge_request(question)) for question in questions if question.texts]
        return tuple(
            estimate(member, *keyed(member, requests), lambda r: _ANSWER_TOKENS * len(r.schema["required"]))
            for member in self._members
            if isinstance(member, Caller)
        )

    def describe(self) -> dict[str, Any]:
        """Return for a manifest which judges and prompt these are, and whether a stand-in is among them."""
        return {
            "judges": [describe(member) for member in self._members],
            "prompt": fingerprint(JUDGE_INSTRUCTIONS, judge_schema(1)),
            "stand_in": any(not isinstance(member, Caller) for member in self._members),
        }


def open_panel(
    spec: str,
    settings: JudgeSettings | None = None,
    *,
    stand_ins: Mapping[str, Judge] | None = None,
    spending: Spending | None = None,
) -> Panel:
    """Open a panel from a line such as "openai,anthropic:claude-haiku-4-5,compatible:qwen3@http://host:8000/v1".

    "default" is one model of each of the three providers. A name such as "tags" stands for the judge of that
    name in `stand_ins`. Share `spending` with a labeler to hold both to one budget. Neither keys nor packages
    are needed until something must be sent. Raises InputError.
    """
    settings = settings or JudgeSettings()
    prices = Prices.load(settings.prices)
    spending = spending or Spending(settings.budget)
    members: list[Caller | Judge] = []
    for each in parse_panel(spec):
        if isinstance(each, JudgeSpec):
            members.append(open_caller(each, settings, prices, spending))
        elif stand_ins is not None and each in stand_ins:
            members.append(stand_ins[each])
        else:
            raise InputError(f"The judge {each} is not available here.")
    return Panel(members, settings, prices)


def open_caller(spec: JudgeSpec, settings: JudgeSettings, prices: Prices, spending: Spending) -> Caller:
    """Return the caller of one model. Raises InputError if a budget is set and its price is unknown."""
    price = prices.of(spec.name)
    if price is None and settings.budget is not None:
        raise InputError(
            f"No price is known for {spec.name}, so a budget cannot be held; "
            f"give one in a price table of your own (the known ones are {', '.join(sorted(prices.models))})."
        )
    return Caller(_provider(spec, settings), settings, price, spending)


def _provider(spec: JudgeSpec, settings: JudgeSettings) -> Provider:
    from ccs.judges.anthropic import AnthropicProvider
    from ccs.judges.compatible import CompatibleProvider
    from ccs.judges.google import GoogleProvider
    from ccs.judges.openai import OpenAIProvider

    kinds = (OpenAIProvider, AnthropicProvider, GoogleProvider, CompatibleProvider)
    return {kind.kind: kind for kind in kinds}[spec.provider](spec, settings)


def judge_request(question: Question) -> Request:
    """Return what is sent for a question. The head's key is no part of it."""
    return Request(JUDGE_INSTRUCTIONS, judge_prompt(question), judge_schema(len(question.texts)))


def keyed(caller: Caller, requests: Sequence[tuple[str, Request]]) -> tuple[dict[str, Request], set[str]]:
    """Return requests of heads by cache key, equal ones once, and which keys the settings ask for anew."""
    provider = caller.provider
    wanted = set(caller.settings.refresh)
    always = not wanted.isdisjoint({"all", provider.name, provider.kind})
    by_key = {provider.cache_key(request): request for _, request in requests}
    fresh = {provider.cache_key(request) for head, request in requests if always or head in wanted}
    return by_key, fresh


def check_refresh(settings: JudgeSettings, judges: Sequence[str], head_keys: Sequence[str]) -> None:
    """Raise InputError if the settings name something to refresh that is neither a judge nor a head here."""
    known = {"all", *judges, *(name.partition(":")[0] for name in judges), *head_keys}
    for each in settings.refresh:
        if each not in known:
            raise InputError(
                f"{each!r} can not be refreshed: it is neither `all`, nor a judge ({', '.join(judges)}), "
                "nor a head of this model."
            )


def describe(member: Caller | Judge) -> dict[str, Any]:
    """Return a judge or labeler for a manifest."""
    if not isinstance(member, Caller):
        return {"name": member.name, "stand_in": True}
    identity = {k: v for k, v in member.provider.identity().items() if k != "base_url"}
    return {"name": member.provider.name, "stand_in": False} | identity


def fingerprint(instructions: str, schema: Mapping[str, Any]) -> str:
    """Return a short digest of a prompt, so that results say which one they were made with."""
    return hashlib.sha256((instructions + json.dumps(schema)).encode()).hexdigest()[:12]


def _name(member: Caller | Judge) -> str:
    return member.provider.name if isinstance(member, Caller) else member.name


def _judgments(caller: Caller, question: Question, outcomes: Mapping[str, Any]) -> list[Judgment]:
    if not question.texts:
        return []
    outcome = outcomes[caller.provider.cache_key(judge_request(question))]
    if outcome.text is None:
        return unscored(caller.provider.name, question, outcome.cause)
    return parse_judgments(caller.provider.name, question, outcome.text)

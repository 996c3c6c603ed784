"""A panel of judges: opened from a line of text, asked all at once, estimated before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ccs.errors import InputError
from ccs.judges.caller import Answer, Caller, Tally, ask_all, fingerprint, open_caller
from ccs.judges.prices import CostEstimate, Prices, Spending
from ccs.judges.provider import Request
from ccs.judges.question import (
    JUDGE_INSTRUCTIONS,
    Judge,
    Judgment,
    Question,
    judge_prompt,
    judge_schema,
    unscored,
)
from ccs.judges.settings import JudgeSettings, JudgeSpec, parse_panel


class Panel:
    """Judges that answer the same questions. See `open_panel`."""

    def __init__(self, members: Sequence[Caller | Judge], settings: JudgeSettings, prices: Prices) -> None:
        self._members = tuple(members)
        self._callers = [member for member in members if isinstance(member, Caller)]
        self.settings = settings
        self.prices = prices

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self._members)

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What each language model has been asked so far, and what that cost."""
        return tuple(caller.tally for caller in self._callers)

    def judge(self, questions: Sequence[Question]) -> list[list[list[Judgment]]]:
        """Return judgments as [question][judge][text], judges in the panel's order.

        Cached answers need no request; what cannot be settled now is unscored with its cause. Raises
        InputError (a missing key or package, or a key that the server does not accept), with every answer
        received by then in the cache.
        """
        asked = [question for question in questions if question.texts]
        requests = [judge_request(question) for question in asked]
        answered = ask_all(self._callers, requests, self.settings.cache) if self._callers else []
        by_caller = {
            caller: dict(zip(asked, answers, strict=True))
            for caller, answers in zip(self._callers, answered, strict=True)
        }
        columns: list[list[list[Judgment]]] = []
        for member in self._members:
            if isinstance(member, Caller):
                answers = by_caller[member]
                columns.append([_judgments(member.name, each, answers.get(each)) for each in questions])
            else:
                columns.append(member.judge(questions))
        return [list(row) for row in zip(*columns, strict=True)]

    def estimate(self, questions: Sequence[Question]) -> tuple[CostEstimate, ...]:
        """Return what `judge` would send to each model; neither keys nor the network are needed."""
        requests = [judge_request(question) for question in questions if question.texts]
        return tuple(caller.estimate(requests) for caller in self._callers)

    def describe(self) -> dict[str, Any]:
        """Return the judges, the prompt's digest, and whether a stand-in is on the panel, for a manifest."""
        judges = [
            member.describe() if isinstance(member, Caller) else {"name": member.name, "stand_in": True}
            for member in self._members
        ]
        prompt = fingerprint(JUDGE_INSTRUCTIONS, judge_schema(1))
        return {"judges": judges, "prompt": prompt, "stand_in": any(judge["stand_in"] for judge in judges)}


def open_panel(
    spec: str,
    settings: JudgeSettings | None = None,
    *,
    stand_ins: Mapping[str, Judge] | None = None,
    spending: Spending | None = None,
) -> Panel:
    """Open a panel from a line such as "openai,anthropic:claude-haiku-4-5,compatible:qwen3@http://host:8000/v1".

    "default" is one model from each of the three providers. A name such as "tags" stands for that judge in
    `stand_ins`. Share `spending` with a labeler to hold both to one budget. Neither keys nor packages
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


def judge_request(question: Question) -> Request:
    """Return what is sent for a question."""
    schema = judge_schema(len(question.texts))
    return Request(JUDGE_INSTRUCTIONS, judge_prompt(question), schema, question.head_key)


def check_refresh(settings: JudgeSettings, judges: Sequence[str], head_keys: Sequence[str]) -> None:
    """Raise InputError if the settings name something to refresh that is neither a judge nor a head here."""
    known = {"all", *judges, *(name.partition(":")[0] for name in judges), *head_keys}
    for each in settings.refresh:
        if each not in known:
            raise InputError(
                f"{each!r} cannot be refreshed: it is neither `all`, nor a judge ({', '.join(judges)}), "
                "nor a head of this model."
            )


def _judgments(judge: str, question: Question, answer: Answer | None) -> list[Judgment]:
    if answer is None:
        return []
    if answer.content is None:
        return unscored(judge, question, answer.cause)
    return [Judgment(judge, each["verdict"], each["reason"].strip(), "") for each in answer.content.values()]

"""A panel of judges: its cost is estimated first, then all judges are asked at the same time.

The judge `tags` needs neither a model nor a key; it stands in for language models and is never presented as
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccs.errors import InputError
from ccs.judges.caller import Answer, Caller, ask_all, fingerprint
from ccs.judges.prices import CostEstimate, Prices, Spending
from ccs.judges.provider import Request
from ccs.judges.question import (
    JUDGE_INSTRUCTIONS,
    Judgment,
    Question,
    judge_prompt,
    judge_schema,
    unscored,
)
from ccs.judges.settings import JudgeSettings, JudgeSpec, parse_panel
from ccs.texts import concepts
from ccs.texts.labels import TAGS
from ccs.texts.pools import Pool


class Panel:
    """Judges that answer the same questions, from a line such as "openai,anthropic:claude-haiku-4-5".

    spec: judges separated by commas, each PROVIDER:MODEL (see JudgeSpec); "default" is one model from each of
    the three providers; "tags" is the stand-in `tags`. spending: may be shared with a labeler for a common
    budget. Keys and packages are needed only when something must be sent. Raises
    InputError.
    """

    def __init__(
        self,
        spec: str,
        settings: JudgeSettings | None = None,
        *,
        tags: TagsJudge | None = None,
        spending: Spending | None = None,
    ) -> None:
        self.settings = settings or JudgeSettings()
        self.prices = Prices.load(self.settings.prices)
        self.spending = spending or Spending(self.settings.budget)
        self._members: list[Caller | TagsJudge] = []
        for each in parse_panel(spec):
            if isinstance(each, JudgeSpec):
                self._members.append(Caller(each, self.settings, self.prices, self.spending))
            elif tags is not None:
                self._members.append(tags)
            else:
                raise InputError(f"The judge {each} is not available here.")
        self._callers = [member for member in self._members if isinstance(member, Caller)]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self._members)

    def judge(self, questions: Sequence[Question]) -> list[list[list[Judgment]]]:
        """The judgments [question][judge][text], with judges in the panel's order.

        Cached answers need no request; texts without an answer are unscored, with the cause. Raises
        InputError (a missing key or package, or a key that the server does not accept) after storing every
        answer received so far.
        """
        asked = [question for question in questions if question.texts]
        requests = [judge_request(question) for question in asked]
        answered = iter(ask_all(self._callers, requests, self.settings.cache) if self._callers else [])
        columns: list[list[list[Judgment]]] = []
        for member in self._members:
            if isinstance(member, Caller):
                answers = dict(zip(asked, next(answered), strict=True))
                columns.append([_judgments(member.name, each, answers.get(each)) for each in questions])
            else:
                columns.append(member.judge(questions))
        return [list(row) for row in zip(*columns, strict=True)]

    def estimate(self, questions: Sequence[Question]) -> tuple[CostEstimate, ...]:
        """The cost of `judge` for each model; neither keys nor the network are needed."""
        requests = [judge_request(question) for question in questions if question.texts]
        return tuple(caller.estimate(requests) for caller in self._callers)

    def describe(self) -> dict[str, Any]:
        """The judges, the prompt's digest, and whether a stand-in is on the panel, for a manifest."""
        judges = [
            member.describe() if isinstance(member, Caller) else {"name": member.name, "stand_in": True}
            for member in self._members
        ]
        prompt = fingerprint(JUDGE_INSTRUCTIONS, judge_schema(1))
        return {"judges": judges, "prompt": prompt, "stand_in": any(judge["stand_in"] for judge in judges)}


def judge_request(question: Question) -> Request:
    """The request for a question."""
    schema = judge_schema(len(question.texts))
    return Request(JUDGE_INSTRUCTIONS, judge_prompt(question), schema, question.head_key)


def _judgments(judge: str, question: Question, answer: Answer | None) -> list[Judgment]:
    if answer is None:
        return []
    if answer.content is None:
        return unscored(judge, question, answer.cause)
    return [Judgment(judge, each["verdict"], each["reason"].strip(), "") for each in answer.content.values()]


class TagsJudge:
    """The judge `tags`: yes if the pool tags a text with the label or with a concept under it.

    A text without a tag is unscored, not a no.
    """

    name = TAGS

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tree = concepts.tree()

    def judge(self, questions: Sequence[Question]) -> list[list[Judgment]]:
        """One list of judgments per question, with one judgment per text, in the given order."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> list[Judgment]:
        label = self._tree.find(question.label) or question.label
        if label not in self._tree.concepts and label not in self._pool.concepts:
            return unscored(self.name, question, f"no text is tagged with the label {question.label!r}")
        return [self._verdict(text, label) for text in question.texts]

    def _verdict(self, text: str, label: str) -> Judgment:
        tag = self._pool.concept_of(text)
        if tag is None:
            return Judgment(self.name, None, "", f"the pool {self._pool.name!r} has no tag for the text")
        verdict = self._tree.is_under(tag, label)
        reason = f"tagged {tag}"
        if tag != label:
            reason += f", which is {'' if verdict else 'not '}under {label}"
        return Judgment(self.name, verdict, reason, "")

"""A panel of judges, and a labeler: costs are estimated first, then all judges are asked at the same time.

The judge `tags` needs neither a model nor a key; it stands in for language models and is never presented as
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges import STUDY, JudgeSettings, JudgeSpec, parse_panel, study_panel
from ccs.judges.caller import Answer, Caller, ask_all, fingerprint
from ccs.judges.prices import CostEstimate, Spending
from ccs.judges.provider import Request
from ccs.judges.question import (
    JUDGE_INSTRUCTIONS,
    LABEL_INSTRUCTIONS,
    Judgment,
    Question,
    judge_request,
    judge_schema,
    label_request,
    unscored,
)
from ccs.paper import examples
from ccs.texts import labels
from ccs.texts.labels import TAGS, normalize
from ccs.texts.pools import Pool


class Panel:
    """Judges that answer the same questions, from a line such as "openai,anthropic:claude-haiku-4-5".

    spec: see `parse_panel`; the stand-in judges by the tags of the pool `tags`. spending: a budget, maybe
    shared with a labeler. Keys and packages are needed only when something must be sent. Raises InputError.
    """

    def __init__(
        self,
        spec: str,
        settings: JudgeSettings | None = None,
        *,
        tags: Pool | None = None,
        spending: Spending | None = None,
    ) -> None:
        self.settings = settings or JudgeSettings()
        self.spending = spending or Spending(self.settings.budget)
        members = parse_panel(spec)
        if TAGS in members and tags is None:
            raise InputError(f"The judge {TAGS} is not available here.")
        self._tags = tags
        self.callers = {
            one.name: Caller(one, self.settings, self.spending)
            for one in members
            if isinstance(one, JudgeSpec)
        }
        self.names = tuple(one.name if isinstance(one, JudgeSpec) else one for one in members)

    def judge(self, questions: Sequence[Question]) -> list[list[list[Judgment]]]:
        """The judgments [question][judge][text], with judges in the panel's order; texts without an answer
        are unscored, with the cause. InputError as in `ask_all`, after storing every answer received so far.
        """
        asked = [question for question in questions if question.texts]
        requests = [judge_request(question) for question in asked]
        callers = list(self.callers.values())
        answered = iter(ask_all(callers, requests, self.settings.cache) if callers else [])
        columns: list[list[list[Judgment]]] = []
        for name in self.names:
            if name in self.callers:
                answers = dict(zip(asked, next(answered), strict=True))
                columns.append([_judgments(name, each, answers.get(each)) for each in questions])
            elif self._tags is not None:
                columns.append([judge_by_tags(self._tags, each) for each in questions])
        return [list(row) for row in zip(*columns, strict=True)]

    def estimate(self, questions: Sequence[Question]) -> tuple[CostEstimate, ...]:
        """The cost of `judge` for each model; neither keys nor the network are needed."""
        requests = [judge_request(question) for question in questions if question.texts]
        return tuple(caller.estimate(requests) for caller in self.callers.values())

    def require_keys(self) -> None:
        for caller in self.callers.values():
            caller.provider.open()

    def describe(self) -> dict[str, Any]:
        """The judges, the prompt's digest, and whether a stand-in is on the panel, for a manifest."""
        judges = [
            self.callers[name].describe() if name in self.callers else {"name": name, "stand_in": True}
            for name in self.names
        ]
        prompt = fingerprint(JUDGE_INSTRUCTIONS, judge_schema(1))
        return {"judges": judges, "prompt": prompt, "stand_in": any(judge["stand_in"] for judge in judges)}


def _judgments(judge: str, question: Question, answer: Answer | None) -> list[Judgment]:
    if answer is None:
        return []
    if isinstance(answer, str):
        return unscored(judge, question, answer)
    return [Judgment(judge, each["verdict"], each["reason"].strip(), "") for each in answer.values()]


def judge_by_tags(pool: Pool, question: Question) -> list[Judgment]:
    """The judgments of `tags`: yes for a text tagged with the label or a concept under it."""
    tree = labels.tree()
    label = tree.find(question.label) or question.label
    if label not in tree.concepts and label not in pool.concepts:
        return unscored(TAGS, question, f"no text is tagged with the label {question.label!r}")
    judgments = []
    for text in question.texts:
        tag = pool.concept_of(text)
        if tag is None:
            judgments.append(Judgment(TAGS, None, "", f"the pool {pool.name!r} has no tag for the text"))
            continue
        verdict = tree.is_under(tag, label)
        reason = f"tagged {tag}"
        if tag != label:
            reason += f", which is {'' if verdict else 'not '}under {label}"
        judgments.append(Judgment(TAGS, verdict, reason, ""))
    return judgments


class Labeled(NamedTuple):
    """A head's label in the one spelling of its concept, and as it was given, or why it has none."""

    label: str | None = None
    given: str | None = None
    cause: str = ""


class Labeler:
    """One language model, "PROVIDER:MODEL" or "study", that labels heads. InputError as for a `Panel`."""

    def __init__(
        self, spec: str, settings: JudgeSettings | None = None, *, spending: Spending | None = None
    ) -> None:
        settings = settings or JudgeSettings()
        (named,) = study_panel()[:1] if spec == STUDY else [JudgeSpec.parse(spec)]
        self._caller = Caller(named, settings, spending or Spending(settings.budget))
        self.name = self._caller.name

    def label(self, texts: Mapping[Head, Sequence[str]]) -> dict[Head, Labeled]:
        """Label heads by their texts, which are in rank order. A rerun asks again for a head without an
        answer. InputError as in `ask_all`.
        """
        asked = [head for head, chosen in texts.items() if chosen]
        requests = [self.request(head, texts[head]) for head in asked]
        (answers,) = ask_all([self._caller], requests, self._caller.settings.cache)
        found = dict.fromkeys(texts, Labeled(cause="no texts"))
        for head, answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                found[head] = Labeled(cause=answer)
            else:  # with a letter or a digit in it: `parse_reply`
                found[head] = Labeled(normalize(answer["concept"]), " ".join(answer["concept"].split()))
        return found

    def request(self, head: Head, texts: Sequence[str]) -> Request:
        return label_request(head, texts, repaired=self._caller.settings.repaired_examples)

    def estimate(self, texts: Mapping[Head, Sequence[str]]) -> CostEstimate:
        """The cost of `label`, whatever is cached; neither a key nor the network is needed."""
        return self._caller.estimate([self.request(head, texts[head]) for head in texts if texts[head]])

    def require_keys(self) -> None:
        self._caller.provider.open()

    def describe(self) -> dict[str, Any]:
        """The model and the prompt's digest, for a manifest; without key and URL."""
        repaired = self._caller.settings.repaired_examples
        shown = [[each.label, *each.shown(repaired)] for each in examples()]
        prompt = fingerprint(LABEL_INSTRUCTIONS, {"examples": shown})
        return self._caller.describe() | {"prompt": prompt}

"""A panel of judges, and a labeler: costs are estimated first, then all judges are asked at the same time.

The judge `tags` needs neither a model nor a key. It reads the pool's tags in place of an LLM and is never
presented as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges import PAPER, JudgeSettings, JudgeSpec, paper_panel, parse_panel
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
    text_names,
    unscored,
)
from ccs.paper import examples
from ccs.texts import labels
from ccs.texts.labels import TAGS, normalize
from ccs.texts.pools import Pool


class Panel:
    """Judges that answer the same questions. Keys and packages are needed only if something must be sent."""

    def __init__(
        self,
        spec: str,
        settings: JudgeSettings | None = None,
        *,
        tags: Pool | None = None,
        spending: Spending | None = None,
    ) -> None:
        """Name the judges.

        Args:
            spec: A line such as "openai,anthropic:claude-haiku-4-5"; see `parse_panel`.
            settings: The limits of the run.
            tags: The pool whose tags the judge `tags` reads.
            spending: A budget, which a labeler may share.

        Raises:
            InputError: The line names no judge, or one that can't be used here.
        """
        self.settings = settings or JudgeSettings()
        self.spending = spending or Spending(self.settings.budget)
        members = parse_panel(spec)
        if TAGS in members and tags is None:
            raise InputError(f"The judge {TAGS} is not available here.")
        self._tags = tags
        self.callers = {
            member.name: Caller(member, self.settings, self.spending)
            for member in members
            if isinstance(member, JudgeSpec)
        }
        self.names = tuple(member.name if isinstance(member, JudgeSpec) else member for member in members)

    def judge(self, questions: Sequence[Question]) -> list[list[list[Judgment]]]:
        """Ask all judges.

        Args:
            questions: The questions; one without texts is not sent.

        Returns:
            The judgments [question][judge][text], with judges in the panel's order. Texts without an answer
            are unscored, with the cause.

        Raises:
            InputError: As in `ask_all`, after storing every answer received so far.
        """
        callers = list(self.callers.values())
        sent = list(dict.fromkeys(question for question in questions if question.texts))
        answers = ask_all(callers, _requests(sent), self.settings.cache) if callers else []
        by_judge = {
            caller.name: dict(zip(sent, replies, strict=True))
            for caller, replies in zip(callers, answers, strict=True)
        }

        def judged(name: str, question: Question) -> list[Judgment]:
            """Return one judge's judgments of a question, one per text.

            Args:
                name: The judge's name; one without a caller is the tag-based judge.
                question: The question.
            """
            if name in by_judge:
                return _judgments(name, question, by_judge[name].get(question, {}))
            assert self._tags is not None
            return judge_by_tags(self._tags, question)

        return [[judged(name, question) for name in self.names] for question in questions]

    def estimate_cost(self, questions: Sequence[Question]) -> tuple[CostEstimate, ...]:
        """Estimate the cost of `judge` for each model; neither keys nor network are needed."""
        return tuple(caller.estimate_cost(_requests(questions)) for caller in self.callers.values())

    def spent(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """Return what each model's answers have cost, as in `Caller.spent`."""
        return [caller.spent(_requests(questions)) for caller in self.callers.values()]

    def require_keys(self) -> None:
        """Raise InputError if a model's package or key is missing."""
        for caller in self.callers.values():
            caller.provider.open()

    def manifest_entry(self) -> dict[str, Any]:
        """Return the judges, the prompt's digest, and whether `tags` is one of them, for a manifest."""
        judges = [
            self.callers[name].manifest_entry() if name in self.callers else {"name": name, "stand_in": True}
            for name in self.names
        ]
        prompt = fingerprint(JUDGE_INSTRUCTIONS, judge_schema(1))
        return {"judges": judges, "prompt": prompt, "stand_in": any(judge["stand_in"] for judge in judges)}


def _requests(questions: Iterable[Question]) -> list[Request]:
    return [judge_request(question) for question in questions if question.texts]


def _judgments(judge: str, question: Question, answer: Answer) -> list[Judgment]:
    if isinstance(answer, str):
        return unscored(judge, question, answer)
    verdicts = [answer[name] for name in text_names(len(question.texts))]
    return [Judgment(judge, verdict["verdict"], verdict["reason"].strip(), "") for verdict in verdicts]


def judge_by_tags(pool: Pool, question: Question) -> list[Judgment]:
    """Judge by tags: yes for a text tagged with the label or a concept under it.

    Args:
        pool: The texts' tags.
        question: The question.
    """
    tree = labels.tree()
    label = tree.find_concept(question.label) or question.label
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
    """A head's label in the one spelling of its concept and in the labeler's words, or why it has none."""

    label: str | None = None
    wording: str | None = None
    cause: str = ""


class Labeler:
    """One LLM that labels heads."""

    def __init__(
        self, spec: str, settings: JudgeSettings | None = None, *, spending: Spending | None = None
    ) -> None:
        """Name the model.

        Args:
            spec: "PROVIDER:MODEL" or "paper".
            settings: The limits of the run.
            spending: A budget, which a panel may share.

        Raises:
            InputError: As for a `Panel`.
        """
        settings = settings or JudgeSettings()
        judge = paper_panel()[0] if spec == PAPER else JudgeSpec.parse(spec)
        self._caller = Caller(judge, settings, spending or Spending(settings.budget))
        self.name = self._caller.name

    def label(self, texts: Mapping[Head, Sequence[str]]) -> dict[Head, Labeled]:
        """Label heads. A rerun asks again for a head without an answer.

        Args:
            texts: Each head's texts in rank order.

        Raises:
            InputError: As in `ask_all`.
        """
        (answers,) = ask_all([self._caller], _label_requests(texts), self._caller.settings.cache)
        labeled = dict.fromkeys(texts, Labeled(cause="no texts"))
        for head, answer in zip(filter(texts.__getitem__, texts), answers, strict=True):
            if isinstance(answer, str):
                labeled[head] = Labeled(cause=answer)
            else:  # with a letter or a digit in it: `parse_reply`
                labeled[head] = Labeled(normalize(answer["concept"]), " ".join(answer["concept"].split()))
        return labeled

    def estimate_cost(self, texts: Mapping[Head, Sequence[str]]) -> CostEstimate:
        """Estimate the cost of `label`, whatever is cached; neither key nor network is needed."""
        return self._caller.estimate_cost(_label_requests(texts))

    def spent(self, texts: Mapping[Head, Sequence[str]]) -> dict[str, Any]:
        """Return what the labels have cost, as in `Caller.spent`."""
        return self._caller.spent(_label_requests(texts))

    def require_keys(self) -> None:
        """Raise InputError if the model's package or key is missing."""
        self._caller.provider.open()

    def manifest_entry(self) -> dict[str, Any]:
        """Return the model and the prompt's digest, for a manifest; without key and URL."""
        worked = [[example.label, *example.texts] for example in examples()]
        prompt = fingerprint(LABEL_INSTRUCTIONS, {"examples": worked})
        return self._caller.manifest_entry() | {"prompt": prompt}


def _label_requests(texts: Mapping[Head, Sequence[str]]) -> list[Request]:
    return [label_request(head, head_texts) for head, head_texts in texts.items() if head_texts]

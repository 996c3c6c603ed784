"""A panel of judges, and a labeler: costs are estimated first, then all judges are asked at the same time.

The judge `tags` needs neither a model nor a key. It reads the pool's tags in place of an LLM and is never
presented as one.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ccs.errors import InputError
from ccs.heads import Head
from ccs.judges import PAPER, JudgeSettings, JudgeSpec, paper_panel, parse_panel
from ccs.judges.caller import Answer, Caller, ask_all
from ccs.judges.prices import CostEstimate, Spending
from ccs.judges.provider import Request
from ccs.judges.question import (
    LABEL_INSTRUCTIONS,
    Judgment,
    Question,
    judge_request,
    label_request,
    text_names,
    unscored,
)
from ccs.paper import examples
from ccs.texts import labels
from ccs.texts.labels import TAGS, normalize
from ccs.texts.pools import Pool


class Callers:
    """Models that are asked about the same items. Keys and packages are needed only if something is sent.

    Attributes:
        callers: The models by name.
        settings: The limits of the run.
        spending: The budget.
    """

    def __init__(
        self, specs: Iterable[JudgeSpec], settings: JudgeSettings | None, spending: Spending | None
    ) -> None:
        self.settings = settings or JudgeSettings()
        self.spending = spending or Spending(self.settings.budget)
        self.callers = {spec.name: Caller(spec, self.settings, self.spending) for spec in specs}

    def requests(self, items: Any) -> list[Request]:
        """Return the requests for items, without those that have no texts."""
        raise NotImplementedError

    def estimate_cost(self, items: Any) -> tuple[CostEstimate, ...]:
        """Estimate each model's cost, whatever is cached; neither keys nor network are needed."""
        return tuple(caller.estimate_cost(self.requests(items)) for caller in self.callers.values())

    def spent(self, items: Any) -> list[dict[str, Any]]:
        """Return what each model's answers have cost, as in `Caller.spent`."""
        return [caller.spent(self.requests(items)) for caller in self.callers.values()]

    def require_keys(self) -> None:
        """Raise InputError if a model's package or key is missing."""
        for caller in self.callers.values():
            caller.provider.open()

    def ask(self, items: Any) -> dict[str, list[Answer]]:
        """Ask all models at the same time, and return each one's answers; InputError as in `ask_all`."""
        callers = list(self.callers.values())
        answers = ask_all(callers, self.requests(items), self.settings.cache) if callers else []
        return dict(zip(self.callers, answers, strict=True))


class Panel(Callers):
    """Judges that answer the same questions."""

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
        members = parse_panel(spec)
        if TAGS in members and tags is None:
            raise InputError(f"The judge {TAGS} is not available here.")
        super().__init__((spec for spec in members if isinstance(spec, JudgeSpec)), settings, spending)
        self._tags = tags
        self.names = tuple(member.name if isinstance(member, JudgeSpec) else member for member in members)

    def requests(self, items: Sequence[Question]) -> list[Request]:
        """Return the requests for questions."""
        return [judge_request(question) for question in items if question.texts]

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
        sent = list(dict.fromkeys(question for question in questions if question.texts))
        by_judge = {name: dict(zip(sent, answers, strict=True)) for name, answers in self.ask(sent).items()}

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

    def manifest_entries(self) -> list[dict[str, Any]]:
        """Return an entry for each judge, for a manifest; without keys and URLs."""
        entries = {name: caller.manifest_entry() for name, caller in self.callers.items()}
        return [entries.get(name, {"name": name, "stand_in": True}) for name in self.names]


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
        reason = f", which is {'' if verdict else 'not '}under {label}" if tag != label else ""
        judgments.append(Judgment(TAGS, verdict, f"tagged {tag}{reason}", ""))
    return judgments


class Labeled(NamedTuple):
    """A head's label in the one spelling of its concept and in the labeler's words, or why it has none."""

    label: str | None = None
    wording: str | None = None
    cause: str = ""


class Labeler(Callers):
    """One LLM that labels heads, given each head's texts in rank order."""

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
        judge = paper_panel()[0] if spec == PAPER else JudgeSpec.parse(spec)
        super().__init__([judge], settings, spending)
        self.name = judge.name

    def requests(self, items: Mapping[Head, Sequence[str]]) -> list[Request]:
        """Return the requests for labels."""
        return [label_request(head, texts) for head, texts in items.items() if texts]

    def label(self, texts: Mapping[Head, Sequence[str]]) -> dict[Head, Labeled]:
        """Label heads. A rerun asks again for a head without an answer.

        Args:
            texts: Each head's texts in rank order.

        Raises:
            InputError: As in `ask_all`.
        """
        answers = self.ask(texts)[self.name]
        labeled = dict.fromkeys(texts, Labeled(cause="no texts"))
        for head, answer in zip(filter(texts.__getitem__, texts), answers, strict=True):
            if isinstance(answer, str):
                labeled[head] = Labeled(cause=answer)
            else:  # with a letter or a digit in it: `parse_reply`
                labeled[head] = Labeled(normalize(answer["concept"]), " ".join(answer["concept"].split()))
        return labeled

    def manifest_entry(self) -> dict[str, Any]:
        """Return the model and the prompt's digest, for a manifest; without key and URL."""
        worked = {"examples": [[example.label, *example.texts] for example in examples()]}
        prompt = hashlib.sha256((LABEL_INSTRUCTIONS + json.dumps(worked)).encode()).hexdigest()
        return self.callers[self.name].manifest_entry() | {"prompt": prompt[:12]}

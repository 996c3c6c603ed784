"""The judge `tags`: yes if the pool tags a text with the label or with a concept under it.

It needs neither a model nor a key. It stands in for language models and is never presented as one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccs.judges.question import Judgment, Question, unscored
from ccs.texts import concepts
from ccs.texts.labels import TAGS
from ccs.texts.pools import Pool


class TagsJudge:
    """A judge by the tags of a pool and the tree of concepts. A text without a tag is unscored, not a no."""

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

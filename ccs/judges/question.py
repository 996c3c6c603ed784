"""The questions to judges and to a labeler, and the parsing of their replies.

One question is a head's label with its K texts; one answer is K verdicts, each with a short reason. If a
judge could not answer, every text of the question is unscored, with the cause: unscored is never a no.

A labeler names a head's concept after five worked examples. They are heads of the study's table 1, as
printed, never the head that is being labeled; the study does not say which five it showed. Its answer is what
judges are asked about; `ccs.texts.labels.normalize` brings it to one spelling, to group heads by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from typing import Any

from ccs.heads import Head
from ccs.judges.provider import Request, redact
from ccs.paper import LEVELS, Example, examples


@dataclass(frozen=True)
class Question:
    """Does each of `texts` belong to the concept `label`? `head_key` ("L11.H5") is not sent."""

    head_key: str
    label: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Judgment:
    """One judge's verdict on one text, None for unscored, with its `reason`, or the `cause` why not."""

    judge: str
    verdict: bool | None
    reason: str
    cause: str

    @property
    def word(self) -> str:
        """The verdict: yes, no or unscored."""
        return "unscored" if self.verdict is None else "yes" if self.verdict else "no"

    @property
    def why(self) -> str:
        """The judge's reason, after the cause where there is no verdict."""
        return ": ".join(filter(None, (self.cause, self.reason)))


def unscored(judge: str, question: Question, cause: str) -> list[Judgment]:
    return [Judgment(judge, None, "", cause) for _ in question.texts]


class OffSchemaError(Exception):
    """A reply that does not follow the schema; the message says where."""


def _prompt(name: str) -> str:
    return files("ccs.judges").joinpath(name).read_text("utf-8").rstrip("\n")


JUDGE_INSTRUCTIONS, LABEL_INSTRUCTIONS = _prompt("judge.txt"), _prompt("label.txt")
_EXAMPLES = 5


def text_names(count: int) -> list[str]:
    """The names under which a question's texts are sent and answered: text_1 to text_K."""
    return [f"text_{number}" for number in range(1, count + 1)]


def _named(texts: Sequence[str]) -> dict[str, str]:
    return dict(zip(text_names(len(texts)), texts, strict=True))


def judge_request(question: Question) -> Request:
    """The request for a question, with label and texts as JSON so that no text can escape its quotes."""
    asked = {"concept": question.label, "texts": _named(question.texts)}
    user = json.dumps(asked, ensure_ascii=False, indent=1)
    return Request(JUDGE_INSTRUCTIONS, user, judge_schema(len(question.texts)))


def judge_schema(count: int) -> dict[str, Any]:
    """The JSON schema of an answer to `count` texts: a property for each, for every provider can enforce the
    names of an object, while several ignore the length of an array.
    """
    verdict = _closed_object({"reason": {"type": "string"}, "verdict": {"type": "boolean"}})
    return _closed_object(dict.fromkeys(text_names(count), verdict))


def label_request(head: Head, texts: Sequence[str], *, repaired: bool = False) -> Request:
    """The request for a head's label. repaired: without the misprints of the worked examples."""
    lines = [LABEL_INSTRUCTIONS, "Worked examples:"]
    for example in worked_examples(head, texts):
        shown = _label_prompt(example.shown(repaired))
        lines.append(f"{shown}\nconcept: {json.dumps(example.label)}")
    text = {"type": "string"}
    schema = _closed_object({"reason": text, "concept": text})
    return Request("\n\n".join(lines), _label_prompt(texts), schema)


def _label_prompt(texts: Sequence[str]) -> str:
    return json.dumps({"texts": _named(texts)}, ensure_ascii=False)


def worked_examples(head: Head, texts: Sequence[str]) -> list[Example]:
    """Five of the study's nine printed heads, taking the levels in turn, without the head being labeled:
    known by its name or, as names recur in other models, by more than half of its texts.
    """
    by_level = [[each for each in examples() if each.level == level] for level in LEVELS]
    in_turn = chain.from_iterable(zip(*by_level, strict=True))
    others = [
        each
        for each in in_turn
        if each.head != head and 2 * len(set(each.texts) & set(texts)) <= len(set(each.texts))
    ]
    return others[:_EXAMPLES]


def _closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def parse_reply(reply: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object in a reply, with properties in the order of `schema`, which it must follow. This is the one
    place where a reply is read: keys in it are replaced. OffSchemaError, also for an empty string but a
    reason.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    answer = parse_object(redact(json.dumps(parse_object(reply), ensure_ascii=False)))
    if error := best_match(Draft202012Validator(schema).iter_errors(answer)):
        raise OffSchemaError(f"{error.json_path}: {error.message}")
    if list(answer) != schema["required"]:
        raise OffSchemaError("the answers are not in the order asked")
    for name, value in answer.items():
        if isinstance(value, str) and name != "reason" and not any(map(str.isalnum, value)):
            raise OffSchemaError(f"{name} is empty")
    return answer


def parse_object(reply: str) -> dict[str, Any]:
    """The JSON object in a reply, maybe in a Markdown fence. OffSchemaError, also for a name given twice."""
    text = reply.strip()
    lines = text.splitlines()
    if len(lines) > 2 and lines[0] in ("```", "```json", "```JSON") and lines[-1] == "```":
        text = "\n".join(lines[1:-1])
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # numbers of 5,000 digits too
        raise OffSchemaError(f"not JSON ({error})" if text else "an empty reply") from None
    if not isinstance(value, dict):
        raise OffSchemaError("JSON, but not an object")
    return value


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise OffSchemaError(f"{name} is given twice")
        result[name] = value
    return result

"""The questions to judges and to a labeler, and the parsing of their replies.

One question is a head's label with its K texts. One answer is K verdicts, each with a short reason. If a
judge has no answer, every text of the question is unscored, with the cause: unscored is never a no.

A labeler names a head's concept after five worked examples. They are heads of the paper's table 1, as
printed, never the head that is being labeled; the paper does not say which five it used. Judges are asked
about the labeler's words; `ccs.texts.labels.normalize` gives them one spelling, to group heads by.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from typing import Any

from ccs.heads import Head
from ccs.judges.provider import Request, redact
from ccs.paper import LEVELS, Example, examples


@dataclass(frozen=True)
class Question:
    """Does each of `texts` belong to the concept `label`?"""

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
        """The judge's reason, after the cause if there is no verdict."""
        return ": ".join(filter(None, (self.cause, self.reason)))


def unscored(judge: str, question: Question, cause: str) -> list[Judgment]:
    """Return the judgments of a question without an answer.

    Args:
        judge: The judge's name.
        question: The question.
        cause: Why there is no answer.
    """
    return [Judgment(judge, None, "", cause) for _ in question.texts]


class OffSchemaError(Exception):
    """A reply that can't be read by its schema; the message names the place."""


def _prompt(name: str) -> str:
    return files("ccs.judges").joinpath(name).read_text("utf-8").rstrip("\n")


JUDGE_INSTRUCTIONS, LABEL_INSTRUCTIONS = _prompt("judge.txt"), _prompt("label.txt")
_EXAMPLES = 5


def text_names(count: int) -> list[str]:
    """Return the names under which a question's texts are sent and answered: text_1 to text_K."""
    return [f"text_{number}" for number in range(1, count + 1)]


def _by_name(texts: Sequence[str]) -> dict[str, str]:
    return dict(zip(text_names(len(texts)), texts, strict=True))


def judge_request(question: Question) -> Request:
    """Return the request for a question, with label and texts as JSON so that no text escapes its quotes."""
    data = {"concept": question.label, "texts": _by_name(question.texts)}
    user = json.dumps(data, ensure_ascii=False, indent=1)
    return Request(JUDGE_INSTRUCTIONS, user, judge_schema(len(question.texts)))


def judge_schema(count: int) -> dict[str, Any]:
    """Return the JSON schema of an answer to `count` texts.

    Each text has a property: every provider can enforce the names of an object, while several ignore the
    length of an array.
    """
    verdict = _closed_object({"reason": {"type": "string"}, "verdict": {"type": "boolean"}})
    return _closed_object(dict.fromkeys(text_names(count), verdict))


def label_request(head: Head, texts: Sequence[str]) -> Request:
    """Return the request for a head's label.

    Args:
        head: The head.
        texts: Its texts in rank order.
    """
    blocks = [LABEL_INSTRUCTIONS, "Worked examples:"]
    for example in worked_examples(head, texts):
        blocks += [f"{_label_prompt(example.texts)}\nconcept: {json.dumps(example.label)}"]
    string = {"type": "string"}
    schema = _closed_object({"reason": string, "concept": string})
    return Request("\n\n".join(blocks), _label_prompt(texts), schema)


def _label_prompt(texts: Sequence[str]) -> str:
    return json.dumps({"texts": _by_name(texts)}, ensure_ascii=False)


def worked_examples(head: Head, texts: Sequence[str]) -> list[Example]:
    """Choose five of the paper's nine printed heads, taking the levels in turn.

    The head that is being labeled is left out. It is known by its name or, since names recur in other models,
    by more than half of its texts.

    Args:
        head: The head that is being labeled.
        texts: Its texts.
    """
    by_level = [[example for example in examples() if example.level == level] for level in LEVELS]
    in_turn = chain.from_iterable(zip(*by_level, strict=True))
    usable = [
        example
        for example in in_turn
        if example.head != head and 2 * len({*example.texts} & {*texts}) <= len({*example.texts})
    ]
    return usable[:_EXAMPLES]


def _closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def parse_reply(reply: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Read a model's reply, with keys in it replaced.

    A JSON object has no order, so an answer is read by its names and comes back in the schema's order. Names
    that the schema doesn't have are ignored.

    Args:
        reply: The text of the reply.
        schema: The JSON schema of the answer.

    Raises:
        OffSchemaError: A name is missing, or a value has another type or is empty. A reason may be empty.
    """
    redacted = parse_object(redact(json.dumps(parse_object(reply), ensure_ascii=False)))
    answer: dict[str, Any] = read_by_schema(redacted, schema)
    return answer


_TYPES = {"object": dict, "string": str, "boolean": bool}


def read_by_schema(value: Any, schema: Mapping[str, Any], place: str = "") -> Any:
    """Read a JSON value by a schema of objects, strings, and booleans.

    Args:
        value: The value.
        schema: Its schema.
        place: The value's place, for errors.

    Returns:
        The value, objects reduced to the schema's properties and in their order.

    Raises:
        OffSchemaError: As in `parse_reply`.
    """
    if type(value) is not _TYPES[schema["type"]]:
        raise OffSchemaError(f"{place or 'answer'}: {value!r:.80} is not of type {schema['type']!r}")
    if isinstance(value, str) and not place.endswith("reason") and not any(map(str.isalnum, value)):
        raise OffSchemaError(f"{place} is empty")
    if not isinstance(value, dict):
        return value
    if missing := [name for name in schema["required"] if name not in value]:
        raise OffSchemaError(f"{place or 'answer'}: {missing[0]!r} is a required property")
    return {
        name: read_by_schema(value[name], inner, f"{place}.{name}".strip("."))
        for name, inner in schema["properties"].items()
    }


_FENCE = re.compile(r"```[^\S\n]*\w*\s(.*)```", re.DOTALL)


def parse_object(reply: str) -> dict[str, Any]:
    """Read the JSON object in a reply, which may have a byte order mark and a Markdown fence around it.

    Raises:
        OffSchemaError: The reply isn't a JSON object, or has a name twice.
    """
    text = reply.strip("\ufeff \t\r\n")
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1].strip("\ufeff \t\r\n")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # numbers of 5,000 digits too
        raise OffSchemaError(f"not JSON ({error})" if text else "an empty reply") from None
    if not isinstance(value, dict):
        raise OffSchemaError("JSON, but not an object")
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(by_name := dict(pairs)) < len(pairs):
        raise OffSchemaError("a name is given twice")
    return by_name

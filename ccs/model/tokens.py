"""Tokenizers that open_clip takes from the Hub (SigLIP's, BERT's), built from their files alone.

The tokens are those of open_clip's HFTokenizer, but without transformers: the file that says how a text is
split is read by the `tokenizers` library, which runs no code from it. That library would still search a text
for a pattern that takes forever, or replace each letter by a book; such a file is refused.
"""

from __future__ import annotations

import base64
import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ccs.model.fetching import Place

RULES = "tokenizer.json"
_ROLES = ("special_tokens_map.json", "tokenizer_config.json")  # the second file overrides the first
MAX_RULES = 64 * 2**20
"""The most bytes of one file; SigLIP 2's largest has 34 MB."""
_STEPS = ("normalizer", "pre_tokenizer", "post_processor")
_MOST, _LONGEST, _LETTERS = 64, 64, 1000
"""The most parts of all steps, bytes per letter in a map (NFKC's most is 33), letters per pattern or word."""
_ATOM = r"(?:\\[pP]\{\w+\}|\\[sSdDwWnrt]|\\[^\w]|\[\^?(?:\\.|[^\\\[\]])+\]|[^\\()\[\]{}^$|*+?])"
_PIECES = re.compile(
    rf"(?P<one>{_ATOM}(?![*+?{{]))|(?P<some>{_ATOM}(?:\+|\{{[1-9]\d{{0,2}},?\d{{0,3}}\}}))|(?P<any>{_ATOM}\*)"
    rf"|(?P<perhaps>{_ATOM}\?)|(?P<before>\(\?!\\S\))|(?P<other>\|)",
    re.DOTALL,
)
"""The pieces that a pattern may be made of: a letter or a set of them, alone or repeated."""


class HubTokenizer:
    """Texts to tokens [texts, length] int64, padded and cut to that length.

    clean: how a text is cleaned first. Of open_clip's names: "canonicalize" (lower case, no punctuation),
    "lower", "whitespace". As in transformers: "case", lower case and nothing else, and "letters", like
    "canonicalize" except that an underscore leaves no space. without_end: BERT's end token becomes 0, as in
    CLIPA's texts. Raises ValueError for files that hold no tokenizer, or one that a short text could keep
    busy for long.
    """

    is_open_clips = False

    def __init__(
        self, files: Mapping[str, bytes], length: int, clean: str = "whitespace", without_end: bool = False
    ) -> None:
        from open_clip.tokenizer import get_clean_fn
        from tokenizers import Tokenizer

        with _told():
            text = files[RULES].decode("utf-8")
            rules = json.loads(text)
            self._rules = Tokenizer.from_str(text)
        _require_bounded(rules)
        roles = _roles(files)
        padding = self._number(roles, "pad_token")
        self._end = self._number(roles, "sep_token") if without_end else None
        self._clean = {"case": str.lower, "letters": _letters}.get(clean) or get_clean_fn(clean)
        self._rules.enable_truncation(length)
        self._rules.enable_padding(length=length, pad_id=padding, pad_token=roles["pad_token"])

    @classmethod
    def at(cls, place: Place, length: int, clean: str, without_end: bool) -> HubTokenizer:
        """The tokenizer from the files in a folder or a repository."""
        read = {name: place.read(name, MAX_RULES) for name in (RULES, *_ROLES)}
        if read[RULES] is None:
            raise ValueError(f"there is no {RULES}")
        files = {name: content for name, content in read.items() if content is not None}
        return cls(files, length, clean, without_end)

    @property
    def largest(self) -> int:
        """The largest token in its vocabulary."""
        return max(self._rules.get_vocab().values(), default=0)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        with _told():
            found = self._rules.encode_batch([self._clean(text) for text in texts])
        tokens = torch.tensor([encoding.ids for encoding in found], dtype=torch.long)
        return tokens if self._end is None else tokens.masked_fill(tokens == self._end, 0)

    def _number(self, roles: Mapping[str, str], role: str) -> int:
        number = self._rules.token_to_id(roles[role]) if role in roles else None
        if number is None:
            raise ValueError(f"the tokenizer has no {role}")
        return int(number)


def _roles(files: Mapping[str, bytes]) -> dict[str, str]:
    """The token of each role in the files; entries of other types are ignored."""
    roles = {}
    for name in _ROLES:
        said = json.loads(files.get(name, b"{}"))
        for role in ("pad_token", "sep_token"):
            token = said.get(role) if isinstance(said, dict) else None
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                roles[role] = token
    return roles


def _letters(text: str) -> str:
    return " ".join(text.lower().translate(dict.fromkeys(map(ord, string.punctuation))).split())


@contextmanager
def _told() -> Iterator[None]:
    """Turn the library's bare exceptions and panics on a broken file into a ValueError."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{RULES} does not hold a tokenizer: {str(error)[:100]}") from None


def _require_bounded(rules: Mapping[str, Any]) -> None:
    """Raise ValueError for rules under which a short text could take long, or become a long one."""
    parts = [part for step in _STEPS for part in _inside(rules.get(step))]
    maps = [part["precompiled_charsmap"] for part in parts if part.get("precompiled_charsmap")]
    word = rules["model"].get("max_input_chars_per_word", 0)
    if len(parts) > _MOST or len(maps) > 1 or word > _LETTERS:
        raise ValueError(
            f"{RULES} has {len(parts)} parts, {len(maps)} maps of letters and words of {word}; "
            f"{_MOST}, 1 and {_LETTERS} are the most"
        )
    for part in parts:
        pattern = part.get("Regex", part.get("String", " "))
        if not pattern or ("Regex" in part and not _is_quick(pattern)):
            raise ValueError(
                f"{RULES} looks for {pattern[:40]!r}, which could take long; a pattern may have no groups, "
                "and one repeat in each alternative"
            )
        longest = 1 if part.get("type") == "Replace" else 8
        for name in ("content", "prepend", "replacement"):
            if len(part.get(name, "")) > longest:
                raise ValueError(f"{RULES} puts {part[name][:40]!r} into texts; {longest} is the most")
    for letters in maps:
        found = base64.b64decode(letters)
        if max(map(len, found[4 + int.from_bytes(found[:4], "little") :].split(b"\0"))) > _LONGEST:
            raise ValueError(f"{RULES} makes more than {_LONGEST} bytes of a letter")


def _inside(value: object) -> Iterator[dict[str, Any]]:
    """All mappings in a JSON value."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _inside(one)


def _is_quick(pattern: str) -> bool:
    """True for a fast pattern that matches something: no groups, at most one repeat per alternative."""
    place, alternatives = 0, [Counter[str]()]
    while place < len(pattern):
        if len(pattern) > _LETTERS or (piece := _PIECES.match(pattern, place)) is None:
            return False
        if piece.lastgroup == "other":
            alternatives.append(Counter())
        else:
            alternatives[-1][str(piece.lastgroup)] += 1
        place = piece.end()
    return all(
        one["one"] + one["some"] > 0 and one["some"] + one["any"] <= 1 and one["perhaps"] <= 1
        for one in alternatives
    )

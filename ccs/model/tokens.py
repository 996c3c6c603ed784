"""Tokenizers that open_clip takes from the Hub (SigLIP's, BERT's), made of their files alone.

As open_clip's HFTokenizer gives them, but without transformers: the file that says how a text is split is
read by the `tokenizers` library, which runs no code of the file's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ccs.model.fetching import Place

RULES = "tokenizer.json"
_ROLES = ("special_tokens_map.json", "tokenizer_config.json")  # the second counts where both say something
MAX_RULES = 64 * 2**20
"""Bytes of one of the files; SigLIP 2's largest has 34 MB."""


class HubTokenizer:
    """Texts to tokens [texts, length] int64, padded and cut to that length.

    clean: what is done to a text first, one of open_clip's names: "canonicalize" (lower case, no
    punctuation), "lower", "whitespace"; or "case", lower case and nothing else. without_end: BERT's mark of
    the end becomes 0, as CLIPA's texts have it. Raises ValueError for files that do not hold a tokenizer.
    """

    is_open_clips = False

    def __init__(
        self, files: Mapping[str, bytes], length: int, clean: str = "whitespace", without_end: bool = False
    ) -> None:
        from open_clip.tokenizer import get_clean_fn
        from tokenizers import Tokenizer

        try:
            self._rules = Tokenizer.from_str(files[RULES].decode("utf-8"))
        except Exception as error:  # the library raises bare exceptions
            raise ValueError(f"{RULES} does not hold a tokenizer: {str(error)[:100]}") from None
        roles = _roles(files)
        padding = self._number(roles, "pad_token")
        self._end = self._number(roles, "sep_token") if without_end else None
        self._clean = str.lower if clean == "case" else get_clean_fn(clean)
        self._rules.enable_truncation(length)
        self._rules.enable_padding(length=length, pad_id=padding, pad_token=roles["pad_token"])

    @classmethod
    def at(cls, place: Place, length: int, clean: str, without_end: bool) -> HubTokenizer:
        """From the files in a folder or a repository."""
        read = {name: place.read(name, MAX_RULES) for name in (RULES, *_ROLES)}
        if read[RULES] is None:
            raise ValueError(f"there is no {RULES}")
        files = {name: content for name, content in read.items() if content is not None}
        return cls(files, length, clean, without_end)

    @property
    def largest(self) -> int:
        """The largest token it can give."""
        return max(self._rules.get_vocab().values(), default=0)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        found = self._rules.encode_batch([self._clean(text) for text in texts])
        tokens = torch.tensor([encoding.ids for encoding in found], dtype=torch.long)
        return tokens if self._end is None else tokens.masked_fill(tokens == self._end, 0)

    def _number(self, roles: Mapping[str, str], role: str) -> int:
        number = self._rules.token_to_id(roles[role]) if role in roles else None
        if number is None:
            raise ValueError(f"the tokenizer has no {role}")
        return int(number)


def _roles(files: Mapping[str, bytes]) -> dict[str, str]:
    """The tokens of each role by the files; where a file holds something else it is passed over."""
    roles = {}
    for name in _ROLES:
        said = json.loads(files.get(name, b"{}"))
        for role in ("pad_token", "sep_token"):
            token = said.get(role) if isinstance(said, dict) else None
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                roles[role] = token
    return roles

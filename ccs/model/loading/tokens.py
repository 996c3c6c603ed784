"""Tokenizers of transformers, for checkpoints and for SigLIP's texts in open_clip."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ccs import sandbox
from ccs.errors import InputError
from ccs.model.loading.config import SAVED
from ccs.model.loading.fetching import Place

if TYPE_CHECKING:
    from torch import Tensor

_ABOUT = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json")
_VOCABULARIES = ("tokenizer.json", "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
MAX_BYTES = 64 * 2**20
"""The most bytes of one file; SigLIP 2's largest has 34 MB."""

SECONDS = 20.0
"""The most processor time to load a tokenizer (Gemma's takes a tenth of it), and for few texts."""

CLASSES = (
    *("Bert", "CLIP", "Gemma", "Nllb", "Roberta", "Siglip", "Siglip2", "T5", "XLMRoberta", "PreTrained"),
    "TokenizersBackend",  # what transformers 5 writes in place of PreTrainedTokenizerFast
)
"""The tokenizers that are read, without `Tokenizer` or `TokenizerFast` at the end."""


def vocabulary(place: Place) -> Path | None:
    """Return the folder of the tokenizer's files; None if there is no vocabulary."""
    folder = place.folder_of((*_VOCABULARIES, "vocab.json", *_ABOUT), MAX_BYTES)
    return folder if folder and any((folder / name).exists() for name in _VOCABULARIES) else None


class HubTokenizer:
    """Turn texts into tokens [texts, length] int64, padded and cut to that length, by transformers.

    transformers' AutoTokenizer runs in the sandbox (`ccs.sandbox`). Its files can't name code to run.

    Args:
        place: The place of its files.
        length: The number of tokens of each text.
        vocab_size: Rows of the text encoder's embedding.
        clean: Applied to each text first.
        without_end: Replace BERT's end token by 0, as in CLIPA's texts.

    Raises:
        InputError: If the files hold no tokenizer of a known class.
    """

    def __init__(
        self,
        place: Place,
        length: int,
        vocab_size: int,
        clean: Callable[[str], str] = str,
        without_end: bool = False,
    ) -> None:
        folder = vocabulary(place)
        if folder is None:
            raise ValueError(f"there is no tokenizer.json and no other vocabulary; {SAVED}")
        self._folder, self._length, self._rows, self._clean = str(folder.resolve()), length, vocab_size, clean
        self._what, self._without_end = f"The tokenizer of {place.repository or folder.name}", without_end
        self(["a photo"])  # a token beyond the embedding is an error now

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Encode texts as token ids [n, context length]."""
        import torch  # not where this module is read in the sandbox

        settings = self._folder, [self._clean(text) for text in texts], self._length, self._without_end
        data = sandbox.run(_tokens, *settings, title=self._what, seconds=SECONDS + len(texts) / 200)
        tokens = torch.from_numpy(np.frombuffer(data, np.int64).copy())
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < self._rows:
            raise InputError(
                f"{self._what} has a token {int(tokens.max())}, and its vocab_size is {self._rows}."
            )
        return tokens.reshape(len(texts), self._length)


# Functions that run in the sandbox -------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _rules(folder: str) -> Any:
    """Return the tokenizer of a folder."""
    from transformers import AutoTokenizer

    config = Path(folder) / _ABOUT[0]
    kind = json.loads(config.read_bytes()).get("tokenizer_class") if config.exists() else None
    if kind is not None and kind.removesuffix("Fast").removesuffix("Tokenizer") not in CLASSES:
        raise ValueError(f"{kind[:40]!r} is not a supported class of tokenizers")
    rules = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if rules.pad_token is None:
        raise ValueError("it has no pad_token")
    return rules


def _tokens(folder: str, texts: list[str], length: int, without_end: bool) -> bytes:
    """Return the tokens' 64-bit numbers, row by row."""
    if not texts:
        return b""
    rules = _rules(folder)
    tokens = np.array(rules(texts, padding="max_length", truncation=True, max_length=length).input_ids)
    end = rules.sep_token_id if without_end else -1
    return np.where(tokens == end, 0, tokens).astype(np.int64).tobytes()

"""Tokenizers of transformers: those of checkpoints, and those with which open_clip reads SigLIP's texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ccs.model.fetching import Place

_ABOUT = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json")
_VOCABULARIES = (
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
)
MAX_BYTES = 64 * 2**20
"""The most bytes of one file; SigLIP 2's largest has 34 MB."""

CLASSES = ("Bert", "CLIP", "Gemma", "Nllb", "Roberta", "Siglip", "Siglip2", "T5", "XLMRoberta", "PreTrained")
"""The tokenizers that are read, before `Tokenizer` or `TokenizerFast`."""


class HubTokenizer:
    """Texts to tokens [texts, length] int64, padded and cut to that length, by transformers' AutoTokenizer.

    place: where its files are. vocab_size: rows of the text tower's embedding. clean: what is done to a text
    first. without_end: BERT's end token becomes 0, as in CLIPA's texts. Raises ValueError for files that hold
    no such tokenizer; none of them can name code that would run.
    """

    def __init__(
        self,
        place: Place,
        length: int,
        vocab_size: int,
        clean: Callable[[str], str] = str,
        without_end: bool = False,
    ) -> None:
        from transformers import AutoTokenizer

        wanted = dict.fromkeys([*(name for names in _VOCABULARIES for name in names), *_ABOUT])
        folder = place.folder_of(tuple(wanted), MAX_BYTES)
        if folder is None or not any(
            all((folder / name).exists() for name in each) for each in _VOCABULARIES
        ):
            raise ValueError("there is no tokenizer.json and no other vocabulary")
        with _told():
            about = folder / _ABOUT[0]
            kind = json.loads(about.read_bytes()).get("tokenizer_class") if about.exists() else None
            if kind is not None and kind.removesuffix("Fast").removesuffix("Tokenizer") not in CLASSES:
                raise ValueError(f"{kind[:40]!r} is none of the classes of tokenizers that are read")
            self._rules: Any = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
        if (largest := max(self._rules.get_vocab().values(), default=0)) >= vocab_size:
            raise ValueError(f"its tokenizer has a token {largest}, and its vocab_size is {vocab_size}")
        if self._rules.pad_token is None:
            raise ValueError("its tokenizer has no pad_token")
        self._length, self._clean = length, clean
        self._end = self._rules.sep_token_id if without_end else None

    def __call__(self, texts: Sequence[str]) -> Tensor:
        with _told():
            tokens: Tensor = self._rules(
                [self._clean(text) for text in texts],
                padding="max_length",
                truncation=True,
                max_length=self._length,
                return_tensors="pt",
            ).input_ids
        return tokens if self._end is None else tokens.masked_fill(tokens == self._end, 0)

    @property
    def is_open_clips(self) -> bool:
        """True where all texts get the same tokens as from open_clip's own tokenizer, up to the padding,
        except those that open_clip repairs first (HTML, wrong encodings)."""
        from open_clip.tokenizer import SimpleTokenizer

        if type(self._rules).__name__ != "CLIPTokenizer":
            return False
        plain = SimpleTokenizer()
        *words, _, _ = plain.encoder
        expected = {word: number for number, word in enumerate((*words, "<|startoftext|>", "<|endoftext|>"))}
        merges = json.loads(self._rules.backend_tokenizer.to_str())["model"]["merges"]
        return self._rules.get_vocab() == expected and [tuple(pair) for pair in merges] == list(
            plain.bpe_ranks
        )


@contextmanager
def _told() -> Iterator[None]:
    """Turn the exceptions of transformers, and the panics of its Rust, into a ValueError."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"its tokenizer cannot be used: {' '.join(str(error).split())[:150]}") from None

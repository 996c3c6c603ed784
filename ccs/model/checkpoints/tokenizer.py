"""The tokenizer of a Hugging Face checkpoint, built from its vocabulary and merges alone.

As in transformers' own `CLIPTokenizer`, every CLIP splits a text in the same way, which is written out here,
whatever else the files say about it. Nothing in the files names code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from ccs.model.checkpoints.config import Read
from ccs.model.config import Token, why

_ROLES = ("special_tokens_map.json", "tokenizer_config.json")  # the second file overrides the first
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", *_ROLES)
MAX_BYTES = 16 * 2**20
"""The most bytes of one file; CLIP's largest has 2.2 MB."""

_START, _END, _WORD_END = "<|startoftext|>", "<|endoftext|>", "</w>"
_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


class _Added(Read):
    """A token that is looked for in a text before the text is split."""

    id: Token = 0
    content: Annotated[str, Field(min_length=1, max_length=200)]
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False


class _Pairs(Read):
    type: Literal["BPE"] = "BPE"
    end_of_word_suffix: Literal["</w>"] = "</w>"
    vocab: dict[str, Token]
    merges: list[str] | list[tuple[str, str]]


class _Whole(Read):
    """tokenizer.json"""

    model: _Pairs
    added_tokens: tuple[_Added, ...] = ()


class _Names(Read):
    """tokenizer_config.json and special_tokens_map.json: the tokens with a role."""

    bos_token: str | _Added = _START
    eos_token: str | _Added = _END
    pad_token: str | _Added = _END
    unk_token: str | _Added = _END
    added_tokens_decoder: dict[Annotated[str, Field(pattern="^[0-9]{1,7}$")], _Added] = Field(
        default_factory=dict
    )


_VOCABULARY = TypeAdapter(dict[str, Token], config=ConfigDict(strict=True))


class Tokenizer:
    """Texts to tokens [texts, length] int64: start, the text's own, end, padding; long texts are cut.

    is_open_clips: True where all texts get the same tokens as from open_clip's own tokenizer, up to the
    padding, except those that open_clip repairs first (HTML, wrong encodings).
    """

    def __init__(self, files: Mapping[str, bytes], length: int, vocab_size: int) -> None:
        from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

        try:
            vocab, merges, added, names = _read(files)
        except ValidationError as error:
            raise ValueError(f"its tokenizer is no CLIP's: {why(error)}") from None
        vocab |= {token.content: token.id for token in added}
        if (largest := max(vocab.values(), default=0)) >= vocab_size:
            raise ValueError(f"its tokenizer has a token {largest}, and its vocab_size is {vocab_size}")
        for name in names.values():
            if name not in vocab:
                raise ValueError(f"its tokenizer has no token {name[:40]!r}")
        self._start, self._end, self._padding = (vocab[names[role]] for role in ("bos", "eos", "pad"))
        self._length = length
        self.is_open_clips = _is_open_clips(vocab, merges)
        model = models.BPE(vocab, merges, unk_token=names["unk"], end_of_word_suffix=_WORD_END)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        special = [_Added(content=name, special=True) for name in dict.fromkeys(names.values())]
        known = {token.content for token in added}
        self._tokenizer.add_tokens(
            [
                AddedToken(**token.model_dump(exclude={"id"}))
                for token in (*added, *(token for token in special if token.content not in known))
            ]
        )

    def __call__(self, texts: Sequence[str]) -> Tensor:
        tokens = torch.full((len(texts), self._length), self._padding, dtype=torch.long)
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        for row, encoding in zip(tokens, found, strict=True):
            ids = [self._start, *encoding.ids[: self._length - 2], self._end]
            row[: len(ids)] = torch.tensor(ids)
        return tokens


def _read(
    files: Mapping[str, bytes],
) -> tuple[dict[str, int], list[tuple[str, str]], Sequence[_Added], dict[str, str]]:
    """The vocabulary, the merges in order, the added tokens, and the tokens of the four roles."""
    given: dict[str, Any] = {}
    for name in _ROLES:
        if name in files:
            given |= _Names.model_validate_json(files[name]).model_dump(exclude_unset=True)
    roles = _Names.model_validate(given)
    named = {
        role: token if isinstance(token, str) else token.content
        for role, token in ((role, getattr(roles, f"{role}_token")) for role in ("bos", "eos", "pad", "unk"))
    }
    added = [token.model_copy(update={"id": int(key)}) for key, token in roles.added_tokens_decoder.items()]
    if whole := files.get("tokenizer.json"):
        read = _Whole.model_validate_json(whole)
        known = {token.content for token in read.added_tokens}
        added = [*read.added_tokens, *(token for token in added if token.content not in known)]
        return dict(read.model.vocab), _pairs(read.model.merges), added, named
    if "vocab.json" not in files or "merges.txt" not in files:
        raise ValueError("it has neither tokenizer.json nor vocab.json and merges.txt")
    lines = [line for line in files["merges.txt"].decode("utf-8").split("\n") if line]
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    return _VOCABULARY.validate_json(files["vocab.json"]), _pairs(lines), added, named


def _pairs(merges: Sequence[str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    pairs = []
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2:
            raise ValueError(f"its tokenizer merges {' '.join(parts)[:40]!r}, which is no pair")
        pairs.append((parts[0], parts[1]))
    return pairs


def _is_open_clips(vocab: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> bool:
    from open_clip.tokenizer import SimpleTokenizer

    plain = SimpleTokenizer()
    *words, _, _ = plain.encoder
    expected = {word: number for number, word in enumerate((*words, _START, _END))}
    return vocab == expected and list(merges) == list(plain.bpe_ranks)

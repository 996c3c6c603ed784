"""Neutral prompts: words for a person that name no occupation, and nonsense words.

A model without a general preference has no reason to rank a group first for any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccs.heads import HeadSet

PERSON = ("person", "human", "someone", "somebody")
NONSENSE = ("blorple", "quombit", "plimfer", "wexnor")
"""Words that CLIP's tokenizer builds from two or more of its pieces, none of them a word with a meaning."""
NEUTRAL = PERSON + NONSENSE
_PRONOUNS = ("someone", "somebody")


def embed_neutral(
    model: Any, words: Sequence[str], templates: Sequence[str], ablate: HeadSet | None = None
) -> NDArray[np.float32]:
    """Return unit text embeddings [words, d], means over the templates.

    Args:
        model: with the `embed_texts` of a `Model`.
        words: such as NEUTRAL.
        templates: with `{}` for the word. Pronouns lose the article before it.
        ablate: heads of the text encoder.
    """
    texts = [fill(template, word) for word in words for template in templates]
    rows = model.embed_texts(texts, ablate=ablate) if ablate else model.embed_texts(texts)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    means = units.reshape(len(words), len(templates), -1).mean(axis=1)
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), np.float32)


def fill(template: str, word: str) -> str:
    """Fill a word into a template.

    Args:
        template: The template, with `{}` for the word.
        word: The word. A pronoun such as "someone" loses the article before it.
    """
    if word in _PRONOUNS:
        template = template.replace("an {}", "{}").replace("a {}", "{}")
    return template.replace("{}", word)

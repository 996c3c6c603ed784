"""What is known of the heads of the models that ship: which were taught a concept, and what each carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ccs.heads import Head

FILE = "heads.json"
"""Beside a model's weights."""
_MODELS = Path(__file__).parent


@dataclass(frozen=True)
class KnownHeads:
    """taught: head -> the concept that it was taught while the model learned; other heads were left free.

    shares: head -> concept -> the share, up to 1, of the variance of what the head writes that goes with what
    is shown of the concept. Concepts that share a place on the card overlap, so shares need not add up to 1.
    """

    taught: Mapping[Head, str]
    shares: Mapping[Head, Mapping[str, float]]

    def to_json(self) -> str:
        """The text of FILE."""
        shares = {str(head): dict(own) for head, own in self.shares.items()}
        return json.dumps({"taught": {str(h): c for h, c in self.taught.items()}, "shares": shares}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> KnownHeads:
        """What `to_json` wrote."""
        held = json.loads(text)
        return cls(
            {Head.parse(head): concept for head, concept in held["taught"].items()},
            {Head.parse(head): own for head, own in held["shares"].items()},
        )


def known_heads(model: str) -> KnownHeads | None:
    """What is known of the heads of the model of that name; None where nothing is."""
    file = _MODELS / model / FILE
    return KnownHeads.from_json(file.read_text("utf-8")) if "/" not in model and file.is_file() else None

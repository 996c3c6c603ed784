"""Named sets of prompts about people, with their sources: `--prompts NAME`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ccs import paper
from ccs.errors import InputError

FOLDER = Path(__file__).parent
PAPER = "paper"
NOUNS = {"woman", "man", "girl", "boy", "female", "male"}
"""Groups that are nouns in prompts; others get "person"."""
PERSON = ("person", "human", "someone", "somebody")
NONSENSE = ("blorple", "quombit", "plimfer", "wexnor")
"""Words that CLIP's tokenizer builds from two or more of its pieces, none of them a word with a meaning."""
NEUTRAL = PERSON + NONSENSE
"""Words that name no occupation. A model without a general preference has no reason to rank a group first."""


@dataclass(frozen=True)
class PromptSet:
    """Names for prompts about people.

    Attributes:
        name: Name for `load_prompts` and `--prompts`.
        title: Name in tables.
        source: Publication that lists the words.
        templates: Prompts with `{}` for a name.
        categories: Category -> names. A name can be in several.
    """

    name: str
    title: str
    source: str
    templates: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """All names once, in order."""
        return tuple(dict.fromkeys(name for names in self.categories.values() for name in names))


def prompt_sets() -> tuple[str, ...]:
    """List the names of all prompt sets."""
    return (PAPER, *sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def load_prompts(name: str) -> PromptSet:
    """Load a prompt set.

        >>> load_prompts("clip-harms").categories["crime-related"]
        ('thief', 'criminal', 'suspicious person')

    Raises:
        InputError: If there is no set of that name.
    """
    if name not in prompt_sets():
        raise InputError(f"There is no prompt set {name[:40]!r}; choose one of {', '.join(prompt_sets())}.")
    if name == PAPER:
        return PromptSet(
            name=PAPER,
            title="104 occupations of the paper",
            source="Pruning the Paradox, tables 15 and 16, arXiv:2503.11103",
            templates=paper.templates(),
            categories={"occupation": paper.occupations()},
        )
    values = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    adjectives = values.get("adjectives", ())
    return PromptSet(
        name=name,
        title=values["title"],
        source=values["source"],
        templates=(values["template"],),
        categories={
            category: tuple(f"{word} person" if category in adjectives else word for word in words)
            for category, words in values["categories"].items()
        },
    )


def name_person(group: str) -> str:
    """Return a person of a group: "man" as it is, "dark" as "dark person", "woman, dark" as "dark woman"."""
    words = group.split(", ")
    noun = next((word for word in words if word.lower() in NOUNS), "person")
    return " ".join([*(word for word in words if word != noun), noun])

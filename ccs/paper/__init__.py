"""Printed contents of "Pruning the Paradox" (arXiv 2503.11103): heads, tables, occupations, worked examples.

Models have the paper's name ("ViT-B-32-OpenAI") and open_clip's ("ViT-B-32/openai"). Layers and heads count
from 0. Numbers are as printed.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from ccs.errors import InputError
from ccs.heads import Head, HeadSet, last_layers

LEVELS = ("high", "moderate", "low")


@dataclass(frozen=True)
class PaperModel:
    """One of the six models of the paper: `name` for `ccs.load`, and the printed `paper_name`."""

    paper_name: str
    name: str
    layers: int
    heads_per_layer: int

    @property
    def heads(self) -> HeadSet:
        """The heads that the paper prunes, those of the last four layers."""
        return last_layers(self.layers, self.heads_per_layer)


@dataclass(frozen=True)
class PaperTable:
    """A printed table, or a figure with readable values.

    Attributes:
        kind: The measured quantity, such as "accuracy" or "bias".
        rows: Row name -> one value per column, None for an empty cell.
    """

    key: str
    number: str
    title: str
    kind: str
    unit: str
    note: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]

    def cells(self) -> Iterator[tuple[str, str, float]]:
        """Yield row, column, and value of every cell that isn't empty."""
        for row, values in self.rows.items():
            for column, value in zip(self.columns, values, strict=True):
                if value is not None:
                    yield row, column, value


@dataclass(frozen=True)
class Example:
    """A head of table 1.

    Attributes:
        texts: Its texts as printed, with a misprint.
        ccs: Its score, None for "at most 1".
    """

    level: str
    head: Head
    label: str
    texts: tuple[str, ...]
    ccs: int | None


@cache
def _read(name: str) -> Any:
    return json.loads(files("ccs.paper").joinpath(name).read_text(encoding="utf-8"))


@cache
def models() -> tuple[PaperModel, ...]:
    """Return the six models in the paper's order."""
    return tuple(PaperModel(paper_name=name, **fields) for name, fields in _read("models.json").items())


def model(name: str) -> PaperModel:
    """Return the model with this name or printed name. Raises InputError for any other."""
    for paper_model in models():
        if name in (paper_model.name, paper_model.paper_name):
            return paper_model
    known = ", ".join(paper_model.name for paper_model in models())
    raise InputError(f"The paper has no model {name!r}; its models are {known}.")


@cache
def head_labels(name: str) -> dict[str, dict[Head, str]]:
    """Return level -> head -> printed label, from tables 12 (high), 13 (moderate), and 14 (low)."""
    paper_name = model(name).paper_name
    levels = _read("heads.json")["levels"]
    return {
        level: {Head.parse(head): label for head, label in levels[level][paper_name].items()}
        for level in LEVELS
    }


def head_sets(name: str) -> dict[str, HeadSet]:
    """Return the heads that the paper lists at each level (CCS 5, 3, at most 1)."""
    return {level: HeadSet(labels) for level, labels in head_labels(name).items()}


def concept_sets(name: str) -> dict[str, HeadSet]:
    """Return the high heads with each label, pruned together by the paper."""
    high = head_labels(name)["high"]
    sets = {
        concept: HeadSet(head for head, label in high.items() if label == concept)
        for concept in sorted(set(high.values()))
    }
    exceptions = _read("heads.json")["concept_plans"].get(model(name).paper_name, {})
    return sets | {concept: HeadSet.parse(heads) for concept, heads in exceptions.items()}


DRAWS = 5
"""Number of random sets per model (section 4.2: "five seeds")."""


@cache
def drawn_sets(name: str, seed: int = 0) -> dict[str, HeadSet]:
    """Return the heads that the released code draws: "random", "equal-high", and "equal-low".

    One process per kind seeds Python's generator once and draws once per model, in the order of `models()`.
    Random heads are drawn from the heads of the last four layers that aren't high, ordered by layer and head;
    for ViT-B-32-OpenAI, from all twelve layers. No model has fewer high than low heads.

    Args:
        name: Name of the model.
        seed: Random seed for the generator.
    """
    requested = model(name)
    generators = {kind: random.Random(seed) for kind in ("random", "equal-high", "equal-low")}
    for paper_model in models():
        high, low = (list(head_labels(paper_model.name)[level]) for level in ("high", "low"))
        first_layer = 0 if paper_model.name == "ViT-B-32/openai" else paper_model.layers - 4
        places = product(range(first_layer, paper_model.layers), range(paper_model.heads_per_layer))
        others = [head for head in (Head(*place) for place in places) if head not in high]
        size = min(len(high), len(low))
        choices = {"random": (others, len(high)), "equal-high": (high, size), "equal-low": (low, size)}
        drawn = {kind: HeadSet(generators[kind].sample(*choice)) for kind, choice in choices.items()}
        if paper_model == requested:
            break
    return drawn


@cache
def occupations() -> tuple[str, ...]:
    """Return the 104 occupations of tables 15 and 16."""
    return tuple(_read("occupations.json")["occupations"])


@cache
def templates() -> tuple[str, ...]:
    """Return the four prompt templates of the bias tables; `{}` is the occupation."""
    return tuple(_read("occupations.json")["templates"])


@cache
def examples() -> tuple[Example, ...]:
    """Return the nine heads of table 1."""
    return tuple(
        Example(row["level"], Head.parse(row["head"]), row["label"], tuple(row["texts"]), row["ccs"])
        for row in _read("examples.json")["examples"]
    )


@cache
def tables() -> dict[str, PaperTable]:
    """Return every table and figure with numbers by key: "table5", "figure2", "section4.4", ..."""
    return {
        key: PaperTable(
            key=key,
            columns=tuple(fields["columns"]),
            rows={row: tuple(values) for row, values in fields["rows"].items()},
            **{name: fields[name] for name in ("number", "title", "kind", "unit", "note")},
        )
        for key, fields in _read("tables.json").items()
    }


def table(key: str) -> PaperTable:
    """Return the table with this key. Raises InputError, with the known keys, for any other."""
    if key not in tables():
        raise InputError(f"The paper has no table {key!r}; its tables are {', '.join(tables())}.")
    return tables()[key]

"""What "Pruning the Paradox" (arXiv 2503.11103) prints: heads, tables, occupations, worked examples.

Models have the study's name ("ViT-B-32-OpenAI") and open_clip's ("ViT-B-32/openai"). Layers and heads count
from 0. Numbers are as printed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ccs.errors import InputError
from ccs.heads import Head, HeadSet, last_layers

LEVELS = ("high", "moderate", "low")


@dataclass(frozen=True)
class PaperModel:
    """One of the six models of the study. `name` is for `ccs.load`; `paper_name` is the printed one."""

    paper_name: str
    name: str
    layers: int
    heads_per_layer: int

    @property
    def heads(self) -> HeadSet:
        """The heads from which the study prunes, those of the last four layers."""
        return last_layers(self.layers, self.heads_per_layer)


@dataclass(frozen=True)
class PaperTable:
    """A printed table, or a figure whose values can be read. `kind`: what is measured ("accuracy", "bias",
    ...).

    `rows`: row name -> one value per column, None for an empty cell.
    """

    key: str
    number: str
    title: str
    kind: str
    unit: str
    note: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]

    def value(self, row: str, column: str) -> float | None:
        """The value of one cell; KeyError or ValueError if there is no such row or column."""
        return self.rows[row][self.columns.index(column)]

    def cells(self) -> Iterator[tuple[str, str, float]]:
        """The row, column and value of every cell that is not empty."""
        for row, values in self.rows.items():
            for column, value in zip(self.columns, values, strict=True):
                if value is not None:
                    yield row, column, value


@dataclass(frozen=True)
class Example:
    """A head of table 1 with its texts, without misprints and as `printed`; `ccs`: None for "at most 1"."""

    level: str
    head: Head
    label: str
    texts: tuple[str, ...]
    ccs: int | None
    printed: tuple[str, ...]

    def shown(self, repaired: bool) -> tuple[str, ...]:
        return self.texts if repaired else self.printed


@cache
def _read(name: str) -> Any:
    return json.loads(files("ccs.paper").joinpath(name).read_text(encoding="utf-8"))


@cache
def models() -> tuple[PaperModel, ...]:
    """The six models, in the order the study prints them."""
    return tuple(PaperModel(paper_name=name, **about) for name, about in _read("models.json").items())


def model(name: str) -> PaperModel:
    """The model with that name or printed name; InputError if the study has no such model."""
    for found in models():
        if name in (found.name, found.paper_name):
            return found
    known = ", ".join(m.name for m in models())
    raise InputError(f"The study has no model {name!r}; it has {known}.")


@cache
def head_labels(name: str) -> dict[str, dict[Head, str]]:
    """Level -> head -> printed label, from tables 12 (high), 13 (moderate) and 14 (low)."""
    paper_name = model(name).paper_name
    levels = _read("heads.json")["levels"]
    return {
        level: {Head.parse(head): label for head, label in levels[level][paper_name].items()}
        for level in LEVELS
    }


def head_sets(name: str) -> dict[str, HeadSet]:
    """Level -> the heads the study lists at that level (CCS 5, 3, at most 1)."""
    return {level: HeadSet(labels) for level, labels in head_labels(name).items()}


def concept_sets(name: str) -> dict[str, HeadSet]:
    """Concept -> the high heads of that label, pruned for it; for "Objects" of one model another."""
    high = head_labels(name)["high"]
    sets = {
        concept: HeadSet(head for head, label in high.items() if label == concept)
        for concept in sorted(set(high.values()))
    }
    exceptions = _read("heads.json")["concept_plans"].get(model(name).paper_name, {})
    return sets | {concept: HeadSet.parse(heads) for concept, heads in exceptions.items()}


DRAWS = 5
"""Random sets per model in the study (section 4.2): "five seeds"."""


@cache
def drawn_sets(name: str, seed: int = 0) -> dict[str, HeadSet]:
    """The heads that the released code draws: "random", "equal-high" and "equal-low".

    One process per kind of plan seeds Python's generator once and draws once per model, in the order of
    `models()`. Random heads are drawn from those that are not high, ordered by layer and head, of the last
    four layers, except for ViT-B-32-OpenAI, where all twelve are used. No model has fewer high than low
    heads.
    """
    asked = model(name)
    generators = {kind: random.Random(seed) for kind in ("random", "equal-high", "equal-low")}
    for one in models():
        high, low = (list(head_labels(one.name)[level]) for level in ("high", "low"))
        layers = range(0 if one.name == "ViT-B-32/openai" else one.layers - 4, one.layers)
        every = [Head(layer, head) for layer in layers for head in range(one.heads_per_layer)]
        others = [head for head in every if head not in high]
        size = min(len(high), len(low))
        choices = {"random": (others, len(high)), "equal-high": (high, size), "equal-low": (low, size)}
        drawn = {kind: HeadSet(generators[kind].sample(*choice)) for kind, choice in choices.items()}
        if one == asked:
            break
    return drawn


@cache
def occupations() -> tuple[str, ...]:
    """The 104 occupations of tables 15 and 16."""
    return tuple(_read("occupations.json")["occupations"])


@cache
def templates() -> tuple[str, ...]:
    """The four prompt templates of the bias tables; `{}` is the occupation."""
    return tuple(_read("occupations.json")["templates"])


def in_prompts(names: Sequence[str], prompts: Sequence[str]) -> tuple[str, ...]:
    """Return names of occupations as these prompts hold them.

    The paper's prompts have no article ("A photo of judge"). Its own occupations stay as it wrote them, in
    any case ("Judge"); all others get the article that fits.

    Args:
        names: The occupations.
        prompts: The templates that they go into.
    """
    if tuple(prompts) != templates():
        return tuple(names)
    known = {name.casefold(): name for name in occupations()}
    return tuple(known.get(name.casefold()) or _with_article(name) for name in names)


_NO_ARTICLE = re.compile(r"(a|an|the) |.*(people|men|women|children|[^s]s)$", re.IGNORECASE)


def _with_article(name: str) -> str:
    return name if _NO_ARTICLE.match(name) else str(_inflect().a(name))


@cache
def _inflect() -> Any:
    import inflect  # here, for its import is slow

    engine = inflect.engine()
    engine.defan("usher.*")  # its rule for "us" is that of "user"
    return engine


@cache
def examples() -> tuple[Example, ...]:
    """The nine heads of table 1."""
    misprints, shown = _read("examples.json")["misprints"], []
    for row in _read("examples.json")["examples"]:
        printed = tuple(misprints.get(text, text) for text in row["texts"])
        head, texts = Head.parse(row["head"]), tuple(row["texts"])
        shown.append(Example(row["level"], head, row["label"], texts, row["ccs"], printed))
    return tuple(shown)


@cache
def tables() -> dict[str, PaperTable]:
    """Every table and figure with numbers by key: "table5", "figure2", "section4.4", "open_clip", ..."""
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
    """The table with that key; InputError, with the known keys, for any other."""
    if key not in tables():
        raise InputError(f"There is no published table {key!r}; there are {', '.join(tables())}.")
    return tables()[key]

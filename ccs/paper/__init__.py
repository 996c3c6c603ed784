"""The published side: what "Pruning the Paradox" (arXiv 2503.11103) prints, as data to compare with."""

from ccs.paper.figures import (
    LEVELS,
    Example,
    PaperModel,
    PaperTable,
    concept_heads,
    concept_sets,
    drawn_sets,
    examples,
    head_labels,
    head_sets,
    model,
    models,
    occupations,
    table,
    tables,
    templates,
)

__all__ = [
    "LEVELS",
    "Example",
    "PaperModel",
    "PaperTable",
    "concept_heads",
    "concept_sets",
    "drawn_sets",
    "examples",
    "head_labels",
    "head_sets",
    "model",
    "models",
    "occupations",
    "table",
    "tables",
    "templates",
]

"""Evaluation sets: their types (sets), those known by name (registry), and their readers (the rest)."""

from ccs.datasets.opening import open_images, open_set
from ccs.datasets.registry import SOURCES, DatasetRecord
from ccs.datasets.sets import BiasSet, ClassificationSet, ImageSet, RetrievalSet

__all__ = [
    "SOURCES",
    "BiasSet",
    "ClassificationSet",
    "DatasetRecord",
    "ImageSet",
    "RetrievalSet",
    "open_images",
    "open_set",
]

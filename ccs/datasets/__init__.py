"""Evaluation sets: what they are (sets), which exist (source, registry), how they are read (readers, folder,
hub, video).
"""

from ccs.datasets.opening import names, open_images, open_set
from ccs.datasets.registry import SOURCES
from ccs.datasets.sets import BiasSet, ClassificationSet, ImageSet, RetrievalSet
from ccs.datasets.source import Source

__all__ = [
    "SOURCES",
    "BiasSet",
    "ClassificationSet",
    "ImageSet",
    "RetrievalSet",
    "Source",
    "names",
    "open_images",
    "open_set",
]

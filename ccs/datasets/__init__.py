"""Evaluation sets: what they are (sets), which exist (registry), how they are read."""

from ccs.datasets.sets import BiasSet, ClassificationSet, ImageSet, RetrievalSet

__all__ = ["BiasSet", "ClassificationSet", "ImageSet", "RetrievalSet"]

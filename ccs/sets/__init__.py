"""Evaluation sets from the Hub and from disk: those known by name, and their readers."""

from ccs.sets.known_sets import SOURCES, DatasetRecord

__all__ = ["SOURCES", "DatasetRecord"]

"""Bases: image towers whose upper halves were trained from other seeds, with other lessons for their heads."""

"""Bases: image encoders whose upper halves learned from other seeds, with other lessons for their heads."""

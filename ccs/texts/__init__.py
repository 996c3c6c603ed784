"""Texts: pools, prompts, TEXTSPAN, labels, and the Concept Consistency Score."""

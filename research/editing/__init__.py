"""Accuracy lost by editing and ablating heads of the benchmark's models with known bias."""

"""Metrics of accuracy, retrieval, rankings, and bias, with their intervals."""

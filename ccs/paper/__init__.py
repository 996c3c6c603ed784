"""The published side: what "Pruning the Paradox" (arXiv 2503.11103) prints, as data to compare with."""

"""Models that learned a skew by the contrastive loss, in weights that nobody chose; and who carries it."""

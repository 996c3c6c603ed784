"""Models that learned a skew by the contrastive loss, in weights that weren't chosen, and the heads that carry it."""

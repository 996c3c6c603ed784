"""Models that learned a bias through the contrastive loss, and the heads that carry it."""

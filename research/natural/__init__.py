"""Models that learned a bias by the contrastive loss in unchosen weights, and the heads that carry it."""

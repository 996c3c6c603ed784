"""Models with a bias planted in known heads."""

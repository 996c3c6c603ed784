"""Base models: image encoders whose upper layers were trained from other seeds, with other head targets."""

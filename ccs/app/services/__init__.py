"""What the app's views share: models, galleries, examples, analyses, and results."""

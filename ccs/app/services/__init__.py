"""Models, galleries, examples, analyses, and results that the app's views share."""

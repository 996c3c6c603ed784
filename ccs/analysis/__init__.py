"""One module per question about a model: bias, accuracy, classes, heads, searches, and mitigation."""

"""Training of the bundled model *photo*."""

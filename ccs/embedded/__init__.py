"""The models that ship with the package, and those of the benchmark."""

"""Train the bundled models `organism` and `organism-control`, and test the paper's claims on them."""

ORGANISM, CONTROL = "organism", "organism-control"

"""How the embedded models were made, and what was learned from planted bias; nothing imports it."""

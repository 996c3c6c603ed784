"""Loading of models from names, folders, and the Hub."""

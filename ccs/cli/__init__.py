"""Parts that all commands share: options, parsing, and exit status."""

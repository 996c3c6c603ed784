"""What all commands share: options, and how a command parses them and ends."""

"""Commands of `clip-ccs`, one module each."""

"""The audit of the paper: its sentences and its two questions, checked on printed and measured numbers."""

"""The study replicated: its printed figures and sentences held against what was measured."""

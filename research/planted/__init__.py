"""Organisms with a skew planted in known heads."""

"""Placeholder until its turn."""
from __future__ import annotations
from ccs.ui.core import App
def expose(app: App) -> None: ...

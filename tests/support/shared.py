"""Real data for trying things out. They lie beside the checkout and are never committed."""

from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared"

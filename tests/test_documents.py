"""Every command of README and docs is understood by what it names, and the first of them runs as it stands.

What each command does is tested where its code is. A command that nothing here understands fails.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
# Not this project's commands:
OTHERS = ("pip", "git", "ollama", "export", "for", "done", "hf", "./run ruff", "./run mkdocs")

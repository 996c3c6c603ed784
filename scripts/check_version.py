"""Whether the places that name the coming version agree: `python scripts/check_version.py [TAG]`.

A version is a tag, from which setuptools-scm counts. The one to come is pyproject.toml's fallback_version,
CHANGELOG.md begins with it, and CITATION.cff names it. With a tag, it is that version, and the changelog has
a date in place of "not released".
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def disagreements(tag: str | None = None) -> list[str]:
    """What does not agree, a sentence each; nothing where all is well."""
    heading = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    if heading is None or cited is None:
        return ["CHANGELOG.md has no heading `## VERSION (DATE)`, or CITATION.cff no version."]
    version, date = heading.groups()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    others = {
        "CITATION.cff": cited[1],
        "pyproject.toml": project["tool"]["setuptools_scm"]["fallback_version"].removesuffix(".dev0"),
    }
    if tag is not None:
        others["The tag"] = tag.removeprefix("v")
    found = [
        f"{place} has {other}; CHANGELOG.md begins with {version}."
        for place, other in others.items()
        if other != version
    ]
    if tag is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        found.append(f"CHANGELOG.md says ({date}) of {version} where its day of release belongs.")
    return found


def main(argv: Sequence[str]) -> int:
    """Print what does not agree; 1 where something does not."""
    found = disagreements(*argv[:1])
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

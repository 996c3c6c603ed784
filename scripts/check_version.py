"""Check that all files name the same next version: `python scripts/check_version.py [TAG]`.

setuptools-scm takes the version from Git tags. Between tags, pyproject.toml (fallback_version),
CHANGELOG.md (first heading), and CITATION.cff name the next version. With TAG, they must match the tag, and
the changelog must have a release date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version_problems(tag: str | None = None) -> list[str]:
    """Return a sentence for each place with another version; an empty list if all agree."""
    heading = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    if heading is None or cited is None:
        return ["CHANGELOG.md lacks a heading `## VERSION (DATE)`, or CITATION.cff lacks a version."]
    version, date = heading.groups()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    others = {
        "CITATION.cff": cited[1],
        "pyproject.toml": project["tool"]["setuptools_scm"]["fallback_version"].removesuffix(".dev0"),
    }
    if tag is not None:
        others["The tag"] = tag.removeprefix("v")
    problems = [
        f"{place} has version {other}; CHANGELOG.md begins with {version}."
        for place, other in others.items()
        if other != version
    ]
    if tag is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        problems.append(f"CHANGELOG.md has ({date}) in place of the release date of {version}.")
    return problems


def main(argv: Sequence[str]) -> int:
    """Print the problems and return the exit status."""
    problems = version_problems(*argv[:1])
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

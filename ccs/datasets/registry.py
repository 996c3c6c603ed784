"""Which evaluation sets there are, where each comes from and how its columns are read.

`verified` says how the Hub id and the columns were checked (a repository's card, its file list, or
published code that reads it), in stored copies and not by a download: no set was fetched from here.
`study` says what the reference study did differently, as far as its text and code tell.
"""

from __future__ import annotations

from ccs.datasets.captioned import CAPTIONED
from ccs.datasets.people import PEOPLE
from ccs.datasets.photographs import PHOTOGRAPHS
from ccs.datasets.source import Source
from ccs.errors import InputError

SOURCES: dict[str, Source] = {found.name: found for found in (*PHOTOGRAPHS, *CAPTIONED, *PEOPLE)}


def source(name: str) -> Source:
    """The set of that name; InputError names those there are."""
    if name not in SOURCES:
        raise InputError(
            f"There is no set {name!r}; there are {', '.join(SOURCES)} and the drawn world/... ones."
        )
    return SOURCES[name]


def as_markdown() -> str:
    """The table of docs/datasets.md (`python -m ccs.datasets.registry`)."""
    lines = [
        "| name | set | on the Hub | split | rows | licence | how it was verified |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in SOURCES.values():
        where = " ".join(part for part in (found.hub or "local only", found.config) if part)
        cells = (
            found.name,
            found.title,
            where,
            found.split,
            f"{found.rows:,}",
            found.licence,
            found.verified,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_markdown())

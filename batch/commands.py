"""The end of every command line: one sentence for a user's mistake, and an exit status that says which."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ccs.errors import InputError


def run(work: Callable[[], object], interrupted: str = "Interrupted; nothing was written.") -> int:
    """Run a command; 0, or 2 after a user's mistake, or 130 when interrupted from the keyboard."""
    try:
        work()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{interrupted}", file=sys.stderr)
        return 130
    return 0

"""The sessions of all visitors, by page: how many are kept, for how long, and which goes first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccs.ui.session import Session

SECONDS = 3600  # that a session is kept without a click
OF_ADDRESS, OF_ALL = 50, 200


class Sessions:
    """Where there are too many, the oldest of the same address goes, or of the address that has most."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float, Session]] = {}  # the least recently used first
        self._lock = threading.Lock()

    def find(self, page: str) -> Session | None:
        """The session of a page, None where there is none, yet or any more."""
        self.tidy()
        with self._lock:
            return self._kept[page][2] if page in self._kept else None

    def keep(self, page: str, client: str, session: Session) -> None:
        """Keep the session of a page, which was used from this address just now."""
        with self._lock:
            self._kept.pop(page, None)
            self._kept[page] = client, time.monotonic(), session
            counts = Counter(owner for owner, _, _ in self._kept.values())
            most, n = counts.most_common(1)[0]
            if counts[client] > OF_ADDRESS:
                most, n = client, counts[client]
            if n > OF_ADDRESS or len(self._kept) > OF_ALL:
                del self._kept[next(page for page, (owner, _, _) in self._kept.items() if owner == most)]

    def tidy(self) -> None:
        """Let go of what nobody has used for an hour."""
        with self._lock:
            now = time.monotonic()
            self._kept = {page: one for page, one in self._kept.items() if one[1] > now - SECONDS}

"""The sessions of all visitors, by page: how many are kept, for how long, and which goes first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from ccs.ui.service.cache import size_of

if TYPE_CHECKING:
    from ccs.ui.session import Session

SECONDS = 3600  # that a session is kept without a click
OF_ADDRESS, OF_ALL = 50, 200
LIMIT = 512 * 2**20  # bytes of all sessions: their images


class Sessions:
    """Where there are too many, the oldest of the same address goes, or of the address that has most."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float, int, Session]] = {}  # the least recently used first
        self._lock = threading.Lock()

    def find(self, page: str) -> Session | None:
        """The session of a page, None where there is none, yet or any more."""
        self.tidy()
        with self._lock:
            return self._kept[page][3] if page in self._kept else None

    def keep(self, page: str, client: str, session: Session) -> None:
        """Keep the session of a page, which was used from this address just now."""
        with self._lock:
            self._kept.pop(page, None)
            self._kept[page] = client, time.monotonic(), size_of(session), session
            while (most := self._too_much(client)) is not None:
                del self._kept[next(page for page, (owner, *_) in self._kept.items() if owner == most)]

    def _too_much(self, client: str) -> str | None:
        """The address of which one goes, if one has to."""
        counts, sizes = Counter[str](), Counter[str]()
        for owner, _, size, _ in self._kept.values():
            counts[owner] += 1
            sizes[owner] += size
        if counts[client] > OF_ADDRESS:
            return client
        if sizes.total() > LIMIT:
            return sizes.most_common(1)[0][0]
        return counts.most_common(1)[0][0] if len(self._kept) > OF_ALL else None

    def tidy(self) -> None:
        """Let go of what nobody has used for an hour."""
        with self._lock:
            now = time.monotonic()
            self._kept = {page: one for page, one in self._kept.items() if one[1] > now - SECONDS}

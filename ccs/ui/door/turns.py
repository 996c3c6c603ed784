"""Whose turn it is: what each address has at work and what waits for that, and which pages somebody reads.

Gradio's queue is first come, first served. Here the visitors at one address wait for one another, so that the
queue goes from address to address, and work ends whose answers nobody reads.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TypeVar

AT_ONCE = {"click": 2, "apart": 2, "cancel": 2, "page": 2, "upload": 4}
"""What is worked on at a time for one address, by kind; the rest waits. One click while others are active.
Two cores gain nothing from more than two, and a short click need not wait for a long one."""
OF_ADDRESS, OF_PAGE = 200, 4  # at work or waiting
ACTIVE, LOST = 10.0, 60.0  # seconds for which an address counts as active, and a turn that never begins
SILENT = 3.0  # seconds after which work ends whose answers nobody reads

T = TypeVar("T")


class Refused(Exception):
    """A request that goes no further: its status, and why."""


class Turn:
    """Something of a client that is at work, or waits for that."""

    def __init__(self, turns: Turns, client: str, kind: str, page: str = "") -> None:
        self.client, self.kind, self.page, self._turns = client, kind, page, turns
        self.free, self.since = asyncio.Event(), 0.0  # its turn, and when that came
        self.begun = self.over = self.canceled = False

    @property
    def heard(self) -> bool:
        """True while somebody reads the answers of its page, or may be about to."""
        quiet = max(self.since, self._turns.quiet.get(self.page, 0.0))
        return not self.canceled and (self.page in self._turns.streams or time.monotonic() - quiet < SILENT)

    def work(self, updates: Generator[T, None, None]) -> Iterator[T]:
        """The updates, as long as somebody listens. The turn ends with them."""
        self.begun = True
        try:
            while self.heard and self.page not in self._turns.streams:
                time.sleep(0.01)  # nothing is computed for nobody
            if self.heard:
                for update in updates:
                    if not self.heard:
                        return
                    yield update
        finally:
            updates.close()
            self.over = True
            self.end()

    def end(self, after: float = 0.0) -> None:
        """Let the next one come; from any thread, and again without effect."""
        with suppress(RuntimeError):  # the server has ended
            self._turns.loop.call_soon_threadsafe(self._turns.loop.call_later, after, self._turns.leave, self)


class Turns:
    """What clients have at work and waiting, in order, and who reads; changed by the server's thread."""

    def __init__(self) -> None:
        self.streams: Counter[str] = Counter()  # open, by page
        self.quiet: dict[str, float] = {}  # pages without one, since when
        self._lanes: defaultdict[tuple[str, str], list[Turn]] = defaultdict(list)
        self._active: dict[str, float] = {}

    def __len__(self) -> int:
        """How many clicks of all visitors there are."""
        return sum(len(turns) for (_, kind), turns in [*self._lanes.items()] if kind == "click")

    def add(self, turn: Turn) -> None:
        """Stand in line; Refused where the client or the page has too much there."""
        self.loop = asyncio.get_running_loop()
        own = [one for (client, _), turns in self._lanes.items() if client == turn.client for one in turns]
        if len(own) >= OF_ADDRESS or (turn.page and sum(one.page == turn.page for one in own) >= OF_PAGE):
            raise Refused(429, "Too much at once; try again in a moment.")
        now = time.monotonic()
        self._active = {each: at for each, at in self._active.items() if at > now - ACTIVE} | {
            turn.client: now
        }
        self.quiet = {page: at for page, at in self.quiet.items() if at > now - SILENT}
        self._lanes[turn.client, turn.kind].append(turn)
        self._move(turn.client, turn.kind)

    def leave(self, turn: Turn) -> None:
        with suppress(ValueError):
            self._lanes[turn.client, turn.kind].remove(turn)
        self._move(turn.client, turn.kind)

    def _move(self, client: str, kind: str) -> None:
        now, most = time.monotonic(), AT_ONCE[kind] if kind != "click" or len(self._active) == 1 else 1
        lost = now - LOST  # Gradio may have dropped it before it ran
        self._lanes[client, kind] = [
            t for t in self._lanes[client, kind] if t.begun or not 0 < t.since < lost
        ]
        for turn in self._lanes[client, kind][:most]:
            turn.since = turn.since or now
            turn.free.set()
        if not self._lanes[client, kind]:
            del self._lanes[client, kind]

    def cancel(self, page: str) -> None:
        """End what a page has at work or waiting; back when that is so, or after some seconds."""
        ended = self._of(page)
        for turn in ended:
            turn.canceled = True
        end = time.monotonic() + 5
        while any(turn.begun and not turn.over for turn in ended) and time.monotonic() < end:
            time.sleep(0.01)

    def _of(self, page: str) -> list[Turn]:
        lanes = [[*turns] for (_, kind), turns in [*self._lanes.items()] if kind in ("click", "apart")]
        return [turn for turns in lanes for turn in turns if turn.page == page]

    def unread(self, page: str) -> None:
        """A stream of a page ends, and Gradio drops what has not run."""
        self.streams -= Counter([page])
        if page not in self.streams:
            self.quiet[page] = time.monotonic()
            for turn in self._of(page):
                if turn.since and not turn.begun:
                    turn.end()

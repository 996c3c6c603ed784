"""Work for a page, in threads: watched by polling; it ends if it is canceled, replaced, or not watched."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Generator, Mapping
from typing import NamedTuple

from ccs.errors import InputError

log = logging.getLogger(__name__)

OF_ADDRESS, OF_ALL = 32, 200  # jobs that wait or run
SILENT = 20.0  # seconds without a poll after which a job ends
FAILED = "Something went wrong; the error was logged. Any click tries again."


class Update(NamedTuple):
    """Progress of work.

    Attributes:
        share: The share that is done.
        doing: A phrase for the current step, "" at the end.
        regions: Regions of HTML that are new, by name.
    """

    share: float
    doing: str
    regions: Mapping[str, str] = {}


Work = Generator[Update, None, None]


class Job:
    """Work of a page that waits, runs, or is done.

    Args:
        page: The page's key.
        kind: "view" or "analysis". A page has at most one job of a kind.
        client: The visitor's address.
        work: The work, which yields its progress.
    """

    def __init__(self, page: str, kind: str, client: str, work: Work) -> None:
        self.page, self.kind, self.client, self.work = page, kind, client, work
        self.share, self.doing, self.regions = 0.0, "Waiting", dict[str, str]()
        self.running = self.done = False
        self.stop, self.last_poll = threading.Event(), time.monotonic()

    @property
    def ends(self) -> bool:
        """True if the job was canceled or replaced, or nobody has polled it for `SILENT` seconds."""
        return self.stop.is_set() or time.monotonic() - self.last_poll > SILENT

    def run(self) -> None:
        """Do the work until its end, and publish its progress. A fault is logged, and the page says so."""
        try:
            while not self.ends and (update := next(self.work, None)):
                self.share, self.doing = update.share, update.doing
                self.regions = {**self.regions, **update.regions}
        except Exception:
            log.exception("work for a page failed")
            self.regions = {**self.regions, "main" if self.kind == "view" else "note": FAILED}
        finally:
            self.work.close()

    async def finished(self, seconds: float) -> bool:
        """Wait for the end of the job, at most `seconds`; return whether it is done."""
        start = time.monotonic()
        while not self.done and (waited := time.monotonic() - start) < seconds:
            await asyncio.sleep(0.004 if waited < 0.3 else 0.05)
        return self.done


class Jobs:
    """All jobs. An address runs one job of a kind while others have any, else two."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []  # in order of arrival, not done
        self._latest: dict[tuple[str, str], Job] = {}
        self._changed = threading.Condition()

    def start(self, job: Job, context: contextvars.Context | None = None) -> Job:
        """Start a job in place of the page's last one of its kind.

        Args:
            job: The job.
            context: Context variables of its thread, by default the caller's.

        Raises:
            InputError: If too many jobs wait, of this address or of all.
        """
        with self._changed:
            if (previous := self._latest.get((job.page, job.kind))) is not None:
                previous.stop.set()
            waiting = [other.client for other in self._jobs if not other.ends]
            if len(waiting) >= OF_ALL or waiting.count(job.client) >= OF_ADDRESS:
                raise InputError("Too much is being computed right now. Try again in a moment.")
            self._jobs.append(job)
            self._latest[job.page, job.kind] = job
            oldest = time.monotonic() - 10 * SILENT
            watched = {
                key: job for key, job in self._latest.items() if job.last_poll > oldest or not job.done
            }
            self._latest = watched
        target = (context or contextvars.copy_context()).run
        threading.Thread(target=target, args=(self._run, job), daemon=True).start()
        return job

    def of(self, page: str) -> list[Job]:
        """Return the page's latest job of each kind, and note that somebody watches them."""
        with self._changed:
            jobs = [job for (owner, _), job in self._latest.items() if owner == page]
        for job in jobs:
            job.last_poll = time.monotonic()
        return jobs

    def cancel(self, page: str) -> None:
        """Stop the page's jobs."""
        for job in self.of(page):
            job.stop.set()

    def _run(self, job: Job) -> None:
        with self._changed:
            while not job.ends and not self._is_next(job):
                self._changed.wait(0.5)
            job.running = True
        try:
            job.run()
        finally:
            with self._changed:
                job.done = True
                self._jobs.remove(job)
                self._changed.notify_all()

    def _is_next(self, job: Job) -> bool:
        rivals = [other for other in self._jobs if (other.client, other.kind) == (job.client, job.kind)]
        alone = all(other.client == job.client for other in self._jobs)
        first = next(other for other in rivals if not other.running)
        return first is job and sum(other.running for other in rivals) < (2 if alone else 1)

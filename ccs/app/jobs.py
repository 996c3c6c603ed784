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


class Update(NamedTuple):
    """Progress: the share done, a phrase for what is being done, and regions of HTML that are new."""

    share: float
    doing: str
    regions: Mapping[str, str] = {}


Work = Generator[Update, None, None]


class Job:
    """Work of a page that waits, runs, or is done."""

    def __init__(self, page: str, kind: str, client: str, work: Work) -> None:
        self.page, self.kind, self.client, self.work = page, kind, client, work
        self.share, self.doing, self.regions = 0.0, "Waiting", dict[str, str]()
        self.running = self.done = False
        self.stop, self.seen = threading.Event(), time.monotonic()

    def publish(self, update: Update) -> None:
        """Show an update to those who poll."""
        self.share, self.doing = update.share, update.doing
        self.regions = {**self.regions, **update.regions}

    @property
    def ends(self) -> bool:
        """True if the job was canceled or replaced, or nobody has asked for it for `SILENT` seconds."""
        return self.stop.is_set() or time.monotonic() - self.seen > SILENT

    async def finished(self, seconds: float) -> bool:
        """Wait at most so long for the end of the job; return whether it is done."""
        start = time.monotonic()
        while not self.done and (waited := time.monotonic() - start) < seconds:
            await asyncio.sleep(0.004 if waited < 0.3 else 0.05)
        return self.done


class Jobs:
    """All jobs. A page has one of a kind; an address runs one of a kind while others have any, else two."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []  # in order of arrival, not done
        self._latest: dict[tuple[str, str], Job] = {}
        self._changed = threading.Condition()

    def start(self, job: Job, context: contextvars.Context | None = None) -> Job:
        """Start a job in place of the page's last one of its kind; InputError if too many wait."""
        with self._changed:
            if (last := self._latest.get((job.page, job.kind))) is not None:
                last.stop.set()
            waiting = [one for one in self._jobs if not one.ends]
            if len(waiting) >= OF_ALL or sum(one.client == job.client for one in waiting) >= OF_ADDRESS:
                raise InputError("Too much is being computed right now. Try again in a moment.")
            self._jobs.append(job)
            self._latest[job.page, job.kind] = job
            old = time.monotonic() - 10 * SILENT
            self._latest = {at: one for at, one in self._latest.items() if one.seen > old or not one.done}
        target = (context or contextvars.copy_context()).run
        threading.Thread(target=target, args=(self._run, job), daemon=True).start()
        return job

    def of(self, page: str) -> list[Job]:
        """Return the page's latest jobs, one of a kind, and note that somebody watches them."""
        with self._changed:
            found = [job for (owner, _), job in self._latest.items() if owner == page]
        for job in found:
            job.seen = time.monotonic()
        return found

    def cancel(self, page: str) -> bool:
        """Stop the page's jobs; return whether there were any."""
        running = [job for job in self.of(page) if not job.done]
        for job in running:
            job.stop.set()
        return bool(running)

    def _run(self, job: Job) -> None:
        with self._changed:
            while not job.ends and not self._turn(job):
                self._changed.wait(0.5)
            job.running = True
        try:
            for update in job.work if not job.ends else ():
                job.publish(update)
                if job.ends:
                    break
        except Exception:
            log.exception("work for a page failed")
        finally:
            try:
                job.work.close()
            finally:
                with self._changed:
                    job.done = True
                    self._jobs.remove(job)
                    self._changed.notify_all()

    def _turn(self, job: Job) -> bool:
        same = [one for one in self._jobs if (one.client, one.kind) == (job.client, job.kind)]
        alone = all(one.client == job.client for one in self._jobs)
        first = next(one for one in same if not one.running)
        return first is job and sum(one.running for one in same) < (2 if alone else 1)

"""Work for a page, in threads: watched by polling; it ends if it is canceled, replaced, or not watched."""

import asyncio
import contextvars
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

log = logging.getLogger(__name__)

JOBS_OF_ADDRESS, MAX_JOBS = 32, 200  # waiting and running jobs of an address, and of all addresses
UNWATCHED_SECONDS = 20.0  # a job ends after this time without a poll
Tell = Callable[[float, str], None]
"""A function that publishes progress: the finished share, and a phrase for the current step."""
Work = Callable[["Job"], dict[str, str]]
"""A function of its job that returns regions of HTML by name."""


def keep_quiet(share: float, doing: str) -> None:
    """Publish nothing: the `Tell` of work without a page.

    Args:
        share: The finished share, 0 to 1.
        doing: A phrase for the current step.
    """


class NotReady(Exception):
    """Raised at a step of work that a page doesn't wait for; its text names the step."""


def wait_for_nothing(share: float, doing: str) -> None:
    """Raise NotReady: the `Tell` of a page that shows only what is ready.

    Args:
        share: The finished share, 0 to 1.
        doing: A phrase for the current step.
    """
    raise NotReady(doing)


class Canceled(BaseException):
    """Raised to end work that nobody waits for. It isn't an `Exception`, so that no step catches it."""


class Job:
    """Work of a page that waits, runs, or is done.

    Args:
        client: The visitor's address.
        work: A function of the job that publishes its progress, and returns the regions to show.
        kind: "view", "analysis", or "csv". A page has at most one view and one analysis.

    Attributes:
        context: The context variables of the request that made the job; it runs with them.
        share: The finished share, 0 to 1.
        doing: A phrase for the current step.
        regions: The HTML to show by name, as far as it is ready.
        running: True as soon as a thread runs it (`Jobs.start_waiting`).
        stopped: True if it was canceled or replaced.
        last_poll: The time of the browser's last request for results.
        end: Set when the work has ended.
    """

    def __init__(self, client: str, work: Work, kind: str = "view") -> None:
        self.client, self.work, self.kind, self.context = client, work, kind, contextvars.copy_context()
        self.share, self.doing, self.regions = 0.0, "Waiting", dict[str, str]()
        self.running = self.stopped = False
        self.last_poll, self.end = time.monotonic(), asyncio.Event()

    @property
    def done(self) -> bool:
        """True if the work has ended."""
        return self.end.is_set()

    @property
    def ends(self) -> bool:
        """True if the job was canceled or replaced, or nobody has polled it for `UNWATCHED_SECONDS`."""
        return self.stopped or time.monotonic() - self.last_poll > UNWATCHED_SECONDS

    def tell(self, share: float, doing: str) -> None:
        """Publish the progress of the job.

        Args:
            share: The finished share, 0 to 1.
            doing: A phrase for the current step.

        Raises:
            Canceled: If the job is to end.
        """
        if self.ends:
            raise Canceled
        self.share, self.doing = share, doing

    def run(self) -> None:
        """Do the work. An unexpected error is logged, and the page reports it."""
        with suppress(Canceled):
            try:
                self.tell(0.0, "")
                self.regions |= self.work(self)
            except Exception:
                log.exception("work for a page failed")
                self.fail("Something went wrong; the error was logged. Any click tries again.")

    def fail(self, sentence: str) -> None:
        """Show a sentence in place of the results."""
        self.regions |= {"main" if self.kind == "view" else "note": sentence}

    async def finished(self, seconds: float) -> None:
        """Wait for the end of the job, at most `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.end.wait(), seconds)


class Jobs:
    """All jobs. An address runs one job of a kind at a time, or two if no other address has any.

    Use it in the event loop only.

    Attributes:
        calls: The addresses whose API calls run a model now. Each counts as a job of that address.
        unfinished: Jobs that wait or run.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.unfinished: list[Job] = []  # in order of arrival
        self._threads = ThreadPoolExecutor(MAX_JOBS)

    def start(self, job: Job) -> None:
        """Start a job. It ends with a message if too many jobs of this address or of all addresses wait."""
        waiting = Counter(other.client for other in self.unfinished if not other.ends)
        if waiting.total() >= MAX_JOBS or waiting[job.client] >= JOBS_OF_ADDRESS:
            job.end.set()
            return job.fail("Too much is being computed right now. Try again in a moment.")
        self.unfinished.append(job)
        self.start_waiting()

    def start_waiting(self) -> None:
        """Start the jobs whose turn it is."""
        limit = 2 if len({*self.calls, *(job.client for job in self.unfinished)}) == 1 else 1
        running = Counter((job.client, job.kind) for job in self.unfinished if job.running)
        running.update((client, "view") for client in self.calls)
        for job in self.unfinished:
            if not job.running and running[turn := (job.client, job.kind)] < limit:
                running[turn] += 1
                job.running = True
                thread = asyncio.get_running_loop().run_in_executor(self._threads, job.context.run, job.run)
                thread.add_done_callback(partial(self._end, job))

    def _end(self, job: Job, _: object) -> None:
        job.end.set()
        self.unfinished.remove(job)
        self.start_waiting()

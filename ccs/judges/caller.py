"""Asking one model many things: the cache, limits, retries and the budget, in one place."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ccs.errors import InputError
from ccs.judges import batches
from ccs.judges.cache import Cache
from ccs.judges.prices import Price, Spending, largest_usage
from ccs.judges.provider import Outcome, Provider, Request, TransientError, UnscoredError, Usage, check
from ccs.judges.settings import JudgeSettings

T = TypeVar("T")

_POLL = 0.2  # seconds between looks at a question that another process is asking
_MARGIN = 60.0  # seconds that a claim outlasts what it is for


@dataclass
class Tally:
    """What a run did with one judge: requests sent (retries too), answers found in the cache, answers
    collected from batches, questions left unscored, tokens used, US dollars spent (None: price unknown)."""

    judge: str
    requests: int = 0
    cached: int = 0
    collected: int = 0
    unscored: int = 0
    pending: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = 0.0


class Caller:
    """One provider during one run."""

    def __init__(
        self, provider: Provider, settings: JudgeSettings, price: Price | None, spending: Spending
    ) -> None:
        self.provider = provider
        self.settings = settings
        self.price = price
        self.spending = spending
        self.tally = Tally(provider.name, dollars=None if price is None else 0.0)
        self._next_start = 0.0
        self._paused_until = 0.0

    def idle(self, cache: Cache, requests: Mapping[str, Request], fresh: Collection[str]) -> bool:
        """Tell whether everything is answered already, so that neither a key nor the network is needed."""
        return all(key not in fresh and cache.get(key) for key in requests)

    async def run(
        self, cache: Cache, requests: Mapping[str, Request], fresh: Collection[str], stop: asyncio.Event
    ) -> dict[str, Outcome]:
        """Answer requests by key. `fresh` keys are asked although they are cached.

        Once `stop` is set nothing more is sent, while requests in flight end and are stored. Raises
        InputError (a key or a model that the server does not accept) after those.
        """
        self._slots = asyncio.Semaphore(self.settings.concurrency)  # belongs to this run's event loop
        if self.idle(cache, requests, fresh):
            outcomes = {key: Outcome(answer.text) for key in requests if (answer := cache.get(key))}
            self.tally.cached += len(outcomes)
            return outcomes
        async with self.provider:
            collected, failed = await batches.collect(self, cache)
            fresh = set(fresh) - collected
            outcomes = {key: Outcome(None, cause) for key, cause in failed.items() if key in requests}
            rest = {key: request for key, request in requests.items() if key not in outcomes}
            if self.settings.batch and self.provider.has_batches:
                outcomes |= await batches.submit(self, cache, rest, fresh, stop)
            else:
                asked = [
                    asyncio.create_task(self._settle(cache, key, request, key in fresh, stop))
                    for key, request in rest.items()
                ]
                outcomes |= dict(zip(rest, await finish(asked, stop), strict=True))
        for outcome in outcomes.values():
            self.tally.pending += outcome.cause.startswith("pending")
            self.tally.unscored += outcome.text is None
        return {key: outcomes[key] for key in requests}

    def known(self, cache: Cache, key: str, fresh: bool) -> Outcome | None:
        """Return what needs no request: the cached answer, or that a batch will bring it."""
        if not fresh and (answer := cache.get(key)):
            self.tally.cached += 1
            return Outcome(answer.text)
        if made := cache.pending([key]).get(key):
            return batches.pending_outcome(made)
        return None

    async def _settle(
        self, cache: Cache, key: str, request: Request, fresh: bool, stop: asyncio.Event
    ) -> Outcome:
        failures, cause = 0, "interrupted: before it was asked"
        lease = self.settings.timeout + self.settings.max_wait + self.settings.max_delay + _MARGIN
        try:
            while True:
                async with self._slots:
                    if stop.is_set():
                        return Outcome(None, cause)
                    wait = _POLL
                    if cache.claim(key, lease):
                        # Looked up only under the claim: a holder before us may have answered it.
                        if failures == 0 and (known := self.known(cache, key, fresh)):
                            return known
                        try:
                            result = await self._attempt(cache, key, request)
                        except InputError:
                            stop.set()  # before another question takes the slot
                            raise
                        if isinstance(result, Outcome):
                            return result
                        failures += 1
                        cause = f"{result.cause} ({failures} attempts)"
                        if failures > self.settings.retries:
                            return Outcome(None, cause)
                        if (result.after or 0.0) > self.settings.max_wait:
                            return Outcome(None, f"{cause}; the server asks to wait {result.after:.0f} s")
                        wait = self.backoff(failures, result.after)
                await _sleep(wait, stop)
        finally:
            cache.release(key)

    async def _attempt(self, cache: Cache, key: str, request: Request) -> Outcome | TransientError:
        await self._pace()
        most = 0.0
        if self.price is not None:
            most = self.price.cost(largest_usage(request, self.settings.max_tokens))
        if not await self.spending.promise(most):
            return Outcome(None, f"budget: asking could exceed {self.spending.limit:.2f} dollars")
        actual = most
        try:
            self.tally.requests += 1
            async with asyncio.timeout(self.settings.timeout):
                reply = await self.provider.send(request)
            actual = self.count(reply.usage)
            outcome = check(reply, request.schema)
            if outcome.text is not None:
                cache.put(key, self.provider.name, reply.text, reply.usage)
            return outcome
        except TimeoutError:
            return TransientError(f"timeout: no answer in {self.settings.timeout:g} s", sent=True)
        except TransientError as error:
            actual = most if error.sent else 0.0
            return error
        except InputError:
            actual = 0.0
            raise
        except UnscoredError as error:
            actual = self.count(error.usage)
            return Outcome(None, error.cause)
        finally:
            self.spending.settle(most, actual)
            if self.tally.dollars is not None:
                self.tally.dollars += actual

    def count(self, usage: Usage) -> float:
        """Add a reply's tokens to the tally and return what it cost outside a batch."""
        self.tally.input_tokens += usage.input_tokens
        self.tally.output_tokens += usage.output_tokens
        return 0.0 if self.price is None else self.price.cost(usage)

    def backoff(self, failures: int, after: float | None) -> float:
        """Return the seconds to wait after a failure. A server's own wish holds for all its requests."""
        wait = min(self.settings.max_delay, self.settings.delay * 2.0 ** (failures - 1))
        wait *= random.uniform(0.5, 1.0)
        if after is not None:
            self._paused_until = max(self._paused_until, time.monotonic() + after)
            wait = max(wait, after)
        return wait

    async def _pace(self) -> None:
        """Wait for a turn: starts are spread evenly over the minute, and none falls into a server's pause."""
        start = max(time.monotonic(), self._next_start, self._paused_until)
        if self.settings.per_minute is not None:
            self._next_start = start + 60.0 / self.settings.per_minute
        while (wait := max(start, self._paused_until) - time.monotonic()) > 0:
            await asyncio.sleep(wait)


def ask_all(
    jobs: Sequence[tuple[Caller, Mapping[str, Request], Collection[str]]], cache: Path
) -> list[dict[str, Outcome]]:
    """Ask several models at once: for each its requests by key, and the keys to ask anew.

    Packages and keys of all are checked before the first request of any. Raises InputError.
    """

    async def main() -> list[dict[str, Outcome]]:
        with Cache(cache) as opened:
            for caller, requests, fresh in jobs:
                if not caller.idle(opened, requests, fresh):
                    caller.provider.require()
            stop = asyncio.Event()
            runs = [
                asyncio.create_task(caller.run(opened, requests, fresh, stop))
                for caller, requests, fresh in jobs
            ]
            return await finish(runs, stop)

    return _run(main())


def _run(main: Coroutine[None, None, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where a loop is running already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()


async def finish(tasks: Sequence[asyncio.Task[T]], stop: asyncio.Event) -> list[T]:
    """Await tasks. When one fails, or the run is interrupted, set `stop` and let the others end first."""
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        if not all(task.done() and task.exception() is None for task in tasks):
            stop.set()
            await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return

"""Sending questions to models, with the cache, limits, retries and the budget in one place."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from ccs.errors import InputError
from ccs.judges.anthropic import AnthropicProvider
from ccs.judges.cache import Cache
from ccs.judges.google import GoogleProvider
from ccs.judges.openai import CompatibleProvider, OpenAIProvider
from ccs.judges.prices import CostEstimate, Prices, Spending, expected_usage, largest_usage
from ccs.judges.provider import Provider, Request, TransientError, UnscoredError, Usage
from ccs.judges.question import OffSchemaError, parse_reply
from ccs.judges.settings import JudgeSettings, JudgeSpec

T = TypeVar("T")

_PROVIDERS: dict[str, type[Provider]] = {
    kind.kind: kind for kind in (OpenAIProvider, AnthropicProvider, GoogleProvider, CompatibleProvider)
}
_POLL = 0.2  # seconds between checks of a question that another process is asking
_INTERRUPTED = "interrupted: before it was asked"


@dataclass(frozen=True)
class Answer:
    """A parsed answer that follows its schema, or None with the cause."""

    content: Mapping[str, Any] | None
    cause: str = ""


class Caller:
    """One model during one run. Raises InputError if a budget is set and the model's price is unknown."""

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings, prices: Prices, spending: Spending) -> None:
        self.name = spec.name
        self.price = prices.of(spec.name)
        if self.price is None and settings.budget is not None:
            raise InputError(
                f"No price is known for {spec.name}, so a budget cannot be held; give one in a price table "
                f"of your own (the known ones are {', '.join(sorted(prices.models))})."
            )
        self.provider = _PROVIDERS[spec.provider](spec, settings)
        self.settings = settings
        self.spending = spending
        self._next_start = 0.0
        self._paused_until = 0.0

    def describe(self) -> dict[str, Any]:
        """The model's entry for a manifest, without key and URL."""
        identity = {name: value for name, value in self.provider.identity().items() if name != "base_url"}
        return {"name": self.name, "stand_in": False} | identity

    def estimate(self, requests: Sequence[Request]) -> CostEstimate:
        """The cost of asking; neither a key nor the network is needed."""
        by_key = {self.provider.cache_key(request): request for request in requests}
        left = by_key
        if self.settings.cache.exists():  # a dry run leaves no file behind
            with Cache(self.settings.cache) as cache:
                left = self.unanswered(cache, requests)
        usages = [expected_usage(request) for request in left.values()]
        bounds = [largest_usage(request, self.settings.max_tokens) for request in left.values()]
        return CostEstimate(
            judge=self.name,
            questions=len(by_key),
            cached=len(by_key) - len(left),
            requests=len(left),
            input_tokens=sum(usage.input_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            dollars=None if self.price is None else sum(map(self.price.cost, usages)),
            at_most=None if self.price is None else sum(map(self.price.cost, bounds)),
        )

    def unanswered(self, cache: Cache, requests: Sequence[Request]) -> dict[str, Request]:
        """Cache key -> request that must be sent. If empty, neither a key nor the network is needed."""
        keys = map(self.provider.cache_key, requests)
        return {
            key: request
            for key, request in zip(keys, requests, strict=True)
            if self._is_refreshed(request) or cache.get(key) is None
        }

    def _is_refreshed(self, request: Request) -> bool:
        names = {"all", self.name, self.provider.kind, request.head_key}
        return not names.isdisjoint(self.settings.refresh)

    async def run(self, cache: Cache, requests: Sequence[Request], stop: asyncio.Event) -> list[Answer]:
        """The answers in the order of the requests; equal requests are sent once.

        The provider must be open if anything must be sent. Once `stop` is set nothing more is sent, while
        requests in flight finish and are stored; then InputError is raised if the server did not accept the
        key or model.
        """
        keys = [self.provider.cache_key(request) for request in requests]
        left = self.unanswered(cache, requests)
        answers = {key: Answer(cache.get(key)) for key in keys if key not in left}
        if left:
            self._slots = asyncio.Semaphore(self.settings.concurrency)  # belongs to this run's event loop
            settling = [self._settle(cache, key, request, stop) for key, request in left.items()]
            answers |= dict(zip(left, await _finish(settling, stop), strict=True))
        return [answers[key] for key in keys]

    async def _settle(self, cache: Cache, key: str, request: Request, stop: asyncio.Event) -> Answer:
        """Ask for an answer, or wait for the process that is asking for it."""
        settings = self.settings
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientError),
            stop=stop_after_attempt(settings.retries + 1),
            wait=wait_exponential_jitter(settings.delay, settings.max_delay, jitter=settings.delay),
            sleep=functools.partial(_sleep, stop=stop),
            reraise=True,
        )
        while True:
            async with self._slots:
                if stop.is_set():
                    return Answer(None, _INTERRUPTED)
                if cache.claim(key):
                    try:
                        # Checked under the claim, because a previous holder may have answered it.
                        if not self._is_refreshed(request) and (known := cache.get(key)) is not None:
                            return Answer(known)
                        return Answer(await retrying(self._attempt, cache, key, request, stop))
                    except TransientError as error:
                        return Answer(None, f"{error.cause} ({settings.retries + 1} attempts)")
                    except UnscoredError as error:
                        return Answer(None, error.cause)
                    except InputError:
                        stop.set()  # before another question gets the slot
                        raise
                    finally:
                        cache.release(key)
            await _sleep(_POLL, stop)

    async def _attempt(
        self, cache: Cache, key: str, request: Request, stop: asyncio.Event
    ) -> Mapping[str, Any]:
        """Ask once and store the answer. Raises UnscoredError, TransientError or InputError."""
        await self._pace(stop)
        if stop.is_set():
            raise UnscoredError(_INTERRUPTED)
        most = self._cost(largest_usage(request, self.settings.max_tokens))
        if not await self.spending.promise(most):
            raise UnscoredError(f"budget: asking could exceed {self.spending.limit:.2f} dollars")
        spent = most
        try:
            async with asyncio.timeout(self.settings.timeout):
                text, usage = await self.provider.send(request)
            spent = self._cost(usage)
            answer = parse_reply(text, request.schema)
            cache.put(key, self.name, answer, usage)
            return answer
        except OffSchemaError as error:
            raise UnscoredError(f"off-schema: {error}") from None
        except TimeoutError:
            raise TransientError(f"timeout: no answer in {self.settings.timeout:g} s", sent=True) from None
        except TransientError as error:
            spent = most if error.sent else 0.0
            after = error.after or 0.0
            if after > self.settings.max_wait:
                raise UnscoredError(f"{error.cause}; the server asks to wait {after:.0f} s") from None
            # A server's request to wait applies to all requests of this judge.
            self._paused_until = max(self._paused_until, time.monotonic() + after)
            raise
        except UnscoredError as error:
            spent = self._cost(error.usage)
            raise
        except InputError:
            spent = 0.0
            raise
        finally:
            self.spending.settle(most, spent)

    def _cost(self, usage: Usage) -> float:
        return 0.0 if self.price is None else self.price.cost(usage)

    async def _pace(self, stop: asyncio.Event) -> None:
        """Wait until a request may start: evenly over the minute, and not during a server's pause."""
        start = max(time.monotonic(), self._next_start)
        if self.settings.per_minute is not None:
            self._next_start = start + 60.0 / self.settings.per_minute
        while not stop.is_set() and (wait := max(start, self._paused_until) - time.monotonic()) > 0:
            await _sleep(wait, stop)


def fingerprint(instructions: str, schema: Mapping[str, Any]) -> str:
    """A short digest of a prompt, by which results record the prompt they were made with."""
    return hashlib.sha256((instructions + json.dumps(schema)).encode()).hexdigest()[:12]


def ask_all(callers: Sequence[Caller], requests: Sequence[Request], cache: Path) -> list[list[Answer]]:
    """The answers [caller][request] of several models that are asked at the same time.

    Packages and keys of all models are checked before the first request is sent. Raises InputError.
    """

    async def main() -> list[list[Answer]]:
        async with contextlib.AsyncExitStack() as stack:
            opened = stack.enter_context(Cache(cache))
            for caller in callers:
                if caller.unanswered(opened, requests):
                    caller.provider.open()
                    stack.push_async_callback(caller.provider.aclose)
            stop = asyncio.Event()
            return await _finish([caller.run(opened, requests, stop) for caller in callers], stop)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a loop is already running, as in a notebook
        return pool.submit(asyncio.run, main()).result()


async def _finish(work: Sequence[Coroutine[None, None, T]], stop: asyncio.Event) -> list[T]:
    """Run coroutines concurrently; if one fails or the run is interrupted, `stop` lets the others finish."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        if not all(task.done() and task.exception() is None for task in tasks):
            stop.set()
            await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    """Sleep until the time is over or `stop` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)

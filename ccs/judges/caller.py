"""Sending questions to models, with the cache, limits, retries and the budget in one place."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccs.errors import InputError, require
from ccs.files import disk_errors
from ccs.judges import JudgeSettings, JudgeSpec
from ccs.judges.prices import CostEstimate, Prices, Spending, expected_usage, largest_usage
from ccs.judges.provider import Provider, Request, TruncatedError, UnansweredError, Usage
from ccs.judges.question import OffSchemaError, parse_object, parse_reply
from ccs.judges.vendors import AnthropicProvider, CompatibleProvider, GoogleProvider, OpenAIProvider

if TYPE_CHECKING:
    from tenacity import RetryCallState

_PROVIDERS: dict[str, type[Provider]] = {
    kind.kind: kind for kind in (OpenAIProvider, AnthropicProvider, GoogleProvider, CompatibleProvider)
}
_LONGEST_WAIT = 300.0
"""Seconds. Where a server asks to wait longer, the question is left unscored."""


class Cache:
    """Parsed answers in a SQLite file, each stored the moment it arrives: a killed run loses none of them."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.execute("CREATE TABLE IF NOT EXISTS replies (key PRIMARY KEY, judge, answer)")
        db.execute("CREATE TABLE IF NOT EXISTS cut_off (key PRIMARY KEY, tokens)")

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> Iterator[Cache]:
        """The cache in a file, which is made if it is not there. Raises InputError if it cannot be used."""
        try:
            with disk_errors(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as db:
                yield cls(db)
        except sqlite3.Error as error:
            raise InputError(
                f"The judges' cache {str(path)!r} cannot be used ({error}); if it is damaged, move it "
                "away: its questions are then asked again."
            ) from None

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer stored under a key; None if there is none or it is damaged."""
        row = self._db.execute("SELECT answer FROM replies WHERE key = ?", (key,)).fetchone()
        try:
            return parse_object(str(row[0])) or None if row else None
        except OffSchemaError:
            return None

    def put(self, key: str, judge: str, answer: Mapping[str, Any]) -> None:
        text = json.dumps(answer, ensure_ascii=False)
        self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, judge, text))

    def cut_off(self, key: str) -> int:
        """The most tokens at which a reply was cut off; 0 for none."""
        row = self._db.execute("SELECT tokens FROM cut_off WHERE key = ?", (key,)).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0

    def put_cut_off(self, key: str, tokens: int) -> None:
        """Store that a reply was cut off at so many tokens."""
        self._db.execute("INSERT OR REPLACE INTO cut_off VALUES (?, ?)", (key, tokens))


Answer = Mapping[str, Any] | str
"""A parsed answer that follows its schema, or the cause why there is none."""


class Caller:
    """One model during one run. Raises InputError if a budget is set and the model's price is unknown."""

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings, spending: Spending) -> None:
        self.name = spec.name
        prices = Prices.load(settings.prices)
        self.price = prices.of(spec.name)
        if self.price is None and settings.budget is not None:
            raise InputError(
                f"No price is known for {spec.name}, so a budget cannot be held; give one in a price table "
                f"of your own (--prices FILE; the known ones are {', '.join(sorted(prices.models))})."
            )
        self.provider = _PROVIDERS[spec.provider](spec, settings)
        self.settings = settings
        self.spending = spending

    def describe(self) -> dict[str, Any]:
        """The model's entry for a manifest, without key and URL."""
        identity = {name: value for name, value in self.provider.identity().items() if name != "base_url"}
        instead = {"instead_of": one} if (one := self.provider.spec.instead_of) else {}
        return {"name": self.name, "stand_in": False} | identity | instead

    def estimate(self, requests: Sequence[Request]) -> CostEstimate:
        """The cost of asking all of it, whatever is cached; neither a key nor the network is needed."""
        distinct = {self.provider.cache_key(request): request for request in requests}.values()
        known = math.nan if self.price is None else 0.0
        dollars = known + sum(self._cost(expected_usage(request)) for request in distinct)
        return CostEstimate(self.name, len(distinct), dollars, known + sum(map(self._most, distinct)))

    def start(
        self, requests: Mapping[str, Request], cache: Cache, group: asyncio.TaskGroup
    ) -> dict[str, asyncio.Task[str]]:
        """Start to ask all of it, by key. A task's result is the cause why the cache has no answer, or ""; it
        raises InputError for a key or model that the server does not accept.
        """
        slots = asyncio.Semaphore(self.settings.concurrency)

        async def in_turn(key: str, request: Request) -> str:
            await slots.acquire()
            cause = await self._ask(key, request, cache)
            # Not given back after an InputError: nothing more is sent with a key that is not accepted.
            slots.release()
            return cause

        return {key: group.create_task(in_turn(key, request)) for key, request in requests.items()}

    async def _ask(self, key: str, request: Request, cache: Cache) -> str:
        """Send a request, again where that may help, and store its answer; the cause if there is none. A
        reply that is cut off is asked for once more with twice the tokens, and with no fewer in any later
        run.
        """
        import tenacity

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_attempt(self.settings.retries + 1),
            wait=self._wait,
            reraise=True,
        )
        for tokens in self._limits:
            if tokens <= cache.cut_off(key):
                continue
            try:
                answer: Mapping[str, Any] = await retrying(self._attempt, request, tokens)
            except TruncatedError:
                cache.put_cut_off(key, tokens)
            except UnansweredError as error:
                return error.cause
            else:
                cache.put(key, self.name, answer)
                return ""
        tokens = cache.cut_off(key)
        return f"truncated: at {tokens:,} tokens; it is asked again with --max-tokens above {tokens // 2:,}"

    @property
    def _limits(self) -> tuple[int, int]:
        """Tokens of a reply: at first, and once it was cut off."""
        return self.settings.max_tokens, 2 * self.settings.max_tokens

    def _wait(self, state: RetryCallState) -> float:
        """Seconds until the next attempt: ever more, and no less than the server asks for."""
        from tenacity.wait import wait_exponential_jitter

        delay, error = self.settings.delay, state.outcome and state.outcome.exception()
        backoff = wait_exponential_jitter(delay, max=60 * delay, jitter=delay)(state)
        return max(backoff, error.wait) if isinstance(error, UnansweredError) else backoff

    async def _attempt(self, request: Request, tokens: int) -> Mapping[str, Any]:
        """The answer to a request that is sent once. Raises UnansweredError or InputError."""
        most = self._cost(largest_usage(request, tokens))
        if not await self.spending.reserve(most):
            raise UnansweredError(
                f"budget: asking could exceed {self.spending.limit:.2f} dollars; the same command asks for "
                "the rest, with a larger --budget"
            )
        cost = most
        try:
            async with asyncio.timeout(self.settings.timeout):
                text, usage = await self.provider.send(request, tokens)
            cost = self._cost(usage, most)
            return parse_reply(text, request.schema)
        except OffSchemaError as error:
            raise UnansweredError(f"off-schema: {error}") from None
        except RecursionError:  # of an SDK, or ours: both parse what is sent
            raise UnansweredError("off-schema: nested too deep") from None
        except TimeoutError:
            raise UnansweredError(f"timeout: no answer in {self.settings.timeout:g} s", again=True) from None
        except UnansweredError as error:
            cost = self._cost(error.usage, most)
            raise
        except InputError:
            cost = 0.0
            raise
        finally:
            self.spending.settle(most, cost)

    def _cost(self, usage: Usage | None, unknown: float = 0.0) -> float:
        """Dollars for the tokens that a reply states; `unknown` where it states none."""
        if self.price is None:
            return 0.0
        return unknown if usage is None else self.price.cost(usage)

    def _most(self, request: Request) -> float:
        """Dollars where every attempt is paid for and has the longest reply, at first and once cut off."""
        attempts = self.settings.retries + 1
        return attempts * sum(self._cost(largest_usage(request, tokens)) for tokens in self._limits)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, UnansweredError) and error.again and error.wait <= _LONGEST_WAIT


def fingerprint(instructions: str, schema: Mapping[str, Any]) -> str:
    """A short digest of a prompt, by which results record the prompt they were made with."""
    return hashlib.sha256((instructions + json.dumps(schema)).encode()).hexdigest()[:12]


def ask_all(callers: Sequence[Caller], requests: Sequence[Request], path: Path) -> list[list[Answer]]:
    """The answers [caller][request] of models that are asked at the same time; path: of the cache. Equal
    requests are sent once. InputError for a package or key that is missing or not accepted: nothing more is
    sent then.
    """

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ask_all(callers, requests, path))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a loop is already running, as in a notebook
        return pool.submit(asyncio.run, _ask_all(callers, requests, path)).result()


async def _ask_all(callers: Sequence[Caller], requests: Sequence[Request], path: Path) -> list[list[Answer]]:
    keys = [[caller.provider.cache_key(request) for request in requests] for caller in callers]
    with Cache.opened(path) as cache:
        missing = [
            {key: one for key, one in zip(own, requests, strict=True) if cache.get(key) is None}
            for own in keys
        ]
        async with contextlib.AsyncExitStack() as stack:
            for caller, asked in zip(callers, missing, strict=True):
                if asked:
                    caller.provider.open()
                    require("judges", "tenacity", "jsonschema")
                    stack.push_async_callback(caller.provider.aclose)
            try:
                async with asyncio.TaskGroup() as group:
                    causes = [
                        caller.start(asked, cache, group)
                        for caller, asked in zip(callers, missing, strict=True)
                    ]
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return [
            [cache.get(key) or tasks[key].result() for key in own]
            for own, tasks in zip(keys, causes, strict=True)
        ]

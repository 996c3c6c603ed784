"""Send questions to models: cache, limits, retries, and budget in one place."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ccs.errors import InputError, require
from ccs.files import disk_errors
from ccs.judges import JudgeSettings, JudgeSpec, prices
from ccs.judges.provider import Provider, Request, UnansweredError, Usage
from ccs.judges.question import OffSchemaError, parse_object, parse_reply, read_by_schema

_LONGEST_WAIT = 300.0
"""Seconds. If a server asks to wait longer, the question is left unscored."""


class Cache:
    """Answers and costs in a SQLite file, stored the moment they arrive: a killed run loses none."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.execute("CREATE TABLE IF NOT EXISTS replies (key PRIMARY KEY, judge, answer)")
        db.execute("CREATE TABLE IF NOT EXISTS calls (key, input_tokens, output_tokens, dollars)")

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path) -> Iterator[Cache]:
        """Open the cache in a file, which is made if it isn't there. Raises InputError if that fails."""
        try:
            with disk_errors(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as db:
                yield cls(db)
        except sqlite3.Error as error:
            raise InputError(
                f"The judges' cache {str(path)!r} cannot be used ({error}). If it is damaged, move it away; "
                "the judges then answer again."
            ) from None

    def find_answer(self, key: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Look an answer up.

        Args:
            key: The question's key.
            schema: The schema that the answer must follow.

        Returns:
            The answer, or None if there is none or it is damaged.
        """
        row = self._db.execute("SELECT answer FROM replies WHERE key = ?", (key,)).fetchone()
        try:
            return read_by_schema(parse_object(str(row[0])), schema) if row else None
        except OffSchemaError:
            return None

    def put(self, key: str, judge: str, answer: Mapping[str, Any]) -> None:
        """Store an answer.

        Args:
            key: The question's key.
            judge: The judge's name.
            answer: The parsed answer.
        """
        text = json.dumps(answer, ensure_ascii=False)
        self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, judge, text))

    def put_call(self, key: str, usage: Usage | None, dollars: float | None) -> None:
        """Store what a request cost, answered or not.

        Args:
            key: The question's key.
            usage: Its tokens, or None if unknown.
            dollars: Its cost, or None if the price is unknown.
        """
        tokens = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        self._db.execute("INSERT INTO calls VALUES (?, ?, ?, ?)", (key, *tokens, dollars))

    def totals(self, keys: Iterable[str]) -> dict[str, Any]:
        """Sum up requests: `calls`, their tokens, those that state none, and `dollars`."""
        cursor = self._db.execute(
            "SELECT count(*) calls, ifnull(sum(input_tokens), 0) input_tokens, ifnull(sum(output_tokens), 0) "
            "output_tokens, count(*) - count(input_tokens) calls_without_usage, ifnull(sum(dollars), 0.0) "
            "dollars FROM calls WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps([*keys]),),
        )
        return dict(zip((column[0] for column in cursor.description), cursor.fetchone(), strict=True))


Answer = Mapping[str, Any] | str
"""A parsed answer that follows its schema, or the cause why there is none."""


class Caller:
    """One model during one run."""

    def __init__(self, spec: JudgeSpec, settings: JudgeSettings, spending: prices.Spending) -> None:
        """Find the model's price.

        Args:
            spec: The model.
            settings: The limits of the run.
            spending: The budget, which other callers may share.

        Raises:
            InputError: The price is unknown, and a budget is set or the server is one that sells many models.
        """
        self.name = spec.name
        self.cost = prices.find_cost(spec, prices.read_prices(settings.prices))
        if self.cost is None and (settings.budget is not None or spec.provider == "compatible"):
            raise prices.no_price(spec)
        self.provider = Provider(spec, settings)
        self.settings = settings
        self.spending = spending

    def manifest_entry(self) -> dict[str, Any]:
        """Return the model's entry for a manifest, without key and URL."""
        replaced = self.provider.spec.instead_of
        instead = {"instead_of": replaced} if replaced else {}
        return {"name": self.name, "stand_in": False} | self.provider.identity() | instead

    def estimate_cost(self, requests: Sequence[Request]) -> prices.CostEstimate:
        """Estimate the cost of all requests, whatever is cached; neither key nor network is needed."""
        distinct = {self.provider.cache_key(request): request for request in requests}.values()
        known = math.nan if self.cost is None else 0.0
        dollars = known + sum(self._cost(prices.expected_usage(request)) for request in distinct)
        return prices.CostEstimate(self.name, len(distinct), dollars)

    def spent(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Sum up what these requests have cost, in this run and in earlier ones with the same cache.

        Returns:
            The judge's name, `calls` (requests sent, whether answered or not), `input_tokens` and
            `output_tokens` (of those calls whose reply states them), `calls_without_usage` (the others, such
            as after a timeout, which count as the most they can cost), and `dollars` (None if the price is
            unknown).
        """
        with Cache.open(self.settings.cache) as cache:
            totals = cache.totals({self.provider.cache_key(request) for request in requests})
        dollars = None if self.cost is None else round(totals["dollars"], 6)
        return {"judge": self.name} | totals | {"dollars": dollars}

    async def ask(self, key: str, request: Request, cache: Cache, slots: asyncio.Semaphore) -> str:
        """Send a request until it is answered, and store the answer.

        Args:
            key: The request's key.
            request: The request.
            cache: Gets the answer.
            slots: Limits the requests in flight.

        Returns:
            The cause why there is no answer, or "".

        Raises:
            InputError: The server doesn't accept the key or the model.
        """
        import tenacity

        delay, cause = self.settings.delay, ""
        backoff = tenacity.wait_exponential_jitter(delay, max=60 * delay, jitter=delay)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_attempt(self.settings.retries + 1),
            wait=lambda state: max(
                backoff(state), getattr(state.outcome and state.outcome.exception(), "wait", 0.0)
            ),
            reraise=True,
        )
        await slots.acquire()
        try:
            cache.put(key, self.name, await retrying(self._attempt, key, request, cache))
        except UnansweredError as error:
            cause = error.cause
        # Not given back after an InputError: nothing more is sent with a key that is not accepted.
        slots.release()
        return cause

    async def _attempt(self, key: str, request: Request, cache: Cache) -> Mapping[str, Any]:
        """Send a request once and return its answer. Raises UnansweredError or InputError."""
        tokens = self.settings.max_tokens
        max_cost = self._cost(prices.largest_usage(request, tokens))
        if not await self.spending.reserve(max_cost):
            raise UnansweredError(
                f"budget: the request could exceed {self.spending.limit:.2f} dollars; raise --budget"
            )
        usage: Usage | None = None
        try:
            async with asyncio.timeout(self.settings.timeout):
                text, usage = await self.provider.send(request, tokens)
            return parse_reply(text, request.schema)
        except OffSchemaError as error:
            raise UnansweredError(f"off-schema: {error}") from None
        except TimeoutError:
            raise UnansweredError(f"timeout: no answer in {self.settings.timeout:g} s", again=True) from None
        except UnansweredError as error:
            usage = error.usage
            raise
        except InputError:
            usage = Usage()
            raise
        finally:
            cost = max_cost if usage is None else self._cost(usage)
            self.spending.settle(max_cost, cost)
            cache.put_call(key, usage, None if self.cost is None else cost)

    def _cost(self, usage: Usage) -> float:
        """Return the dollars for these tokens; 0 if the price is unknown."""
        return 0.0 if self.cost is None else self.cost(usage)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, UnansweredError) and error.again and error.wait <= _LONGEST_WAIT


def ask_all(callers: Sequence[Caller], requests: Sequence[Request], path: Path) -> list[list[Answer]]:
    """Ask several models at the same time. Equal requests are sent once.

    Args:
        callers: The models.
        requests: The requests, the same for all models.
        path: The cache's file.

    Returns:
        The answers [caller][request].

    Raises:
        InputError: A package or key is missing or not accepted. Nothing more is sent then.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ask_all(callers, requests, path))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a loop is already running, as in a notebook
        return pool.submit(asyncio.run, _ask_all(callers, requests, path)).result()


async def _ask_all(callers: Sequence[Caller], requests: Sequence[Request], path: Path) -> list[list[Answer]]:
    keyed = [[(caller.provider.cache_key(request), request) for request in requests] for caller in callers]
    with Cache.open(path) as cache:
        causes: list[dict[str, asyncio.Task[str]]] = []
        try:
            async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for caller, pairs in zip(callers, keyed, strict=True):
                    missing = {
                        key: request for key, request in pairs if not cache.find_answer(key, request.schema)
                    }
                    if missing:
                        require("judges", "tenacity")
                        await stack.enter_async_context(caller.provider.open())
                    slots = asyncio.Semaphore(caller.settings.concurrency)
                    causes.append(
                        {
                            key: group.create_task(caller.ask(key, request, cache, slots))
                            for key, request in missing.items()
                        }
                    )
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [
            [cache.find_answer(key, request.schema) or tasks[key].result() for key, request in pairs]
            for pairs, tasks in zip(keyed, causes, strict=True)
        ]

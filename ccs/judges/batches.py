"""The life of a batch: written down, submitted, left, collected by a later run.

A batch is written down before it is submitted, under a tag that the provider keeps too. A run that finds a
batch whose submission was never confirmed (killed, or cut off) asks the provider for that tag before anything
is submitted again, so nothing is paid for twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ccs.errors import InputError
from ccs.judges.cache import Cache, OpenBatch
from ccs.judges.prices import largest_usage
from ccs.judges.provider import (
    BatchRequest,
    NotFoundError,
    Outcome,
    Request,
    TransientError,
    UndecidedError,
    UnscoredError,
    Usage,
    check,
)

if TYPE_CHECKING:
    from ccs.judges.caller import Caller

T = TypeVar("T")
_LEASE = 900.0  # seconds a process has for one batch's submission or collection


def pending_outcome(made: float) -> Outcome:
    """Return the outcome of a question whose answer a batch made at that Unix time will bring."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(made))
    return Outcome(None, f"pending: in a batch since {when} UTC; run again to collect it")


async def collect(caller: Caller, cache: Cache) -> tuple[set[str], dict[str, str]]:
    """Store the answers of batches that have ended, those of other heads and models too.

    Returns the keys answered, and the causes by key of those that ended without an answer. These may be asked
    again by a later run. A batch that is still worked on, or that the server cannot tell of now, stays open.
    """
    answered: set[str] = set()
    failed: dict[str, str] = {}
    for batch in cache.open_batches(caller.provider.name):
        if not cache.claim(f"batch:{batch.tag}", _LEASE):
            continue
        try:
            ended = await _collect_one(caller, cache, batch)
        except (TransientError, UnscoredError, UndecidedError):
            continue
        finally:
            cache.release(f"batch:{batch.tag}")
        for key, cause in ended.items():
            if cause:
                failed[key] = cause
            else:
                answered.add(key)
    return answered, failed


async def _collect_one(caller: Caller, cache: Cache, batch: OpenBatch) -> dict[str, str]:
    items = cache.batch_items(batch.tag)
    number = batch.id
    if number is None:
        known = [each.id for each in cache.open_batches(caller.provider.name) if each.id is not None]
        number = await _patiently(
            caller, lambda: caller.provider.find(batch.tag, len(items), batch.created, known)
        )
        if number is None:  # never accepted: its questions are free again
            cache.close_batch(batch.tag, caller.provider.name)
            return {}
        cache.confirm_batch(batch.tag, number)
    try:
        results = await _patiently(caller, lambda: caller.provider.collect(number))
    except NotFoundError:
        results = {}
    if results is None:
        return {}
    answers: list[tuple[str, str, Usage]] = []
    causes: dict[str, str] = {}
    for key, position, schema in items:
        result = results.get(_request_id(batch.tag, position))
        if result is None:
            causes[key] = "expired: the batch ended without an answer to it"
            continue
        caller.count(result.usage)
        if isinstance(result, UnscoredError):
            causes[key] = result.cause
            continue
        causes[key] = check(result, schema).cause
        if not causes[key]:
            answers.append((key, result.text, result.usage))
    cache.close_batch(batch.tag, caller.provider.name, answers)
    caller.tally.collected += len(answers)
    return causes


async def submit(
    caller: Caller,
    cache: Cache,
    requests: Mapping[str, Request],
    fresh: Collection[str],
    stop: asyncio.Event,
) -> dict[str, Outcome]:
    """Submit what is neither answered nor in a batch, and leave. Returns an outcome for each request."""
    outcomes: dict[str, Outcome] = {}
    promised: dict[str, float] = {}
    for key, request in requests.items():
        if known := caller.known(cache, key, key in fresh):
            outcomes[key] = known
            continue
        most = 0.0
        if caller.price is not None:
            most = caller.price.cost(largest_usage(request, caller.settings.max_tokens), batch=True)
        if not await caller.spending.promise(most, wait=False):
            limit = caller.spending.limit
            outcomes[key] = Outcome(None, f"budget: asking could exceed {limit:.2f} dollars")
            continue
        promised[key] = most
    for keys in _chunks(list(promised), caller.settings.batch_size):
        sent: list[str] = []
        if stop.is_set():
            outcomes |= {key: Outcome(None, "interrupted: before it was asked") for key in keys}
        try:
            if not stop.is_set():
                sent = await _submit_one(caller, cache, {key: requests[key] for key in keys}, fresh, outcomes)
        finally:
            for key in keys:
                actual = promised[key] if key in sent else 0.0
                caller.spending.settle(promised[key], actual)
                if caller.tally.dollars is not None:
                    caller.tally.dollars += actual
        for key in keys:
            if key not in outcomes:
                outcomes[key] = caller.known(cache, key, key in fresh) or Outcome(
                    None, "pending: another process is asking it"
                )
    return outcomes


async def _submit_one(
    caller: Caller,
    cache: Cache,
    requests: Mapping[str, Request],
    fresh: Collection[str],
    outcomes: dict[str, Outcome],
) -> list[str]:
    """Submit one batch; return the keys that it holds and fill in the outcomes of those it could not hold."""
    items = [(key, request.schema) for key, request in requests.items()]
    tag, kept = cache.open_batch(caller.provider.name, items, _LEASE, fresh)
    if not kept:
        return []
    body = [BatchRequest(_request_id(tag, position), requests[key]) for position, key in enumerate(kept)]
    try:
        cache.confirm_batch(tag, await _submit_or_find(caller, tag, body))
    except UndecidedError:
        return kept  # a later run will know
    except (TransientError, UnscoredError) as error:
        cache.close_batch(tag, caller.provider.name)
        outcomes |= {key: Outcome(None, error.cause) for key in kept}
        return []
    except InputError:
        cache.close_batch(tag, caller.provider.name)
        raise
    finally:
        cache.release(f"batch:{tag}")
    caller.tally.requests += len(kept)
    return kept


async def _submit_or_find(caller: Caller, tag: str, body: Sequence[BatchRequest]) -> str:
    """Submit a batch; after a failure look whether it went through before trying again.

    Raises TransientError or UnscoredError if the provider surely has no such batch, UndecidedError if that
    cannot be told.
    """
    failures, since = 0, time.time()
    while True:
        try:
            async with asyncio.timeout(_LEASE / 3):
                return await caller.provider.submit(tag, body)
        except (TransientError, TimeoutError) as error:
            failures += 1
            after = error.after if isinstance(error, TransientError) else None
            await asyncio.sleep(min(caller.backoff(failures, after), caller.settings.max_wait))
            try:
                found = await _patiently(caller, lambda: caller.provider.find(tag, len(body), since, ()))
            except (TransientError, UnscoredError):
                raise UndecidedError from None
            if found is not None:
                return found
            if failures > caller.settings.retries:
                raise TransientError(str(error) or "timeout: no answer in time") from None


async def _patiently(caller: Caller, call: Callable[[], Awaitable[T]]) -> T:
    """Make a call that only asks, again after a transient failure."""
    failures = 0
    while True:
        try:
            async with asyncio.timeout(caller.settings.timeout):
                return await call()
        except (TransientError, TimeoutError) as error:
            failures += 1
            after = error.after if isinstance(error, TransientError) else None
            if failures > caller.settings.retries or (after or 0.0) > caller.settings.max_wait:
                raise TransientError(str(error) or "timeout: no answer in time") from None
            await asyncio.sleep(caller.backoff(failures, after))


def _request_id(tag: str, position: int) -> str:
    return f"{tag}-{position}"


def _chunks(keys: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]

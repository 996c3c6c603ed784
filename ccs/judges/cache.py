"""Answers and batches on disk: one SQLite file that several processes share.

An answer is stored the moment it arrives and only if it follows the schema, so a killed run loses none and
a rerun repeats none. A claim on a key keeps two processes from asking the same thing at the same time; the
claim of a process that died, or that has run out, is free to take.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ccs.errors import InputError
from ccs.judges.provider import Usage

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, judge TEXT NOT NULL, answer TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
    expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
    tag TEXT PRIMARY KEY, judge TEXT NOT NULL, id TEXT, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS batch_items (
    key TEXT PRIMARY KEY, tag TEXT NOT NULL, position INTEGER NOT NULL, schema TEXT NOT NULL);
"""
_VERSION = 1


@dataclass(frozen=True)
class Answer:
    """A stored answer: the reply's text, its tokens, and when it came (Unix time)."""

    text: str
    usage: Usage
    created: float


@dataclass(frozen=True)
class OpenBatch:
    """A batch that is not collected yet; `id` is None while its submission is unconfirmed."""

    tag: str
    id: str | None
    created: float


class Cache:
    """The file, open. One object a run and thread."""

    def __init__(self, path: Path) -> None:
        self.owner = uuid.uuid4().hex
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=60.0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"The judges' cache {str(path)!r} cannot be opened: {error}.") from None
        try:
            if self._db.execute("PRAGMA user_version").fetchone()[0] not in (0, _VERSION):
                raise InputError(f"The judges' cache {str(path)!r} was written by another version.")
            self._db.execute("PRAGMA journal_mode=WAL")
            with self._transaction():
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
        except sqlite3.Error as error:
            self._db.close()
            raise InputError(f"The judges' cache {str(path)!r} is not usable: {error}.") from None
        except InputError:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def get(self, key: str) -> Answer | None:
        row = self._db.execute(
            "SELECT answer, input_tokens, output_tokens, created FROM answers WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else Answer(row[0], Usage(row[1], row[2]), row[3])

    def put(self, key: str, judge: str, text: str, usage: Usage) -> None:
        """Store an answer, in place of an older one."""
        self._db.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
            (key, judge, text, usage.input_tokens, usage.output_tokens, time.time()),
        )

    def claim(self, key: str, seconds: float) -> bool:
        """Claim a key for some time; False if another live process (or run) holds it. Renews one's own."""
        with self._transaction():
            return self._claim(key, seconds)

    def _claim(self, key: str, seconds: float) -> bool:
        query = "SELECT owner, host, pid, expires FROM claims WHERE key = ?"
        row = self._db.execute(query, (key,)).fetchone()
        if row is not None and row[0] != self.owner and row[3] > time.time() and _alive(row[1], row[2]):
            return False
        self._db.execute(
            "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)",
            (key, self.owner, socket.gethostname(), os.getpid(), time.time() + seconds),
        )
        return True

    def release(self, key: str) -> None:
        self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self.owner))

    def pending(self, keys: Iterable[str]) -> dict[str, float]:
        """Return those of the keys that are in a batch not collected yet, with the time it was made."""
        found = {}
        for key in keys:
            row = self._db.execute(
                "SELECT created FROM batch_items JOIN batches USING (tag) WHERE key = ?", (key,)
            ).fetchone()
            if row is not None:
                found[key] = row[0]
        return found

    def open_batch(
        self, judge: str, items: Sequence[tuple[str, Any]], seconds: float, fresh: Iterable[str] = ()
    ) -> tuple[str, list[str]]:
        """Write down a batch before it is submitted; return its tag and the keys that it holds.

        items: keys and schemas. Left out are keys that were answered meanwhile (unless `fresh`), are in a
        batch already, or are being asked by another process. The tag is claimed for `seconds`.
        """
        tag, refreshed = uuid.uuid4().hex[:16], set(fresh)
        kept: list[str] = []
        with self._transaction():
            for key, schema in items:
                if (self.get(key) and key not in refreshed) or self.pending([key]):
                    continue
                if not self._claim(key, 0.0):
                    continue
                self._db.execute(
                    "INSERT INTO batch_items VALUES (?, ?, ?, ?)", (key, tag, len(kept), json.dumps(schema))
                )
                kept.append(key)
            if kept:
                self._db.execute("INSERT INTO batches VALUES (?, ?, NULL, ?)", (tag, judge, time.time()))
                self._claim(f"batch:{tag}", seconds)
        return tag, kept

    def confirm_batch(self, tag: str, batch: str) -> None:
        """Write down the id that the provider gave the batch."""
        self._db.execute("UPDATE batches SET id = ? WHERE tag = ?", (batch, tag))

    def open_batches(self, judge: str) -> list[OpenBatch]:
        rows = self._db.execute(
            "SELECT tag, id, created FROM batches WHERE judge = ? ORDER BY created", (judge,)
        ).fetchall()
        return [OpenBatch(*row) for row in rows]

    def batch_items(self, tag: str) -> list[tuple[str, int, Any]]:
        """Return a batch's keys, positions and schemas."""
        rows = self._db.execute(
            "SELECT key, position, schema FROM batch_items WHERE tag = ? ORDER BY position", (tag,)
        ).fetchall()
        return [(key, position, json.loads(schema)) for key, position, schema in rows]

    def close_batch(self, tag: str, judge: str, answers: Sequence[tuple[str, str, Usage]] = ()) -> None:
        """Store a batch's answers (key, text, usage) and forget the batch, in one step."""
        with self._transaction():
            for key, text, usage in answers:
                self.put(key, judge, text, usage)
            self._db.execute("DELETE FROM batch_items WHERE tag = ?", (tag,))
            self._db.execute("DELETE FROM batches WHERE tag = ?", (tag,))
            self._db.execute("DELETE FROM claims WHERE key = ?", (f"batch:{tag}",))


def _alive(host: str, pid: int) -> bool:
    """Tell whether a claim's process runs. Where that cannot be asked (another machine, or a system without
    POSIX signals) it counts as running until the claim runs out."""
    if host != socket.gethostname() or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

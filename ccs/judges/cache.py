"""The cache of answers: one SQLite file that several processes share.

A parsed answer is stored the moment it arrives, so a killed run loses none and a rerun repeats none. A claim
on a key keeps two processes from asking the same question at the same time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccs.errors import InputError
from ccs.judges.provider import Usage
from ccs.judges.question import OffSchemaError, parse_object

_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, judge TEXT NOT NULL, answer TEXT NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, created REAL NOT NULL)
"""
_VERSION = 1


class Cache(contextlib.AbstractContextManager["Cache"]):
    """The open file; one object per run and process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.ExitStack() as opened:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(path, timeout=60.0, isolation_level=None)
                opened.callback(self._db.close)
                if self._db.execute("PRAGMA user_version").fetchone()[0] not in (0, _VERSION):
                    raise InputError(f"The judges' cache {str(path)!r} was written by another version.")
                for statement in ("PRAGMA journal_mode=WAL", _TABLE, f"PRAGMA user_version = {_VERSION}"):
                    self._db.execute(statement)
                self._locks = opened.enter_context(path.with_name(f"{path.name}.lock").open("wb"))
            except (OSError, sqlite3.Error) as error:
                raise self._unusable(error) from None
            self._opened = opened.pop_all()

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer stored under a key; None if there is none or it is damaged."""
        row = self._execute("SELECT answer FROM answers WHERE key = ?", (key,))
        try:
            return None if row is None else parse_object(str(row[0]))
        except OffSchemaError:
            return None

    def put(self, key: str, judge: str, answer: Mapping[str, Any], usage: Usage) -> None:
        """Store an answer, replacing an older one."""
        text = json.dumps(answer, ensure_ascii=False)
        self._execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
            (key, judge, text, usage.input_tokens, usage.output_tokens, time.time()),
        )

    def _execute(self, statement: str, values: tuple[Any, ...]) -> Any:
        """The first row of the statement's result."""
        try:
            return self._db.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> InputError:
        return InputError(
            f"The judges' cache {str(self._path)!r} cannot be used ({error}); if it is damaged, move it "
            "away: its questions are then asked again."
        )

    def claim(self, key: str) -> bool:
        """Claim a key; False if another process holds it.

        A claim is a lock on one byte beyond the end of a file beside the cache. The operating system releases
        it when the process ends, however it ends.
        """
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except OSError:
            return False
        return True

    def release(self, key: str) -> None:
        """Release a claim."""
        fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, _byte(key))


def _byte(key: str) -> int:
    return int(key[:15], 16)

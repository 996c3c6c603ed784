"""Parse untrusted input in a process of its own, which returns plain values.

A worker has limits of memory, of processor time, and of time on the clock. One that exceeds them is killed
and replaced, and the user gets a sentence. Workers start when they are first needed, or ahead by `warm`.
macOS does not enforce the limit of memory.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ccs.errors import InputError

WORKERS = 2
KEPT = 400 * 2**20
"""Bytes of memory above which a worker makes room for a new one once it has answered."""
PATIENCE = 6.0
"""Seconds on the clock for each of processor time, which other processes need too."""

_SECRETS = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL", re.IGNORECASE)
_START = "from ccs.sandbox import serve; serve()"
_HOME = Path(__file__).resolve().parents[1]


def run(
    function: Callable[..., Any],
    *args: Any,
    title: str,
    seconds: float = 10.0,
    memory: int = 2**30,
    answer: int = 2**28,
    patience: float = PATIENCE,
) -> Any:
    """Call a function in a worker.

    Args:
        function: A function of a module.
        args: Its arguments.
        title: What it reads, to begin a sentence.
        seconds: The most seconds of processor time.
        memory: The most bytes of memory, above the worker's own.
        answer: The most bytes of its value.
        patience: Seconds on the clock for each of processor time.

    Returns:
        Its value: numbers, texts, bytes, and tuples, lists, and dicts of these.

    Raises:
        InputError: If it raises, or exceeds a limit.
    """
    with _pool.free:
        worker = _pool.idle.pop() if _pool.idle else _Worker()
        kind, answer_value, stays = "broken", None, False
        try:
            kind, answer_value, stays = worker.ask(
                (function, args, seconds, memory, answer), patience * seconds + 5
            )
        except TimeoutError:
            kind = "slow"
        except (OSError, EOFError, pickle.UnpicklingError):
            kind = "slow" if worker.end() == -signal.SIGXCPU else "broken"
        finally:
            if not stays:
                worker.end()
                worker = _Worker()  # ahead, so that the next need not wait for it
            _pool.idle.append(worker)
    if kind == "value":
        return answer_value
    words = {
        "input": answer_value,
        "raised": f"{title} cannot be read: {answer_value}.",
        "slow": f"{title} cannot be read within {seconds:.0f} seconds.",
        "large": f"{title} cannot be read within {memory >> 20:,} MB of memory.",
        "long": f"{title} holds more than {answer >> 20:,} MB once unpacked.",
    }
    raise InputError(words.get(kind) or f"{title} cannot be read: its reader broke off.")


def warm(*modules: str) -> None:
    """Start the workers now, and let each import these modules first."""
    _pool.modules = modules
    while len(_pool.idle) < WORKERS:
        _pool.idle.append(_Worker())


def reason(error: BaseException) -> str:
    """Describe an error on one line, with its type unless its text was written for people."""
    words = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, KeyError):
        return f"there is no {words}"
    return words if type(error) is ValueError else f"{type(error).__name__}: {words}".rstrip(": ")


def environment() -> dict[str, str]:
    """Return the environment of a process that reads untrusted input: this package, and no token or key."""
    known = {name: value for name, value in os.environ.items() if not _SECRETS.search(name)}
    path = os.pathsep.join(filter(None, (str(_HOME), os.environ.get("PYTHONPATH"))))
    return known | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "PYTHONPATH": path}


_OWN = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}
"""Variables that keep a worker from taking memory before it needs it."""


def end_with_parent(*_: object) -> None:
    """End this process as soon as its parent has ended, even in the middle of work or an import."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def serve() -> None:
    """Run a worker: answer questions from a socket until its other end is closed."""
    end_with_parent()
    _, line, *modules = sys.argv
    # None marks a module that cannot be imported. Parsers don't need PyTorch, which transformers and datasets
    # import if it is there: a worker then holds 785 MB instead of 165.
    sys.modules["torch"] = None  # type: ignore[assignment]
    os.nice(5)
    _limit(resource.RLIMIT_CORE, 0)
    for name in modules:
        importlib.import_module(name)
    with socket.socket(fileno=int(line)) as opened, opened.makefile("rwb") as stream:
        while True:
            try:
                function, args, seconds, memory, max_answer = pickle.load(stream)
            except (EOFError, OSError):
                return
            pickle.dump(_answer(function, args, seconds, memory, max_answer), stream)
            stream.flush()


def _answer(
    function: Callable[..., Any], args: Any, seconds: float, memory: int, max_answer: int
) -> tuple[str, Any, bool]:
    """Return the kind of the answer, the answer, and whether this worker stays."""
    data, _ = _memory()
    _limit(resource.RLIMIT_CPU, int(time.process_time() + seconds) + 1)
    if data:
        _limit(resource.RLIMIT_DATA, data + memory)
    counted = _Counter()
    try:
        kind, value = "value", function(*args)
        pickle.dump(value, counted)
    except InputError as error:
        kind, value = "input", str(error)
    except MemoryError:
        kind, value = "large", None
    except BaseException as error:  # the panics of Rust too
        kind, value = "raised", reason(error)[:300]
    if counted.bytes > max_answer:
        kind, value = "long", None
    return kind, value, _memory()[1] < KEPT


class _Counter:
    """A file that counts the bytes written to it."""

    bytes = 0

    def write(self, data: Any) -> None:
        self.bytes += memoryview(data).nbytes


def _memory() -> tuple[int, int]:
    """Return this process's bytes of data and of resident memory, zeros if the system doesn't know them."""
    try:
        _, held, _, _, _, data, _ = map(int, Path("/proc/self/statm").read_text("ascii").split())
    except OSError:
        return 0, 0
    page = resource.getpagesize()
    return data * page, held * page


def _limit(limit: int, value: int) -> None:
    with suppress(ValueError, OSError):  # some systems know a limit and do not let it be set
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))


class _Plain(pickle.Unpickler):
    """An unpickler of plain values: an answer may not name a class or a function."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"an answer names {module_name}.{global_name}")


class _Worker:
    """A process that answers one question at a time."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), *_pool.modules],
                pass_fds=[theirs.fileno()],
                env=environment() | _OWN,
                process_group=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._stream = self._line.makefile("rwb")

    def ask(self, question: Any, seconds: float) -> Any:
        """Send a question to the process and return its answer.

        Args:
            question: The question, which must pickle.
            seconds: Time limit of the answer.

        Raises:
            TimeoutError: If there is no answer in time.
            OSError: If the process ended.
            EOFError: If the process ended before its answer.
            pickle.UnpicklingError: If the answer holds anything but plain values.
        """
        self._line.settimeout(seconds)
        pickle.dump(question, self._stream)
        self._stream.flush()
        return _Plain(self._stream).load()

    def end(self) -> int:
        """Kill it if it still runs, and return its exit status."""
        self._process.kill()
        self._close()
        return self._process.wait()

    def abandon(self) -> None:
        """Forget it in a forked child: it belongs to the parent."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        with suppress(OSError):
            self._stream.close()
        self._line.close()


class _Pool:
    """The workers of this process."""

    def __init__(self) -> None:
        self.modules: tuple[str, ...] = ()
        self._clear()

    def leave(self, leave_worker: Callable[[_Worker], object]) -> None:
        for worker in self.idle:
            leave_worker(worker)
        self._clear()

    def _clear(self) -> None:
        # A new semaphore too: in a forked child nobody will ever give the old one back.
        self.free = threading.BoundedSemaphore(WORKERS)
        self.idle: list[_Worker] = []


_pool = _Pool()
os.register_at_fork(after_in_child=lambda: _pool.leave(_Worker.abandon))
atexit.register(lambda: _pool.leave(_Worker.end))

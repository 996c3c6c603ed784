"""Parse untrusted input in its own process, which returns plain values.

A worker has limits of memory, of processor time, and of time on the clock. One that exceeds them is killed
and replaced, and the user gets a sentence. Workers start when they are first needed, or ahead by `warm`.
macOS does not enforce the limit of memory.
"""

import atexit
import importlib
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ccs.errors import InputError

WORKERS = 2
KEPT = 400 * 2**20
"""Bytes of memory above which a worker makes room for a new one once it has answered."""

_SECRETS = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL", re.IGNORECASE)
_OWN = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}
"""Variables that keep a worker from taking memory before it needs it."""


def run(
    function: Callable[..., Any],
    *args: Any,
    title: str,
    seconds: float = 10.0,
    memory: int = 2**30,
    answer: int = 2**28,
    patience: float = 6.0,
) -> Any:
    """Call a function in a worker.

    Args:
        function: A function of a module.
        args: Its arguments.
        title: A noun for what the worker reads, which begins an error message.
        seconds: Maximum processor time in seconds.
        memory: Maximum number of bytes of memory, above the worker's own.
        answer: Maximum number of bytes of its value.
        patience: Seconds on the clock per second of processor time, since other processes run, too.

    Returns:
        Its value: numbers, texts, bytes, and tuples, lists, and dicts of these.

    Raises:
        InputError: If it raises, or exceeds a limit.
    """
    idle, free = _pool(os.getpid())
    with free:
        worker, stays = idle.pop() if idle else _start(), False
        limit = patience * seconds + 5
        timer, end = threading.Timer(limit, worker.kill), time.monotonic() + limit
        timer.start()
        try:
            pickle.dump((function, args, title, seconds, memory, answer), worker.stdin)
            worker.stdin.flush()
            value, sentence, stays = _Plain(worker.stdout).load()
        except (OSError, EOFError, pickle.UnpicklingError):
            is_late = _end(worker) == -signal.SIGXCPU or time.monotonic() >= end
            why = f"within {seconds:.0f} seconds" if is_late else "because its parser stopped"
            sentence = f"{title} cannot be read {why}."
        finally:
            timer.cancel()
            if not stays:
                _end(worker)
                worker = _start()  # ahead, so that the next need not wait for it
            idle.append(worker)
    if sentence:
        raise InputError(sentence)
    return value


def warm(*modules: str) -> None:
    """Start the workers now, and let each import these modules first."""
    _modules[:] = modules
    idle, _ = _pool(os.getpid())
    idle += [_start() for _ in range(WORKERS - len(idle))]


def reason(error: BaseException) -> str:
    """Describe an error on one line, with its type unless its text was written for people."""
    words = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, KeyError):
        return f"there is no {words}"
    return words if type(error) is ValueError else f"{type(error).__name__}: {words}".rstrip(": ")


def environment() -> dict[str, str]:
    """Return the environment of a process that reads untrusted input: this package, and no token or key."""
    known = {name: value for name, value in os.environ.items() if not _SECRETS.search(name)}
    home = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    return known | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "PYTHONPATH": path}


def end_with_parent(*_: object) -> None:
    """End this process as soon as its parent has ended, even in the middle of work or an import."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# In a worker ----------------------------------------------------------------------------------------------


def serve() -> None:
    """Run a worker: answer questions from standard input until its other end is closed."""
    end_with_parent()
    # None marks a module that cannot be imported. Parsers don't need PyTorch, which transformers and datasets
    # import if it is there: a worker then holds 785 MB instead of 165.
    sys.modules["torch"] = None  # type: ignore[assignment]
    os.nice(15)
    _limit(resource.RLIMIT_CORE, 0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that a parser's prints don't mix with the answers
    for name in sys.argv[1:]:
        importlib.import_module(name)
    with suppress(EOFError, OSError):
        while True:
            pickle.dump(_answer(pickle.load(sys.stdin.buffer)), answers)
            answers.flush()


def _answer(question: Any) -> tuple[Any, str, bool]:
    """Return the value, a sentence if there is none, and whether this worker stays."""
    function, args, title, seconds, memory, most_bytes = question
    _limit(resource.RLIMIT_CPU, int(time.process_time() + seconds) + 1)
    if data := _memory()[5]:
        _limit(resource.RLIMIT_DATA, data + memory)
    value, sentence, counted = None, "", _Counter()
    try:
        value = function(*args)
        pickle.dump(value, counted)
    except InputError as error:
        sentence = str(error)
    except MemoryError:
        sentence = f"{title} cannot be read within {memory >> 20:,} MB of memory."
    except BaseException as error:  # the panics of Rust too
        sentence = f"{title} cannot be read: {reason(error)[:300]}."
    if counted.bytes > most_bytes:
        sentence = f"{title} holds more than {most_bytes >> 20:,} MB once unpacked."
    return None if sentence else value, sentence, _memory()[1] < KEPT


def _memory() -> list[int]:
    """Return this process's bytes of memory by kind, as in /proc/self/statm: resident is 1, data is 5."""
    with suppress(OSError):  # only Linux has this file
        pages = Path("/proc/self/statm").read_text("ascii").split()
        return [int(count) * resource.getpagesize() for count in pages]
    return [0] * 6


class _Counter:
    """A file that counts the bytes written to it."""

    bytes = 0

    def write(self, data: Any) -> None:
        self.bytes += memoryview(data).nbytes


def _limit(limit: int, value: int) -> None:
    with suppress(ValueError, OSError):  # some systems have a limit that can't be set
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))


# Workers --------------------------------------------------------------------------------------------------


class _Plain(pickle.Unpickler):
    """An unpickler of plain values: an answer may not name a class or a function."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"an answer names {module_name}.{global_name}")


def _start() -> Any:
    """Start a process that answers one question at a time."""
    return subprocess.Popen(
        [sys.executable, "-c", "from ccs.sandbox import serve; serve()", *_modules],
        env=environment() | _OWN,
        process_group=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _end(worker: Any) -> int:
    """Kill a worker if it still runs, and return its exit status."""
    worker.kill()
    with suppress(OSError), worker:  # closes its pipes
        pass
    return int(worker.returncode)


_modules: list[str] = []
"""Modules that a new worker imports first."""


@cache
def _pool(process: int) -> tuple[list[Any], threading.BoundedSemaphore]:
    """Return the idle workers of a process, and a semaphore; a forked process has none of its parent's."""
    return [], threading.BoundedSemaphore(WORKERS)


atexit.register(lambda: list(map(_end, _pool(os.getpid())[0])))

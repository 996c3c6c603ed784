"""The memory that this machine has free."""

import contextlib
from pathlib import Path

from ccs.errors import InputError

_PROC, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def require_room(subject: str, size: int) -> None:
    """Check that this machine has enough free memory.

    Args:
        subject: The subject of the error's sentence.
        size: Bytes that are needed.

    Raises:
        InputError: If it has less.
    """
    free = free_memory()
    if free is not None and size > free:
        needed, free_gb = f"{size / 1e9:.1f} GB", f"{free / 1e9:.1f} GB"
        raise InputError(f"{subject} needs about {needed} of memory, and this machine has {free_gb} free.")


def free_memory() -> int | None:
    """Return the bytes of memory that this process may still use, or None if unknown."""
    limits = []
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = _PROC.read_text("ascii").splitlines()
        limits.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, KeyError, ValueError):  # no such group, or "max"
        limit, used = (int((_CGROUP / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
        lines = (_CGROUP / "memory.stat").read_text("ascii").splitlines()
        limits.append(limit - used + int(dict(line.split() for line in lines)["inactive_file"]))
    return min(limits, default=None)

"""A real disk of a few kilobytes, for a process that is to fill it. Linux; no rights needed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
_REMOUNT = 32  # MS_REMOUNT


def mount(folder: Path) -> Callable[[int], None]:
    """Lay an empty file system in memory over `folder`, seen by this process alone; it must have one thread.

    Returns what sets its size in KiB. Raises OSError where the kernel does not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    def sized(kib: int, flags: int = _REMOUNT) -> None:
        call("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", flags, f"size={kib}k".encode())

    maps = {"uid_map": f"0 {os.getuid()} 1", "setgroups": "deny", "gid_map": f"0 {os.getgid()} 1"}
    call("unshare", _NEW_MOUNTS | _NEW_USER)
    for name, text in maps.items():  # without them nobody is there for a file to belong to
        Path("/proc/self", name).write_text(text)
    sized(4, flags=0)
    return sized

# SPDX-License-Identifier: Apache-2.0
"""Objects whose memory kvmem uses are kept until it no longer does.

kvmem reports that on a thread of its own, which must not enter the interpreter: that may be ending. So the callback is sem_post
of libc, and Python looks at the semaphores when handles are closed and memory is adopted."""

from __future__ import annotations

import _thread
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from kvmem._library import ffi


class _Process:
    """Not in the module itself: tools that read the `__dict__` of all objects in modules, such as vLLM, find that cffi raises for it."""

    libc: Any = ffi.dlopen(None)


_SEMAPHORE_SIZE = 64  # at least sizeof(sem_t) of each libc
_LOOKING = 1.0  # seconds after the last close in which a thread looks

looks: list[Callable[[], None]] = []
"""Called when handles are closed: what other objects have may be released by then."""

_lock = _thread.allocate_lock()
_held: dict[int, tuple[Any, object]] = {}
_is_immortal = False
_is_looking = False
_look_until = 0.0


def callback() -> Any:
    """The release callback."""
    return ffi.cast("kvmem_release_callback", ffi.addressof(_Process.libc, "sem_post"))


def hold(kept: object) -> Any:
    """Keeps an object until the callback was called with the returned user_data."""
    _keep_for_ever()
    semaphore = ffi.new("uint64_t[]", _SEMAPHORE_SIZE // 8)
    _Process.libc.sem_init(semaphore, 0, 0)
    with _lock:
        _held[int(ffi.cast("uintptr_t", semaphore))] = (semaphore, kept)
    _drop_released()
    return ffi.cast("void *", semaphore)


def _keep_for_ever() -> None:
    """The table is never freed: runs go on while the interpreter ends, and use the memory until the process has ended."""
    global _is_immortal
    if not _is_immortal:
        _is_immortal = True
        import ctypes  # at the first use, because it takes long

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_held))


def unhold(user_data: Any) -> None:
    """The memory was not adopted."""
    with _lock:
        _held.pop(int(ffi.cast("uintptr_t", user_data)), None)


def held() -> int:
    """The number of kept objects."""
    closed()
    _drop_released()
    return len(_held)


def _drop_released() -> bool:
    """Drops what was released. Returns whether objects are still kept."""
    with _lock:
        ended = [key for key, (semaphore, _) in _held.items() if _Process.libc.sem_trywait(semaphore) == 0]
        dropped = [_held.pop(key) for key in ended]
        left = bool(_held)
    # Outside of the lock: freeing an object may close handles.
    del dropped
    return left


def closed() -> None:
    """A handle is closed."""
    for each in looks:
        each()


def look() -> None:
    """A handle was destroyed. What it kept is released a little later, on a thread of kvmem."""
    global _is_looking, _look_until
    if not _held or sys.is_finalizing():
        return
    _look_until = time.monotonic() + _LOOKING
    # This may run within a collection of garbage, also while this thread holds the lock.
    if _is_looking or not _lock.acquire(blocking=False):
        return
    try:
        if not _is_looking:
            # Not a threading.Thread, whose start waits for the thread: that never comes while the interpreter ends.
            _thread.start_new_thread(_look_for_a_while, ())
            _is_looking = True
    except RuntimeError:
        pass  # no thread can start: the next look finds it
    finally:
        _lock.release()


def _look_for_a_while() -> None:
    global _is_looking
    pause = 0.0005
    while True:
        while _drop_released() and time.monotonic() < _look_until:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        _is_looking = False
        # A close before that has started no thread.
        if not _held or time.monotonic() >= _look_until:
            return
        _is_looking = True


def _after_fork() -> None:
    global _lock, _is_looking
    _lock, _is_looking = _thread.allocate_lock(), False


os.register_at_fork(after_in_child=_after_fork)

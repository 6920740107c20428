# SPDX-License-Identifier: Apache-2.0
"""Timeouts: seconds in Python, nanoseconds in C. Waits can be interrupted by signals, such as Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from typing import Any

from kvmem import _constants as k
from kvmem import _errors
from kvmem._library import ffi, lib

FOREVER = 2**64 - 1
_SLICE = 100_000_000


def nanoseconds(timeout: float | None, name: str = "timeout", without: str = "no limit") -> int:
    """`name` is that of the argument, and `without` what it means that it is None, for messages."""
    if timeout is None or timeout == float("inf"):
        return FOREVER
    try:
        is_time = timeout >= 0
    except TypeError:
        raise TypeError(f"{name} is {_errors.type_of(timeout)}; expected a number of seconds, or None for {without}") from None
    if not is_time:
        raise _errors.InvalidArgument(f"{name} is {timeout}; it is in seconds and at least 0, or None for {without}")
    return int(timeout * 1e9) if timeout < 1e10 else FOREVER - 1  # some numbers have no product


def interruptible(wait: Callable[[int], bool], timeout: float | None) -> bool:
    """Calls `wait` with nanoseconds until it returns True or the time is over. Returns its last result.

    Signal handlers of Python run in the main thread, between its calls: it waits for 0.1 s at a time."""
    limit = nanoseconds(timeout)
    if threading.current_thread() is not threading.main_thread():
        return wait(limit)
    end = time.monotonic_ns() + limit
    while True:
        left = max(end - time.monotonic_ns(), 0)
        if wait(min(left, _SLICE)):
            return True
        if left <= _SLICE:
            return False


def waiting(function: Any, *kept: Any, destroy: Any = None) -> Callable[..., int]:
    """A function of C that may wait, and cannot be called again if it is late. In the main thread another thread calls it, so that signal
    handlers run meanwhile. If one raises, the call goes on, and `destroy` ends what it makes.

    `kept` is what arguments point to."""

    def call(*arguments: Any) -> int:
        if threading.current_thread() is not threading.main_thread():
            return int(function(*arguments))
        try:
            status = _Call(arguments, destroy).status_of(function, kept)
            return int(function(*arguments)) if status is None else status
        finally:
            del arguments  # as in _errors.call

    return call


class _Call:
    """A call in another thread."""

    def __init__(self, arguments: tuple[Any, ...], destroy: Any) -> None:
        self._arguments: tuple[Any, ...] = arguments
        self._destroy, self._status = destroy, 0
        self._lock, self._done = threading.Lock(), threading.Event()
        self._has_begun, self._is_late = False, False

    def run(self, function: Any, kept: Any) -> None:
        with self._lock:
            if self._is_late:
                return
            self._has_begun = True
        self._status = function(*self._arguments)
        with self._lock:
            self._done.set()
            is_late = self._is_late
        if is_late:
            self._discard()

    def status_of(self, function: Any, kept: Any) -> int | None:
        """Calls the function in another thread, and waits for its end. None if there is no thread, or the interpreter ends: then the function
        has not been called, and will not be."""
        has_started = False
        try:
            threading.Thread(target=self.run, args=(function, kept), name="kvmem-wait", daemon=True).start()
            has_started = True
            self._done.wait()
        except BaseException as error:  # also of a handler that has run while the thread was being started
            with self._lock:
                self._is_late = True
                has_begun, has_ended = self._has_begun, self._done.is_set()
            if isinstance(error, RuntimeError) and not has_started and not has_begun:
                return None
            if has_ended:
                self._discard()
            raise
        return self._status

    def _discard(self) -> None:
        """Ends what the call has made: no caller gets it."""
        given, self._arguments = self._arguments, ()
        if self._status < 0:
            lib.kvmem_error_destroy(given[-1][0])
        elif self._destroy is not None:
            self._destroy(given[-2][0])


def run_ends(wait: Callable[[int, Any], int], poll: Callable[[], int], timeout: float | None) -> bool:
    """Whether a run ends in time. `wait` takes nanoseconds and the error slot, and `poll` returns the status of the run: a wait that
    has timed out and a run that has differ by it. Raises how the run failed."""

    def ends(limit: int) -> bool:
        error = ffi.new("kvmem_error **")
        status = wait(limit, error)
        if status == k.Status.TIMED_OUT:
            lib.kvmem_error_destroy(error[0])
            if poll() == k.Status.IN_PROGRESS:
                return False
            # The run has ended since, or its own status is this one.
            error[0] = ffi.NULL
            status = wait(0, error)
        if status >= 0:
            return True
        raise _errors.taken(status, error)

    return interruptible(ends, timeout)

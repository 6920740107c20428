# SPDX-License-Identifier: Apache-2.0
"""Tasks of LMCache: copies of objects, whose ends a queue reports."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kvmem
from kvmem._blocks._run import Ending
from kvmem._blocks._shape import shape_of
from kvmem.lmcache._objects import form_of


class Task:
    """What LMCache has asked for at once: objects that move, each in a run of its own."""

    def __init__(self, number: int, keys: Sequence[Any], objects: Sequence[Any]) -> None:
        self.number, self.keys = number, keys
        # Memory that is not of the host raises here, before anything has begun.
        self.memories = [each.byte_array for each in objects]
        self.forms = [form_of(each.get_shapes(), each.get_dtypes()) for each in objects]
        self.left = 1
        """Copies in flight, and one until all have begun."""
        self.good: set[int] = set()
        """The objects that are stored or were loaded, by position."""
        self.moved: list[int] = []
        """Those of them that were copied."""
        self.bytes = 0


class Copy:
    """An object between LMCache's memory and a store, in a run of its own."""

    def __init__(self, memory: Any) -> None:
        self.size = len(memory)
        with kvmem.Region.adopt(memory) as region:
            self._layout = kvmem.Layout.of_regions(shape_of(1, 1, self.size, "BLC"), [region])
        self._starting = threading.Lock()
        self._transfer: kvmem.Transfer | None = None
        self._ending = Ending()
        self.error: kvmem.Error | None = None

    def start(
        self,
        put_or_get: Callable[..., kvmem.StoreRun],
        key: bytes,
        queue: kvmem.Queue,
        timeout: float,
        ended: Callable[[Copy], None],
        late: Callable[[kvmem.Error], None],
    ) -> bool:
        """Starts the run, of which the queue reports the end. Returns whether there is one: a put of an object that is stored, and a get of
        one that is not, have none. `late` gets the error of a run that still uses the memory after its end."""
        with self._starting:  # the queue may report the end on another thread at once
            started = put_or_get(
                self._layout,
                [key],
                [0],
                queue=queue,
                transfer_flags=kvmem.TransferFlags.REPORT_RELEASE,
                run_timeout=timeout,
                user_data=lambda completion: self._report(completion, ended, late),
            )
            self._transfer = started.transfer
        return self._transfer is not None

    def _report(self, completion: kvmem.Completion, ended: Callable[[Copy], None], late: Callable[[kvmem.Error], None]) -> None:
        if not self._ending.is_over(completion):
            if completion.error is not None:
                late(completion.error)
            return
        with self._starting:
            self.error = self._ending.failure()
        ended(self)

    def cancel(self) -> None:
        """Cancels what has not started."""
        if self._transfer is not None:
            self._transfer.cancel()

    def close(self) -> None:
        """Ends the use of the object's memory."""
        if self._transfer is not None:
            self._transfer.close()
        self._layout.close()


class Lane:
    """Tasks of one kind, in one queue, whose fd LMCache polls.

    LMCache reads the fd before it asks for results. The queue permits that: it signals the fd when it becomes nonempty, and `collect`
    empties it. A task may end without a run, or be found while LMCache asks for another one: then `signal` makes the fd readable."""

    def __init__(self) -> None:
        self.queue = kvmem.Queue()
        self.fd = self.queue.fileno()
        self._lock = threading.Lock()
        self._closed = False
        self._done: dict[int, Any] = {}
        self._copies: set[Copy] = set()

    def start(
        self,
        copy: Copy,
        put_or_get: Callable[..., kvmem.StoreRun],
        key: bytes,
        timeout: float,
        ended: Callable[[Copy], None],
        late: Callable[[kvmem.Error], None],
    ) -> bool:
        """Starts a copy, and calls `ended` in `collect` when it has ended, and `late` before that if its run was late. Returns whether there is
        anything to copy."""

        def end(copy: Copy) -> None:
            with self._lock:
                self._copies.discard(copy)
            ended(copy)

        with self._lock:
            self._copies.add(copy)
        begun = False
        try:
            begun = copy.start(put_or_get, key, self.queue, timeout, end, late)
        finally:
            if not begun:
                with self._lock:
                    self._copies.discard(copy)
                copy.close()
        return begun

    def finish(self, number: int, result: Any) -> None:
        """A task has ended."""
        with self._lock:
            self._done[number] = result
        self.signal()

    def signal(self) -> None:
        """Makes the fd readable. After the close, its number may be that of another file of the process."""
        with self._lock:
            if not self._closed:
                os.eventfd_write(self.fd, 1)

    def collect(self) -> None:
        """Ends the copies that the queue reports."""
        self.queue.dispatch()

    def take(self, number: int) -> Any:
        """The result of a task; None if it has not ended."""
        with self._lock:
            return self._done.pop(number, None)

    def take_all(self) -> dict[int, Any]:
        """The results of all tasks that have ended."""
        with self._lock:
            taken, self._done = self._done, {}
        return taken

    def close(self, timeout: float) -> None:
        """Cancels the copies in flight, and waits for their ends. Closes the fd."""
        with self._lock:
            for copy in self._copies:
                with contextlib.suppress(kvmem.InvalidState):  # another thread has not started it yet
                    copy.cancel()
        end = time.monotonic() + timeout
        while self._copies and time.monotonic() < end:
            self.queue.dispatch(max(end - time.monotonic(), 0.001))
        with self._lock:
            self._closed = True
            self.queue.close()

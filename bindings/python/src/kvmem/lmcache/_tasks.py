# SPDX-License-Identifier: Apache-2.0
"""Tasks of LMCache: copies of objects, whose ends a queue reports."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kvmem
from kvmem._blocks._files import shape_of
from kvmem.lmcache._objects import form_of


class Task:
    """What LMCache has asked for at once: objects that move, each in a run of its own."""

    def __init__(self, number: int, keys: Sequence[Any], objects: Sequence[Any]) -> None:
        self.number, self.keys = number, keys
        # Memory that is not of the host raises here, before any slot is in use.
        self.memories = [each.byte_array for each in objects]
        self.forms = [form_of(each) for each in objects]
        self.left = 0
        """Copies in flight."""
        self.good: set[int] = set()
        """The objects that were copied, by position."""
        self.bytes = 0
        self.slots: dict[int, int] = {}
        """Slots in use, by position."""
        self.written: dict[int, tuple[int, ...]] = {}
        """Slots that were written, with their checksums and the forms of their objects."""


class Copy:
    """An object and its slot, in a run of its own."""

    def __init__(self, memory: Any, slots: kvmem.Layout, identity: bytes, queue: kvmem.Queue, stores: bool) -> None:
        self.size = len(memory)
        with kvmem.Region.adopt(memory) as region:
            self._layout = kvmem.Layout.of_regions(shape_of(1, 1, self.size, "BLC", identity), [region])
        source, destination = (self._layout, slots) if stores else (slots, self._layout)
        try:
            self._transfer = kvmem.Transfer(source, destination, queue=queue, flags=kvmem.TransferFlags.REPORT_RELEASE)
        except BaseException:
            self._layout.close()
            raise
        self.error: kvmem.Error | None = None

    def start(self, slot: int, stores: bool, checksum: int | None, timeout: float, ended: Callable[[Copy], None]) -> None:
        """Starts the run, of which the queue reports the end."""
        try:
            self._transfer.submit(
                [(0, slot) if stores else (slot, 0)],
                flags=kvmem.SubmitFlags.CHECKSUM if stores else kvmem.SubmitFlags(0),
                checksums=None if checksum is None else [checksum],
                run_timeout=timeout,
                user_data=lambda completion: self._report(completion, ended),
            )
        except BaseException:
            self.close()
            raise

    def _report(self, completion: kvmem.Completion, ended: Callable[[Copy], None]) -> None:
        if completion.kind == kvmem.CompletionKind.RUN_ENDED:
            self.error = completion.error
            if not completion.released:
                return  # a late run still uses LMCache's memory: its release is reported, too
        ended(self)

    def checksum(self) -> int:
        """Of the bytes that were stored."""
        return self._transfer.checksums()[0]

    def cancel(self) -> None:
        """Cancels what has not started."""
        self._transfer.cancel()

    def close(self) -> None:
        """Ends the use of the object's memory."""
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
        self._done: dict[int, Any] = {}
        self._copies: set[Copy] = set()

    def start(self, copy: Copy, slot: int, stores: bool, checksum: int | None, timeout: float, ended: Callable[[Copy], None]) -> None:
        """Starts a copy, and calls `ended` in `collect` when it has ended."""

        def end(copy: Copy) -> None:
            with self._lock:
                self._copies.discard(copy)
            ended(copy)

        with self._lock:
            self._copies.add(copy)
        try:
            copy.start(slot, stores, checksum, timeout, end)
        except BaseException:
            with self._lock:
                self._copies.discard(copy)
            raise

    def finish(self, number: int, result: Any) -> None:
        """A task has ended."""
        with self._lock:
            self._done[number] = result
        self.signal()

    def signal(self) -> None:
        """Makes the fd readable."""
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
                copy.cancel()
        end = time.monotonic() + timeout
        while self._copies and time.monotonic() < end:
            self.queue.dispatch(max(end - time.monotonic(), 0.001))
        self.queue.close()

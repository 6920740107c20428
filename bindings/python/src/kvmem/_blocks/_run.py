# SPDX-License-Identifier: Apache-2.0
"""A put or get on its way, and which of its blocks have not moved."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import kvmem


class Run:
    """Blocks that move together. It does not wait, except in `wait` and `abort`."""

    error: kvmem.Error | None = None
    """How it has failed."""

    def __init__(self, started: kvmem.StoreRun, timeout: float) -> None:
        self._transfer, self.count, self._timeout = started.transfer, started.num_moved, timeout
        self._begun, self._cancelled = time.monotonic(), False

    def ended(self) -> bool:
        """Whether nothing is in flight any more that writes to the engine's blocks. A get that is late is cancelled, and ends when the parts
        that have started have ended: a deadline of the run itself, which a put has, would end it earlier."""
        if self._transfer is None:
            return True
        try:
            if self._transfer.poll():
                return True
        except kvmem.Error as error:
            self.error = error
            return True
        if not self._cancelled and time.monotonic() - self._begun > self._timeout:
            self._cancelled = True
            self._transfer.cancel()
        return False

    def wait(self) -> None:
        """Waits for the end. The wait ends soon after the timeout, unless the disk does not end what it has begun."""
        while not self.ended():
            assert self._transfer is not None
            left = self._timeout - (time.monotonic() - self._begun)
            try:
                self._transfer.wait(None if self._cancelled else max(left, 0.001))
            except kvmem.Error:
                pass  # `ended` reports it, or cancels the run

    @property
    def is_damaged(self) -> bool:
        """Whether bytes were not those that were stored."""
        return isinstance(self.error, kvmem.Corrupt)

    def lost(self) -> list[int]:
        """The indices of the blocks that were not moved, of those that the run moves: all, if that is not known."""
        if self.error is None:
            return []
        every = list(range(self.count))
        if not self.is_damaged or self._transfer is None:
            return every
        return self._transfer.mismatches() or every

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return self._transfer.info.bytes if self._transfer is not None else 0

    @property
    def bytes_moved(self) -> int:
        """Of the blocks that were moved."""
        good = self.count - len(self.lost())
        return self.bytes // self.count * good if good else 0

    def close(self) -> None:
        """Ends the use of the transfer."""
        if self._transfer is not None:
            self._transfer.close()

    def abort(self) -> None:
        """Cancels the run, and waits for its end up to the timeout."""
        if self._transfer is not None:
            try:
                self._transfer.cancel()
                self._transfer.wait(self._timeout)
            except kvmem.Error:
                pass  # nothing waits for it any more
            self._transfer.close()


class Ending:
    """The end of a run that a queue reports: when it no longer uses the engine's blocks, which after a timeout is later than its own end."""

    _end: kvmem.Completion | None = None

    def is_over(self, completion: kvmem.Completion) -> bool:
        """Takes a completion of the run, whose call may not have returned yet on another thread. Returns whether it is the last one."""
        if completion.kind == kvmem.CompletionKind.RUN_ENDED:
            self._end = completion
            return completion.released  # a late run still uses the memory: its release is reported, too
        return True

    def failure(self) -> kvmem.Error | None:
        """How the run has failed. Its call has returned."""
        return None if self._end is None else self._end.error


class ReportedRun(Run):
    """A run whose end a queue reports. It may be started on one thread, and its end taken on another one by `dispatch` of the queue."""

    def __init__(self, put_or_get: Callable[..., kvmem.StoreRun], *arguments: Any, queue: kvmem.Queue, timeout: float, **how: Any) -> None:
        self._ending, self._is_over = Ending(), False
        flags = kvmem.TransferFlags.REPORT_RELEASE
        super().__init__(put_or_get(*arguments, queue=queue, transfer_flags=flags, run_timeout=timeout, user_data=self._report, **how), timeout)

    def _report(self, completion: kvmem.Completion) -> None:
        if self._ending.is_over(completion):
            self._is_over = True

    def ended(self) -> bool:
        """Whether nothing uses the engine's blocks any more, or nothing is to be moved."""
        if self._is_over and self.error is None:
            self.error = self._ending.failure()
        return self._transfer is None or self._is_over

    def late(self) -> kvmem.Error | None:
        """How the run has failed, if it still uses the engine's blocks."""
        return None if self.ended() else self._ending.failure()

    def cancel(self) -> None:
        """Cancels what has not started. The queue reports the end."""
        if self._transfer is not None:
            self._transfer.cancel()

# SPDX-License-Identifier: Apache-2.0
"""Copies of blocks between an engine's memory and a store, in one run, and which of them are damaged."""

from __future__ import annotations

import time
from collections.abc import Sequence

import kvmem


class Run:
    """Pairs (source, destination) that move together. It does not wait, except in `wait` and for the checksums of a damaged load."""

    def __init__(
        self, mover: Mover, stores: bool, pairs: Sequence[tuple[int, int]], sums: Sequence[int] | None, timeout: float
    ) -> None:
        self._mover, self._stores, self._pairs, self._sums, self._timeout = mover, stores, pairs, sums, timeout
        self._begun, self._cancelled = time.monotonic(), False
        self.error: kvmem.Error | None = None
        """How it has failed."""
        self._transfer = mover.take(stores)
        flags = kvmem.SubmitFlags.CHECKSUM if stores else kvmem.SubmitFlags(0)
        try:
            self._transfer.submit(pairs, checksums=sums, flags=flags)
        except BaseException:
            self._transfer.close()
            raise

    def ended(self) -> bool:
        """Whether nothing is in flight any more. A run that is late is cancelled, and ends when the parts that have started have ended: a
        deadline of the run itself would end it earlier, while the engine's blocks and the slots may still be written."""
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
            left = self._timeout - (time.monotonic() - self._begun)
            try:
                self._transfer.wait(None if self._cancelled else max(left, 0.001))
            except kvmem.Error:
                pass  # `ended` reports it, or cancels the run

    def checksums(self) -> list[int]:
        """Of each block that was stored."""
        return self._transfer.checksums()

    @property
    def is_damaged(self) -> bool:
        """Whether bytes were not those that were stored."""
        return isinstance(self.error, kvmem.Corrupt)

    def lost(self) -> list[int]:
        """The indices of the pairs that were not moved: those whose bytes are damaged, or all if that cannot be found out."""
        if self.error is None:
            return []
        every = list(range(len(self._pairs)))
        if not self.is_damaged or self._sums is None:
            return every
        try:
            found = self._mover.cache.checksums([block for _, block in self._pairs], timeout=self._timeout)
        except kvmem.Error:
            return every
        return [at for at, expected in enumerate(self._sums) if found[at] != expected] or every

    @property
    def bytes(self) -> int:
        """Of all pairs."""
        return self._transfer.info.bytes

    def close(self) -> None:
        """Ends the use of the transfer. One that has failed may have work in flight, and is not used again."""
        if self.error is None:
            self._mover.give_back(self._stores, self._transfer)
        else:
            self._transfer.close()

    def abort(self) -> None:
        """Cancels the run, and waits for its end up to the timeout."""
        try:
            self._transfer.cancel()
            self._transfer.wait(self._timeout)
        except kvmem.Error:
            pass  # nothing waits for it any more
        self._transfer.close()


class Mover:
    """Starts runs between the engine's memory and a store."""

    def __init__(self, cache: kvmem.Layout, store: kvmem.Layout, timeout: float) -> None:
        self.cache, self._store, self._timeout = cache, store, timeout
        self._idle: dict[bool, list[kvmem.Transfer]] = {True: [], False: []}

    def load(self, pairs: Sequence[tuple[int, int]], sums: Sequence[int] | None) -> Run:
        """Loads pairs (slot, block). With checksums, a block whose bytes differ is damaged."""
        return Run(self, False, pairs, sums, self._timeout)

    def store(self, pairs: Sequence[tuple[int, int]]) -> Run:
        """Stores pairs (block, slot)."""
        return Run(self, True, pairs, None, self._timeout)

    def take(self, stores: bool) -> kvmem.Transfer:
        """A transfer that no run uses."""
        try:
            return self._idle[stores].pop()  # another thread may take the last one
        except IndexError:
            return kvmem.Transfer(self.cache, self._store) if stores else kvmem.Transfer(self._store, self.cache)

    def give_back(self, stores: bool, transfer: kvmem.Transfer) -> None:
        """Keeps a transfer for the next run."""
        self._idle[stores].append(transfer)

    def close(self) -> None:
        """Closes the layouts. No run may be in flight."""
        for idle in self._idle.values():
            for transfer in idle:
                transfer.close()
        self.cache.close()
        self._store.close()

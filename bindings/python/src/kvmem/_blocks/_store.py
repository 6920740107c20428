# SPDX-License-Identifier: Apache-2.0
"""Blocks under keys of one process, whose threads may share it. vLLM's scheduler and workers are processes of their own, and use the
index and the files without it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvmem._blocks._counters import add
from kvmem._blocks._index import Folder, Index, Stored


class BlockStore:
    """The index of a store, with its folder, and counters. It moves no bytes.

    With `reports_removed`, the caller calls `take_removed` from time to time."""

    def __init__(self, capacity: int, folder: Folder | None, *, reports_removed: bool = False) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._removed: list[bytes] = []
        self._index = Index(capacity, folder.file if folder else None, 0, self._removed.append if reports_removed else None)
        self._capacity = capacity
        self._counters: dict[str, Any] = {}

    def has(self, keys: Iterable[bytes]) -> list[bool]:
        """Whether each block is stored."""
        with self._lock:
            return [key in self._index for key in keys]

    def pin(self, keys: Iterable[bytes]) -> list[Stored | None]:
        """The blocks that are stored, which are not evicted until `unpin`."""
        with self._lock:
            return [self._index.pin(key) for key in keys]

    def unpin(self, slots: Iterable[int]) -> None:
        """Ends one `pin` of each slot."""
        with self._lock:
            for slot in slots:
                self._index.unpin(slot)

    def reserve(self, keys: Sequence[bytes]) -> tuple[dict[int, int], list[int]]:
        """Slots for blocks to write, by the position of their key. Also the positions for which there is none. The others are stored
        already, or are being written."""
        slots: dict[int, int] = {}
        without: list[int] = []
        with self._lock:
            for at, key in enumerate(keys):
                if not self._index.knows(key):
                    slot = self._index.reserve(key)
                    if slot is None:
                        without.append(at)
                    else:
                        slots[at] = slot
        return slots, without

    def commit(self, written: Mapping[int, tuple[int, ...]]) -> None:
        """Slots that have been written, with their checksums."""
        with self._lock:
            for slot, sums in written.items():
                self._index.commit(slot, sums)
            if self._folder is not None:
                self._folder.commit()

    def abandon(self, slots: Iterable[int]) -> None:
        """Slots that could not be written."""
        with self._lock:
            for slot in slots:
                self._index.abandon(slot)

    def forget(self, slots: Iterable[int]) -> None:
        """Removes blocks, such as damaged ones."""
        with self._lock:
            for slot in slots:
                self._index.forget(slot)

    def delete(self, keys: Iterable[bytes]) -> None:
        """Removes blocks by their keys."""
        with self._lock:
            for key in keys:
                found = self._index.pin(key)
                if found is not None:
                    self._index.forget(found.slot)
                    self._index.unpin(found.slot)

    def clear(self) -> None:
        """Removes all blocks."""
        with self._lock:
            self._index.clear()

    def take_removed(self) -> list[bytes]:
        """The keys of blocks that were evicted or removed since the last call."""
        with self._lock:
            taken = list(self._removed)
            self._removed.clear()
        return taken

    def count(self, **counters: float) -> None:
        """Adds to the counters."""
        with self._lock:
            add(self._counters, counters)

    def status(self) -> dict[str, Any]:
        """Counters, and how many blocks there are."""
        with self._lock:
            return {"blocks": len(self._index), "capacity_blocks": self._capacity, **self._counters}

    def close(self) -> None:
        """Lets another process use the folder."""
        with self._lock:
            if self._folder is not None:
                self._folder.close()

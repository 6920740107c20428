# SPDX-License-Identifier: Apache-2.0
"""The store of blocks of one size, and what has left it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import kvmem
from kvmem._blocks._run import Run


def longest(run: Iterable[bool]) -> int:
    """How many of the first are true."""
    return sum(1 for _ in itertools.takewhile(bool, run))


def others_in(folder: str, names: Iterable[str]) -> tuple[list[str], int]:
    """The stores of groups in a folder that have none of these names, and their bytes on the disk."""
    found = sorted({name for name in os.listdir(folder) if name.startswith("group-")}.difference(names))
    files = [os.path.join(parent, file) for each in found for parent, _, inside in os.walk(os.path.join(folder, each)) for file in inside]
    return found, sum(os.stat(file).st_blocks * 512 for file in files)


class BlockStore:
    """Blocks under keys in a folder. Threads may share it.

    The store evicts by itself, and counts what it evicts. So `vanished` compares its keys with those that the owner knows, which
    `note` and `forget` keep. It does so after each 64th part of the blocks was evicted, because it looks at all of them."""

    def __init__(self, path: str, shape: kvmem.Shape, identity: Mapping[str, str], timeout: float, *, read_only: bool = False) -> None:
        """`shape` is that of the slots, and of their number; 0 for that of an existing store. With `read_only`, another process writes it."""
        # Each get compares checksums, so what a loss of power takes is a miss, and no put waits for the disk. The page cache has blocks
        # that were stored recently.
        how: dict[str, Any] = {"durability": kvmem.Durability.NONE, "flags": kvmem.DiskFlags.BUFFERED}
        if read_only:
            how = {"flags": kvmem.DiskFlags.BUFFERED | kvmem.DiskFlags.OPEN_EXISTING | kvmem.DiskFlags.READ_ONLY}
        try:
            if not read_only:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._store = kvmem.Store(path, shape, identity=identity, timeout=timeout, **how)
        except kvmem.Busy as error:
            advice = "start again" if read_only else "set another path, or end that engine"
            raise ValueError(f"kvmem: another engine uses the folder ({error}): {advice}") from error
        except kvmem.NotFound as error:
            advice = "start the engine that writes the blocks first, or set another path" if read_only else "set another path"
            raise ValueError(f"kvmem: there is no folder for the blocks ({error}): {advice}") from error
        except (OSError, kvmem.Error) as error:
            raise ValueError(f"kvmem: the folder of blocks cannot be used ({error}): set another path, or remove the folder") from error
        self._timeout, self._lock = timeout, threading.Lock()
        self._known = set(self._store.keys())
        self._gone = 0

    @property
    def info(self) -> kvmem.StoreInfo:
        """Properties, and what happened since the store was opened."""
        return self._store.info

    @property
    def capacity(self) -> int:
        """Slots."""
        return self._store.info.num_slots

    def __len__(self) -> int:
        return self._store.info.num_stored

    def keys(self) -> list[bytes]:
        """Of all blocks."""
        return self._store.keys()

    def has(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each block is stored."""
        return self._store.contains(keys) if keys else []

    def put(
        self, source: kvmem.Layout, keys: Sequence[bytes], blocks: Sequence[int], *, parent: bytes | None = None, related: bool = False, **how: Any
    ) -> kvmem.StoreRun:
        """Starts to store blocks that are not stored. With `related`, each key continues the one before it.

        Neither the eviction of others, which the call waits for, nor the run takes longer than the timeout. A late run still reads the
        blocks, and stores none of them."""
        how.setdefault("run_timeout", self._timeout)
        flags = kvmem.StoreFlags(0) if related else kvmem.StoreFlags.UNRELATED
        return self._store.put(source, keys, blocks, parent=parent, flags=flags, **how)

    def get(self, destination: kvmem.Layout, keys: Sequence[bytes], blocks: Sequence[int], **how: Any) -> kvmem.StoreRun:
        """Starts to load the blocks of the first keys, up to the first that is not stored."""
        return self._store.get(destination, keys, blocks, **how)

    def run(self, started: kvmem.StoreRun) -> Run:
        """A put or get that the caller polls."""
        return Run(started, self._timeout)

    def pin(self, keys: Sequence[bytes]) -> None:
        """Blocks are not evicted until `unpin`."""
        if keys:
            self._store.pin(keys)

    def unpin(self, keys: Sequence[bytes]) -> None:
        """Ends each `pin` of the blocks."""
        if keys:
            self._store.unpin(keys)

    def remove(self, keys: Sequence[bytes]) -> list[bytes]:
        """Removes blocks. Returns those that cannot be removed yet, because a get reads them."""
        return self._removed(keys, time.monotonic() + self._timeout)

    def _removed(self, keys: Sequence[bytes], end: float) -> list[bytes]:
        if not keys:
            return []
        try:
            self._store.remove(keys, max(end - time.monotonic(), 0))
        except kvmem.Busy:
            return list(keys) if len(keys) == 1 else [left for key in keys for left in self._removed([key], end)]
        except kvmem.TimedOut:
            return list(keys)  # perhaps later
        except kvmem.Error:
            pass  # the index cannot be written: the blocks are removed in this process
        self.forget(keys)
        return []

    def clear(self) -> list[bytes]:
        """Removes all blocks. Returns those that cannot be removed yet."""
        return self.remove(self.keys())

    # ---- what the owner knows ----

    def note(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of the keys that are stored. The owner knows them now."""
        found = [key for key, is_stored in zip(keys, self.has(keys)) if is_stored]
        with self._lock:
            self._known.update(found)
        return found

    def forget(self, keys: Sequence[bytes]) -> None:
        """The owner knows that these are not stored."""
        with self._lock:
            self._known.difference_update(keys)

    def vanished(self) -> list[bytes]:
        """Known keys that are no longer stored. The owner knows that now."""
        info = self._store.info
        with self._lock:
            if info.num_evicted + info.num_damaged - self._gone <= info.num_slots // 64:
                return []
            self._gone = info.num_evicted + info.num_damaged
            gone = self._known.difference(self._store.keys())
            self._known -= gone
        return list(gone)

    def close(self) -> None:
        """Closes the store when its runs have ended: then another engine can use the folder."""
        self._store.close()

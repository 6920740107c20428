# SPDX-License-Identifier: Apache-2.0
"""Which block is in which slot: the index of a store, with the file beside it that the next engine reads.

This is the place for the store of the library (src/store/) when it has functions: it replaces this module, and nothing else."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Stored(NamedTuple):
    """A block in the store."""

    slot: int
    checksums: tuple[int, ...]
    """CRC32C of its bytes, per rank."""


class Index:
    """Blocks by key, in the slots of one store. The block that was used least recently is evicted.

    A slot is written before its entry, and an entry is removed before its slot is written again. So after a crash at any time
    each entry is that of a complete block; its checksums find what the disk has lost. If the file cannot be written, such as on a
    full disk, a new block is known to this process only, nothing is evicted, and the slot of a removed block is not used again."""

    def __init__(
        self, capacity: int, file: sqlite3.Connection | None = None, group: int = 0, removed: Callable[[bytes], object] | None = None
    ) -> None:
        self._capacity, self._file, self._group, self._removed = capacity, file, group, removed
        self._entries: OrderedDict[bytes, Stored] = OrderedDict()
        self._keys: dict[int, bytes] = {}
        self._writing: dict[int, bytes] = {}
        self._pending: set[bytes] = set()
        self._pins: dict[int, int] = {}
        self._doomed: set[int] = set()
        if file is not None:
            for slot, key, sums in file.execute("SELECT slot, key, checksums FROM blocks WHERE store = ? ORDER BY used", (group,)):
                if slot < capacity:
                    self._entries[key] = Stored(slot, struct.unpack(f"<{len(sums) // 4}I", sums))
                    self._keys[slot] = key
        self._free = [slot for slot in reversed(range(capacity)) if slot not in self._keys]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def knows(self, key: bytes) -> bool:
        """Whether the block is stored, or is being written."""
        return key in self._entries or key in self._pending

    def pin(self, key: bytes) -> Stored | None:
        """The block, which is not evicted until `unpin`; None if it is not stored."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            self._pins[found.slot] = self._pins.get(found.slot, 0) + 1
        return found

    def unpin(self, slot: int) -> None:
        """Ends one `pin`."""
        self._pins[slot] -= 1
        if not self._pins[slot]:
            del self._pins[slot]
            if slot in self._doomed:
                self._doomed.remove(slot)
                self._free.append(slot)

    def reserve(self, key: bytes) -> int | None:
        """A slot for a block that is written now; None if all are in use."""
        if not self._free:
            victim = next((found for found in self._entries.values() if found.slot not in self._pins), None)
            if victim is None:
                return None
            if not self._erase(victim.slot):
                return None
            self._drop(victim.slot, True)
        slot = self._free.pop()
        self._writing[slot] = key
        self._pending.add(key)
        return slot

    def commit(self, slot: int, checksums: tuple[int, ...]) -> None:
        """The slot has been written by all ranks."""
        key = self._writing.pop(slot)
        self._pending.discard(key)
        self._entries[key] = Stored(slot, checksums)
        self._keys[slot] = key
        packed = struct.pack(f"<{len(checksums)}I", *checksums)
        self._write(
            "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, (SELECT COALESCE(MAX(used), 0) + 1 FROM blocks))",
            (self._group, slot, key, packed),
        )

    def _write(self, statement: str, values: tuple[object, ...]) -> bool:
        """Whether the file has the change."""
        if self._file is None:
            return True
        try:
            self._file.execute(statement, values)
            return True
        except sqlite3.Error:
            return False

    def abandon(self, slot: int) -> None:
        """The slot could not be written."""
        self._pending.discard(self._writing.pop(slot))
        self._free.append(slot)

    def forget(self, slot: int) -> None:
        """Removes a block, such as a damaged one. A slot that is being read is used again after that."""
        if slot in self._keys:
            self._drop(slot, self._erase(slot))

    def _erase(self, slot: int) -> bool:
        """Whether the file has the slot's entry no more, so that the slot may be written again."""
        return self._write("DELETE FROM blocks WHERE store = ? AND slot = ?", (self._group, slot)) and commit(self._file)

    def _drop(self, slot: int, is_erased: bool) -> None:
        key = self._keys.pop(slot)
        del self._entries[key]
        if self._removed is not None:
            self._removed(key)
        if is_erased:
            if slot in self._pins:
                self._doomed.add(slot)
            else:
                self._free.append(slot)

    def clear(self) -> None:
        """Removes all blocks that are not being read or written."""
        for slot in list(self._keys):
            self.forget(slot)


class Folder:
    """The folder of a store: its lock, its identity and the file of its index."""

    def __init__(self, path: str, identity: Mapping[str, str]) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        self._lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ValueError(f"kvmem: another engine uses the folder {path}: set another path") from None
        try:
            self.file = sqlite3.connect(os.path.join(path, "index.sqlite"), check_same_thread=False)
            self.file.execute("PRAGMA journal_mode = WAL")
            self.file.execute("PRAGMA synchronous = OFF")
            self.file.execute("CREATE TABLE IF NOT EXISTS identity (text TEXT)")
            self.file.execute(
                "CREATE TABLE IF NOT EXISTS blocks (store INTEGER, slot INTEGER, key BLOB, checksums BLOB, used INTEGER, PRIMARY KEY (store, slot))"
            )
            self.file.execute("CREATE INDEX IF NOT EXISTS keys ON blocks (store, key)")  # for processes that only read
            self._check(path, identity)
        except sqlite3.DatabaseError as error:
            self.close()
            raise ValueError(f"kvmem: the index in {path} cannot be read ({error}): remove the folder, or set another path") from error
        except BaseException:
            self.close()
            raise

    def _check(self, path: str, identity: Mapping[str, str]) -> None:
        row = self.file.execute("SELECT text FROM identity").fetchone()
        if row is None:
            self.file.execute("INSERT INTO identity VALUES (?)", (json.dumps(dict(identity)),))
            self.file.commit()
            return
        _compare(path, json.loads(row[0]), identity)

    def commit(self) -> None:
        """Writes what has changed. It fails silently: the blocks are then those of this process only."""
        commit(self.file)

    def close(self) -> None:
        """Closes the index, and lets another engine use the folder."""
        if hasattr(self, "file"):
            commit(self.file)
            self.file.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def commit(file: sqlite3.Connection | None) -> bool:
    """Whether all changes are in the file. Those of a full disk are tried again with the next ones."""
    try:
        if file is not None:
            file.commit()
        return True
    except sqlite3.Error:
        return False


def check_identity(path: str, identity: Mapping[str, str]) -> None:
    """Raises if a folder is that of another engine. Workers open their files before the scheduler opens the folder."""
    file = os.path.join(path, "index.sqlite")
    if not os.path.exists(file):
        return
    try:
        with contextlib.closing(sqlite3.connect(file)) as index:
            row = index.execute("SELECT text FROM identity").fetchone()
    except sqlite3.DatabaseError:
        return  # the scheduler's side says so, or has just created the file
    if row is not None:
        _compare(path, json.loads(row[0]), identity)


def _compare(path: str, found: Mapping[str, str], identity: Mapping[str, str]) -> None:
    differences = [f"{name} {found.get(name, 'unknown')}, not {value}" for name, value in identity.items() if found.get(name) != value]
    if differences:
        raise ValueError(f"kvmem: the blocks in {path} are of an engine with {'; '.join(differences)}: set another path, or remove the folder")


def longest(run: Iterable[bool]) -> int:
    """How many of the first are true."""
    count = 0
    for each in run:
        if not each:
            break
        count += 1
    return count

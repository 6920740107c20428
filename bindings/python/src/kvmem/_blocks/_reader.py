# SPDX-License-Identifier: Apache-2.0
"""The index of a store that another process writes."""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvmem._blocks._counters import add
from kvmem._blocks._index import Stored, check_identity


class ReadIndex:
    """Looks up blocks in the file of the index. Its owner may write a slot again while it is read here: checksums find that, so they
    must be compared."""

    def __init__(self, path: str, identity: Mapping[str, str]) -> None:
        check_identity(path, identity)
        file = urllib.parse.quote(os.path.abspath(os.path.join(path, "index.sqlite")))
        self._file = sqlite3.connect(f"file:{file}?mode=ro", uri=True, check_same_thread=False)
        self._lock = threading.Lock()
        self._counters: dict[str, Any] = {}

    def pin(self, keys: Sequence[bytes]) -> list[Stored | None]:
        """The blocks that are stored now. They are not kept."""
        with self._lock:
            try:
                return [self._find(key) for key in keys]
            except sqlite3.Error:
                return [None for _ in keys]

    def _find(self, key: bytes) -> Stored | None:
        row = self._file.execute("SELECT slot, checksums FROM blocks WHERE store = 0 AND key = ?", (key,)).fetchone()
        return None if row is None else Stored(row[0], struct.unpack(f"<{len(row[1]) // 4}I", row[1]))

    def has(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each block is stored."""
        return [found is not None for found in self.pin(keys)]

    def unpin(self, slots: Iterable[int]) -> None:
        """Nothing."""

    def forget(self, slots: Iterable[int]) -> None:
        """Nothing: the owner finds damaged blocks, too."""

    def count(self, **counters: float) -> None:
        """Adds to the counters."""
        with self._lock:
            add(self._counters, counters)

    def status(self) -> dict[str, Any]:
        """Counters of this process."""
        with self._lock:
            return dict(self._counters)

    def clear(self) -> None:
        """Nothing: the owner does."""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

# SPDX-License-Identifier: Apache-2.0
"""Objects of LMCache, in stores of which each has objects of one size, shape and type."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kvmem._blocks import _settings
from kvmem._blocks._counters import add
from kvmem._blocks._settings import GIB, Settings
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore

ALIGNMENT = 4096
MAX_KINDS = 64


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of the adapter."""

    object_kinds: int = 1
    """How many sizes and types of objects share capacity_gib: each has an equal part."""

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises if settings do not fit together."""
        super().check(given)
        if not 1 <= self.object_kinds <= MAX_KINDS:
            raise ValueError(f"kvmem: object_kinds is {self.object_kinds}: set a whole number from 1 to {MAX_KINDS}")


def parse(params: Mapping[str, Any]) -> Config:
    """Checks `adapter_params`."""
    return _settings.parse(Config, params, "adapter_params")


def key_of(key: Any) -> bytes:
    """What an ObjectKey is stored under."""
    parts = (key.model_name, str(key.kv_rank), str(key.object_group_id), key.cache_salt, key.chunk_hash.hex())
    return hashlib.sha256("@".join(parts).encode()).digest()


def form_of(shapes: Sequence[Any], dtypes: Sequence[Any]) -> str:
    """What an object's bytes mean, besides its key."""
    text = repr(([tuple(shape) for shape in shapes], [str(dtype) for dtype in dtypes]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Objects:
    """The stores of a server, by the size and the form of their objects. Threads may share them."""

    def __init__(self, config: Config) -> None:
        self._config, self._lock = config, threading.Lock()
        self._stores: dict[tuple[int, str], BlockStore] = {}
        self._counters: dict[str, Any] = {}
        self.folder = str(config.path)
        self._identity = {
            "engine": "LMCache", "capacity": f"{config.capacity_gib:g} GiB", "object kinds": str(config.object_kinds), "identity": config.identity or "none"
        }  # fmt: skip
        # An empty store, because those of objects may come later: it refuses another server and another identity at the start.
        self._server = BlockStore(os.path.join(self.folder, "server"), shape_of(1, 1, ALIGNMENT, "BLC"), self._identity, config.timeout_seconds)
        try:
            for path in sorted(glob.glob(os.path.join(glob.escape(self.folder), "objects-*-*"))):
                size, form = os.path.basename(path).split("-")[1:]
                self._stores[int(size), form] = self._open(int(size), form)
        except BaseException:
            self.close()
            raise

    def _open(self, size: int, form: str) -> BlockStore:
        kinds = self._config.object_kinds
        if len(self._stores) >= kinds:
            raise ValueError(
                f"kvmem: objects of {size:,} bytes are not stored, because capacity_gib is shared by object_kinds = {kinds} sizes and types, which there "
                "are: set object_kinds to more, and another path"
            )
        slot = -(-size // ALIGNMENT) * ALIGNMENT
        available = int(self._config.capacity_gib * GIB) // kinds
        capacity = available // slot
        if capacity < 1:
            raise ValueError(f"kvmem: capacity_gib has {available:,} bytes for each of {kinds} kinds, and an object needs {slot:,}: set more")
        path = os.path.join(self.folder, f"objects-{size}-{form}")
        return BlockStore(path, shape_of(capacity, 1, size, "BLC"), self._identity | {"objects": f"{size}-{form}"}, self._config.timeout_seconds)

    def prepare(self, size: int, form: str) -> BlockStore:
        """The store for an object, which is made for the first one. Raises ValueError if that is not possible."""
        with self._lock:
            found = self._stores.get((size, form))
            if found is None:
                found = self._stores[size, form] = self._open(size, form)
            return found

    def found(self, size: int, form: str) -> BlockStore | None:
        """The store for an object, if there is one."""
        with self._lock:
            return self._stores.get((size, form))

    def of(self, form: str | None = None) -> list[BlockStore]:
        """The stores of a form, or all."""
        with self._lock:
            return [store for (_, other), store in self._stores.items() if form in (None, other)]

    def count(self, **counters: float) -> None:
        """Adds to the counters."""
        with self._lock:
            add(self._counters, counters)

    def status(self) -> dict[str, Any]:
        """Counters, and how many objects there are."""
        stores = self.of()
        blocks = {"blocks": sum(len(store) for store in stores), "capacity_blocks": sum(store.capacity for store in stores)}
        with self._lock:
            return blocks | self._counters

    def close(self) -> None:
        """Lets another server use the folder."""
        for store in (*self.of(), self._server):
            store.close()

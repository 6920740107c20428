# SPDX-License-Identifier: Apache-2.0
"""Objects of LMCache, which differ in size, in slots of one size."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import threading
import zlib
from collections.abc import Mapping
from typing import Any

import kvmem
from kvmem._blocks import _settings
from kvmem._blocks._files import digest, shape_of, store_layout
from kvmem._blocks._index import Folder
from kvmem._blocks._settings import GIB, Settings
from kvmem._blocks._store import BlockStore

ALIGNMENT = 4096


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of the adapter."""

    block_bytes: int = 0
    """Bytes of the largest object, and so of each slot. 0: those of the first object that is stored."""


def parse(params: Mapping[str, Any]) -> Config:
    """Checks `adapter_params`."""
    config = _settings.parse(Config, params, "adapter_params")
    if config.block_bytes < 0:
        raise ValueError(f"kvmem: block_bytes is {config.block_bytes}: set the bytes of the largest object, or leave it out")
    return config


def key_of(key: Any) -> bytes:
    """What an ObjectKey is stored under."""
    parts = (key.model_name, str(key.kv_rank), str(key.object_group_id), key.cache_salt, key.chunk_hash.hex())
    return hashlib.sha256("@".join(parts).encode()).digest()


def form_of(memory: Any) -> int:
    """What an object's bytes mean, besides its key: objects of another shape or type are not loaded."""
    return zlib.crc32(repr((memory.get_size(), [tuple(shape) for shape in memory.get_shapes()], memory.get_dtypes())).encode())


class ObjectStore:
    """Slots and their index. Until the first object is known, there may be neither."""

    def __init__(self, config: Config) -> None:
        self._config, self._lock = config, threading.Lock()
        self._identity = {"engine": "LMCache", "capacity": f"{config.capacity_gib:g} GiB", "identity": config.identity or "none"}
        self.digest = digest(self._identity, 0)
        self._layouts: dict[int, kvmem.Layout] = {}
        self._slots: kvmem.Layout | None = None
        self.index: BlockStore | None = None
        self.block_bytes = 0
        self._folder = Folder(config.path, self._identity) if config.path else None
        try:
            block_bytes = self._found() or config.block_bytes
            if block_bytes:
                self._open(block_bytes)
        except BaseException:
            self.close()
            raise

    def _found(self) -> int:
        """The size of the slots that the folder has; 0 for none."""
        if self._config.path is None:
            return 0
        files = sorted(glob.glob(os.path.join(glob.escape(self._config.path), "objects-*.kvmem")))
        sizes = [int(os.path.basename(file)[len("objects-") : -len(".kvmem")]) for file in files]
        if not sizes:
            return 0
        asked = _aligned(self._config.block_bytes)
        if asked and sizes != [asked]:
            raise ValueError(
                f"kvmem: the objects in {self._config.path} have slots of {sizes[0]:,} bytes, and block_bytes asks for {asked:,}: "
                "leave block_bytes out, set another path, or remove the folder"
            )
        return sizes[0]

    def _open(self, block_bytes: int) -> None:
        block_bytes = _aligned(block_bytes)
        capacity = int(self._config.capacity_gib * GIB) // block_bytes
        if capacity < 1:
            raise ValueError(
                f"kvmem: capacity_gib has {int(self._config.capacity_gib * GIB):,} bytes, and an object needs {block_bytes:,}: set more"
            )
        path = self._config.path and os.path.join(self._config.path, f"objects-{block_bytes}.kvmem")
        self._slots = store_layout(capacity, 1, block_bytes, self.digest, path, False)
        self.block_bytes = block_bytes
        self.index = BlockStore(capacity, self._folder, reports_removed=True)

    def prepare(self, size: int) -> BlockStore:
        """The index for objects of this size. Raises ValueError if there is none."""
        with self._lock:
            if self.index is None:
                self._open(size)
        assert self.index is not None
        if size > self.block_bytes:
            raise ValueError(
                f"kvmem: an object has {size:,} bytes, and slots have {self.block_bytes:,}: set block_bytes to at least {size:,}, and remove the folder"
            )
        return self.index

    def slots(self, size: int) -> kvmem.Layout:
        """The slots as blocks of this size."""
        with self._lock:
            found = self._layouts.get(size)
            if found is None:
                assert self._slots is not None
                info = self._slots.info
                with self._slots.region(0) as region:
                    found = kvmem.Layout.of_regions(shape_of(info.num_blocks, 1, size, "BLC", self.digest, self.block_bytes), [region])
                self._layouts[size] = found
            return found

    def close(self) -> None:
        """Closes the file and the folder."""
        for layout in self._layouts.values():
            layout.close()
        self._layouts.clear()
        if self._slots is not None:
            self._slots.close()
        if self._folder is not None:
            self._folder.close()


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

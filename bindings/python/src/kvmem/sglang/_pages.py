# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, unused-ignore"
# pyright: reportMissingImports=false
"""The pages of a host pool of SGLang as a layout, and their store."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import kvmem
from kvmem._blocks._files import digest, shape_of, store_layout
from kvmem._blocks._index import Folder
from kvmem._blocks._reader import ReadIndex
from kvmem._blocks._run import Mover
from kvmem._blocks._settings import Settings
from kvmem._blocks._store import BlockStore


class Piece(NamedTuple):
    """Contiguous bytes of each page, with one distance between all pages."""

    address: int
    size: int
    stride: int


def pieces_of(pool: Any) -> list[Piece]:
    """Where the bytes of a page are, from the addresses that the pool gives for zero-copy I/O: so each class and layout of pools works that
    has them. The distance between pages is that of the first two, and the last page must agree."""
    import torch

    tokens, pages = int(pool.logical_page_size), int(pool.page_num)
    label = getattr(pool, "pool_label", type(pool).__name__)

    def places(page: int) -> list[tuple[int, int]]:
        return list(zip(*pool.get_page_buffer_meta(torch.arange(page * tokens, (page + 1) * tokens))))

    try:
        first, second, last = places(0), places(min(1, pages - 1)), places(pages - 1)
    except (ValueError, NotImplementedError, AttributeError, TypeError) as error:
        raise ValueError(
            f"kvmem: the {label} pool gives no addresses of pages in the layout {pool.layout} ({error}): set --hicache-mem-layout to page_first"
        ) from error
    found = [Piece(address, size, after - address) for (address, size), (after, _) in zip(first, second)]
    if [piece.address + (pages - 1) * piece.stride for piece in found] != [address for address, _ in last]:
        raise ValueError(f"kvmem: the pages of the {label} pool have no fixed distance: set --hicache-mem-layout to page_first")
    return found


def pool_layout(pool: Any, pieces: Sequence[Piece], identity: bytes) -> kvmem.Layout:
    """The pages of the pool. Pieces of one size are a part of the layout."""
    parts: dict[str, kvmem.Layout] = {}
    try:
        for size in sorted({piece.size for piece in pieces}):
            alike = [piece for piece in pieces if piece.size == size]
            parts[str(size)] = _part(pool, alike, identity)
        return _combined(parts)
    finally:
        for part in parts.values():
            part.close()


def _part(pool: Any, pieces: Sequence[Piece], identity: bytes) -> kvmem.Layout:
    pages, piece = int(pool.page_num), pieces[0]
    regions: list[kvmem.Region] = []
    try:
        for each in pieces:
            memory = (ctypes.c_uint8 * ((pages - 1) * each.stride + each.size)).from_address(each.address)
            memory.pool = pool  # type: ignore[attr-defined]  # it is kept as long as kvmem uses its memory
            regions.append(kvmem.Region.adopt(memory))
        return kvmem.Layout.of_regions(shape_of(pages, len(pieces), piece.size, "L/BC", identity, piece.stride), regions)
    finally:
        for region in regions:
            region.close()


def _combined(parts: Mapping[str, kvmem.Layout]) -> kvmem.Layout:
    return kvmem.Layout.combine(parts)


class PageStore:
    """The pages of one pool under keys. With `reads_only`, another rank stores them."""

    def __init__(
        self, settings: Settings, name: str, pool: Any, capacity: int, identity: Mapping[str, str], reads_only: bool = False
    ) -> None:
        self._settings, self._page_size, self.pool = settings, int(pool.logical_page_size), pool
        self._verify = settings.verify or reads_only
        pieces = pieces_of(pool)
        full = {
            **identity,
            "pool": type(pool).__name__,
            "layout": str(pool.layout),
            "dtype": str(pool.dtype),
            "page": f"{self._page_size} tokens, {', '.join(sorted({f'{piece.size}' for piece in pieces}))} bytes x {len(pieces)}",
            "format": str(getattr(pool, "storage_format_tag", None) or "none"),
            "capacity": f"{capacity} pages",
        }
        path = settings.path and os.path.join(settings.path, name)
        self._index: BlockStore | ReadIndex
        if reads_only:
            assert path is not None
            self._index = ReadIndex(path, full)
        else:
            self._index = BlockStore(capacity, Folder(path, full) if path else None)
        try:
            self._mover = self._open(pool, pieces, capacity, digest(full, 0), path, reads_only)
        except BaseException:
            self._index.close()
            raise

    def _open(self, pool: Any, pieces: Sequence[Piece], capacity: int, identity: bytes, path: str | None, reads_only: bool) -> Mover:
        parts: dict[str, kvmem.Layout] = {}
        cache = pool_layout(pool, pieces, identity)
        try:
            for size in sorted({piece.size for piece in pieces}):
                count = sum(piece.size == size for piece in pieces)
                file = path and os.path.join(path, f"pages-{size}.kvmem")
                parts[str(size)] = store_layout(capacity, count, size, identity, file, bool(pool.pin_memory), reads_only)
            return Mover(cache, _combined(parts), self._settings.timeout_seconds)
        except BaseException:
            cache.close()
            raise
        finally:
            for part in parts.values():
                part.close()

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Whether each page is stored."""
        return self._index.has([key.encode() for key in keys])

    def _pages(self, keys: Sequence[str], indices: Any) -> list[int]:
        if len(indices) != len(keys) * self._page_size:
            raise ValueError(f"kvmem: there are {len(indices)} host indices for {len(keys)} pages of {self._page_size} tokens")
        return [int(index) // self._page_size for index in indices[:: self._page_size].tolist()]

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Stores pages, and waits. Those that are stored already are not written again."""
        pages = self._pages(keys, indices)
        assert isinstance(self._index, BlockStore)
        slots, without = self._index.reserve([key.encode() for key in keys])
        good = [at not in without for at in range(len(keys))]
        if not slots:
            return good
        written: dict[int, tuple[int, ...]] = {}
        try:
            run = self._mover.store([(pages[at], slot) for at, slot in slots.items()])
            try:
                run.wait()
                if run.error is None:
                    written = {slot: (each,) for slot, each in zip(slots.values(), run.checksums())}
                    self._index.count(stored_blocks=len(slots), stored_bytes=run.bytes)
            finally:
                run.close()
        except kvmem.Error:
            pass  # counted below
        self._index.commit(written)
        if not written:
            self._index.abandon(slots.values())
            self._index.count(failed_stores=len(slots))
            good = [each and at not in slots for at, each in enumerate(good)]
        return good

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Loads pages, and waits. A damaged one is a miss."""
        pages = self._pages(keys, indices)
        found = {at: stored for at, stored in enumerate(self._index.pin([key.encode() for key in keys])) if stored is not None}
        good = [at in found for at in range(len(keys))]
        if not found:
            return good
        places, lost = list(found), list(range(len(found)))
        sums = [found[at].checksums[0] for at in places] if self._verify else None
        damaged = False
        try:
            run = self._mover.load([(found[at].slot, pages[at]) for at in places], sums)
            try:
                run.wait()
                lost, damaged = run.lost(), run.is_damaged
                moved = len(places) - len(lost)
                self._index.count(loaded_blocks=moved, loaded_bytes=run.bytes // len(places) * moved)
            finally:
                run.close()
        except kvmem.Error:
            pass  # all are lost
        for at in lost:
            good[places[at]] = False
        if lost:
            self._index.forget(found[places[at]].slot for at in lost)
            self._index.count(**{"damaged_blocks" if damaged else "failed_loads": len(lost)})
        self._index.unpin(stored.slot for stored in found.values())
        return good

    def clear(self) -> None:
        """Removes all pages."""
        self._index.clear()

    def status(self) -> dict[str, Any]:
        """Counters."""
        return self._index.status()

    def close(self) -> None:
        """Closes the files, and lets another engine use the folder."""
        self._mover.close()
        self._index.close()


class SharedPages:
    """The pages of a pool that another rank stores: this rank loads them. Until that rank has made the files, there are none."""

    def __init__(self, settings: Settings, name: str, pool: Any, capacity: int, identity: Mapping[str, str]) -> None:
        self._arguments, self.pool = (settings, name, pool, capacity, identity, True), pool
        self._index = os.path.join(str(settings.path), name, "index.sqlite")
        self._lock = threading.Lock()
        self._opened: PageStore | None = None

    def _found(self) -> PageStore | None:
        with self._lock:
            if self._opened is None and os.path.exists(self._index):
                try:
                    self._opened = PageStore(*self._arguments)
                except (FileNotFoundError, sqlite3.Error):
                    return None
            return self._opened

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Whether each page is stored."""
        found = self._found()
        return found.has(keys) if found is not None else [False] * len(keys)

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Loads pages, and waits. A damaged one is a miss."""
        found = self._found()
        return found.get(keys, indices) if found is not None else [False] * len(keys)

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Stores nothing."""
        return [False] * len(keys)

    def clear(self) -> None:
        """Nothing: the other rank does."""

    def status(self) -> dict[str, Any]:
        """Counters of this rank."""
        return self._opened.status() if self._opened is not None else {}

    def close(self) -> None:
        """Closes the files."""
        if self._opened is not None:
            self._opened.close()

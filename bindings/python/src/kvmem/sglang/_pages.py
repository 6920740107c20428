# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, unused-ignore"
# pyright: reportMissingImports=false
"""The pages of a host pool of SGLang as layouts, and their stores."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import kvmem
from kvmem._blocks._counters import add
from kvmem._blocks._settings import Settings
from kvmem._blocks._shape import shape_of
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


@dataclasses.dataclass(frozen=True)
class Part:
    """The pieces of one size of all pages."""

    size: int
    count: int
    """Pieces of a page."""
    pages: kvmem.Layout
    """Those of the pool."""

    def buffer(self, num_pages: int) -> kvmem.Layout:
        """Host memory for the pieces of so many pages, page after page."""
        return kvmem.Layout.allocate(shape_of(num_pages, self.count, self.size, "BLC"), "system")


def parts_of(pool: Any, pieces: Sequence[Piece]) -> list[Part]:
    """The pages of the pool, by the sizes of their pieces."""
    parts: list[Part] = []
    try:
        for size in sorted({piece.size for piece in pieces}):
            alike = [piece for piece in pieces if piece.size == size]
            parts.append(Part(size, len(alike), _layout(pool, alike)))
        return parts
    except BaseException:
        for part in parts:
            part.pages.close()
        raise


def _layout(pool: Any, pieces: Sequence[Piece]) -> kvmem.Layout:
    pages, piece = int(pool.page_num), pieces[0]
    regions: list[kvmem.Region] = []
    try:
        for each in pieces:
            memory = (ctypes.c_uint8 * ((pages - 1) * each.stride + each.size)).from_address(each.address)
            memory.pool = pool  # type: ignore[attr-defined]  # it is kept as long as kvmem uses its memory
            regions.append(kvmem.Region.adopt(memory))
        return kvmem.Layout.of_regions(shape_of(pages, len(pieces), piece.size, "L/BC", piece.stride), regions)
    finally:
        for region in regions:
            region.close()


def name_of(key: str) -> bytes:
    """What a page is stored under."""
    return hashlib.sha256(key.encode()).digest()


def page_numbers(pool: Any, keys: Sequence[str], indices: Any) -> list[int]:
    """The pages of the pool that host indices are in, one for each key."""
    size = int(pool.logical_page_size)
    if len(indices) != len(keys) * size:
        raise ValueError(f"kvmem: there are {len(indices)} host indices for {len(keys)} pages of {size} tokens")
    return [int(index) // size for index in indices[::size].tolist()]


class PageStore:
    """The pages of one pool under keys, in a store for each size of pieces."""

    def __init__(self, settings: Settings, name: str, pool: Any, capacity: int, identity: Mapping[str, str]) -> None:
        self.pool, self._timeout, self.capacity = pool, settings.timeout_seconds, capacity
        pieces = pieces_of(pool)
        full = {
            **identity,
            "pool": type(pool).__name__,
            "layout": str(pool.layout),
            "dtype": str(pool.dtype),
            "page": f"{pool.logical_page_size} tokens, {', '.join(sorted({f'{piece.size}' for piece in pieces}))} bytes x {len(pieces)}",
            "format": str(getattr(pool, "storage_format_tag", None) or "none"),
            "capacity": f"{capacity} pages",
        }
        self._counters: dict[str, Any] = {}
        self._state = threading.Condition()
        self._moving, self._clearing = 0, False
        self._stores: list[BlockStore] = []
        self.parts = parts_of(pool, pieces)
        try:
            for number, part in enumerate(self.parts):
                path = os.path.join(str(settings.path), name, f"pieces-{number}")
                self._stores.append(BlockStore(path, shape_of(capacity, part.count, part.size, "BLC"), full, self._timeout))
        except BaseException:
            self.close()
            raise

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Whether each page is stored."""
        names = [name_of(key) for key in keys]
        return [all(found) for found in zip(*(store.has(names) for store in self._stores))]

    @contextlib.contextmanager
    def _moves(self) -> Iterator[bool]:
        """While pages move, `clear` waits. While it removes pages, none begin to move: then it yields False at once, because a set that waited
        would store a page from before the clear after it."""
        with self._state:
            may_move = not self._clearing
            self._moving += may_move
        if not may_move:
            yield False
            return
        try:
            yield True
        finally:
            with self._state:
                self._moving -= 1
                self._state.notify_all()

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Stores pages, and waits. Those that are stored already are not written again."""
        pages, names = page_numbers(self.pool, keys, indices), [name_of(key) for key in keys]
        if not keys:
            return []
        with self._moves() as may_move:
            if not may_move:
                self._count(failed_stores=len(keys))
                return [False] * len(keys)
            done = [self._put(part, store, names, pages) for part, store in zip(self.parts, self._stores)]
        good = self.has(keys)
        moved = [each for each in done if each is not None]
        if len(moved) == len(done):
            self._count(stored_blocks=max(count for count, _ in moved), stored_bytes=sum(size for _, size in moved))
        else:
            self._count(failed_stores=good.count(False))
        return good

    def _put(self, part: Part, store: BlockStore, names: Sequence[bytes], pages: Sequence[int]) -> tuple[int, int] | None:
        """Stores pieces. Returns how many pages have moved, and their bytes; None if that has failed."""
        try:
            run = store.run(store.put(part.pages, names, pages, related=True))
        except kvmem.Error:
            return None
        try:
            run.wait()
            return (run.count, run.bytes) if run.error is None else None
        finally:
            run.close()

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Loads pages, and waits. A damaged one is a miss."""
        return self.load(keys, [part.pages for part in self.parts], page_numbers(self.pool, keys, indices))

    def load(self, keys: Sequence[str], layouts: Sequence[kvmem.Layout], pages: Sequence[int]) -> list[bool]:
        """Loads pages into layouts, one for each size of pieces."""
        names, good = [name_of(key) for key in keys], [True] * len(keys)
        with self._moves() as may_move:
            if not may_move:
                self._count(failed_loads=len(keys))
                return [False] * len(keys)
            for store, layout in zip(self._stores, layouts):
                for at, found in enumerate(self._get(store, layout, names, pages)):
                    good[at] &= found
        self._count(loaded_blocks=good.count(True), loaded_bytes=good.count(True) * sum(part.count * part.size for part in self.parts))
        return good

    def _get(self, store: BlockStore, layout: kvmem.Layout, names: Sequence[bytes], pages: Sequence[int]) -> list[bool]:
        good: list[bool] = []
        while len(good) < len(names):
            first = len(good)
            try:
                run = store.run(store.get(layout, names[first:], pages[first:]))
            except kvmem.Error:
                self._count(failed_loads=len(names) - first)
                return good + [False] * (len(names) - first)
            try:
                run.wait()
                lost = run.lost()
            finally:
                run.close()
            good += [at not in lost for at in range(run.count)]
            if len(good) < len(names):
                good.append(False)  # the first that is not stored; those after it may be
            self._count(**{"damaged_blocks" if run.is_damaged else "failed_loads": len(lost)} if lost else {})
        return good

    def _count(self, **counters: float) -> None:
        with self._state:
            add(self._counters, counters)

    def clear(self) -> None:
        """Removes all pages, after those that move have ended: none of the pages that exist now is found later. Raises Busy if that does not
        succeed in time."""
        with self._state:
            self._clearing = True
            is_idle = self._state.wait_for(lambda: not self._moving, self._timeout)
        try:
            left = [name for store in self._stores for name in store.remove(store.keys())]
        finally:
            with self._state:
                self._clearing = False
                self._state.notify_all()
        if left or not is_idle:
            raise kvmem.Busy(f"pages still move, and {len(left)} of those before are stored further: clear again, or set another identity")

    def status(self) -> dict[str, Any]:
        """Counters."""
        with self._state:
            return {"blocks": len(self._stores[0]), "capacity_blocks": self.capacity, **self._counters}

    def close(self) -> None:
        """Closes the stores, and lets another engine use the folder."""
        for store in self._stores:
            store.close()
        for part in self.parts:
            part.pages.close()

# SPDX-License-Identifier: Apache-2.0
"""Stores: blocks under keys in a folder, which survive the process and a loss of power."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._arrays import block_ids
from kvmem._handle import Handle, Options, blob, c_string, create, handle_of, read
from kvmem._layout import Layout
from kvmem._library import blob_text, ffi, lib
from kvmem._queue import Queue, queue_of_loop
from kvmem._shape import Shape, config_of
from kvmem._time import nanoseconds, waiting
from kvmem._transfer import Range, Transfer, set_ranges


class StoreInfo(NamedTuple):
    """Properties of a store, and what happened since it was opened."""

    num_slots: int
    num_stored: int
    num_retired: int
    """Slots that are not used again, because their bytes were damaged."""
    slot_size: int
    num_hits: int
    num_misses: int
    num_evicted: int
    num_damaged: int
    durability: k.Durability


class StoreEntry(NamedTuple):
    """A block in a store."""

    key: bytes
    parent: bytes | None
    checksum: int
    is_pinned: bool
    slot: int


class StoreRun:
    """What a put or a get has started."""

    __slots__ = ("_mismatches", "num_moved", "transfer")

    transfer: Transfer | None
    """None if nothing is to be moved."""
    num_moved: int
    """Blocks that are moved. For a get, the key with this index is the first that is missing."""

    def __init__(self, transfer: Transfer | None, num_moved: int) -> None:
        self.transfer, self.num_moved = transfer, num_moved
        self._mismatches: list[int] | None = [] if transfer is None else None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end, closes the transfer, and returns the number of blocks. Raises how the run failed: Corrupt if blocks are damaged,
        whose indices `mismatches` has."""
        if self.transfer is not None:
            with self.transfer:
                try:
                    self.transfer.wait(timeout)
                except _errors.Corrupt:
                    self._keep_mismatches()
                    raise
            self._mismatches = []
        return self.num_moved

    def __await__(self) -> Generator[Any, None, int]:
        """As `wait`, in asyncio."""
        return self._awaited().__await__()

    async def _awaited(self) -> int:
        if self.transfer is not None:
            with self.transfer:
                try:
                    await self.transfer
                except _errors.Corrupt:
                    self._keep_mismatches()
                    raise
            self._mismatches = []
        return self.num_moved

    def mismatches(self) -> list[int]:
        """The indices of the damaged blocks of a get, also after `wait` or `await` has raised Corrupt. Empty if the run has ended well. Raises
        Busy while it is in flight, and InvalidState after a wait that has failed in another way, because the transfer is closed."""
        if self._mismatches is not None:
            return list(self._mismatches)
        assert self.transfer is not None
        return self.transfer.mismatches()

    def _keep_mismatches(self) -> None:
        with contextlib.suppress(_errors.InvalidState):  # another thread has closed the transfer: Corrupt is raised all the same
            assert self.transfer is not None
            self._mismatches = self.transfer.mismatches()


class Store(Handle):
    """Blocks under keys in a folder, open for writing or for reading, or in a namespace of a store. Runs of puts and gets keep the
    store open.

    `keys` are a list of bytes of one size, 16 to 64, or an array of NumPy of the shape (n, size) and the type uint8."""

    __slots__ = ("_path",)
    _type = "store"

    def __init__(
        self,
        path: str | os.PathLike[str],
        shape: Shape,
        *,
        identity: Mapping[str, str | bytes],
        max_size: int = 0,
        durability: k.Durability = k.Durability.STRICT,
        eviction: k.Eviction = k.Eviction.STORE,
        flags: k.DiskFlags = k.DiskFlags(0),
        interval: float | None = None,
        timeout: float | None = None,
    ) -> None:
        """Opens a store, or creates it.

        shape       of the blocks. num_blocks is the number of slots; 0 for that of an existing store, or for as many as max_size has
                    space for
        identity    what the blocks contain: names, such as "model" and "dtype", with values. A store of another identity is refused
        flags       DiskFlags.OPEN_EXISTING | DiskFlags.READ_ONLY opens it for reading, also while a process writes it
        interval    seconds after which blocks become durable, with Durability.RELAXED, or after which a reader knows what was stored;
                    one by default
        timeout     seconds that the call may take"""
        self._path = os.fspath(path)
        kept = [(c_string(name, "name"), ffi.from_buffer(value)) for name, value in _values(identity)]
        made = ffi.new("kvmem_store_value[]", [(name, value, len(value)) for name, value in kept])
        options = Options(
            "store_options",
            path=path,
            config=config_of(shape),
            identity=made,
            num_values=len(kept),
            max_size=max_size,
            durability=durability,
            eviction=eviction,
            flags=flags,
            interval_ns=0 if interval is None else nanoseconds(interval, "interval"),
        )
        options.kept.append(kept)
        opening = waiting(lib.kvmem_store_open, options, destroy=lib.kvmem_store_destroy)
        self._own(create(opening, "store", options.c, nanoseconds(timeout)))

    def open_namespace(
        self, name: str, *, quota: int = 0, key: bytes | None = None, timeout: float | None = None
    ) -> Store:
        """Opens a namespace, or creates it: a store whose calls find its own blocks only. It keeps this store open.

        name        1 to 128 bytes without control characters, such as the id of a tenant. It is in the files of the store, in clear
        quota       bytes of slots; 0 for that of an existing namespace
        key         32 random bytes, by which blocks and keys are encrypted; None for a namespace that is not encrypted
        timeout     seconds that the call may take"""
        if not isinstance(key, (bytes, bytearray, memoryview, type(None))):
            raise TypeError(f"key is {_errors.type_of(key)}; give 32 random bytes")
        secret = None if key is None else ffi.from_buffer(key)
        size = 0 if secret is None else len(secret)
        options = Options("store_namespace_options", name=name, quota=quota, key=secret, key_size=size)
        opening = waiting(lib.kvmem_store_open_namespace, options, self, destroy=lib.kvmem_store_destroy)
        opened = Store.__new__(Store)
        opened._c, opened._path = None, f"{self._path}, namespace {name}"
        opened._own(create(opening, "store", self._handle, options.c, nanoseconds(timeout)))
        return opened

    def remove_namespace(self, name: str, timeout: float | None = None) -> int:
        """Removes a namespace. Returns the number of its blocks."""
        removed = ffi.new("uint64_t *")
        text = c_string(name, "name")
        _errors.call(waiting(lib.kvmem_store_remove_namespace, text), self._handle, text, nanoseconds(timeout), removed)
        return int(removed[0])

    @staticmethod
    def describe(path: str | os.PathLike[str]) -> str:
        """What a store is and contains, as text for people. It may be open in a process."""
        return blob_text(blob(waiting(lib.kvmem_store_describe, destroy=lib.kvmem_blob_destroy), c_string(path, "path")))

    def _describe(self) -> str:
        return f"{self._path}, {self.info.num_stored} blocks"

    # ---- blocks ----

    def put(
        self,
        source: Layout,
        keys: Any,
        blocks: Any,
        *,
        parent: bytes | None = None,
        flags: k.StoreFlags = k.StoreFlags(0),
        layers: Range | None = None,
        outers: Range | None = None,
        heads: Range | None = None,
        queue: Queue | None = None,
        transfer_flags: k.TransferFlags = k.TransferFlags(0),
        run_timeout: float | None = None,
        user_data: Any = None,
    ) -> StoreRun:
        """Stores blocks of a layout under their keys: `store.put(layout, keys, blocks).wait()`, or `await store.put(...)`. Those that are
        stored are not moved. Each key has the tokens of a slot: with another page_size, blocks are those that have the tokens of the keys.

        layers, outers, heads  ranges of the layout that are all of those of the store, if the layout has more
        parent      key of the block before the first one. Each key is the parent of the next one, unless flags say UNRELATED
        queue       receives a completion; within an event loop of asyncio, the default is the queue of the loop
        run_timeout seconds that the run may take
        transfer_flags  of the transfer, such as REPORT_RELEASE
        user_data   any object, for the completion. Without a queue it is ignored"""
        options = _blocks(keys, blocks, run_timeout, flags=flags)
        if parent is not None:
            if len(parent) != options.c.key_size:
                raise _errors.InvalidArgument(f"parent has {len(parent)} bytes, and the keys have {options.c.key_size}")
            options.kept.append(parent)
            options.c.parent = ffi.from_buffer(parent)
        how = _transfer_options(transfer_flags, layers, outers, heads)
        return self._start(lib.kvmem_store_put, source, options, queue, how, user_data)

    def get(
        self,
        destination: Layout,
        keys: Any,
        blocks: Any,
        *,
        layers: Range | None = None,
        outers: Range | None = None,
        heads: Range | None = None,
        queue: Queue | None = None,
        transfer_flags: k.TransferFlags = k.TransferFlags(0),
        run_timeout: float | None = None,
        user_data: Any = None,
    ) -> StoreRun:
        """Moves the blocks of the first keys to a layout, up to the first key that is not stored. Keys, blocks and ranges are as for `put`,
        but the ranges may have some of the layers, outer slots and heads of the store.

        Each block is compared with its checksum. Damaged ones raise Corrupt, `mismatches` of what this returns has their indices, and they
        are no longer stored."""
        how = _transfer_options(transfer_flags, layers, outers, heads)
        return self._start(lib.kvmem_store_get, destination, _blocks(keys, blocks, run_timeout), queue, how, user_data)

    def _start(
        self, start: Any, layout: Layout, options: Options, queue: Queue | None, how: Options, user_data: Any
    ) -> StoreRun:
        queue = queue if queue is not None else queue_of_loop()
        transfer = Transfer.__new__(Transfer)
        transfer._c = None
        releases = how.c.flags & k.TransferFlags.REPORT_RELEASE
        transfer._queue, transfer._token = queue, 0
        transfer._last = k.CompletionKind.MEMORY_RELEASED if releases else k.CompletionKind.RUN_ENDED
        transfer._submit = Options("submit_options")
        if queue is not None:
            transfer._token = options.c.user_data = queue._expect(transfer, user_data, transfer._last)
        made, moved = ffi.new("kvmem_transfer **"), ffi.new("size_t *")
        try:
            if queue is not None:
                how.c.queue = queue._handle
            _errors.call(start, self._handle, handle_of(layout, Layout, "layout"), how.c, options.c, made, moved)
        except BaseException:
            if queue is not None:
                queue._forget(transfer._token)
            raise
        if made[0] == ffi.NULL:
            if queue is not None:
                queue._forget(transfer._token)
            return StoreRun(None, 0)
        transfer._own(made[0])
        return StoreRun(transfer, moved[0])

    # ---- keys ----

    def contains(self, keys: Any) -> list[bool]:
        """For each key whether it is stored. Waits for no file."""
        joined, size, count = _joined(keys)
        found = ffi.new("uint8_t[]", count)
        _errors.call(lib.kvmem_store_contains, self._handle, joined, size, count, found)
        return [each != 0 for each in found]

    def keys(self) -> list[bytes]:
        """The keys of all stored blocks, in the order of their slots."""
        entries, count, slot = ffi.new("kvmem_store_entry[]", 1024), ffi.new("size_t *"), 0
        found: list[bytes] = []
        raw, size = ffi.buffer(entries), ffi.sizeof("kvmem_store_entry")
        while True:
            _errors.call(lib.kvmem_store_list, self._handle, slot, entries, 1024, count)
            found += [raw[at * size : at * size + entries[at].key_size] for at in range(count[0])]
            if count[0] < 1024:
                return found
            slot = entries[1023].slot + 1

    def remove(self, keys: Any, timeout: float | None = None) -> int:
        """Removes blocks. Returns how many were stored."""
        return self._count(waiting(lib.kvmem_store_remove), keys, nanoseconds(timeout))

    def pin(self, keys: Any) -> int:
        """Protects blocks from eviction. Returns how many are stored."""
        return self._count(lib.kvmem_store_pin, keys)

    def unpin(self, keys: Any) -> int:
        """Ends the protection. Returns how many are stored."""
        return self._count(lib.kvmem_store_unpin, keys)

    def _count(self, function: Any, keys: Any, *more: int) -> int:
        joined, size, count = _joined(keys)
        number = ffi.new("uint64_t *")
        _errors.call(function, self._handle, joined, size, count, *more, number)
        return int(number[0])

    def __iter__(self) -> Iterator[StoreEntry]:
        """The stored blocks, in the order of their slots."""
        entries, count, slot = ffi.new("kvmem_store_entry[]", 64), ffi.new("size_t *"), 0
        while True:
            _errors.call(lib.kvmem_store_list, self._handle, slot, entries, 64, count)
            for c in entries[0 : count[0]]:
                parent = bytes(c.parent[0 : c.parent_size]) if c.parent_size else None
                yield StoreEntry(bytes(c.key[0 : c.key_size]), parent, c.checksum, c.is_pinned != 0, c.slot)
                slot = c.slot + 1
            if count[0] < 64:
                return

    # ---- information, durability, checks ----

    @property
    def info(self) -> StoreInfo:
        """Properties, and what happened since the store was opened. Waits for no file."""
        c = read(lib.kvmem_store_get_info, "store_info", self._handle)
        numbers = (c.num_slots, c.num_stored, c.num_retired, c.slot_size, c.num_hits, c.num_misses, c.num_evicted, c.num_damaged)
        return StoreInfo(*numbers, k.Durability(c.durability))

    def flush(self, timeout: float | None = None) -> None:
        """Makes all blocks durable whose puts have ended."""
        _errors.call(waiting(lib.kvmem_store_flush), self._handle, nanoseconds(timeout))

    def verify(self, timeout: float | None = None) -> int:
        """Reads all blocks, and removes those that are damaged. Returns their number. A later call continues where a late one has ended."""
        damaged = ffi.new("uint64_t *")
        _errors.call(waiting(lib.kvmem_store_verify), self._handle, nanoseconds(timeout), damaged)
        return int(damaged[0])


def _joined(keys: Any) -> tuple[Any, int, int]:
    """Keys one after the other, the size of one, and their number."""
    if hasattr(keys, "__array_interface__"):
        if keys.ndim != 2 or keys.dtype != "uint8":
            raise _errors.InvalidArgument(f"keys have the shape {keys.shape} and the type {keys.dtype}; expected (n, size) of uint8")
        count, size = keys.shape
        return ffi.from_buffer(keys if keys.flags.c_contiguous else keys.copy()), size, count
    if isinstance(keys, (str, bytes)):
        raise TypeError("keys are one key; give a list of keys, or an array of uint8 of the shape (n, size)")
    keys = list(keys)
    for key in keys:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise TypeError(f"a key is {_errors.type_of(key)}; give bytes, such as those of a hash")
    sizes = {len(key) for key in keys}
    if len(sizes) > 1:
        raise _errors.InvalidArgument(f"keys have {sorted(sizes)} bytes; those of one call have one size")
    return ffi.from_buffer(b"".join(keys)), sizes.pop() if sizes else 16, len(keys)


def _values(identity: Mapping[str, str | bytes]) -> list[tuple[str, bytes]]:
    """The names and values of an identity. A number is not taken for bytes: bytes(7) are seven zeros."""
    if not isinstance(identity, Mapping):
        raise TypeError(f'identity is {_errors.type_of(identity)}; give names with values, such as {{"model": "...", "dtype": "..."}}')
    for name, value in identity.items():
        if not isinstance(value, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"the value of {name!r} in identity is {_errors.type_of(value)}; give text or bytes")
    return [(name, value.encode() if isinstance(value, str) else bytes(value)) for name, value in identity.items()]


def _transfer_options(flags: k.TransferFlags, layers: Range | None, outers: Range | None, heads: Range | None) -> Options:
    options = Options("transfer_options", flags=flags)
    set_ranges(options, layers, outers, heads)
    return options


def _blocks(keys: Any, blocks: Any, run_timeout: float | None, **more: Any) -> Options:
    joined, size, count = _joined(keys)
    ids = block_ids(blocks)
    options = Options("store_blocks", keys=joined, key_size=size, num_keys=count, num_blocks=len(ids), **more)
    options.kept.append(ids)
    options.c.blocks = ids
    if run_timeout is not None:
        options.c.run_timeout_ns = nanoseconds(run_timeout, "run_timeout")
    return options

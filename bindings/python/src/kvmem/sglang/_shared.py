# SPDX-License-Identifier: Apache-2.0
"""Pages that one rank stores and the others load, as with MLA: a store is open in one process, which serves the others by a socket in the
folder. Their bytes go through the socket."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import kvmem
from kvmem._blocks._counters import add
from kvmem._blocks._settings import Settings
from kvmem.sglang._pages import PageStore, page_numbers, parts_of, pieces_of

logger = logging.getLogger("sglang.kvmem")

HEADER = struct.Struct("<BI")
"""Of a request: what is asked for, and the bytes of the keys, which follow, separated by line feeds."""
LOOK_UP, LOAD = 1, 2
MAX_KEYS = 1 << 24
"""Bytes of the keys of a request."""
CHUNK = 16
"""Pages that are in memory of a rank at the same time, on their way."""
RETRY = 0.1
"""Seconds until the next attempt to serve a rank, when the system had no descriptor or thread for it."""


def _receive(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    _receive_into(connection, memoryview(data))
    return data


def _receive_into(connection: socket.socket, memory: memoryview) -> None:
    while memory:
        count = connection.recv_into(memory)
        if not count:
            raise ConnectionError("the other rank has closed the connection")
        memory = memory[count:]


@contextlib.contextmanager
def _address(folder: str) -> Any:
    """The address of the socket in a folder, whose path may be longer than an address."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/readers"
    finally:
        os.close(descriptor)


def _bytes_of(layout: kvmem.Layout, page: int) -> memoryview:
    stride = layout.info.block_stride
    with layout.region(0) as region:
        return memoryview(region.memory)[page * stride : (page + 1) * stride].cast("B")


class ServedPages(PageStore):
    """The pages of one pool, which this rank stores and serves to the others."""

    def __init__(self, settings: Settings, name: str, *arguments: Any) -> None:
        super().__init__(settings, name, *arguments)
        self._folder = os.path.join(str(settings.path), name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connections: set[socket.socket] = set()
        self._closed = threading.Event()
        with _address(self._folder) as address:  # the store is locked, so this rank is the only one that serves
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)
            self._listener.bind(address)
        self._listener.listen()
        threading.Thread(target=self._accept, name="kvmem-pages", daemon=True).start()

    def _accept(self) -> None:
        has_failed = False
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
                with self._state:
                    self._connections.add(connection)
                threading.Thread(target=self._serve, args=(connection,), name="kvmem-pages", daemon=True).start()
                has_failed = False
            except (OSError, RuntimeError) as error:
                if not self._closed.wait(RETRY) and not has_failed:
                    logger.warning("kvmem: another rank cannot be served now: %s", error)
                has_failed = True

    def _serve(self, connection: socket.socket) -> None:
        buffers: list[kvmem.Layout] = []
        try:
            buffers += [part.buffer(CHUNK) for part in self.parts]
            while True:
                asked, size = HEADER.unpack(_receive(connection, HEADER.size))
                if asked not in (LOOK_UP, LOAD) or size > MAX_KEYS:
                    logger.warning("kvmem: a rank asks for %d with %d bytes of keys, which is no request: its connection is closed", asked, size)
                    return
                keys = _receive(connection, size).decode().split("\n")
                connection.settimeout(self._timeout)
                if asked == LOOK_UP:
                    connection.sendall(bytes(self.has(keys)))
                else:
                    self._send_pages(connection, keys, buffers)
                connection.settimeout(None)  # the next request may come at any time
        except (OSError, UnicodeDecodeError, kvmem.Error):
            pass  # the other rank has ended, or takes nothing, or there is no memory: it asks again by a new connection
        finally:
            connection.close()
            with self._state:
                self._connections.discard(connection)
            for buffer in buffers:
                buffer.close()

    def _send_pages(self, connection: socket.socket, keys: Sequence[str], buffers: Sequence[kvmem.Layout]) -> None:
        for first in range(0, len(keys), CHUNK):
            good = self.load(keys[first : first + CHUNK], buffers, range(CHUNK)[: len(keys) - first])
            connection.sendall(bytes(good))
            for at, is_good in enumerate(good):
                for buffer in buffers if is_good else ():
                    connection.sendall(_bytes_of(buffer, at))

    def close(self) -> None:
        """Ends the connections of the other ranks, and closes the stores."""
        if hasattr(self, "_listener"):
            self._closed.set()
            with self._state:
                for each in (self._listener, *self._connections):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        super().close()


class SharedPages:
    """The pages of a pool that another rank stores: this rank loads them. Until that rank serves them, there are none."""

    def __init__(self, settings: Settings, name: str, pool: Any) -> None:
        self.pool, self._timeout = pool, settings.timeout_seconds
        self._folder = os.path.join(str(settings.path), name)
        self._parts = parts_of(pool, pieces_of(pool))
        self._buffers = [part.buffer(CHUNK) for part in self._parts]
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._connection: socket.socket | None = None
        self._counters: dict[str, Any] = {}

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Of a request. What is left of the reply after a failure would be taken for that to the next one."""
        with self._lock:
            try:
                yield
            except BaseException:
                self._drop()
                raise

    def _ask(self, what: int, keys: Sequence[str]) -> socket.socket:
        text = "\n".join(keys).encode()
        if self._connection is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(self._timeout)
            try:
                with _address(self._folder) as address:
                    made.connect(address)
            except BaseException:
                made.close()
                raise
            self._connection = made
        self._connection.sendall(HEADER.pack(what, len(text)) + text)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Whether each page is stored."""
        try:
            with self._turn():
                return [found != 0 for found in _receive(self._ask(LOOK_UP, keys), len(keys))] if keys else []
        except OSError:
            return [False] * len(keys)

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Loads pages, and waits. A damaged one is a miss."""
        pages, good = page_numbers(self.pool, keys, indices), [False] * len(keys)
        try:
            with self._turn():
                connection = self._ask(LOAD, keys) if keys else None
                for first in range(0, len(keys), CHUNK):
                    assert connection is not None
                    found = [each != 0 for each in _receive(connection, min(CHUNK, len(keys) - first))]
                    self._take(connection, found, pages[first : first + CHUNK])
                    good[first : first + len(found)] = found
        except (OSError, kvmem.Error) as error:
            logger.warning("kvmem: pages of another rank cannot be loaded: %s", error)
        with self._counting:
            size = sum(part.count * part.size for part in self._parts)
            add(self._counters, {"loaded_blocks": good.count(True), "loaded_bytes": good.count(True) * size})
        return good

    def _take(self, connection: socket.socket, found: Sequence[bool], pages: Sequence[int]) -> None:
        present = [at for at, is_found in enumerate(found) if is_found]
        for at in present:
            for buffer in self._buffers:
                _receive_into(connection, _bytes_of(buffer, at))
        for buffer, part in zip(self._buffers, self._parts):
            if present:
                kvmem.move(buffer, part.pages, [(at, pages[at]) for at in present], timeout=self._timeout)

    def set(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Stores nothing."""
        return [False] * len(keys)

    def clear(self) -> None:
        """Nothing: the other rank does."""

    def status(self) -> dict[str, Any]:
        """Counters of this rank."""
        with self._counting:
            return dict(self._counters)

    def close(self) -> None:
        """Ends the connection."""
        with self._lock:
            self._drop()
        for layout in (*self._buffers, *(part.pages for part in self._parts)):
            layout.close()

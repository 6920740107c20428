# SPDX-License-Identifier: Apache-2.0
"""Pages that one rank stores and the others load, as with MLA: a store is open in one process, which serves the others by a socket in the
folder. Their bytes go through the socket."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
import threading
import time
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
MAX_CONNECTIONS, MAX_OF_PROCESS = 256, 16
"""Connections of all ranks and of one process, which has one per pool. Each has a thread and buffers."""
CREDENTIALS = struct.Struct("3i")
SO_PEERPIDFD = 77
OTHER_NAMESPACES = "processes of other PID namespaces"
RETRY = 0.1
"""Seconds until the next attempt to serve a rank, when the system had no descriptor or thread for it."""


def _left(end: float) -> float:
    """Seconds until the end of a request. Each step of it has no more."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("the other rank has not ended the request in time")
    return left


def _receive(connection: socket.socket, size: int, end: float) -> bytearray:
    data = bytearray(size)
    _receive_into(connection, memoryview(data), end)
    return data


def _receive_into(connection: socket.socket, memory: memoryview, end: float) -> None:
    while memory:
        connection.settimeout(_left(end))
        count = connection.recv_into(memory)
        if not count:
            raise ConnectionError("the other rank has closed the connection")
        memory = memory[count:]


def _send(connection: socket.socket, data: bytes | memoryview, end: float) -> None:
    connection.settimeout(_left(end))  # for all of the data
    connection.sendall(data)


def _process_of(connection: socket.socket) -> str:
    """A name of the process at the other end, which each process has alone. The kernel gives processes of other PID namespaces no number here,
    but since Linux 6.9 a file descriptor with an inode of their own. Before that, they have one name together."""
    process, _, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    if process:
        return f"process {process}"
    try:
        descriptor = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4), sys.byteorder)
    except OSError:
        return OTHER_NAMESPACES
    other = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        number = os.fstat(descriptor).st_ino  # before Linux 6.9 that of all descriptors of this kind
        return OTHER_NAMESPACES if number == os.fstat(other).st_ino else f"process with pidfd {number}"
    finally:
        os.close(descriptor)
        os.close(other)


def _limit_of(process: str) -> int:
    return MAX_CONNECTIONS // 2 if process == OTHER_NAMESPACES else MAX_OF_PROCESS


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
        self._connections: dict[socket.socket, str] = {}
        """Each with its process."""
        self._has_refused = False
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
                self._begin(connection)
                has_failed = False
            except (OSError, RuntimeError) as error:
                if not self._closed.wait(RETRY) and not has_failed:
                    logger.warning("kvmem: another rank cannot be served now: %s", error)
                has_failed = True

    def _begin(self, connection: socket.socket) -> None:
        try:
            process = _process_of(connection)
            with self._state:
                processes = list(self._connections.values())
                is_served = len(processes) < MAX_CONNECTIONS and processes.count(process) < _limit_of(process) and not self._closed.is_set()
                if is_served:
                    self._connections[connection] = process
            if is_served:
                threading.Thread(target=self._serve, args=(connection,), name="kvmem-pages", daemon=True).start()
                return
        except BaseException:
            self._end(connection)
            raise
        connection.close()
        if not self._has_refused:
            self._has_refused = True
            logger.warning("kvmem: a connection of %s is closed: there are %d of it, and %d of all", process, processes.count(process), len(processes))

    def _end(self, connection: socket.socket) -> None:
        connection.close()
        with self._state:
            self._connections.pop(connection, None)

    def _serve(self, connection: socket.socket) -> None:
        buffers: list[kvmem.Layout] = []
        try:
            buffers += [part.buffer(CHUNK) for part in self.parts]
            while True:
                connection.settimeout(None)  # the next request may come at any time
                connection.recv(1, socket.MSG_PEEK)
                end = time.monotonic() + self._timeout
                asked, size = HEADER.unpack(_receive(connection, HEADER.size, end))
                if asked not in (LOOK_UP, LOAD) or size > MAX_KEYS:
                    logger.warning("kvmem: a rank asks for %d with %d bytes of keys, which is no request: its connection is closed", asked, size)
                    return
                keys = _receive(connection, size, end).decode().split("\n")
                if asked == LOOK_UP:
                    _send(connection, bytes(self.has(keys)), end)
                else:
                    self._send_pages(connection, keys, buffers, end)
        except (OSError, UnicodeDecodeError, kvmem.Error):
            pass  # the other rank has ended, or takes nothing, or there is no memory: it asks again by a new connection
        finally:
            self._end(connection)
            for buffer in buffers:
                buffer.close()

    def _send_pages(self, connection: socket.socket, keys: Sequence[str], buffers: Sequence[kvmem.Layout], end: float) -> None:
        for first in range(0, len(keys), CHUNK):
            good = self.load(keys[first : first + CHUNK], buffers, range(CHUNK)[: len(keys) - first])
            _send(connection, bytes(good), end)
            for at, is_good in enumerate(good):
                for buffer in buffers if is_good else ():
                    _send(connection, _bytes_of(buffer, at), end)

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
    def _turn(self) -> Iterator[float]:
        """Of a request, with the time at which it ends. What is left of the reply after a failure would be taken for that to the next one."""
        with self._lock:
            try:
                yield time.monotonic() + self._timeout
            except BaseException:
                self._drop()
                raise

    def _ask(self, what: int, keys: Sequence[str], end: float) -> socket.socket:
        text = "\n".join(keys).encode()
        if self._connection is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(_left(end))
            try:
                with _address(self._folder) as address:
                    made.connect(address)
            except BaseException:
                made.close()
                raise
            self._connection = made
        _send(self._connection, HEADER.pack(what, len(text)) + text, end)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def has(self, keys: Sequence[str]) -> list[bool]:
        """Whether each page is stored."""
        try:
            with self._turn() as end:
                return [found != 0 for found in _receive(self._ask(LOOK_UP, keys, end), len(keys), end)] if keys else []
        except OSError:
            return [False] * len(keys)

    def get(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Loads pages, and waits. A damaged one is a miss."""
        pages, good = page_numbers(self.pool, keys, indices), [False] * len(keys)
        try:
            with self._turn() as end:
                connection = self._ask(LOAD, keys, end) if keys else None
                for first in range(0, len(keys), CHUNK):
                    assert connection is not None
                    found = [each != 0 for each in _receive(connection, min(CHUNK, len(keys) - first), end)]
                    self._take(connection, found, pages[first : first + CHUNK], end)
                    good[first : first + len(found)] = found
        except (OSError, kvmem.Error) as error:
            logger.warning("kvmem: pages of another rank cannot be loaded: %s", error)
        with self._counting:
            size = sum(part.count * part.size for part in self._parts)
            add(self._counters, {"loaded_blocks": good.count(True), "loaded_bytes": good.count(True) * size})
        return good

    def _take(self, connection: socket.socket, found: Sequence[bool], pages: Sequence[int], end: float) -> None:
        present = [at for at, is_found in enumerate(found) if is_found]
        for at in present:
            for buffer in self._buffers:
                _receive_into(connection, _bytes_of(buffer, at), end)
        for buffer, part in zip(self._buffers, self._parts):
            if present:
                # Without a time limit: after it a copy would still write to pages that SGLang has for other tokens by then.
                kvmem.move(buffer, part.pages, [(at, pages[at]) for at in present])

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

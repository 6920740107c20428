# SPDX-License-Identifier: Apache-2.0
"""Shares: a region or a layout is carried to another process of this machine, which maps the same memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import Handle, Options, c_string, create, handle_of, read, read_within
from kvmem._layout import Layout
from kvmem._library import ffi, lib
from kvmem._region import Region
from kvmem._time import nanoseconds, waiting

if TYPE_CHECKING:
    import socket


class ShareInfo(NamedTuple):
    """What a share carries."""

    size: int
    """Bytes of the message."""
    num_fds: int
    memory_size: int
    """Bytes of the memory."""
    pid: int
    """Process of the owner."""
    object: k.SharedObject
    tier: k.Tier
    read_only: bool
    transport: k.Transport


class BrokerInfo(NamedTuple):
    """State of a broker."""

    publications: int
    clients: int
    granted: int
    refused: int


class Share(Handle):
    """A region or a layout, for another process. `send` and `Share.receive` carry it over a Unix socket; a broker publishes it by
    name."""

    __slots__ = ()
    _type = "share"

    def __init__(
        self, shared: Region | Layout, *, flags: k.ShareFlags = k.ShareFlags(0), transport: k.Transport = k.Transport.AUTO
    ) -> None:
        options = Options("share_options", flags=flags, transport=transport)
        function = lib.kvmem_share_create_layout if isinstance(shared, Layout) else lib.kvmem_share_create_region
        self._own(create(function, "share", handle_of(shared, (Region, Layout), "shared"), options.c))

    def send(self, to: socket.socket | int, timeout: float | None = 10.0) -> None:
        """Sends the share over a connected Unix socket. May be sent to any number of processes."""
        _errors.call(lib.kvmem_share_send, self._handle, _fd(to, "to"), nanoseconds(timeout))

    @classmethod
    def receive(cls, source: socket.socket | int, timeout: float | None = 10.0) -> Share:
        """Receives a share from a connected Unix socket."""
        return cls._owning(create(lib.kvmem_share_receive, "share", _fd(source, "source"), nanoseconds(timeout)))

    @classmethod
    def fetch(
        cls,
        path: str | os.PathLike[str],
        name: str,
        *,
        token: bytes | None = None,
        timeout: float | None = 10.0,
        broker_user: int = 0,
        flags: k.FetchFlags = k.FetchFlags(0),
    ) -> Share:
        """Fetches a share from the broker whose socket is at `path`."""
        options = Options(
            "fetch_options",
            path=path,
            name=name,
            broker_user=broker_user,
            flags=flags,
            token=None if token is None else _token(token),
        )
        fetching = waiting(lib.kvmem_share_fetch, options, destroy=lib.kvmem_share_destroy)
        return cls._owning(create(fetching, "share", options.c, nanoseconds(timeout)))

    @classmethod
    def of_message(cls, data: bytes, fds: Sequence[int] = ()) -> Share:
        """A share from its message and file descriptors, which another transport has carried."""
        buffer = ffi.from_buffer(data)
        array = ffi.new("int32_t[]", list(fds))
        return cls._owning(create(lib.kvmem_share_create_received, "share", buffer, len(buffer), array, len(fds)))

    @property
    def message(self) -> tuple[bytes, list[int]]:
        """The message, and the file descriptors that belong to it, for another transport. The share keeps them open."""
        c = read_within(lib.kvmem_share_get_info, "share_info", self._handle)
        return bytes(ffi.buffer(c.data, c.size)), [c.fds[index] for index in range(c.num_fds)]

    def open_region(self, *, agent: Handle | None = None, device: int = 0, flags: k.OpenFlags = k.OpenFlags(0)) -> Region:
        """Maps the memory of a share of a region."""
        options = open_options(agent, device, flags)
        return Region._owning(create(lib.kvmem_share_open_region, "region", self._handle, options.c))

    def open_layout(self, *, agent: Handle | None = None, device: int = 0, flags: k.OpenFlags = k.OpenFlags(0)) -> Layout:
        """Maps the memory of a share of a layout. It is used like a layout of this process."""
        options = open_options(agent, device, flags)
        return Layout._owning(create(lib.kvmem_share_open_layout, "layout", self._handle, options.c))

    @property
    def info(self) -> ShareInfo:
        """What the share carries."""
        c = read(lib.kvmem_share_get_info, "share_info", self._handle)
        return ShareInfo(
            c.size, c.num_fds, c.memory_size, c.pid, k.SharedObject(c.object), k.Tier(c.tier), bool(c.read_only), k.Transport(c.transport)
        )

    def _describe(self) -> str:
        info = self.info
        return f"{info.object.name.lower()} of process {info.pid}, {info.memory_size:,} bytes{', read-only' if info.read_only else ''}"


class Broker(Handle):
    """Publishes shares by name at a Unix socket, from which processes of permitted users fetch them."""

    __slots__ = ()
    _type = "broker"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        users: Sequence[int] = (),
        mode: int = 0,
        flags: int = 0,
        client_timeout: float | None = None,
        max_clients: int = 0,
        max_clients_per_user: int = 0,
        max_bytes_per_user: int = 0,
    ) -> None:
        options = Options(
            "broker_options",
            path=path,
            users=users or None,
            num_users=len(users),
            mode=mode,
            flags=flags,
            client_timeout_ns=0 if client_timeout is None else nanoseconds(client_timeout, "client_timeout"),
            max_clients=max_clients,
            max_clients_per_user=max_clients_per_user,
            max_bytes_per_user=max_bytes_per_user,
        )
        self._own(create(lib.kvmem_broker_create, "broker", options.c))

    def publish(
        self, name: str, share: Share, *, flags: k.PublishFlags = k.PublishFlags(0), max_uses: int = 0, lifetime: float | None = None
    ) -> bytes:
        """Publishes a share. Returns the token that fetches it."""
        return self._granted(lib.kvmem_broker_publish, name, [handle_of(share, Share, "share")], flags, max_uses, lifetime)

    def grant(self, name: str, *, flags: k.PublishFlags = k.PublishFlags(0), max_uses: int = 0, lifetime: float | None = None) -> bytes:
        """Returns another token for a share that is published."""
        return self._granted(lib.kvmem_broker_grant, name, [], flags, max_uses, lifetime)

    def _granted(
        self, function: Any, name: str, share: list[Any], flags: k.PublishFlags, max_uses: int, lifetime: float | None
    ) -> bytes:
        options = Options(
            "publish_options", flags=flags, max_uses=max_uses, lifetime_ns=0 if lifetime is None else nanoseconds(lifetime, "lifetime")
        )
        out = ffi.new("kvmem_token *")
        _errors.call(function, self._handle, c_string(name, "name"), *share, options.c, out)
        return bytes(out.bytes)

    def unpublish(self, name: str) -> None:
        """Ends a publication. Processes that have opened it keep their mappings."""
        _errors.call(lib.kvmem_broker_unpublish, self._handle, c_string(name, "name"))

    @property
    def info(self) -> BrokerInfo:
        """State of the broker."""
        c = read(lib.kvmem_broker_get_info, "broker_info", self._handle)
        return BrokerInfo(c.publications, c.clients, c.granted, c.refused)

    def _describe(self) -> str:
        info = self.info
        return f"{info.publications} publications, {info.clients} clients"


def _fd(end: socket.socket | int, name: str) -> int:
    if isinstance(end, int):
        return end
    if not hasattr(end, "fileno"):
        raise TypeError(f"{name} is {_errors.type_of(end)}; expected a socket, or a file descriptor")
    return end.fileno()


def open_options(agent: Handle | None, device: int, flags: k.OpenFlags) -> Options:
    return Options("open_options", agent=agent, device=device, flags=flags)


def _token(token: bytes) -> Any:
    _errors.ensure_kind(token, (bytes, bytearray, memoryview), "token", "32 bytes")
    if len(token) != 32:
        raise _errors.InvalidArgument(f"a token has 32 bytes, and this one {len(token)}")
    made = ffi.new("kvmem_token *")
    made.bytes = list(token)
    return made

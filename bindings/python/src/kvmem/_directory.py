# SPDX-License-Identifier: Apache-2.0
"""Directories: agents publish their metadata and layouts under their names, and peers find them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import Handle, Options, c_string, create, handle_of, read_within, take
from kvmem._layout import Layout
from kvmem._library import ffi, lib, text
from kvmem._nixl import Agent
from kvmem._queue import Queue
from kvmem._share import Broker, open_options
from kvmem._time import interruptible, nanoseconds, waiting


class Event(NamedTuple):
    """A change in a directory."""

    agent: str
    incarnation: int
    version: int
    kind: k.DirectoryChange
    status: k.Status
    message: str


class Entry(Handle):
    """What an agent has published. It stays as it was found; `Directory.check` checks that it is still current."""

    __slots__ = ()
    _type = "directory_entry"

    def __init__(self) -> None:
        raise TypeError("use Directory.look_up, wait_for or connect")

    def _info(self) -> Any:
        return read_within(lib.kvmem_directory_entry_get_info, "directory_entry_info", self._handle)

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return text(self._info().agent)

    @property
    def incarnation(self) -> int:
        """A number that another agent of the same name does not have."""
        return int(self._info().incarnation)

    @property
    def version(self) -> int:
        """Grows with each publication of the agent."""
        return int(self._info().version)

    @property
    def layouts(self) -> dict[str, bytes]:
        """Descriptors of the layouts by name."""
        info = self._info()
        return {text(c.name): bytes(ffi.buffer(c.descriptor, c.size)) for c in (info.layouts[0 : info.layout_count] if info.layout_count else ())}

    def load(self, agent: Agent) -> None:
        """Makes the peer known to an agent of this process."""
        _errors.call(lib.kvmem_directory_entry_load, self._handle, handle_of(agent, Agent, "agent"))

    def import_layout(self, agent: Agent, name: str) -> Layout:
        """A layout of the peer. Only transfers can access it."""
        return self.open_layout(name, agent=agent, flags=k.OpenFlags.REMOTE, timeout=None)

    def open_layout(
        self, name: str, *, agent: Agent | None = None, device: int = 0, flags: k.OpenFlags = k.OpenFlags(0), timeout: float | None = 10.0
    ) -> Layout:
        """A layout of the peer: mapped if the peer has published it with a broker of this machine, otherwise one that only transfers of
        `agent` can access. `layout.info.locality` says which. Mapped memory needs no agent, and can be read, or what was granted."""
        options = open_options(agent, device, flags)
        opening = waiting(lib.kvmem_directory_entry_open_layout, options, destroy=lib.kvmem_layout_destroy)
        return Layout._owning(create(opening, "layout", self._handle, c_string(name, "name"), options.c, nanoseconds(timeout)))

    def _describe(self) -> str:
        return f"{self.agent!r}, version {self.version}, layouts {', '.join(self.layouts) or 'none'}"


class Directory(Handle):
    """A directory of agents: a folder of this machine, or in etcd."""

    __slots__ = ("_queue",)
    _type = "directory"

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        endpoints: Sequence[str] = (),
        prefix: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        certificate_file: str | os.PathLike[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        user: str | None = None,
        password: str | None = None,
        lease_seconds: int = 0,
    ) -> None:
        """Opens a folder, which the first publication creates if it does not exist, or connects to the servers of etcd at
        `endpoints`."""
        self._queue: Queue | None = None
        options = Options(
            "directory_options",
            folder=folder,
            endpoints=endpoints or None,
            endpoint_count=len(endpoints),
            prefix=prefix,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            user=user,
            password=password,
            lease_seconds=lease_seconds,
        )
        self._own(create(waiting(lib.kvmem_directory_create, options, destroy=lib.kvmem_directory_destroy), "directory", options.c))

    def publish(
        self,
        agent: Agent,
        layouts: Mapping[str, Layout] | None = None,
        timeout: float | None = 10.0,
        *,
        broker: Broker | None = None,
        share_flags: k.ShareFlags = k.ShareFlags.READ_ONLY,
        transport: k.Transport = k.Transport.AUTO,
    ) -> None:
        """Publishes an agent and its layouts. Its previous entry is replaced, also that of another process.

        With a broker, processes of this machine can map the memory by `Entry.open_layout` while it is published: for reading, or with
        `share_flags=ShareFlags(0)` also for writing. `transport` is that of the shares."""
        share = Options("share_options", flags=share_flags, transport=transport)
        if layouts is not None:
            _errors.ensure_kind(layouts, Mapping, "layouts", "names with layouts")
        names = [c_string(name, "name") for name in layouts or {}]
        handles = [handle_of(layout, Layout, "a layout") for layout in (layouts or {}).values()]
        broker_handle = None if broker is None else handle_of(broker, Broker, "broker")
        array = ffi.new("kvmem_named_layout[]", len(names))
        for row, name, handle in zip(array, names, handles):
            row.name, row.layout = name, handle
            if broker_handle is not None:
                row.broker, row.share = broker_handle, share.c
        given = array if names else ffi.NULL
        publishing = waiting(lib.kvmem_directory_publish, names, handles, broker_handle, share)
        _errors.call(publishing, self._handle, handle_of(agent, Agent, "agent"), given, len(names), nanoseconds(timeout))

    def withdraw(self, agent: str, timeout: float | None = 10.0) -> None:
        """Removes an entry that this directory has published."""
        _errors.call(waiting(lib.kvmem_directory_withdraw), self._handle, c_string(agent, "agent"), nanoseconds(timeout))

    def look_up(self, agent: str, timeout: float | None = 10.0) -> Entry:
        """The entry of an agent. Raises NotFound at once if there is none; `timeout` limits the reply of the directory."""
        looking = waiting(lib.kvmem_directory_look_up, destroy=lib.kvmem_directory_entry_destroy)
        return Entry._owning(create(looking, "directory_entry", self._handle, c_string(agent, "agent"), nanoseconds(timeout)))

    def wait_for(self, agent: str, timeout: float | None = None) -> Entry:
        """Waits until an agent is published, and returns its entry."""
        found: list[Entry] = []
        last: list[_errors.Error] = []

        def wait(limit: int) -> bool:
            error, out = ffi.new("kvmem_error **"), ffi.new("kvmem_directory_entry **")
            status = lib.kvmem_directory_connect(self._handle, ffi.NULL, c_string(agent, "agent"), limit, out, error)
            if status < 0:
                failure = _errors.taken(status, error)
                if status != k.Status.TIMED_OUT:
                    raise failure
                last[:] = [failure]
                return False
            found.append(Entry._owning(out[0]))
            return True

        if not interruptible(wait, timeout):
            raise last[0] if last else _errors.TimedOut(f"agent {agent!r} was not published within {timeout} s")
        return found[0]

    def connect(self, agent: Agent, peer: str, timeout: float | None = None) -> Entry:
        """Waits until a peer is published, makes it known to the agent, and returns its entry."""
        handle_of(agent, Agent, "agent")  # before the wait
        begun = time.monotonic()
        self.wait_for(peer, timeout).close()
        # In one call: a shorter one could never end, because it begins to load the metadata again each time.
        left = None if timeout is None else max(timeout - (time.monotonic() - begun), 0)
        connecting = waiting(lib.kvmem_directory_connect, destroy=lib.kvmem_directory_entry_destroy)
        made = create(connecting, "directory_entry", self._handle, handle_of(agent, Agent, "agent"), c_string(peer, "peer"), nanoseconds(left))
        return Entry._owning(made)

    def check(self, entry: Entry, timeout: float | None = 10.0) -> None:
        """Raises Stale if the agent has published since, or another took its name, and NotFound if it has ended."""
        _errors.call(waiting(lib.kvmem_directory_check), self._handle, handle_of(entry, Entry, "entry"), nanoseconds(timeout))

    # ---- events ----

    def watch(self, agent: str | None = None, timeout: float | None = 10.0) -> None:
        """Begins to watch an agent, or all."""
        name = ffi.NULL if agent is None else c_string(agent, "agent")
        _errors.call(waiting(lib.kvmem_directory_watch), self._handle, name, nanoseconds(timeout))

    def unwatch(self, agent: str | None = None, timeout: float | None = 10.0) -> None:
        """Ends a watch."""
        name = ffi.NULL if agent is None else c_string(agent, "agent")
        _errors.call(waiting(lib.kvmem_directory_unwatch), self._handle, name, nanoseconds(timeout))

    def take_events(self, timeout: float | None = 0) -> list[Event]:
        """Removes all events. Waits up to `timeout` seconds for one, None without a limit; none is an empty list."""
        return take(
            self._handle, lib.kvmem_directory_take_events, "directory_events", timeout,
            lambda c: Event(
                text(c.agent), c.incarnation, c.version, k.DirectoryChange(c.kind), k.Status(c.status), text(c.message)
            ),
        )  # fmt: skip

    def report_events(self, queue: Queue | None, user_data: Any = None) -> None:
        """Has a queue report that events have arrived: take them then. None ends that."""
        if queue is None:
            _errors.call(lib.kvmem_directory_report_events, self._handle, ffi.NULL, 0)
        else:
            handle_of(queue, Queue, "queue")
            queue._report(self, lib.kvmem_directory_report_events, user_data)
        self._queue = queue

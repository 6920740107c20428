# SPDX-License-Identifier: Apache-2.0
"""NIXL as it is: requests on raw descriptors, prepared lists, queries, plugins, metadata by address. Layouts and transfers need none of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._arrays import block_ids
from kvmem._constants import NixlFlags, Operation
from kvmem._handle import Handle, Options, blob, c_string, create, handle_of, items_of, number_of, read
from kvmem._layout import Layout
from kvmem._library import blob_bytes, blob_text, ffi, lib, text
from kvmem._nixl import Agent, parameters_of
from kvmem._queue import Queue
from kvmem._region import Region
from kvmem._shape import Shape, config_of
from kvmem._time import nanoseconds, run_ends, waiting

__all__ = [
    "AgentTelemetry", "Cost", "Descriptor", "NixlFlags", "Operation", "Plugin", "Prepared", "Request", "RequestTelemetry", "Segments",
    "connect", "descriptors", "fetch_metadata", "invalidate_metadata", "partial_metadata", "plugins", "query", "remote_layout", "send_metadata",
    "telemetry",
]  # fmt: skip


class Descriptor(NamedTuple):
    """Memory, a file, an object or a block as NIXL addresses it. `descriptors` returns those of a region, which keep it allocated; other
    memory must stay valid as long as an object that was created from its descriptor."""

    address: int
    """Address, or offset in a file or object."""
    size: int
    """Bytes."""
    device_id: int = 0
    """0 for host memory, the ordinal of a GPU, the file descriptor of a file, the number of an object or block device."""
    memory_type: k.MemoryType = k.MemoryType.DRAM
    """All descriptors of a list have the same."""
    metadata: bytes = b""
    """For registrations and queries: what the backend needs, such as the key of an object."""
    region: Region | None = None


class Cost(NamedTuple):
    """NIXL's estimate of the duration of a request."""

    duration_ns: int
    margin_ns: int
    method: int
    """0 if the backend has calculated it; other values are NIXL's."""


class RequestTelemetry(NamedTuple):
    """NIXL's measurements of the last run of a request."""

    start_ns: int
    """Of CLOCK_MONOTONIC."""
    post_ns: int
    duration_ns: int
    bytes: int
    descriptors: int


class AgentTelemetry(NamedTuple):
    """Sums over the requests of an agent that was created with AgentFlags.TELEMETRY."""

    succeeded: int
    failed: int
    in_flight: int
    bytes_read: int
    bytes_written: int
    descriptors: int
    post_ns: int
    duration_ns: int
    longest_ns: int
    notifications_sent: int
    notifications_received: int


class Plugin(NamedTuple):
    """A plugin that NIXL finds."""

    name: str
    failure: str
    """Why it does not load, or ""."""
    parameters: dict[str, str]
    memory_types: list[k.MemoryType]


def descriptors(region: Region) -> list[Descriptor]:
    """The memory of a region, one descriptor per span that is registered."""
    count = ffi.new("size_t *")
    while True:
        _errors.call(lib.kvmem_region_get_descriptors, handle_of(region, Region, "region"), ffi.NULL, 0, count)
        found = ffi.new("kvmem_nixl_descriptor[]", count[0])
        try:
            _errors.call(lib.kvmem_region_get_descriptors, handle_of(region, Region, "region"), found, len(found), count)
        except _errors.OutOfRange:
            continue  # elastic memory has got more of them
        return [
            Descriptor(
                c.address, c.size, c.device_id, k.MemoryType(c.memory_type),
                bytes(ffi.buffer(c.metadata, c.metadata_size)) if c.metadata_size else b"", region,
            )
            for c in (found[index] for index in range(count[0]))
        ]  # fmt: skip


def _agent(agent: Agent) -> Any:
    return handle_of(agent, Agent, "agent")


def _port(port: int) -> int:
    return number_of(port, "port", limit=1 << 16)


class _Given:
    """Descriptors and options for a call of C, and what they point to."""

    def __init__(self, listed: Sequence[Descriptor]) -> None:
        if isinstance(listed, (Handle, str, bytes)) or not all(isinstance(one, Descriptor) for one in listed):
            raise TypeError("descriptors are no list of kvmem.nixl.Descriptor; kvmem.nixl.descriptors(region) returns those of a region")
        self.count = len(listed)
        self.c = ffi.new("kvmem_nixl_descriptor[]", self.count)
        self.kept: list[Any] = []
        for row, one in zip(self.c, listed):
            try:
                row.address, row.size, row.device_id, row.memory_type = one[:4]
            except (OverflowError, TypeError) as error:
                raise _errors.InvalidArgument(f"{one} is no descriptor: {error}") from error
            if one.metadata:
                data = ffi.from_buffer(one.metadata)
                self.kept.append(data)
                row.metadata, row.metadata_size = data, len(data)
            if one.region is not None:
                handle = handle_of(one.region, Region, "region")  # what `row.region` returns keeps nothing
                row.region = handle
                self.kept.append(handle)


def _options(
    backends: Sequence[str] = (), custom_parameter: bytes = b"", flags: int = 0, notification: bytes | None = None, run_timeout: float | None = None
) -> Options:
    if notification is not None:
        flags |= NixlFlags.NOTIFY
    return Options(
        "nixl_options",
        flags=flags,
        notification=notification or None,
        notification_size=len(notification or b""),
        run_timeout_ns=0 if run_timeout is None else nanoseconds(run_timeout, "run_timeout"),
        backends=list(backends) or None,
        backend_count=len(backends),
        custom_parameter=custom_parameter or None,
        custom_parameter_size=len(custom_parameter),
    )


class Segments(Handle):
    """Descriptors that an agent has registered: memory that is in no region, objects and blocks. Wait for requests before closing it."""

    __slots__ = ()
    _type = "segments"

    def __init__(self, agent: Agent, listed: Sequence[Descriptor], *, backends: Sequence[str] = (), custom_parameter: bytes = b"") -> None:
        given, options = _Given(listed), _options(backends, custom_parameter)
        self._own(create(lib.kvmem_segments_register, "segments", _agent(agent), given.c, given.count, options.c))

    def deregister(self) -> None:
        """Deregisters the memory now, and raises if that fails."""
        _errors.call(lib.kvmem_segments_deregister, self._handle)


class Prepared(Handle):
    """A list of descriptors that NIXL has resolved once, for one side of requests: without `owner` the local side, with it the memory of
    that peer, or files and objects of the agent itself."""

    __slots__ = ()
    _type = "prepared"

    def __init__(
        self, agent: Agent, listed: Sequence[Descriptor], *, owner: str | None = None, backends: Sequence[str] = (), custom_parameter: bytes = b""
    ) -> None:
        given, options = _Given(listed), _options(backends, custom_parameter)
        name = ffi.NULL if owner is None else c_string(owner, "owner")
        self._own(create(lib.kvmem_prepared_create, "prepared", _agent(agent), name, given.c, given.count, options.c))


class Request(Handle):
    """A NIXL transfer between raw descriptors, which can be posted repeatedly: `Request(...).post().wait()`."""

    __slots__ = ("_queue", "_token")
    _type = "request"

    def __init__(
        self,
        agent: Agent,
        operation: Operation,
        local: Sequence[Descriptor],
        owner: str,
        remote: Sequence[Descriptor],
        *,
        flags: NixlFlags = NixlFlags(0),
        notification: bytes | None = None,
        run_timeout: float | None = None,
        queue: Queue | None = None,
        user_data: Any = None,
        backends: Sequence[str] = (),
        custom_parameter: bytes = b"",
    ) -> None:
        """Creates a request on two lists, which correspond by index.

        owner         the peer that owns the remote side, or the agent itself for files and objects
        notification  sent to the peer when a run has ended
        run_timeout   seconds that a run may take
        queue         receives a completion per run, with `user_data`"""
        mine, others = _Given(local), _Given(remote)
        if mine.count != others.count:
            raise _errors.InvalidArgument(f"there are {mine.count} local descriptors and {others.count} remote ones")
        options = _options(backends, custom_parameter, flags, notification, run_timeout)
        arguments = (_agent(agent), operation, mine.c, c_string(owner, "owner"), others.c, mine.count)
        self._create(lib.kvmem_request_create, arguments, options, queue, user_data)

    @classmethod
    def of_prepared(
        cls,
        operation: Operation,
        local: Prepared,
        local_indices: Sequence[int],
        remote: Prepared,
        remote_indices: Sequence[int],
        *,
        flags: NixlFlags = NixlFlags(0),
        notification: bytes | None = None,
        run_timeout: float | None = None,
        queue: Queue | None = None,
        user_data: Any = None,
    ) -> Request:
        """Creates a request on descriptors of two prepared lists, by their indices."""
        mine, others = block_ids(local_indices), block_ids(remote_indices)
        if len(mine) != len(others):
            raise _errors.InvalidArgument(f"there are {len(mine)} local indices and {len(others)} remote ones")
        made = cls.__new__(cls)
        arguments = (operation, handle_of(local, Prepared, "local"), mine, handle_of(remote, Prepared, "remote"), others, len(mine))
        made._create(lib.kvmem_request_make, arguments, _options(flags=flags, notification=notification, run_timeout=run_timeout), queue, user_data)
        return made

    def _create(self, function: Any, arguments: tuple[Any, ...], options: Options, queue: Queue | None, user_data: Any) -> None:
        self._queue, self._token = queue, 0
        if queue is not None:
            options.set("queue", ffi.typeof(options.c.queue), handle_of(queue, Queue, "queue"))
            self._token = options.c.user_data = queue._expect(self, user_data, None)
        try:
            self._own(create(function, "request", *arguments, options.c))
        except BaseException:
            if queue is not None:
                queue._forget(self._token)
            raise
        finally:
            del arguments

    def post(self, notification: bytes | None = None) -> Request:
        """Starts a run. A notification replaces that of the options."""
        data = ffi.NULL if notification is None else ffi.from_buffer(notification or b"\0")
        _errors.call(lib.kvmem_request_post, self._handle, data, len(notification or b""))
        return self

    def poll(self) -> bool:
        """Whether the last run has ended. Raises how it failed. Never waits."""
        return _errors.call(lib.kvmem_request_poll, self._handle) != k.Status.IN_PROGRESS

    def _status(self) -> int:
        return int(lib.kvmem_request_poll(self._handle, ffi.NULL))

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the end of the last run. Raises how it failed, or TimedOut if it is still in flight after `timeout` seconds."""
        wait = lambda limit, error: lib.kvmem_request_wait(self._handle, limit, error)  # noqa: E731
        if not run_ends(wait, self._status, timeout):
            raise _errors.TimedOut(f"the request is still in flight after {timeout} s")

    def close(self) -> None:
        """Gives the request back. A run continues."""
        if self._queue is not None:
            self._queue._forget(self._token)
        super().close()

    @property
    def backend(self) -> str:
        """The plugin that NIXL chose."""
        return blob_text(blob(lib.kvmem_request_get_backend, self._handle))

    def estimate(self) -> Cost:
        """How long NIXL expects the request to take."""
        c = read(lib.kvmem_request_estimate, "request_cost", self._handle)
        return Cost(c.duration_ns, c.margin_ns, c.method)

    @property
    def telemetry(self) -> RequestTelemetry:
        """NIXL's measurements of the last run, of an agent with AgentFlags.TELEMETRY."""
        c = read(lib.kvmem_request_get_telemetry, "request_telemetry", self._handle)
        return RequestTelemetry(c.start_ns, c.post_ns, c.duration_ns, c.bytes, c.descriptors)


def query(agent: Agent, listed: Sequence[Descriptor], *, backend: str | None = None, timeout: float | None = None) -> list[dict[str, str] | None]:
    """Asks a backend about files or objects. An item is None if there is none, and otherwise what the backend says of it."""
    given, options = _Given(listed), _options([backend] if backend else ())
    asking = waiting(lib.kvmem_agent_query, given, options, destroy=lib.kvmem_query_destroy)
    found = create(asking, "query", _agent(agent), given.c, given.count, options.c, nanoseconds(timeout))
    try:
        return [parameters_of(c) if c.exists else None for c in items_of(found)]
    finally:
        lib.kvmem_query_destroy(found)


def plugins(agent: Agent) -> list[Plugin]:
    """The plugins that NIXL finds, also those that do not load."""
    listed = create(lib.kvmem_agent_get_plugins, "plugins", _agent(agent))
    try:
        return [
            Plugin(text(c.name), text(c.failure), parameters_of(c), [each for each in k.MemoryType if c.memory_types >> each & 1])
            for c in items_of(listed)
        ]
    finally:
        lib.kvmem_plugins_destroy(listed)


def telemetry(agent: Agent) -> AgentTelemetry:
    """Sums over the requests of an agent."""
    c = read(lib.kvmem_agent_get_telemetry, "agent_telemetry", _agent(agent))
    return AgentTelemetry(
        c.succeeded, c.failed, c.in_flight, c.bytes_read, c.bytes_written, c.descriptors, c.post_ns, c.duration_ns, c.longest_ns,
        c.notifications_sent, c.notifications_received,
    )  # fmt: skip


def connect(agent: Agent, peer: str, *, backends: Sequence[str] = (), timeout: float | None = None) -> None:
    """Connects to a peer before the first request."""
    options = _options(backends)
    _errors.call(waiting(lib.kvmem_agent_connect, options), _agent(agent), c_string(peer, "peer"), options.c, nanoseconds(timeout))


def partial_metadata(agent: Agent, listed: Sequence[Descriptor], *, backends: Sequence[str] = ()) -> bytes:
    """Metadata of some registered memory, which a peer loads with `Agent.load` after all of the agent's metadata."""
    given, options = _Given(listed), _options(backends)
    return blob_bytes(blob(lib.kvmem_agent_get_partial_metadata, _agent(agent), given.c, given.count, options.c))


def send_metadata(agent: Agent, address: str, port: int, listed: Sequence[Descriptor] | None = None) -> None:
    """Sends the metadata of an agent, or of some of its memory, to the listen thread of a peer. Both agents need one."""
    if listed is None:
        _errors.call(lib.kvmem_agent_send_local_metadata, _agent(agent), c_string(address, "address"), _port(port))
    else:
        given = _Given(listed)
        _errors.call(lib.kvmem_agent_send_partial_metadata, _agent(agent), given.c, given.count, c_string(address, "address"), _port(port))


def fetch_metadata(agent: Agent, peer: str, address: str, port: int, timeout: float | None = 10.0) -> None:
    """Loads the metadata of a peer from its listen thread."""
    _errors.call(waiting(lib.kvmem_agent_fetch_remote_metadata), _agent(agent), c_string(peer, "peer"), c_string(address, "address"), _port(port), nanoseconds(timeout))


def invalidate_metadata(agent: Agent, address: str, port: int) -> None:
    """Has a peer forget this agent."""
    _errors.call(lib.kvmem_agent_invalidate_local_metadata, _agent(agent), c_string(address, "address"), _port(port))


def remote_layout(agent: Agent, owner: str, shape: Shape, listed: Sequence[Descriptor]) -> Layout:
    """A layout over descriptors of a peer that does not use kvmem."""
    config, given = config_of(shape), _Given(listed)
    made = create(lib.kvmem_layout_create_remote, "layout", _agent(agent), c_string(owner, "owner"), config.c, given.c, given.count)
    return Layout._owning(made, shape.dtype)

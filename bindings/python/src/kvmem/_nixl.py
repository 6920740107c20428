# SPDX-License-Identifier: Apache-2.0
"""Agents of NVIDIA NIXL: memory and layouts of other processes, on this machine and on others."""

from __future__ import annotations

import glob
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import Handle, Options, blob, c_string, create, handle_of, items_of, read, take
from kvmem._layout import Layout
from kvmem._library import blob_bytes, blob_text, ffi, lib, text
from kvmem._queue import Queue
from kvmem._region import Region
from kvmem._time import nanoseconds

_load_lock = threading.Lock()
_loaded = False


def load_nixl(path: str | os.PathLike[str] | None = None) -> str:
    """Loads NIXL, and returns its path. The first agent does this.

    Without a path it is that of KVMEM_NIXL_LIBRARY, or the one of an installed wheel nixl-cu13 or nixl-cu12, or that of the loader's
    search path."""
    global _loaded
    with _load_lock:
        if path is None and not _loaded and not os.environ.get("KVMEM_NIXL_LIBRARY"):
            path = _installed()
        _errors.call(lib.kvmem_nixl_load, ffi.NULL if path is None else c_string(path, "path"))
        _loaded = True
    return os.fsdecode(blob_bytes(blob(lib.kvmem_nixl_get_path)))


def _installed() -> str | None:
    """The library of a wheel of NIXL. With both wheels, that of the driver's version of CUDA."""
    found: dict[int, str] = {}
    for folder in sys.path:
        for path in glob.glob(os.path.join(glob.escape(folder or "."), ".nixl_cu1[0-9].mesonpy.libs", "libnixl_capi.so")):
            name = os.path.basename(os.path.dirname(path))
            found.setdefault(int(name.removeprefix(".nixl_cu").split(".")[0]), path)
    if not found:
        return None
    driver = 0
    if len(found) > 1:
        out = ffi.new("kvmem_cuda_info *")
        if lib.kvmem_cuda_get_info(out, ffi.NULL) == 0:
            driver = out.driver_version // 1000
    usable = [version for version in found if version <= driver]
    return found[max(usable) if usable else min(found)]


def parameters_of(c: Any) -> dict[str, str]:
    """The parameters of a struct that has `parameters` and `parameter_count`."""
    return {text(each.key): text(each.value) for each in (c.parameters[index] for index in range(c.parameter_count))}


class Notification(NamedTuple):
    """A message of a peer."""

    agent: str
    """Name of the sender."""
    data: bytes


class RegistrationInfo(NamedTuple):
    """What is registered with an agent."""

    address: int
    size: int
    device_id: int
    memory_type: k.MemoryType
    registered: bool


class Registration(Handle):
    """A region that is registered with an agent, so that peers can access it. It keeps both alive."""

    __slots__ = ()
    _type = "registration"

    def __init__(self) -> None:
        raise TypeError("use Agent.register")

    @property
    def info(self) -> RegistrationInfo:
        """What is registered."""
        c = read(lib.kvmem_registration_get_info, "registration_info", self._handle)
        return RegistrationInfo(c.address, c.size, c.device_id, k.MemoryType(c.memory_type), bool(c.registered))

    def deregister(self) -> None:
        """Deregisters the region now, and raises if that fails."""
        _errors.call(lib.kvmem_registration_deregister, self._handle)

    def _describe(self) -> str:
        info = self.info
        return f"{info.size:,} bytes at {info.address:#x}, {'registered' if info.registered else 'deregistered'}"


class Agent(Handle):
    """A NIXL agent: it registers memory, and reads and writes that of peers."""

    __slots__ = ("_queue",)
    _type = "agent"

    def __init__(
        self,
        name: str,
        *,
        backends: Sequence[str] | Mapping[str, Mapping[str, str]] = ("UCX",),
        flags: k.AgentFlags = k.AgentFlags(0),
        progress_delay_us: int = 0,
        listen_port: int = 0,
        listen_delay_us: int = 0,
        sync_mode: k.SyncMode = k.SyncMode.DEFAULT,
        call_timeout: float | None = None,
    ) -> None:
        """Creates an agent. Its name is unique among its peers.

        backends      plugins, such as "UCX", "POSIX", "OBJ"; a mapping has their parameters
        call_timeout  seconds that a call of NIXL may take; 10 minutes by default"""
        load_nixl()
        self._queue: Queue | None = None
        options = Options(
            "agent_options",
            flags=flags,
            progress_delay_ns=1000 * progress_delay_us,
            listen_port=listen_port,
            listen_delay_ns=1000 * listen_delay_us,
            sync_mode=sync_mode,
            call_timeout_ns=0 if call_timeout is None else nanoseconds(call_timeout, "call_timeout"),
        )
        self._own(create(lib.kvmem_agent_create, "agent", c_string(name, "name"), options.c))
        try:
            for plugin in backends:
                self.create_backend(plugin, backends[plugin] if isinstance(backends, Mapping) else {})
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """Its name."""
        handle = self._handle  # another thread may close the agent before the text is read
        return text(lib.kvmem_agent_name(handle))

    def create_backend(self, plugin: str, parameters: Mapping[str, str] | None = None) -> None:
        """Adds a backend of NIXL."""
        strings = [(c_string(key), c_string(value)) for key, value in (parameters or {}).items()]
        array = ffi.new("kvmem_parameter[]", strings) if strings else ffi.NULL
        _errors.call(lib.kvmem_agent_create_backend, self._handle, c_string(plugin, "plugin"), array, len(strings))

    @property
    def backends(self) -> dict[str, dict[str, str]]:
        """The backends of the agent by name, with their parameters."""
        listed = create(lib.kvmem_agent_get_backends, "plugins", self._handle)
        try:
            return {text(c.name): parameters_of(c) for c in items_of(listed)}
        finally:
            lib.kvmem_plugins_destroy(listed)

    def register(self, region: Region) -> Registration:
        """Registers a region, so that peers can access it."""
        return Registration._owning(create(lib.kvmem_region_register, "registration", handle_of(region, Region, "region"), self._handle))

    # ---- peers ----

    @property
    def metadata(self) -> bytes:
        """What peers need to reach this agent and its registered memory. `Directory.publish` publishes it."""
        return blob_bytes(blob(lib.kvmem_agent_get_local_metadata, self._handle))

    def load(self, metadata: bytes) -> str:
        """Makes a peer known by its metadata, and returns its name."""
        data = ffi.from_buffer(metadata)
        return blob_text(blob(lib.kvmem_agent_load_remote_metadata, self._handle, data, len(data)))

    def check(self, peer: str) -> None:
        """Raises NotFound or Stale if the peer is not known, or was invalidated."""
        _errors.call(lib.kvmem_agent_check_remote_metadata, self._handle, c_string(peer, "peer"))

    def invalidate(self, peer: str) -> None:
        """Forgets a peer: its transfers fail with Stale. Load its metadata again to reach a successor of its name."""
        _errors.call(lib.kvmem_agent_invalidate_remote_metadata, self._handle, c_string(peer, "peer"), ffi.NULL)

    def invalidate_all(self) -> int:
        """Forgets all peers, and returns their number."""
        count = ffi.new("size_t *")
        _errors.call(lib.kvmem_agent_invalidate_remote_metadata, self._handle, ffi.NULL, count)
        return int(count[0])

    def import_layout(self, descriptor: bytes) -> Layout:
        """The layout of a peer, from what its `Layout.export` returned. Only transfers can access it."""
        data = ffi.from_buffer(descriptor)
        return Layout._owning(create(lib.kvmem_layout_import, "layout", self._handle, data, len(data)))

    # ---- messages ----

    def notify(self, peer: str, data: bytes) -> None:
        """Sends a message to a peer."""
        _errors.call(lib.kvmem_agent_notify, self._handle, c_string(peer, "peer"), ffi.from_buffer(data) if data else ffi.NULL, len(data))

    def take_notifications(self, timeout: float | None = 0) -> list[Notification]:
        """Removes the messages that have arrived. Waits up to `timeout` seconds for one, None without a limit; none is an empty list."""
        return take(
            self._handle, lib.kvmem_agent_take_notifications, "notifications", timeout,
            lambda c: Notification(text(c.agent), bytes(ffi.buffer(c.data, c.size)) if c.size else b""),
        )  # fmt: skip

    def report_notifications(self, queue: Queue | None, user_data: Any = None) -> None:
        """Has a queue report that messages have arrived: take them then. None ends that."""
        if queue is None:
            _errors.call(lib.kvmem_agent_report_notifications, self._handle, ffi.NULL, 0)
        else:
            handle_of(queue, Queue, "queue")
            queue._report(self, lib.kvmem_agent_report_notifications, user_data)
        self._queue = queue

    def _describe(self) -> str:
        return repr(self.name)

# SPDX-License-Identifier: Apache-2.0
"""Regions: memory on one tier."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors, _release
from kvmem._handle import Handle, Options, create, read
from kvmem._library import blob_bytes, blob_text, ffi, lib


class RegionInfo(NamedTuple):
    """Properties of a region."""

    address: int
    """First byte: a host address, a device address, or an offset in the file or block device."""
    size: int
    """Bytes."""
    memory_page_size: int
    """Bytes per page of the mapping; per extent for elastic memory; per object for objects."""
    alignment: int
    """Files and block storage: offsets, sizes and memory addresses of I/O must be multiples of this. Others: 1."""
    flags: k.RegionFlags
    tier: k.Tier
    origin: k.Origin
    device: int
    """GPU that the memory is located on, or was page-locked for; -1 for none."""
    numa_node: int
    """-1 for any."""
    fd: int
    """The open file, valid as long as the region; -1 for other tiers."""
    registration_count: int
    """Agents that the region is registered with."""
    num_extents: int
    """Extents of elastic memory; 0 for other tiers. The next two are 0 for them, too."""
    num_committed: int
    """Extents that have memory."""
    generation: int
    """Changes with each commit and decommit."""


class Holders(NamedTuple):
    """What keeps a region allocated, by kind."""

    references: int
    views: int
    registrations: int
    shares: int
    importers: int
    handles: int


class ElasticInfo(NamedTuple):
    """Extents of an elastic region."""

    extent_size: int
    """Bytes."""
    num_extents: int
    num_committed: int
    """Extents that have memory."""
    generation: int
    """Changes with each commit and decommit."""


class Residency(NamedTuple):
    """Where the bytes of host memory are."""

    resident_bytes: int
    transparent_huge_bytes: int
    swapped_bytes: int


class Region(Handle):
    """A range of memory on one tier: host memory, GPU memory, a file, objects or block storage.

    `Region.system`, `pinned`, `device`, `elastic`, `disk`, `objects` and `block` allocate; `Region.adopt` uses memory of another
    library, such as a tensor. Views, layouts, shares and transfers keep the memory allocated."""

    __slots__ = ()
    _type = "region"

    def __init__(self) -> None:
        raise TypeError("use Region.system, pinned, device, elastic, disk, objects, block or adopt")

    # ---- allocation ----

    @classmethod
    def system(
        cls,
        size: int,
        *,
        flags: k.SystemFlags = k.SystemFlags(0),
        huge_page_size: int = 0,
        numa_node: int | None = None,
        prefault_threads: int = 0,
    ) -> Region:
        """Allocates host memory of `size` bytes, page-aligned and zeroed."""
        return cls._created(lib.kvmem_region_create_system, system_options(size, flags, huge_page_size, numa_node, prefault_threads))

    @classmethod
    def pinned(
        cls,
        size: int,
        *,
        device: int = 0,
        flags: k.PinnedFlags = k.PinnedFlags(0),
        numa_node: int | None = None,
        threads: int = 0,
        chunk_size: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> Region:
        """Allocates page-locked host memory near a GPU.

        `progress(done, total)` is called with bytes; an exception in it ends the allocation and is raised here. It works with
        tqdm: `progress=lambda done, total: bar.update(done - bar.n)`."""
        options = pinned_options(size, device, flags, numa_node, threads, chunk_size)
        if progress is None:
            return cls._created(lib.kvmem_region_create_pinned, options)
        raised: list[BaseException] = []

        @ffi.callback("kvmem_progress_callback", error=1)  # type: ignore[untyped-decorator, unused-ignore]
        def report(done: int, total: int, _: Any) -> int:
            try:
                progress(done, total)
            except BaseException as error:
                raised.append(error)
                return 1
            return 0

        options.c.progress = report
        try:
            return cls._created(lib.kvmem_region_create_pinned, options)
        except _errors.Cancelled:
            if raised:
                raise raised[0] from None
            raise

    @classmethod
    def device(cls, size: int, *, device: int = 0) -> Region:
        """Allocates memory of a GPU. Its content is undefined."""
        return cls._created(lib.kvmem_region_create_device, device_options(size, device))

    @classmethod
    def elastic(cls, size: int, *, device: int = 0, extent_size: int = 0, flags: k.ElasticFlags = k.ElasticFlags(0)) -> Region:
        """Reserves `size` bytes of addresses for GPU memory. `commit` and `decommit` give memory to extents and take it."""
        return cls._created(lib.kvmem_region_create_elastic, elastic_options(size, device, extent_size, flags))

    @classmethod
    def disk(
        cls,
        size: int = 0,
        *,
        path: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        flags: k.DiskFlags = k.DiskFlags(0),
    ) -> Region:
        """Creates or opens a file. Without `path` it has no name, and is deleted with the region."""
        return cls._created(lib.kvmem_region_create_disk, disk_options(size, path, directory, flags))

    @classmethod
    def objects(cls, key_prefix: str, object_size: int, count: int) -> Region:
        """Describes `count` objects of an object store, which NIXL reads and writes."""
        options = Options("object_options", key_prefix=key_prefix, object_size=object_size, count=count)
        return cls._created(lib.kvmem_region_create_object, options)

    @classmethod
    def block(cls, size: int, *, device_id: int, offset: int = 0, alignment: int = 0, metadata: bytes | None = None) -> Region:
        """Describes a part of block storage, which NIXL reads and writes."""
        options = Options(
            "block_options",
            size=size,
            device_id=device_id,
            offset=offset,
            alignment=alignment,
            metadata=metadata or None,
            metadata_size=len(metadata or b""),
        )
        return cls._created(lib.kvmem_region_create_block, options)

    @classmethod
    def adopt(cls, source: Any, *, read_only: bool | None = None, stream: int | None = None) -> Region:
        """Makes a region of the memory of an array, a tensor or a buffer, without a copy. The object is kept as long as kvmem uses
        its memory.

        It may have gaps between its elements; the region is from the first to the last. Memory that can only be read becomes a
        region that can only be the source of transfers; `read_only=False` refuses it.

        `stream` is a CUDA stream (an integer) whose earlier work DLPack orders before."""
        from kvmem._memory import memory_of

        memory = memory_of(source, stream)
        if memory.read_only and read_only is False:
            raise _errors.PermissionDenied("the memory can only be read")
        return cls._adopted(memory.address, memory.size, memory.device, memory.read_only if read_only is None else read_only, memory)

    @classmethod
    def _adopted(cls, address: int, size: int, device: int, read_only: bool, kept: object) -> Region:
        user_data = _release.hold(kept)
        options = Options(
            "adopt_options",
            flags=k.AdoptFlags.READ_ONLY if read_only else 0,
            address=ffi.cast("void *", address),
            size=size,
            release=_release.callback(),
            user_data=user_data,
        )
        try:
            if device < 0:
                return cls._created(lib.kvmem_region_adopt_host, options)
            return cls._owning(create(lib.kvmem_region_adopt_device, "region", options.c, device))
        except BaseException:
            _release.unhold(user_data)
            raise

    @classmethod
    def adopt_memfd(
        cls, fd: int, size: int, *, offset: int = 0, address: int = 0, flags: k.AdoptFlags = k.AdoptFlags(0), owner: object = None
    ) -> Region:
        """Makes a region of a part of a memory file, so that it can be shared. With `address`, where the part is mapped, `owner` is
        kept as long as kvmem uses the mapping; otherwise kvmem maps it."""
        user_data = _release.hold(owner)
        options = Options(
            "adopt_memfd_options",
            fd=fd,
            size=size,
            offset=offset,
            flags=flags,
            address=ffi.cast("void *", address),
            release=_release.callback(),
            user_data=user_data,
        )
        try:
            return cls._created(lib.kvmem_region_adopt_memfd, options)
        except BaseException:
            _release.unhold(user_data)
            raise

    @classmethod
    def _created(cls, function: Any, options: Options) -> Region:
        return cls._owning(create(function, "region", options.c))

    def view(self, offset: int, size: int) -> Region:
        """A part of the region, in bytes. It keeps the region allocated."""
        return Region._owning(create(lib.kvmem_region_create_view, "region", self._handle, offset, size))

    # ---- information ----

    @property
    def info(self) -> RegionInfo:
        """Properties of the region, read now."""
        c = read(lib.kvmem_region_get_info, "region_info", self._handle)
        return RegionInfo(
            c.address,
            c.size,
            c.memory_page_size,
            c.alignment,
            k.RegionFlags(c.flags),
            k.Tier(c.tier),
            k.Origin(c.origin),
            c.device,
            c.numa_node,
            c.fd,
            c.registration_count,
            c.num_extents,
            c.num_committed,
            c.generation,
        )

    def __len__(self) -> int:
        return int(read(lib.kvmem_region_get_info, "region_info", self._handle).size)

    @property
    def path(self) -> str:
        """Path of the file of a disk region."""
        return os.fsdecode(blob_bytes(create(lib.kvmem_region_get_path, "blob", self._handle)))

    @property
    def holders(self) -> Holders:
        """What keeps the region allocated."""
        c = read(lib.kvmem_region_get_holders, "region_holders", self._handle)
        return Holders(c.references, c.views, c.registrations, c.shares, c.importers, c.handles)

    @property
    def residency(self) -> Residency:
        """How many bytes of host memory are resident, in huge pages, swapped."""
        c = read(lib.kvmem_region_get_residency, "region_residency", self._handle)
        return Residency(c.resident_bytes, c.transparent_huge_bytes, c.swapped_bytes)

    @property
    def agents(self) -> list[str]:
        """Names of the agents that the region is registered with."""
        return [self.agent(index) for index in range(self.info.registration_count)]

    def agent(self, index: int) -> str:
        """Name of an agent that the region is registered with. Raises NotFound after the last one."""
        return blob_text(create(lib.kvmem_region_get_agent, "blob", self._handle, index))

    def check_owner(self) -> None:
        """Raises PeerLost if the process that an imported region belongs to has ended."""
        _errors.call(lib.kvmem_region_check_owner, self._handle)

    # ---- elastic memory, files ----

    def commit(self, offset: int, size: int) -> None:
        """Gives memory to extents of an elastic region."""
        _errors.call(lib.kvmem_region_commit, self._handle, offset, size)

    def decommit(self, offset: int, size: int) -> None:
        """Takes the memory of extents of an elastic region."""
        _errors.call(lib.kvmem_region_decommit, self._handle, offset, size)

    @property
    def elastic_info(self) -> ElasticInfo:
        """Extents of an elastic region."""
        c = read(lib.kvmem_region_get_info, "region_info", self._handle)
        if c.tier != k.Tier.ELASTIC:
            raise _errors.InvalidArgument("the region is not elastic")
        return ElasticInfo(c.memory_page_size, c.num_extents, c.num_committed, c.generation)

    def sync(self) -> None:
        """Makes the bytes of a file durable."""
        _errors.call(lib.kvmem_region_sync, self._handle)

    # ---- memory for other libraries ----

    def tensor(self, dtype: str = "uint8") -> Any:
        """The memory as a tensor of one axis, which keeps the region allocated. Files have no memory."""
        from kvmem._tensor import Tensor, width_of

        info = self.info
        address, device = mapped(info)
        width = width_of(dtype)
        read_only = k.RegionFlags.READ_ONLY in info.flags
        return Tensor(self._handle, address, (info.size // width,), (width,), dtype, device, read_only, "")

    @property
    def memory(self) -> memoryview:
        """The bytes of host memory, without a copy. They stay allocated as long as the view exists."""
        info = self.info
        address, device = mapped(info)
        if device >= 0:
            raise _errors.Unsupported("the memory is on a GPU: use region.tensor() with PyTorch or CuPy")
        import ctypes

        array = (ctypes.c_uint8 * info.size).from_address(address)
        array.owner = self._handle  # type: ignore[attr-defined]
        view = memoryview(array).cast("B")
        return view.toreadonly() if k.RegionFlags.READ_ONLY in info.flags else view

    def _describe(self) -> str:
        info = self.info
        place = f" on GPU {info.device}" if info.tier in (k.Tier.DEVICE, k.Tier.ELASTIC) else ""
        return f"{info.tier.name.lower()}{place}, {info.size:,} bytes at {info.address:#x}"


def mapped(info: RegionInfo) -> tuple[int, int]:
    """The address of memory, and its GPU or -1."""
    if info.tier in (k.Tier.SYSTEM, k.Tier.PINNED):
        return info.address, -1
    if info.tier in (k.Tier.DEVICE, k.Tier.ELASTIC):
        return info.address, info.device
    raise _errors.Unsupported(f"a region on the tier {info.tier.name.lower()} has no address in memory")


# ---- options, also those of layouts ----


def system_options(
    size: int, flags: k.SystemFlags, huge_page_size: int = 0, numa_node: int | None = None, prefault_threads: int = 0
) -> Options:
    if numa_node is not None:
        flags |= k.SystemFlags.NUMA_BIND
    return Options(
        "system_options",
        size=size,
        flags=flags,
        huge_page_size=huge_page_size,
        numa_node=numa_node or 0,
        prefault_threads=prefault_threads,
    )


def pinned_options(
    size: int, device: int = 0, flags: k.PinnedFlags = k.PinnedFlags(0), numa_node: int | None = None, threads: int = 0, chunk_size: int = 0
) -> Options:
    if numa_node is not None:
        flags |= k.PinnedFlags.NUMA_BIND
    return Options(
        "pinned_options", size=size, device=device, flags=flags, numa_node=numa_node or 0, threads=threads, chunk_size=chunk_size
    )


def device_options(size: int, device: int = 0) -> Options:
    return Options("device_options", size=size, device=device)


def elastic_options(size: int, device: int = 0, extent_size: int = 0, flags: k.ElasticFlags = k.ElasticFlags(0)) -> Options:
    return Options("elastic_options", size=size, device=device, extent_size=extent_size, flags=flags)


def disk_options(
    size: int, path: str | os.PathLike[str] | None, directory: str | os.PathLike[str] | None, flags: k.DiskFlags
) -> Options:
    return Options("disk_options", size=size, path=path, directory=directory, flags=flags)

# SPDX-License-Identifier: Apache-2.0
"""Layouts: where each block of a KV cache is located in regions."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from kvmem import _constants as k
from kvmem import _errors
from kvmem._arrays import block_ids, results
from kvmem._handle import Handle, Options, c_string, create, handle_of, read, read_within
from kvmem._library import blob_bytes, ffi, lib, text
from kvmem._memory import Memory, memory_of
from kvmem._region import Region, RegionInfo, device_options, disk_options, elastic_options, mapped, pinned_options, system_options
from kvmem._shape import BlockAccess, LayoutInfo, Shape, Strides, config_of
from kvmem._tensor import Tensor, unsigned, width_of
from kvmem._time import FOREVER, nanoseconds, waiting

T = TypeVar("T")
F = TypeVar("F", bound=enum.IntFlag)

_AXES = {"B": "num_blocks", "L": "num_layers", "O": "outer_dim", "N": "page_size", "H": "num_heads"}
_STRIDES = {"B": "block", "L": "layer", "O": "outer", "N": "token", "H": "head", "C": "element"}


def _flags(kind: type[F], flags: int) -> F:
    """Flags of a tier. Those of another one have the same bits, and another meaning."""
    if isinstance(flags, enum.Flag):
        _errors.ensure_kind(flags, kind, "flags", f"kvmem.{kind.__name__}")
    return kind(flags)


def _duration(duration: float | None) -> int:
    """0 in C is no end, so 0 here is the shortest duration."""
    found = nanoseconds(duration, "duration", "no end")
    return 0 if found == FOREVER else max(found, 1)


def _remaining(ns: int) -> float:
    return float("inf") if ns == FOREVER else ns / 1e9


def _access(c: Any) -> BlockAccess:
    user_data = None
    if c.user_data != 0:
        from kvmem._queue import user_data_of

        user_data = user_data_of(c.user_data)
    return BlockAccess(
        c.block,
        k.Accessor(c.accessor),
        bool(c.reads),
        bool(c.writes),
        user_data,
        _remaining(c.remaining_ns) if c.accessor == k.Accessor.LEASE else None,
        c.pid,
        ffi.string(c.agent).decode(errors="replace"),
    )


class Lease(Handle):
    """A lease of blocks: an announcement to the owner of memory that this process uses them. `Layout.lease` makes one; `close` ends
    it."""

    __slots__ = ()
    _type = "lease"

    def renew(self, duration: float | None = None) -> None:
        """Has it end after a number of seconds from now on; None: when it is closed. Raises Stale if it is over."""
        _errors.call(lib.kvmem_lease_renew, self._handle, _duration(duration))

    @property
    def remaining(self) -> float:
        """Seconds until it ends: 0 if it is over, infinite if it ends when it is closed."""
        out = ffi.new("uint64_t *")
        _errors.call(lib.kvmem_lease_get_remaining, self._handle, out)
        return _remaining(out[0])

    def _describe(self) -> str:
        left = self.remaining
        return "over" if left == 0 else "without an end" if left == float("inf") else f"for another {left:.3f} s"


class Layout(Handle):
    """Location of each block of a KV cache. `Layout.allocate`, `of_regions`, `of_registrations`, `from_tensors` and `combine`
    make one. It keeps its regions and registrations alive."""

    __slots__ = ("_dtype",)
    _type = "layout"
    _dtype: str

    def __init__(self) -> None:
        raise TypeError("use Layout.allocate, of_regions, of_registrations, from_tensors, combine, or Agent.import_layout")

    @classmethod
    def _owning(cls, pointer: Any, dtype: str = "") -> Layout:
        made = super()._owning(pointer)
        made._dtype = dtype
        return made

    # ---- building ----

    @classmethod
    def allocate(
        cls,
        shape: Shape,
        tier: str | k.Tier = "system",
        *,
        agent: Handle | None = None,
        device: int = 0,
        path: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        numa_node: int | None = None,
        flags: int = 0,
    ) -> Layout:
        """Allocates the memory of a layout: on the tier "system", "pinned", "device", "elastic" or "disk".

        `device` is the GPU of pinned, device and elastic memory. `path` and `directory` are those of a file: a named one ends with a
        fingerprint of the layout, which is checked when it is opened again. `flags` are those of the tier. With an agent, the memory
        is registered."""
        name = tier.name.lower() if isinstance(tier, k.Tier) else tier
        if name == "system":
            memory = system_options(0, _flags(k.SystemFlags, flags), numa_node=numa_node)
        elif name == "pinned":
            memory = pinned_options(0, device, _flags(k.PinnedFlags, flags), numa_node)
        elif name == "device":
            if flags:
                raise _errors.InvalidArgument("flags are given, and the tier device has none")
            memory = device_options(0, device)
        elif name == "elastic":
            memory = elastic_options(0, device, flags=_flags(k.ElasticFlags, flags))
        elif name == "disk":
            memory = disk_options(0, path, directory, _flags(k.DiskFlags, flags))
        else:
            raise _errors.InvalidArgument(f"tier is {name!r}; a layout is allocated on system, pinned, device, elastic or disk")
        if name != "disk" and (path is not None or directory is not None):
            raise _errors.InvalidArgument(f"path and directory belong to the tier disk, and the tier is {name}")
        return cls._built(shape, k.LAYOUT_ALLOCATE, agent, **{name: memory})

    @classmethod
    def of_regions(cls, shape: Shape, regions: Sequence[Region], *, agent: Handle | None = None) -> Layout:
        """A layout of regions: one per index of the axes before '/' in the order, of which the last varies fastest."""
        return cls._built(shape, k.LAYOUT_REGIONS, agent, regions=regions, count=len(regions))

    @classmethod
    def of_registrations(cls, shape: Shape, registrations: Sequence[Handle]) -> Layout:
        """A layout of regions that are registered, all with one agent."""
        return cls._built(shape, k.LAYOUT_REGISTRATIONS, None, registrations=registrations, count=len(registrations))

    @classmethod
    def _built(cls, shape: Shape, source: int, agent: Handle | None, **fields: Any) -> Layout:
        options = Options("layout_options", config=config_of(shape), source=source, agent=agent, **fields)
        return cls._owning(create(lib.kvmem_layout_build, "layout", options.c), shape.dtype)

    @classmethod
    def from_tensors(
        cls,
        tensors: Any,
        order: str,
        *,
        axes: str | None = None,
        dtype: str = "",
        alignment: int = 0,
        agent: Handle | None = None,
        stream: int | None = None,
        region_of: Callable[[int, int], Region] | None = None,
    ) -> Layout:
        """Describes a cache from its tensors, without a copy: one tensor, or a list with one per index of the axes before '/'.

        `order` has the axes of the memory, from the outermost to the innermost: "L/BONHC" is a list of one tensor per layer, whose
        memory has blocks, outer slots, tokens, heads and elements in this order. `axes` has those of the tensors' indices, if the
        tensors are views with another order of axes, such as "BHONC"; the default is that of `order`. The strides must agree with
        the order, and may have gaps.

        The tensors are kept as long as kvmem uses their memory. `dtype` is that of `Layout.tensor`. `region_of` returns the region of
        an address and a size in bytes, if the tensors are in a region already; it does not keep the tensors."""
        separate, _, inner = order.rpartition("/")
        axes = inner if axes is None else axes
        sources = list(tensors) if separate or isinstance(tensors, (list, tuple)) else [tensors]
        memories = [memory_of(source, stream) for source in sources]
        if not memories:
            raise _errors.InvalidArgument("there are no tensors")
        _check_alike(memories)
        shape = _shape_of(memories[0], separate, inner, axes, len(memories), alignment, dtype)
        regions: list[Region] = []
        try:
            for memory in memories:
                if region_of is not None:
                    regions.append(region_of(memory.address, memory.size))
                else:
                    regions.append(Region._adopted(memory.address, memory.size, memory.device, memory.read_only, memory))
            return cls.of_regions(shape, regions, agent=agent)
        finally:
            for region in regions:
                region.close()

    @classmethod
    def combine(cls, parts: Mapping[str, Layout]) -> Layout:
        """Combines layouts that share block ids to one, such as data and scales. Exporting, sharing, checksums and transfers then
        work on all parts at once."""
        _errors.ensure_kind(parts, Mapping, "parts", "names with layouts")
        names = [c_string(name, "name") for name in parts]
        array = ffi.new("kvmem_layout_part[]", [(name, handle_of(part, Layout, "a part")) for name, part in zip(names, parts.values())])
        return cls._owning(create(lib.kvmem_layout_combine, "layout", array, len(names)))

    # ---- information ----

    @property
    def info(self) -> LayoutInfo:
        """Properties of the layout."""
        c = read_within(lib.kvmem_layout_get_info, "layout_info", self._handle)
        made = LayoutInfo(*(getattr(c, field) for field in LayoutInfo._fields))
        return made._replace(
            tier=k.Tier(c.tier),
            locality=k.Locality(c.locality),
            memory_type=k.MemoryType(c.memory_type),
            order=ffi.string(c.order).decode(),
            identity=bytes(ffi.buffer(c.identity, c.identity_size)) if c.identity_size else b"",
            agent=text(c.agent),
            part_names=tuple(text(c.part_names[index]) for index in range(c.num_parts)),
        )

    @property
    def regions(self) -> list[Region]:
        """The regions, as new handles."""
        return [self.region(index) for index in range(self.info.num_regions)]

    def region(self, index: int) -> Region:
        """A region by its index, as a new handle."""
        return Region._owning(create(lib.kvmem_layout_get_region, "region", self._handle, index))

    @property
    def parts(self) -> dict[str, Layout]:
        """The parts of a layout that was combined, as new handles by name."""
        return {name: self.part(name) for name in self.info.part_names}

    def part(self, name: str) -> Layout:
        """A part of a layout that was combined."""
        return Layout._owning(create(lib.kvmem_layout_get_part, "layout", self._handle, c_string(name, "name")))

    def block(self, block: int, layer: int = 0, outer: int = 0) -> tuple[int, int]:
        """Address and size in bytes of one block in one layer and outer slot."""
        c = read(lib.kvmem_layout_get_block, "block", self._handle, block, layer, outer)
        return c.address, c.size

    def row(self, block: int, layer: int = 0, outer: int = 0, token: int = 0, head: int = 0) -> tuple[int, int]:
        """Address and size in bytes of one head of one token of a block."""
        c = read(lib.kvmem_layout_get_row, "block", self._handle, block, layer, outer, token, head)
        return c.address, c.size

    @property
    def strides(self) -> Strides:
        """How addresses follow from indices."""
        c = read_within(lib.kvmem_layout_get_info, "layout_info", self._handle)
        if c.num_parts:
            del c  # as in _errors.call
            raise _errors.Unsupported("the layout has parts, and each has its own strides: use those of `Layout.part`")
        numbers = {field: getattr(c, field) for field in Strides._fields if field not in ("bases", "size")}
        return Strides(bases=tuple(c.bases[0 : c.num_regions]), size=c.piece_size, **numbers)

    def resize(self, num_blocks: int) -> None:
        """Changes the number of blocks that have memory, of a layout in elastic memory."""
        _errors.call(lib.kvmem_layout_resize, self._handle, num_blocks)

    @overload
    def checksums(self, blocks: Sequence[int] | Any, timeout: float | None = None) -> list[int]: ...
    @overload
    def checksums(self, blocks: Sequence[int] | Any, timeout: float | None = None, *, out: T) -> T: ...
    def checksums(self, blocks: Any, timeout: float | None = None, *, out: Any = None) -> Any:
        """CRC32C of the elements of each block. Blocks with the same content have the same checksum in every order and tier.

        With `out`, an array of uint32, they are written to it, and its part that has them is returned."""
        ids = block_ids(blocks)
        found = ffi.new("uint32_t[]", len(ids)) if out is None else results(out, "uint32")
        if len(found) < len(ids):
            raise _errors.OutOfRange(f"out has {len(found)} elements, and there are {len(ids)} blocks")
        _errors.call(waiting(lib.kvmem_layout_checksum), self._handle, ids, len(ids), nanoseconds(timeout), found)
        return list(found) if out is None else out[: len(ids)]

    # ---- epochs ----

    def create_epochs(self, table: Region | None = None) -> None:
        """Gives each block an epoch, so that transfers that expect it detect that this process has reused the block.

        table  a region of host memory, whose first 8 bytes per block become the epochs; None for new ones, which are 0"""
        _errors.call(lib.kvmem_layout_create_epochs, self._handle, ffi.NULL if table is None else handle_of(table, Region, "table"))

    def raise_epochs(self, blocks: Sequence[int] | Any) -> list[int]:
        """Adds 1 to the epoch of each block, before its next use is written, and returns the new ones."""
        return self._epochs(lib.kvmem_layout_raise_epochs, blocks)

    def epochs(self, blocks: Sequence[int] | Any) -> list[int]:
        """The current epoch of each block, which the owner publishes with its id."""
        return self._epochs(lib.kvmem_layout_get_epochs, blocks)

    def _epochs(self, function: Any, blocks: Any) -> list[int]:
        ids = block_ids(blocks)
        found = ffi.new("uint64_t[]", len(ids))
        _errors.call(function, self._handle, ids, len(ids), found)
        return list(found)

    # ---- accesses ----

    def accesses(self, blocks: Sequence[int] | Any) -> list[BlockAccess]:
        """Which of some blocks may still be read or written, and by whom: runs of this process, sessions of peers that it serves, and
        holders of leases."""
        ids = block_ids(blocks)
        count, capacity = ffi.new("size_t *"), len(ids)
        while True:
            found = ffi.new("kvmem_block_access[]", capacity)
            _errors.call(lib.kvmem_layout_get_accesses, self._handle, ids, len(ids), found, capacity, count)
            if count[0] <= capacity:
                break
            capacity = count[0]  # other threads may start more runs between two calls
        return [_access(c) for c in found[0 : count[0]]]

    def lease(
        self, blocks: Sequence[int] | Any, duration: float | None = None, *, timeout: float | None = 5, flags: k.LeaseFlags = k.LeaseFlags(0)
    ) -> Lease:
        """Leases blocks of memory that is mapped here, or that its owner serves, so that the owner sees by `accesses` who uses them.
        It keeps no block from being reused: epochs detect that.

        duration  seconds after which the lease ends; None: when it is closed, or of a remote layout after as long as its owner keeps
                  leases
        timeout   seconds in which the owner of a remote layout must reply to this and to each `renew`; None: as long as calls of
                  the agent wait"""
        ids = block_ids(blocks)
        options = Options("lease_options", flags=flags, duration_ns=_duration(duration), timeout_ns=max(nanoseconds(timeout, "timeout"), 1))
        return Lease._owning(create(lib.kvmem_lease_create, "lease", self._handle, ids, len(ids), options.c))

    # ---- peers ----

    @property
    def agent(self) -> str:
        """Name of the agent: that of this process, or that of the peer that a remote layout belongs to."""
        name = self.info.agent
        if not name:
            raise _errors.NotFound("the layout was built without an agent")
        return name

    def export(self) -> bytes:
        """The descriptor of the layout, which a peer imports with `Agent.import_layout`."""
        return blob_bytes(create(lib.kvmem_layout_export, "blob", self._handle))

    def serve(
        self, *, staging_size: int = 0, stall_timeout: float | None = None, max_lease: float | None = None, flags: k.ServeFlags = k.ServeFlags(0)
    ) -> None:
        """Serves the layout to peers: this process gathers and scatters rows for them, and keeps their leases, each for at most
        `max_lease` seconds (60). docs/served-transfers.md explains it."""
        options = Options(
            "serve_options",
            flags=flags,
            staging_size=staging_size,
            stall_timeout_ns=0 if stall_timeout is None else nanoseconds(stall_timeout, "stall_timeout"),
            max_lease_ns=0 if max_lease is None else nanoseconds(max_lease, "max_lease"),
        )
        _errors.call(lib.kvmem_layout_serve, self._handle, options.c)

    # ---- memory for other libraries ----

    def tensor(self, *, layer: int | None = None, outer: int | None = None, dtype: str = "", part: str | None = None) -> Tensor:
        """The memory as a tensor without a copy, whose axes are those of the order. It keeps the layout alive.

        An axis with separate regions must be chosen: `layer` for the order "L/BONHC". Otherwise `layer` and `outer` select an index
        of an axis, or None all of them. `dtype` is that of the elements, such as "bfloat16"; the default is that of the shape, or
        unsigned integers. Elements between two strides, such as padding, are not part of it."""
        layout = self if part is None else self.part(part)
        try:
            return layout._tensor(layer, outer, dtype or self._dtype)
        finally:
            if part is not None:
                layout.close()

    def _tensor(self, layer: int | None, outer: int | None, dtype: str) -> Tensor:
        info = self.info
        if info.num_parts:
            raise _errors.Unsupported(f"the layout has parts: choose one of {', '.join(self.parts)}")
        if info.locality == k.Locality.REMOTE:
            raise _errors.Unsupported("the layout belongs to a peer: only transfers can access it")
        dtype = dtype or unsigned(info.dtype_width)
        if width_of(dtype) != info.dtype_width:
            raise _errors.InvalidArgument(f"{dtype} has {width_of(dtype)} bytes, and the layout has elements of {info.dtype_width}")
        regions = self.regions
        region_info: RegionInfo = regions[0].info
        for region in regions:
            region.close()
        _, device = mapped(region_info)
        separate, _, inner = info.order.rpartition("/")
        chosen = {"L": layer, "O": outer}
        for axis in separate:
            if axis not in chosen:
                raise _errors.Unsupported(f"the axis {axis} of the order {info.order} has separate regions")
            if chosen[axis] is None and self._length(info, axis) > 1:
                raise _errors.InvalidArgument(f"each {'layer' if axis == 'L' else 'outer slot'} has a region of its own: choose one")
        for axis, index in chosen.items():
            if index is not None and not 0 <= index < self._length(info, axis):
                raise _errors.OutOfRange(f"{'layer' if axis == 'L' else 'outer'} is {index}, and there are {self._length(info, axis)}")
        address, _ = self.row(0, layer or 0, outer or 0)
        axes = "".join(axis for axis in inner if chosen.get(axis) is None)
        lengths = tuple(self._length(info, axis) for axis in axes)
        strides = tuple(getattr(info, f"{_STRIDES[axis]}_stride") for axis in axes)
        read_only = k.RegionFlags.READ_ONLY in region_info.flags
        return Tensor(self._handle, address, lengths, strides, dtype, device, read_only, axes)

    @staticmethod
    def _length(info: LayoutInfo, axis: str) -> int:
        if axis == "C":
            return info.inner_dim // max(info.num_heads, 1) if "H" in info.order else info.inner_dim
        return max(int(getattr(info, _AXES[axis])), 1)

    def to_svg(self) -> str:
        """A drawing of the memory: a bar per axis, from the outermost on, with its indices and strides. Notebooks show it."""
        from kvmem._drawing import Axis, svg

        info = self.info
        if info.num_parts:
            raise _errors.Unsupported(f"the layout has parts: choose one of {', '.join(self.parts)}")
        axes: list[Axis] = []
        size = info.dtype_width
        separate, _, inner = info.order.rpartition("/")
        for axis in reversed(inner):
            length, stride = self._length(info, axis), int(getattr(info, f"{_STRIDES[axis]}_stride"))
            axes.insert(0, Axis(axis, length, stride, size))
            size += (length - 1) * stride
        axes = [Axis(axis, self._length(info, axis), 0, size) for axis in separate] + axes
        return svg(self._describe(), axes)

    def _repr_svg_(self) -> str | None:
        return None if self.closed or self.info.num_parts else self.to_svg()

    def _describe(self) -> str:
        info = self.info
        place = f"{info.tier.name.lower()}, {info.locality.name.lower()}"
        if info.num_parts:
            return f"{info.num_blocks} blocks, parts {', '.join(sorted(self.parts))}, {place}"
        return (
            f"{info.order}: {info.num_blocks} blocks of {info.page_size} tokens, {info.num_layers} layers × {info.outer_dim} × "
            f"{info.inner_dim} elements of {info.dtype_width} bytes, {place}"
        )


def _check_alike(memories: Sequence[Memory]) -> None:
    first = memories[0]
    for index, memory in enumerate(memories):
        for field in ("itemsize", "shape", "strides", "device"):  # strides follow from the first two
            if getattr(memory, field) != getattr(first, field):
                raise _errors.InvalidArgument(
                    f"tensor {index} has {field} {getattr(memory, field)}, and tensor 0 has {getattr(first, field)}: all must be alike"
                )


def _shape_of(memory: Memory, separate: str, inner: str, axes: str, count: int, alignment: int, dtype: str) -> Shape:
    if sorted(axes) != sorted(inner):
        raise _errors.InvalidArgument(f"axes are {axes!r}, and the order has {inner!r}: the same letters are needed")
    if len(memory.shape) != len(axes):
        raise _errors.InvalidArgument(
            f"a tensor has {len(memory.shape)} axes {memory.shape}, and the order names {len(axes)}: {axes!r}; the axes of a list of tensors "
            "are before '/', and without H, C is all elements of a token"
        )
    lengths, strides = dict(zip(axes, memory.shape)), dict(zip(axes, memory.strides))
    if "B" not in lengths or "C" not in lengths:
        raise _errors.InvalidArgument(f"the axes {axes!r} need B (blocks) and C (elements)")
    if 0 in memory.shape:
        raise _errors.InvalidArgument(f"an axis of the tensors is empty: {memory.shape}")
    _check_order(inner, lengths, strides)
    for axis in separate:
        if axis in "BC":
            raise _errors.InvalidArgument(f"the axis {axis} cannot have separate regions")
    lengths |= _separate_lengths(separate, lengths, count)
    if lengths.get("O", 1) > 2:
        raise _errors.InvalidArgument(
            f"axis O (outer slots: keys and values) of the order {inner!r} has {lengths['O']} indices, and there are 1 or 2; the tensors have the "
            f"shape {memory.shape} with the axes {axes!r}: correct the order"
        )
    width = memory.itemsize
    if dtype and width_of(dtype) != width:
        raise _errors.InvalidArgument(f"dtype is {dtype!r}, of {width_of(dtype)} bytes, and the elements of the tensors have {width}")
    shape: dict[str, Any] = {_AXES[axis]: lengths.get(axis, 1) for axis in "BLON"}
    heads = lengths.get("H", 0)
    # A stride of an axis with one index says nothing, and that of a tight axis follows from the others.
    for axis, stride in strides.items():
        shape[f"{_STRIDES[axis]}_stride"] = stride if lengths[axis] > 1 else 0
    return Shape(
        **shape,
        num_heads=heads,
        inner_dim=lengths["C"] * max(heads, 1),
        dtype_width=width,
        dtype=dtype,
        alignment=alignment,
        order=f"{separate}/{inner}" if separate else inner,
    )


def _separate_lengths(separate: str, lengths: Mapping[str, int], count: int) -> dict[str, int]:
    """Lengths of the axes before '/': one takes all tensors; with more, outer slots are keys and values."""
    if not separate:
        if count != 1:
            raise _errors.InvalidArgument(f"there are {count} tensors, and no axis before '/' in the order: put L/ before it for one per layer")
        return {}
    if len(separate) == 1:
        return {separate: count}
    known = {"O": 2} if "O" in separate else {}
    unknown = [axis for axis in separate if axis not in known]
    rest, left = divmod(count, math.prod(known.values()))
    if left or len(unknown) > 1:
        raise _errors.InvalidArgument(f"{count} tensors cannot be divided among the axes {separate!r}; use Layout.of_regions")
    return known | dict.fromkeys(unknown, rest)


def _check_order(inner: str, lengths: Mapping[str, int], strides: Mapping[str, int]) -> None:
    used = [axis for axis in inner if lengths[axis] > 1]
    found = sorted(used, key=lambda axis: -strides[axis])
    if [strides[axis] for axis in used] != [strides[axis] for axis in found]:
        actual = "".join(found)
        raise _errors.InvalidArgument(
            f"the strides of the tensors are those of the order {actual!r}, and the order says {''.join(used)!r} "
            f"(axes of one index are left out): correct the order, and name the tensors' own axes by axes="
        )

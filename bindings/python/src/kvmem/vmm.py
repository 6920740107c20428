# SPDX-License-Identifier: Apache-2.0
"""Virtual memory management of the CUDA driver, step by step: memory, ranges of addresses, mappings. docs/gpu-handles.md explains it.

`Region.elastic` and `Share` do the same, with checks. This is for an engine that maps memory, or carries its handles, itself:

    memory = kvmem.vmm.VmmMemory(64 << 20, flags=kvmem.VmmFlags.POSIX_FD)
    addresses = kvmem.vmm.VmmRange(1 << 30)
    with kvmem.vmm.VmmMapping(addresses, 0, memory) as mapping:
        mapping.set_access(0)
        region = mapping.region(0)"""

from __future__ import annotations

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import Handle, Options, create, handle_of, number_of, read
from kvmem._library import ffi, lib
from kvmem._region import Region

__all__ = ["VmmMapping", "VmmMemory", "VmmRange", "granularity"]

ANY_DEVICE = -1  # KVMEM_VMM_ANY_DEVICE
_INT = 1 << 31


def _device(device: int | None) -> int:
    return ANY_DEVICE if device is None else number_of(device, "device", limit=_INT)


# ---- memory ----


def granularity(
    which: k.Granularity = k.Granularity.RECOMMENDED,
    *,
    location: k.VmmLocation = k.VmmLocation.DEVICE,
    id: int = 0,
    flags: k.VmmFlags = k.VmmFlags(0),
) -> int:
    """Bytes that sizes and offsets of such memory are multiples of."""
    out = ffi.new("uint64_t *")
    options = Options("vmm_options", location=location, id=id, flags=flags)
    _errors.call(lib.kvmem_vmm_get_granularity, options.c, which, out)
    return int(out[0])


class VmmMemory(Handle):
    """Physical memory without an address. It is freed when it has no mapping and no open file descriptor."""

    __slots__ = ()
    _type = "vmm_memory"

    def __init__(
        self, size: int, *, location: k.VmmLocation = k.VmmLocation.DEVICE, id: int = 0, flags: k.VmmFlags = k.VmmFlags(0)
    ) -> None:
        """Allocates memory of the GPU or NUMA node `id`. The flags say how it can be exported."""
        options = Options("vmm_options", size=size, location=location, id=id, flags=flags)
        self._own(create(lib.kvmem_vmm_memory_create, "vmm_memory", options.c))

    @classmethod
    def import_fd(cls, fd: int, size: int, device: int | None = None) -> VmmMemory:
        """Imports memory from a file descriptor that another process exported. The caller closes it. `size` is that of the whole
        memory, and `device` the GPU that it must be located on; None for any."""
        return cls._owning(create(lib.kvmem_vmm_memory_import_fd, "vmm_memory", number_of(fd, "fd", limit=_INT), number_of(size, "size"), _device(device)))

    @classmethod
    def import_fabric(cls, handle: bytes, size: int, device: int | None = None) -> VmmMemory:
        """Imports memory from a fabric handle, which may be from another machine of the fabric."""
        if not isinstance(handle, (bytes, bytearray, memoryview)) or len(handle) != 64:
            found = f"this one {len(handle)}" if isinstance(handle, (bytes, bytearray, memoryview)) else f"handle is {handle!r}"
            raise _errors.InvalidArgument(f"a fabric handle has 64 bytes, and {found}")
        made = ffi.new("kvmem_fabric_handle *")
        made.bytes = list(handle)
        return cls._owning(create(lib.kvmem_vmm_memory_import_fabric, "vmm_memory", made, number_of(size, "size"), _device(device)))

    @classmethod
    def retain(cls, address: int) -> VmmMemory:
        """Retains memory that is mapped at an address of this process, such as by an engine."""
        return cls._owning(create(lib.kvmem_vmm_memory_retain, "vmm_memory", number_of(address, "address")))

    def export_fd(self) -> int:
        """A file descriptor of the memory, which the caller closes."""
        out = ffi.new("int32_t *")
        _errors.call(lib.kvmem_vmm_memory_export_fd, self._handle, out)
        return int(out[0])

    def export_fabric(self) -> bytes:
        """A fabric handle of the memory. It does not keep it allocated."""
        return bytes(read(lib.kvmem_vmm_memory_export_fabric, "fabric_handle", self._handle).bytes)


# ---- addresses ----


class VmmRange(Handle):
    """Reserved device addresses without memory. They are freed when nothing is mapped there."""

    __slots__ = ("address", "size")
    _type = "vmm_range"

    address: int
    """First address."""
    size: int
    """Bytes."""

    def __init__(self, size: int, alignment: int = 0) -> None:
        """Reserves `size` bytes of addresses. `alignment` is a power of two; 0 for the driver's default."""
        span = ffi.new("kvmem_vmm_span *")
        self._own(create(lib.kvmem_vmm_range_create, "vmm_range", number_of(size, "size"), number_of(alignment, "alignment"), span))
        self.address, self.size = span.address, span.size

    def _describe(self) -> str:
        return f"{self.size:,} bytes at {self.address:#x}"


class VmmMapping(Handle):
    """Memory that is mapped into a range, as a whole. It holds both, so the three may be closed in any order."""

    __slots__ = ("address", "size")
    _type = "vmm_mapping"

    address: int
    """First address."""
    size: int
    """Bytes: those of the memory."""

    def __init__(self, range: VmmRange, offset: int, memory: VmmMemory) -> None:
        """Maps memory at an offset of a range, in bytes. No GPU has access until `set_access`."""
        span = ffi.new("kvmem_vmm_span *")
        self._own(
            create(
                lib.kvmem_vmm_mapping_create, "vmm_mapping", handle_of(range, VmmRange, "range"), number_of(offset, "offset"),
                handle_of(memory, VmmMemory, "memory"), span,
            )
        )  # fmt: skip
        self.address, self.size = span.address, span.size

    def set_access(self, device: int, access: k.Access = k.Access.READ_WRITE) -> None:
        """Sets the access of a GPU."""
        _errors.call(lib.kvmem_vmm_mapping_set_access, self._handle, number_of(device, "device", limit=_INT), number_of(access, "access", limit=_INT))

    def access(self, device: int) -> k.Access:
        """The access of a GPU."""
        out = ffi.new("uint32_t *")
        _errors.call(lib.kvmem_vmm_mapping_get_access, self._handle, number_of(device, "device", limit=_INT), out)
        return k.Access(out[0])

    def region(self, device: int, *, read_only: bool = False) -> Region:
        """The memory as a region of a GPU that has access. The memory stays mapped as long as kvmem uses the region, also after `close`."""
        return Region._adopted(self.address, self.size, device, read_only, self._handle)

    def _describe(self) -> str:
        return f"{self.size:,} bytes at {self.address:#x}"

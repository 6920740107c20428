# SPDX-License-Identifier: Apache-2.0
"""GPUs, the copy rates that methods are chosen by, and IPC handles of GPU memory."""

from __future__ import annotations

from typing import NamedTuple


from kvmem import _errors
from kvmem._constants import CudaCapabilities, IpcFlags
from kvmem._handle import Options, blob, create, read
from kvmem._library import blob_bytes, ffi, lib
from kvmem._region import Region

__all__ = [
    "CudaInfo", "DeviceInfo", "IpcHandle", "can_access", "device", "find_device", "info", "ipc_export", "open_ipc", "rates", "set_rates",
    "use_default_rates",
]  # fmt: skip


class CudaInfo(NamedTuple):
    """The CUDA driver."""

    driver_version: int
    """Such as 12080 for CUDA 12.8."""
    device_count: int


class DeviceInfo(NamedTuple):
    """A GPU."""

    name: str
    uuid: bytes
    total_memory: int
    """Bytes."""
    capabilities: CudaCapabilities
    compute_capability: tuple[int, int]
    multiprocessors: int
    numa_node: int
    """-1 if unknown."""
    kept_objects: int
    """Destroyed, and kept until the GPU has finished its work, or for ever after a run whose end can't be detected."""
    kept_bytes: int


class IpcHandle(NamedTuple):
    """What another process needs to open GPU memory of this process: plain values, which any transport may carry."""

    handle: bytes
    """The 64 bytes of the driver. They name the whole allocation."""
    uuid: bytes
    """UUID of the GPU. `find_device` returns its ordinal in the other process."""
    base: int
    """First address of the allocation in this process."""
    base_size: int
    """Size of the allocation in bytes."""
    offset: int
    """Bytes from there to the exported address."""
    buffer_id: int
    """The driver's number of the allocation."""


def info() -> CudaInfo:
    """The CUDA driver. Raises CudaUnavailable without one."""
    c = read(lib.kvmem_cuda_get_info, "cuda_info")
    return CudaInfo(c.driver_version, c.device_count)


def device(index: int) -> DeviceInfo:
    """Properties of a GPU, by its ordinal in the order of CUDA_VISIBLE_DEVICES."""
    c = read(lib.kvmem_cuda_get_device_info, "cuda_device_info", index)
    return DeviceInfo(
        ffi.string(c.name).decode(),
        bytes(c.uuid),
        c.total_memory,
        CudaCapabilities(c.capabilities),
        (c.compute_capability_major, c.compute_capability_minor),
        c.multiprocessors,
        c.numa_node,
        c.kept_objects,
        c.kept_bytes,
    )


def find_device(uuid: bytes) -> int:
    """The ordinal of a GPU in this process, by its UUID of 16 bytes."""
    if len(uuid) != 16:
        raise _errors.InvalidArgument(f"a UUID has 16 bytes, and this one {len(uuid)}")
    out = ffi.new("int32_t *")
    _errors.call(lib.kvmem_cuda_find_device, ffi.from_buffer("uint8_t[]", uuid), out)
    return int(out[0])


def can_access(index: int, owner: int) -> bool:
    """Whether a GPU can access memory of another one."""
    return bool(read(lib.kvmem_cuda_get_device_info, "cuda_device_info", index).can_access >> owner & 1)


def rates(index: int, peer: int | None = None) -> bytes:
    """The copy rates of a GPU, or between it and a peer, measured if necessary, as bytes for `set_rates` of a later process."""
    return blob_bytes(blob(lib.kvmem_cuda_get_copy_rates, index, index if peer is None else peer))


def set_rates(index: int, data: bytes, peer: int | None = None) -> None:
    """Sets the copy rates of a GPU, or between it and a peer, so that none are measured."""
    buffer = ffi.from_buffer(data)
    _errors.call(lib.kvmem_cuda_set_copy_rates, index, index if peer is None else peer, buffer, len(buffer))


def use_default_rates(index: int) -> None:
    """Uses typical copy rates, and measures none."""
    _errors.call(lib.kvmem_cuda_use_default_rates, index)


def ipc_export(address: int) -> IpcHandle:
    """The handle of plain GPU memory, such as `tensor.data_ptr()` or `region.info.address`. It does not keep the memory allocated."""
    c = read(lib.kvmem_ipc_export, "ipc_handle", address)
    return IpcHandle(bytes(c.handle), bytes(c.uuid), c.base, c.base_size, c.offset, c.buffer_id)


def open_ipc(handle: IpcHandle, size: int, *, device: int | None = None, for_device: int | None = None) -> Region:
    """Opens GPU memory of another process: `size` bytes from the exported address on.

    `device` is the GPU that the memory is located on, by default the one with the UUID of the handle. `for_device` is a GPU whose
    kernels will access the memory over NVLink or PCIe."""
    if len(handle.handle) != 64:
        raise _errors.InvalidArgument(f"an IPC handle has 64 bytes, and this one {len(handle.handle)}")
    options = Options(
        "ipc_options",
        size=size,
        offset=handle.offset,
        device=find_device(handle.uuid) if device is None else device,
        for_device=for_device or 0,
        flags=0 if for_device is None else IpcFlags.FOR_DEVICE,
        base_size=handle.base_size,
        buffer_id=handle.buffer_id,
    )
    options.c.handle = list(handle.handle)
    return Region._owning(create(lib.kvmem_region_open_ipc, "region", options.c))

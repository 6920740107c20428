# SPDX-License-Identifier: Apache-2.0
"""GPUs, and the copy rates that methods are chosen by."""

from __future__ import annotations

from typing import NamedTuple


from kvmem import _errors
from kvmem._constants import CudaCapabilities
from kvmem._handle import blob, read
from kvmem._library import blob_bytes, ffi, lib

__all__ = ["CudaInfo", "DeviceInfo", "can_access", "device", "find_device", "info", "rates", "set_rates", "use_default_rates"]


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
    """Destroyed, and kept until the GPU has finished its work."""
    kept_bytes: int


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

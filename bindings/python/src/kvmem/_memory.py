# SPDX-License-Identifier: Apache-2.0
"""Memory of other libraries: the buffer protocol, DLPack, and the array interfaces of NumPy and CUDA."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kvmem._errors import InvalidArgument
from kvmem._library import ffi

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Kinds of devices in DLPack."""


class Memory(NamedTuple):
    """Elements in memory of another library, and what keeps them allocated."""

    address: int
    """Address of the first element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, one per axis."""
    itemsize: int
    """Bytes per element."""
    device: int
    """GPU, or -1 for host memory."""
    read_only: bool
    owner: object
    """Keeps the memory allocated."""

    @property
    def size(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if 0 in self.shape:
            return 0
        return sum((length - 1) * stride for length, stride in zip(self.shape, self.strides)) + self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are one range without gaps."""
        return self.size == math.prod(self.shape) * self.itemsize


def memory_of(source: Any, stream: int | None = None) -> Memory:
    """Describes memory without a copy. DLPack orders earlier work on `stream` before."""
    if getattr(source, "requires_grad", False):
        raise InvalidArgument("the tensor requires grad: kvmem would change it unseen; pass tensor.detach()")
    if hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__"):
        try:
            from kvmem import _dlpack

            return _checked(_dlpack.taken(source, stream))
        except (BufferError, TypeError, RuntimeError) as error:
            # NumPy gives no read-only arrays and not all types; the other interfaces do.
            if not hasattr(source, "__array_interface__"):
                raise InvalidArgument(f"a {type(source).__name__} does not give its memory by DLPack: {error}") from error
    if hasattr(source, "__cuda_array_interface__"):
        return _from_interface(source, source.__cuda_array_interface__, _cuda_device(source))
    if hasattr(source, "__array_interface__"):
        return _from_interface(source, source.__array_interface__, -1)
    return _from_buffer(source)


def _cuda_device(source: Any) -> int:
    device = getattr(source, "device", None)
    index = getattr(device, "id", getattr(device, "index", None))
    return index if isinstance(index, int) else 0


def _from_interface(source: Any, interface: dict[str, Any], device: int) -> Memory:
    if interface.get("mask") is not None:
        raise InvalidArgument("masked arrays are not supported")
    shape = tuple(interface["shape"])
    typestr = interface["typestr"]
    if typestr[0] == ">":
        raise InvalidArgument(f"elements of type {typestr} are not in the byte order of this machine")
    if typestr[1] == "O":
        raise InvalidArgument("the array contains Python objects")
    itemsize = int(typestr[2:])
    strides = interface.get("strides") or tight(shape, itemsize)
    address, read_only = interface["data"]
    return _checked(Memory(address, shape, tuple(strides), itemsize, device, read_only, source))


def _from_buffer(source: Any) -> Memory:
    try:
        view = memoryview(source)
    except TypeError:
        raise InvalidArgument(
            f"a {type(source).__name__} has no memory that kvmem can use: pass an object with __dlpack__, "
            "__cuda_array_interface__, __array_interface__ or the buffer protocol"
        ) from None
    if view.ndim == 0:
        raise InvalidArgument("the buffer has no axis")
    lengths: tuple[int, ...] = tuple(view.shape or ())
    strides: tuple[int, ...] = tuple(view.strides or tight(lengths, view.itemsize))
    if view.contiguous:
        held = ffi.from_buffer(view)  # locks the buffer: a bytearray is not resized meanwhile
        address = int(ffi.cast("uintptr_t", held))
    else:
        raise InvalidArgument("the buffer is not contiguous: pass it as an array of NumPy, which has an address")
    return _checked(Memory(address, lengths, strides, view.itemsize, -1, view.readonly, held))


def _checked(memory: Memory) -> Memory:
    if any(stride < 0 for stride, length in zip(memory.strides, memory.shape) if length > 1):
        raise InvalidArgument(f"an axis runs backwards: strides {memory.strides}")
    return memory


def tight(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, next_stride = [], itemsize
    for length in reversed(shape):
        strides.append(next_stride)
        next_stride *= length
    return tuple(reversed(strides))

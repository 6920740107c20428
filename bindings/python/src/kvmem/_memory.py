# SPDX-License-Identifier: Apache-2.0
"""Memory of other libraries: the buffer protocol, DLPack, and the array interfaces of NumPy and CUDA."""

from __future__ import annotations

import ctypes
import math
import time
from typing import Any, NamedTuple

from kvmem._errors import InvalidArgument, InvalidState, TimedOut, type_of
from kvmem._library import ffi

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Kinds of devices in DLPack."""
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_STREAM_TIMEOUT = 30.0
"""Seconds for the work on a stream before the memory is adopted."""


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
                raise InvalidArgument(f"{type_of(source)} does not give its memory by DLPack: {error}") from error
    if hasattr(source, "__cuda_array_interface__"):
        interface = source.__cuda_array_interface__
        if interface.get("stream") is not None:
            _wait_for_stream(interface["stream"])
        return _from_interface(source, interface, _cuda_device(source))
    if hasattr(source, "__array_interface__"):
        return _from_interface(source, source.__array_interface__, -1)
    return _from_buffer(source)


def _wait_for_stream(stream: Any) -> None:
    """Waits for the earlier work on a stream, as the interface demands: it may still write to the memory."""
    if not isinstance(stream, int) or stream <= 0:
        raise InvalidArgument(f"stream of __cuda_array_interface__ is {stream!r}; expected None or a stream: 1 and 2 are the default streams")
    query = ctypes.CDLL("libcuda.so.1").cuStreamQuery
    end, result = time.monotonic() + _STREAM_TIMEOUT, _NOT_READY
    while (result := query(ctypes.c_void_p(stream))) == _NOT_READY:
        if time.monotonic() > end:
            raise TimedOut(f"the work on the stream of __cuda_array_interface__ has not ended within {_STREAM_TIMEOUT} s: synchronise it first")
        time.sleep(0.0001)
    if result:
        raise InvalidState(f"the stream {stream:#x} of __cuda_array_interface__ cannot be queried (CUresult {result}): synchronise it, and pass no stream")


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
            f"{type_of(source)} has no memory that kvmem can use: pass an object with __dlpack__, "
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

# SPDX-License-Identifier: Apache-2.0
"""Capsules of DLPack: tensors of others, and those that are given out."""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvmem._errors import InvalidArgument, Unsupported
from kvmem._memory import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Memory, tight
from kvmem._tensor import DTYPES, width_of

if TYPE_CHECKING:
    from kvmem._tensor import Tensor

_FLAG_READ_ONLY = 1


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


# Names of capsules, which must outlive them.
NAMES = {name: ctypes.c_char_p(name.encode()) for name in ("dltensor", "dltensor_versioned", "used_dltensor", "used_dltensor_versioned")}

_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))


class _Consumed:
    """A tensor of DLPack, which is given back when this object is freed."""

    def __init__(self, managed: Any, producer: object) -> None:
        self.managed, self.producer = managed, producer

    def __del__(self, addressof: Any = ctypes.addressof, is_ending: Any = sys.is_finalizing) -> None:
        managed, self.managed = self.managed, None
        # While the interpreter ends its producer may be gone.
        if managed is not None and not is_ending() and managed.contents.deleter:
            managed.contents.deleter(addressof(managed.contents))


def taken(source: Any, stream: int | None) -> Memory:
    kind, _ = source.__dlpack_device__()
    on_gpu = kind in (CUDA, CUDA_MANAGED)
    arguments: dict[str, Any] = {"stream": stream} if on_gpu and stream is not None else {}
    try:
        capsule = source.__dlpack__(max_version=(1, 1), **arguments)
    except TypeError:  # before DLPack 1.0
        capsule = source.__dlpack__(**arguments)
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(_capsule_pointer(capsule, b"dltensor_versioned"), ctypes.POINTER(ManagedVersioned))
        if versioned.contents.major > 1:
            raise Unsupported(f"the tensor is one of DLPack {versioned.contents.major}, and kvmem reads version 1")
        read_only = bool(versioned.contents.flags & _FLAG_READ_ONLY)
        _capsule_rename(capsule, NAMES["used_dltensor_versioned"])
        managed: Any = versioned
    elif _capsule_is_valid(capsule, b"dltensor"):
        managed = ctypes.cast(_capsule_pointer(capsule, b"dltensor"), ctypes.POINTER(Managed))
        read_only = False
        _capsule_rename(capsule, NAMES["used_dltensor"])
    else:
        raise InvalidArgument(f"{type(source).__name__}.__dlpack__ returned no tensor, or one that was used already")
    owner = _Consumed(managed, source)
    tensor = managed.contents.tensor
    if tensor.device.type not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise Unsupported(f"the tensor is on a device of DLPack type {tensor.device.type}; kvmem uses host memory and NVIDIA GPUs")
    if tensor.dtype.bits % 8 or tensor.dtype.lanes != 1:
        raise Unsupported(f"elements have {tensor.dtype.bits} bits and {tensor.dtype.lanes} lanes; kvmem moves whole bytes")
    itemsize = tensor.dtype.bits // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(each * itemsize for each in tensor.strides[: tensor.ndim]) if tensor.strides else tight(shape, itemsize)
    device = tensor.device.id if on_gpu else -1
    return Memory((tensor.data or 0) + tensor.byte_offset, shape, strides, itemsize, device, read_only, owner)


class _Capsules:
    """The capsules that exist. Their deleter is Python code, so that it must not run after the interpreter: at exit no tensor has
    one any more, and the memory stays until the process ends."""

    def __init__(self) -> None:
        self.alive: dict[int, tuple[Any, ...]] = {}
        self.deleter = _DELETER(self._delete)
        self.destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self._destroy)
        self.valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
        self.pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
        self.new: Callable[..., Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi)
        )
        atexit.register(self._end)

    def make(self, source: Tensor, versioned: bool) -> Any:
        managed = ManagedVersioned() if versioned else Managed()
        count = len(source.shape)
        shape = (ctypes.c_int64 * count)(*source.shape)
        width = width_of(source.dtype)
        strides = (ctypes.c_int64 * count)(*(stride // width for stride in source.strides))
        tensor = managed.tensor
        tensor.data, tensor.ndim = source.address, count
        tensor.device.type, tensor.device.id = source.__dlpack_device__()
        tensor.dtype.code, tensor.dtype.bits = DTYPES[source.dtype]
        tensor.dtype.lanes = 1
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = self.deleter
        if isinstance(managed, ManagedVersioned):
            managed.major, managed.minor = 1, 0
            managed.flags = _FLAG_READ_ONLY if source.read_only else 0
        address = ctypes.addressof(managed)
        self.alive[address] = (managed, shape, strides, source)
        name = NAMES["dltensor_versioned" if versioned else "dltensor"]
        return self.new(address, name, ctypes.cast(self.destructor, ctypes.c_void_p))

    def _delete(self, address: int) -> None:
        self.alive.pop(address, None)

    def _destroy(self, capsule: int) -> None:
        """A capsule is freed. If it was not used, its tensor is too."""
        for name in (b"dltensor", b"dltensor_versioned"):
            if self.valid(capsule, name):
                self._delete(self.pointer(capsule, name))

    def _end(self) -> None:
        for managed, *_ in self.alive.values():
            managed.deleter = _DELETER(0)
        # Nothing frees the memory of the structs any more.
        _kept_at_exit.append(ctypes.py_object(self.alive))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.alive))


_kept_at_exit: list[Any] = []
capsules = _Capsules()

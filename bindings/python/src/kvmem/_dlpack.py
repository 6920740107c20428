# SPDX-License-Identifier: Apache-2.0
"""Capsules of DLPack: tensors of others, and those that are given out."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvmem import _release
from kvmem._errors import InvalidArgument, Unsupported
from kvmem._memory import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Memory, tight
from kvmem._tensor import DTYPES, width_of

if TYPE_CHECKING:
    from kvmem._tensor import Tensor

_FLAG_READ_ONLY = 1
_FLAG_COPIED = 2


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


def _current(source: Any, index: int) -> contextlib.AbstractContextManager[Any]:
    """Makes a GPU the current one of PyTorch, which exports no tensor of another one."""
    torch: Any = sys.modules.get("torch")
    if not isinstance(source, getattr(torch, "Tensor", ())):
        return contextlib.nullcontext()
    device: contextlib.AbstractContextManager[Any] = torch.cuda.device(index)
    return device


def taken(source: Any, stream: int | None) -> Memory:
    kind, index = source.__dlpack_device__()
    on_gpu = kind in (CUDA, CUDA_MANAGED)
    arguments: dict[str, Any] = {"stream": stream} if on_gpu and stream is not None else {}
    with _current(source, index) if on_gpu else contextlib.nullcontext():
        try:
            capsule = source.__dlpack__(max_version=(1, 1), **arguments)
        except TypeError:  # before DLPack 1.0
            capsule = source.__dlpack__(**arguments)
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(_capsule_pointer(capsule, b"dltensor_versioned"), ctypes.POINTER(ManagedVersioned))
        if versioned.contents.major > 1:
            raise Unsupported(f"the tensor is one of DLPack {versioned.contents.major}, and kvmem reads version 1")
        if versioned.contents.flags & _FLAG_COPIED:
            raise InvalidArgument(f"{type(source).__name__}.__dlpack__ returned a copy: pass an object whose own memory kvmem can use")
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


_Struct = ctypes.c_char * 128
"""Memory of a struct: as large as a sigset_t, which is more than each struct needs."""


class _Given:
    """A tensor that was given out: the struct that its consumer has, and what that points to."""

    __slots__ = ("_capsule", "_kept", "_name", "_struct")

    def __init__(self, struct: Any, capsule: Any, name: bytes, kept: tuple[Any, ...]) -> None:
        self._struct, self._capsule, self._name, self._kept = struct, capsule, name, kept

    def is_over(self, deleted: bytes, alone: int) -> bool:
        """Whether its consumer has deleted it, or its capsule was dropped without use. `alone` is the number of references that are
        counted of an object that only an attribute has."""
        if self._capsule is not None:
            if not _capsule_is_valid(self._capsule, self._name):
                self._capsule = None  # a consumer has it
            elif sys.getrefcount(self._capsule) <= alone:
                return True
        return bytes(self._struct).startswith(deleted)


class _Capsules:
    """The tensors that were given out.

    A consumer may delete its tensor on any thread, after the interpreter, and while an exception of Python passes. Code of Python as
    the deleter would lose that exception. So the deleter is sigfillset of libc, which fills the struct and does nothing else, and
    Python looks for such structs later. For the same reason a capsule has no destructor: the table has the last reference to it."""

    def __init__(self) -> None:
        self.alive: dict[int, _Given] = {}
        # What consumers have stays when the interpreter ends: they may delete it later.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.alive))
        self.deleter = ctypes.cast(ctypes.CDLL(None).sigfillset, _DELETER)
        # The bytes that it writes, one word or all of them, do not depend on those before.
        one, other = self._filled(b"\x00"), self._filled(b"\x55")
        self._deleted = one[: next((at for at in range(len(one)) if one[at] != other[at]), len(one))]
        self.new: Callable[..., Any] = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi)
        )
        self._skipped = 0
        self._capsule = object()
        self._alone = sys.getrefcount(self._capsule)
        _release.looks.append(self.look_sometimes)
        gc.callbacks.append(self._collected)

    def _filled(self, byte: bytes) -> bytes:
        struct = _Struct.from_buffer_copy(byte * ctypes.sizeof(_Struct))
        self.deleter(ctypes.addressof(struct))
        return bytes(struct)

    def make(self, source: Tensor, versioned: bool) -> Any:
        struct = _Struct()
        managed = ManagedVersioned.from_buffer(struct) if versioned else Managed.from_buffer(struct)
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
        address = ctypes.addressof(struct)
        name = NAMES["dltensor_versioned" if versioned else "dltensor"]
        capsule = self.new(address, name, None)
        self.look_sometimes()
        self.alive[address] = _Given(struct, capsule, name.value or b"", (shape, strides, source))
        return capsule

    def look_sometimes(self) -> None:
        """Drops what consumers have deleted. With many tensors not at each call, because a look takes as long as there are tensors."""
        self._skipped += _LOOKED_AT
        if self._skipped >= len(self.alive):
            self._skipped = 0
            for address, given in list(self.alive.items()):
                if given.is_over(self._deleted, self._alone):
                    self.alive.pop(address, None)

    def _collected(self, phase: str, _info: object) -> None:
        if phase == "stop" and self.alive and not sys.is_finalizing():
            self.look_sometimes()


_LOOKED_AT = 64
capsules = _Capsules()

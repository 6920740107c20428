# SPDX-License-Identifier: Apache-2.0
"""Memory of kvmem for other libraries."""

from __future__ import annotations

import importlib
from typing import Any

from kvmem._errors import InvalidArgument
from kvmem._memory import CPU, CUDA

DTYPES = {
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
}  # fmt: skip
"""Codes and bits of DLPack's types."""

_TYPESTR = {0: "<i", 1: "<u", 2: "<f"}


def width_of(dtype: str) -> int:
    """Bytes of an element."""
    if dtype not in DTYPES:
        raise InvalidArgument(f"dtype is {dtype!r}; known are {', '.join(DTYPES)}")
    return DTYPES[dtype][1] // 8


def unsigned(width: int) -> str:
    """The type of elements of which only the width is known."""
    return f"uint{8 * width}"


class Tensor:
    """Memory of kvmem for other libraries, without a copy: `tensor.numpy()`, `numpy.from_dlpack(tensor)`, `torch.from_dlpack(tensor)`.

    The memory stays allocated as long as this object or a tensor made from it exists."""

    __slots__ = ("_owner", "address", "axes", "device", "dtype", "read_only", "shape", "strides")

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, one per axis."""
    dtype: str
    device: int
    """GPU, or -1 for host memory."""
    axes: str
    """Letters of the axes, such as "BONHC"."""
    read_only: bool

    def __init__(
        self, owner: object, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: int, read_only: bool, axes: str
    ) -> None:
        self._owner = owner
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype
        self.device, self.read_only, self.axes = device, read_only, axes

    def __repr__(self) -> str:
        place = "host" if self.device < 0 else f"cuda:{self.device}"
        axes = ", ".join(f"{axis}={length}" for axis, length in zip(self.axes, self.shape)) if self.axes else str(self.shape)
        return f"<kvmem.Tensor {axes} {self.dtype} on {place}{', read-only' if self.read_only else ''}>"

    def numpy(self) -> Any:
        """An array of NumPy, without a copy. Elements of a type that NumPy lacks, such as bfloat16, have that of ml_dtypes if it is installed,
        and otherwise unsigned integers of their width."""
        if self.device >= 0:
            raise InvalidArgument("the memory is on a GPU, and NumPy's arrays are on the host: move it to a host layout, or use torch.from_dlpack")
        array = importlib.import_module("numpy").asarray(self)
        if DTYPES[self.dtype][0] in _TYPESTR:
            return array
        try:
            return array.view(getattr(importlib.import_module("ml_dtypes"), self.dtype))
        except ModuleNotFoundError:
            return array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0) if self.device < 0 else (CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a capsule. The caller orders its work after transfers to this memory itself: kvmem has no stream of its own here."""
        if copy:
            raise BufferError("kvmem gives out its memory without a copy")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on {self.__dlpack_device__()}, not on {tuple(dl_device)}")
        if self.device < 0 and stream is not None:
            raise BufferError("host memory has no stream")
        versioned = max_version is not None and max_version[0] >= 1
        if self.read_only and not versioned:
            raise BufferError("the memory can only be read, which needs DLPack 1.0")
        from kvmem import _dlpack

        return _dlpack.capsules.make(self, versioned)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self.device >= 0:
            raise AttributeError("the memory is on a GPU")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.device < 0:
            raise AttributeError("the memory is on the host")
        return {**self._interface(), "stream": None}

    def _interface(self) -> dict[str, Any]:
        code, bits = DTYPES[self.dtype]
        typestr = f"{_TYPESTR.get(code, '<u')}{bits // 8}"
        return {"version": 3, "shape": self.shape, "strides": self.strides, "typestr": typestr, "data": (self.address, self.read_only)}

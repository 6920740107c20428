# SPDX-License-Identifier: Apache-2.0
"""Arrays of callers: ids, pairs and results, without a copy if they have the type of C."""

from __future__ import annotations

from operator import index
from typing import Any

from kvmem import _errors
from kvmem._library import ffi

_PAIRS = ffi.typeof("kvmem_block_pair[]")

Pairs = Any
"""Block pairs: an array of uint32 of the shape (n, 2), or pairs (source, destination)."""


def block_ids(blocks: Any) -> Any:
    """An array of uint32_t for C: an array of NumPy without a copy if it has that type, otherwise any sequence."""
    if type(blocks).__module__ == "numpy" and getattr(blocks, "dtype", None) == "uint32":
        if blocks.ndim != 1:
            raise _errors.InvalidArgument(f"blocks have the shape {blocks.shape}; expected one axis")
        return ffi.from_buffer("uint32_t[]", blocks if blocks.flags.c_contiguous else blocks.copy())
    try:
        ids = [index(each) for each in blocks]
    except TypeError as error:
        raise _errors.InvalidArgument(f"blocks are no list of block ids: {error}") from None
    return _numbers("uint32_t[]", ids, 32, "blocks", "a block id")


def epoch_list(epochs: Any) -> Any:
    """An array of uint64_t for C."""
    try:
        numbers = [index(each) for each in epochs]
    except TypeError as error:
        raise _errors.InvalidArgument(f"epochs are no list of numbers: {error}") from None
    return _numbers("uint64_t[]", numbers, 64, "epochs", "an epoch")


def _numbers(kind: str, numbers: list[int], bits: int, name: str, what: str) -> Any:
    """An array for C. Names the first number that does not fit."""
    try:
        return ffi.new(kind, numbers)
    except OverflowError:
        at = next(at for at, number in enumerate(numbers) if number >> bits)
        raise _errors.OutOfRange(f"{name}[{at}] is {numbers[at]}; {what} is a number from 0 to 2^{bits} - 1") from None


def results(out: Any, item: str) -> Any:
    """The memory of an array that a caller passes for results."""
    view = memoryview(out)
    if view.ndim != 1 or not view.c_contiguous or view.readonly or view.format not in {"uint32": "I", "uint64": "QLN"}[item]:
        raise _errors.InvalidArgument(f"out is {_errors.type_of(out)} of format {view.format!r} and shape {view.shape}; expected one axis of {item}")
    return ffi.from_buffer(f"{item}_t[]", out)


def block_pairs(pairs: Pairs) -> tuple[Any, int]:
    """An array of kvmem_block_pair for C, and its length."""
    kind = getattr(pairs, "dtype", None)
    if kind is not None and (kind is _uint32 or hasattr(pairs, "__array_interface__")):
        shape = pairs.shape
        if len(shape) != 2 or shape[1] != 2:
            raise _errors.InvalidArgument(f"pairs have the shape {shape}; expected (n, 2)")
        if kind is _uint32 or _is_uint32(kind):
            try:
                return ffi.from_buffer(_PAIRS, pairs), shape[0]
            except (ValueError, BufferError):  # not contiguous
                return ffi.from_buffer(_PAIRS, pairs.copy()), shape[0]
        pairs = pairs.tolist()
    try:
        made = [(index(source), index(destination)) for source, destination in pairs]
    except (TypeError, ValueError) as error:
        raise _errors.InvalidArgument(f"pairs are not pairs of block ids (source, destination): {error}") from None
    try:
        return ffi.new("kvmem_block_pair[]", made), len(made)
    except OverflowError:
        at = next(at for at, pair in enumerate(made) if any(block >> 32 for block in pair))
        raise _errors.OutOfRange(f"pairs[{at}] is {made[at]}; a block id is a number from 0 to 2^32 - 1") from None


_uint32: Any = None
"""The element type of the last array of uint32. NumPy has one object for it, and each look at its properties takes time."""


def _is_uint32(kind: Any) -> bool:
    global _uint32
    if kind.kind == "u" and kind.itemsize == 4 and kind.isnative:
        _uint32 = kind
        return True
    return False

# SPDX-License-Identifier: Apache-2.0
"""What all objects have in common: a handle of the library, which is destroyed once."""

from __future__ import annotations

import enum
import os
import warnings
from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kvmem import _constants, _errors, _release
from kvmem._constants import Status
from kvmem._library import ffi, lib
from kvmem._time import interruptible

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since Python 3.11


class Handle:
    """An object of kvmem. `close`, or leaving a `with` block, gives it back.

    The library keeps what other objects use: objects may be closed in any order. An object that was not closed is closed when
    Python frees it, with a ResourceWarning. Calls in other threads that use the object complete before it is destroyed."""

    __slots__ = ("__weakref__", "_c")

    _type: ClassVar[str]
    """Name of the type in C, without kvmem_."""

    _c: Any

    def _own(self, pointer: Any) -> None:
        # A running call refers to the object of cffi, so the handle is destroyed after the last one.
        self._c = ffi.gc(pointer, _destructor(self._type))

    @classmethod
    def _owning(cls, pointer: Any) -> Self:
        made = cls.__new__(cls)
        made._own(pointer)
        return made

    @property
    def _handle(self) -> Any:
        handle = self._c
        if handle is None:
            raise _errors.InvalidState(f"this {type(self).__name__} is closed")
        return handle

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._c is None

    def close(self) -> None:
        """Gives the object back. Closing it again does nothing."""
        self._c = None
        _release.closed()

    def __enter__(self) -> Self:
        self._handle  # noqa: B018 - fails if it is closed
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_c", None) is not None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            self._c = None

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to its process and cannot be pickled; see kvmem.Share and kvmem.Directory")

    def __repr__(self) -> str:
        if self._c is None:
            return f"<kvmem.{type(self).__name__} closed>"
        try:
            return f"<kvmem.{type(self).__name__} {self._describe()}>"
        except _errors.Error as error:
            return f"<kvmem.{type(self).__name__}: {error}>"

    def _describe(self) -> str:
        return hex(int(ffi.cast("uintptr_t", self._c)))


_destructors: dict[str, Any] = {}


def _destructor(kind: str) -> Any:
    known = _destructors.get(kind)
    if known is None:
        destroy = getattr(lib, f"kvmem_{kind}_destroy")

        def destroy_and_look(pointer: Any, destroy: Any = destroy, look: Any = _release.look) -> None:
            destroy(pointer)
            look()

        known = _destructors[kind] = destroy_and_look
    return known


class Options:
    """A struct of options of C, and what its fields point to."""

    __slots__ = ("c", "kept")

    def __init__(self, struct: str, /, **fields: Any) -> None:
        pointer, size, kinds = _structs.get(struct) or _struct(struct)
        self.c = c = ffi.new(pointer)
        self.kept: list[Any] = []
        if size:
            c.struct_size = size
        for field, value in fields.items():
            if value is not None:
                self.set(field, kinds[field], value)

    def set(self, field: str, kind: Any, value: Any) -> None:
        if kind.kind == "pointer" and not isinstance(value, ffi.CData):
            value = self.pointer(field, kind, value)
        elif kind.kind == "pointer":
            self.kept.append(value)
        try:
            setattr(self.c, field, value)
        except (OverflowError, TypeError) as error:
            raise _errors.InvalidArgument(f"{field} is {value!r}: {_known_values(field) or _expected(kind, error)}") from error

    def pointer(self, field: str, kind: Any, value: Any) -> Any:
        item = kind.item
        if isinstance(value, Handle):
            made = value._handle
        elif isinstance(value, Options):
            self.kept.append(value)
            made = value.c
        elif hasattr(lib, f"{item.cname.removeprefix('struct ')}_destroy"):
            raise TypeError(f"{field} is {_errors.type_of(value)}; expected an object of kvmem")
        elif isinstance(value, (str, os.PathLike)) and item.kind == "pointer":
            raise TypeError(f"{field} is one text; give a list of texts: [{value!r}]")
        elif item.cname == "char" or isinstance(value, (str, os.PathLike)):
            made = c_string(value, field)
        elif item.kind == "void":
            made = ffi.from_buffer(value)
        elif item.kind == "pointer" and item.item.cname == "char":
            strings = [c_string(each) for each in value]
            self.kept.append(strings)
            made = ffi.new("char *[]", strings)
        elif item.kind == "pointer":
            handles = [handle_of(each, Handle, f"an element of {field}") for each in value]
            self.kept.append(handles)
            made = ffi.new(f"{item.cname}[]", handles)
        else:
            made = ffi.new(f"{item.cname}[]", list(value))
        self.kept.append(made)
        return made


def _expected(kind: Any, error: Exception) -> str:
    """What a field accepts, by its type in C."""
    if kind.kind != "primitive":
        return str(error)
    if isinstance(error, OverflowError) and kind.cname.startswith(("uint", "size_t")):
        return f"expected a number from 0 to 2^{8 * ffi.sizeof(kind)} - 1"
    return "expected a whole number"


def _known_values(field: str) -> str:
    """What a field accepts, if its values are an enumeration."""
    known = getattr(_constants, field.capitalize(), None)
    if not (isinstance(known, type) and issubclass(known, enum.IntEnum)):
        return ""
    return f"give one of {', '.join(f'kvmem.{known.__name__}.{each.name}' for each in known)}"


def handle_of(value: Any, kind: type[Handle] | tuple[type[Handle], ...], name: str) -> Any:
    """The handle of an argument, which must be an object of a type."""
    if isinstance(value, kind):
        return value._handle
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise TypeError(f"{name} is {_errors.type_of(value)}; expected {' or '.join(map(_public_name, kinds))}")


def _public_name(kind: type[Handle]) -> str:
    return f"{'kvmem' if '._' in kind.__module__ else kind.__module__}.{kind.__name__}"


def number_of(value: Any, name: str, least: int = 0, limit: int = 1 << 64) -> int:
    """An argument that C takes as a number from `least` on, below `limit`."""
    try:
        found = index(value)
    except TypeError:
        raise TypeError(f"{name} is {_errors.type_of(value)}; expected a number") from None
    if not least <= found < limit:
        raise _errors.InvalidArgument(f"{name} is {found}; expected a number from {least} to {limit - 1}")
    return found


_structs: dict[str, tuple[Any, int, dict[str, Any]]] = {}


def _struct(name: str) -> tuple[Any, int, dict[str, Any]]:
    """The type of a pointer to a struct of C, its size if it begins with struct_size, and the types of its fields."""
    known = _structs.get(name)
    if known is None:
        described = ffi.typeof(f"kvmem_{name}")
        fields = {field: part.type for field, part in described.fields}
        size = ffi.sizeof(described) if "struct_size" in fields else 0
        known = _structs[name] = (ffi.typeof(f"kvmem_{name} *"), size, fields)
    return known


def c_string(value: str | os.PathLike[str], name: str = "an element") -> Any:
    """A `char *` that is valid as long as the returned object. `name` is that of the argument."""
    try:
        encoded = os.fsencode(value)
    except TypeError:
        raise TypeError(f"{name} is {_errors.type_of(value)}; expected a text") from None
    if b"\0" in encoded:
        raise _errors.InvalidArgument(f"{value!r} contains a NUL")
    return ffi.new("char[]", encoded)


def create(function: Any, kind: str, *arguments: Any) -> Any:
    """Calls a function whose last parameter but one receives a handle, and returns the handle."""
    out = ffi.new(f"kvmem_{kind} **")
    try:
        _errors.call(function, *arguments, out)
    finally:
        del arguments  # as in _errors.call
    return out[0]


def read(function: Any, struct: str, *arguments: Any) -> Any:
    """Calls a function whose last parameter but one receives a struct, and returns the struct."""
    out = ffi.new(f"kvmem_{struct} *")
    try:
        _errors.call(function, *arguments, out)
    finally:
        del arguments
    return out


def read_within(function: Any, struct: str, handle: Any) -> Any:
    """As `read`, of a struct that points into an object. It keeps the object, which another thread may close before the pointers are read."""
    try:
        return ffi.gc(read(function, struct, handle), lambda _struct, _kept=handle: None)
    finally:
        del handle


def blob(function: Any, *arguments: Any) -> Any:
    """Calls a function whose last parameter but one receives a blob, and returns the blob."""
    try:
        return create(function, "blob", *arguments)
    finally:
        del arguments


def items_of(listed: Any) -> Any:
    """The items of a list that the library has returned."""
    return listed.items[0 : listed.count] if listed.count else []


def take(handle: Any, function: Any, kind: str, timeout: float | None, made: Callable[[Any], T]) -> list[T]:
    """Takes a list that arrives, such as messages. Waits up to `timeout` seconds for it; none is an empty list."""
    found: list[T] = []

    def look(limit: int) -> bool:
        error, out = ffi.new("kvmem_error **"), ffi.new(f"kvmem_{kind} **")
        status = function(handle, limit, out, error)
        if status < 0:
            failure = _errors.taken(status, error)
            if status == Status.TIMED_OUT:
                return False
            raise failure
        try:
            found.extend(made(c) for c in items_of(out[0]))
        finally:
            getattr(lib, f"kvmem_{kind}_destroy")(out[0])
        return True

    interruptible(look, timeout)
    return found

# SPDX-License-Identifier: Apache-2.0
"""Errors: a class per status of the library."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from kvmem._constants import Domain, Status
from kvmem._library import ffi, lib, text


def type_of(value: object) -> str:
    """The type of a value, for messages: "an int", "a str", "None"."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def ensure_kind(value: object, kind: type | tuple[type, ...], name: str, expected: str) -> None:
    """Raises TypeError unless an argument has a type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {type_of(value)}; expected {expected}")


class Cause(NamedTuple):
    """Native cause of an error: the error of the library or system that kvmem called."""

    domain: Domain
    """Library or system."""
    code: int
    """Code in that domain, such as an errno."""
    name: str
    """Name of the code, such as "ENOSPC"."""


class Error(Exception):
    """A call of kvmem, or a run, failed. Each status has a class of its own, such as `kvmem.TimedOut`.

    If the cause is an errno, the error is also the `OSError` of that errno: `except FileNotFoundError` works."""

    status: Status
    """Status of the library."""
    message: str
    """The request, the reason, and often a remedy."""
    cause: Cause | None
    """Native cause, or None if kvmem itself found the error."""

    __module__ = "kvmem"

    def __init_subclass__(cls) -> None:
        cls.__module__ = "kvmem"

    def __init__(self, message: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause

    def __str__(self) -> str:
        return self.message


class InvalidArgument(Error, ValueError):
    """An argument is invalid, independent of the state of the library."""

    status = Status.INVALID_ARGUMENT


class OutOfMemory(Error, MemoryError):
    """Memory, disk space or another resource is exhausted."""

    status = Status.OUT_OF_MEMORY


class OutOfRange(Error, IndexError):
    """An index or a size is outside the object."""

    status = Status.OUT_OF_RANGE


class NotFound(Error, LookupError):
    """The named object does not exist."""

    status = Status.NOT_FOUND


class AlreadyExists(Error):
    """The object to create already exists."""

    status = Status.ALREADY_EXISTS


class InvalidState(Error):
    """The state of the object does not allow the call."""

    status = Status.INVALID_STATE


class Busy(Error):
    """The object is in use."""

    status = Status.BUSY


class TimedOut(Error, TimeoutError):
    """The timeout expired."""

    status = Status.TIMED_OUT


class Cancelled(Error):
    """The work was cancelled."""

    status = Status.CANCELLED


class Unsupported(Error):
    """The operation is not supported, here or in general."""

    status = Status.UNSUPPORTED


class PermissionDenied(Error):
    """The system or a peer denied access."""

    status = Status.PERMISSION_DENIED


class CudaUnavailable(Error):
    """There is no usable CUDA driver. The message says whether it is missing, too old, or has no device."""

    status = Status.UNAVAILABLE_CUDA


class NixlUnavailable(Error):
    """There is no usable NIXL library. The message says whether it is missing, too old or broken."""

    status = Status.UNAVAILABLE_NIXL


class CudaError(Error):
    """The CUDA driver reported an error."""

    status = Status.CUDA


class NixlError(Error):
    """NIXL reported an error."""

    status = Status.NIXL


class IoError(Error):
    """The operating system reported an error."""

    status = Status.IO


class PeerLost(Error):
    """The peer process has ended."""

    status = Status.PEER_LOST


class Stale(Error):
    """What the object refers to has changed since."""

    status = Status.STALE


class Corrupt(Error):
    """Received or stored bytes are damaged or malicious."""

    status = Status.CORRUPT


class VersionMismatch(Error):
    """Received or stored bytes have a version that this library cannot read."""

    status = Status.VERSION_MISMATCH


class Panic(Error):
    """A bug in kvmem. Later calls with the same objects fail with `InvalidState`."""

    status = Status.PANIC


_classes: dict[int, type[Error]] = {int(each.status): each for each in Error.__subclasses__()}
_with_errno: dict[tuple[type[Error], type[OSError]], type[Error]] = {}


def _with_os_error(kind: type[Error], code: int) -> type[Error]:
    """The class that is both `kind` and the OSError of an errno."""
    os_error = type(OSError(code, ""))
    if issubclass(kind, os_error):
        return kind
    key = (kind, os_error)
    if key not in _with_errno:
        bases = (kind, os_error)
        _with_errno[key] = type(kind.__name__, bases, {"__module__": kind.__module__, "__doc__": kind.__doc__})
    return _with_errno[key]


def make(status: int, message: str, cause: Cause | None = None) -> Error:
    """The error of a status."""
    kind = _classes.get(status)
    if kind is None:
        error = Error(message or f"status {status}", cause)
        error.status = Status(status)
        return error
    if cause is not None and cause.domain == Domain.ERRNO:
        kind = _with_os_error(kind, cause.code)
    error = kind(message, cause)
    if cause is not None and isinstance(error, OSError):
        error.errno, error.strerror = cause.code, os.strerror(cause.code)
    return error


def taken(status: int, pointer: Any) -> Error:
    """The error of a failed call, from its `kvmem_error **`. The error of the library is destroyed."""
    source = pointer[0]
    if not source:
        return make(status, text(lib.kvmem_status_message(status)))
    cause = None
    native = ffi.new("kvmem_error_cause *")
    if lib.kvmem_error_get_cause(source, native) == 0 and native.domain != Domain.NONE:
        cause = Cause(Domain(native.domain), native.code, text(native.name))
    message = text(lib.kvmem_error_message(source, ffi.NULL))
    lib.kvmem_error_destroy(source)
    return make(status, message, cause)


def call(function: Any, *arguments: Any) -> int:
    """Calls a function whose last parameter is `kvmem_error **`. Returns a status that is no failure, or raises."""
    error = ffi.new("kvmem_error **")
    status: int = function(*arguments, error)
    if status < 0:
        # An error that is kept has this frame in its traceback, which must not keep handles from being destroyed.
        del arguments
        raise taken(status, error)
    return status

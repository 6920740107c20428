# SPDX-License-Identifier: Apache-2.0
"""The library that the package calls: KVMEM_LIBRARY, or the one beside this file."""

from __future__ import annotations

import os
import sys

from kvmem import _versions
from kvmem._ffi import ffi as ffi

TYPE_CHECKING = False  # that of typing, which the import of the package does not load
if TYPE_CHECKING:
    from typing import Any


def _open() -> tuple[Any, str]:
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError("kvmem: this free-threaded Python runs without the GIL, which kvmem needs: start it with PYTHON_GIL=1")
    named = os.environ.get("KVMEM_LIBRARY")
    path = named or os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", f"libkvmem.so.{_versions.ABI_VERSION}")
    try:
        library = ffi.dlopen(path)
    except OSError as error:
        hint = "KVMEM_LIBRARY names it" if named else "set KVMEM_LIBRARY to the libkvmem.so to use"
        raise ImportError(f"kvmem: {path} cannot be loaded: {error}; {hint}") from error
    try:
        version = library.kvmem_abi_version()
    except (AttributeError, ffi.error) as error:
        raise ImportError(f"kvmem: {path} is not libkvmem.so: it has no kvmem_abi_version") from error
    if version != _versions.ABI_VERSION:
        raise ImportError(
            f"kvmem: {path} has binary interface {version}, and this package was made for {_versions.ABI_VERSION}; "
            "install the package of the same version as the library, or unset KVMEM_LIBRARY"
        )
    return library, path


lib: Any
path: str
lib, path = _open()


def text(pointer: Any) -> str:
    """The text that a `const char *` of the library points to; "" for NULL."""
    return ffi.string(pointer).decode(errors="replace") if pointer else ""


def blob_bytes(blob: Any) -> bytes:
    """The bytes of a blob, which is destroyed."""
    try:
        return bytes(ffi.buffer(lib.kvmem_blob_data(blob), lib.kvmem_blob_size(blob)))
    finally:
        lib.kvmem_blob_destroy(blob)


def blob_text(blob: Any) -> str:
    """The text of a blob, which is destroyed."""
    return blob_bytes(blob).decode(errors="replace")

# SPDX-License-Identifier: Apache-2.0
"""The log of the library, in Python's logging."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any

from kvmem import _errors
from kvmem._constants import LogLevel
from kvmem._library import ffi, lib, text

if TYPE_CHECKING:
    import logging

# Those of logging, which has none for TRACE.
_LEVELS = {LogLevel.ERROR: 40, LogLevel.WARN: 30, LogLevel.INFO: 20, LogLevel.DEBUG: 10, LogLevel.TRACE: 5}
_kept: list[Any] = []


def log_to(logger: logging.Logger | None, level: LogLevel = LogLevel.WARN) -> None:
    """Sends messages of the library to a logger, from `level` on; None ends that. Loggers are children of it by module."""
    if logger is None:
        _errors.call(lib.kvmem_log_set_callback, LogLevel.OFF, ffi.NULL, ffi.NULL)
        _kept.clear()
        return
    target_logger = logger

    def write(importance: int, target: Any, message: Any, _: Any) -> None:
        child = target_logger.getChild(text(target).removeprefix("kvmem::").replace("::", "."))
        child.log(_LEVELS.get(LogLevel(importance), 20), "%s", text(message))

    callback = ffi.callback("kvmem_log_callback", write)
    _errors.call(lib.kvmem_log_set_callback, level, callback, ffi.NULL)
    if not _kept:
        # The callback must not run after the interpreter has ended.
        atexit.register(log_to, None)
    _kept[:] = [callback]

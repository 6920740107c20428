# SPDX-License-Identifier: Apache-2.0
"""A pause of the puts."""

from __future__ import annotations

import logging
import time

import kvmem

SECONDS = 300.0


class Pause:
    """Time without puts after one that was late: each of them would wait for the file system as long, or use the engine's blocks as long."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self.until = logger, 0.0

    def check(self) -> None:
        """Raises during the pause."""
        if time.monotonic() < self.until:
            raise kvmem.Cancelled("the file system did not respond")

    def note(self, error: kvmem.Error) -> None:
        """Begins a pause if a put was late, unless there is one."""
        if isinstance(error, kvmem.TimedOut) and time.monotonic() >= self.until:
            self.until = time.monotonic() + SECONDS
            self._logger.warning("kvmem: no blocks are stored for %.0f s: %s", SECONDS, error)

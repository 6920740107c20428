# SPDX-License-Identifier: Apache-2.0
"""Settings that engines pass as an object. A mistake is one sentence that says what to set."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

GIB = 1 << 30
MAX_SECONDS = 1_000_000
T = TypeVar("T", bound="Settings")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that all adapters have."""

    SHARE: ClassVar[str] = "per worker"
    """Whose blocks capacity_gib limits."""

    path: str | None = None
    """Folder of the stores with blocks, which the next engine reads."""
    capacity_gib: float = 0.0
    """GiB per worker for blocks."""
    identity: str = ""
    """Anything else that blocks depend on, such as a version of the weights: only engines with the same one read a store."""
    timeout_seconds: float = 30.0
    """After this time a load or store is cancelled. The blocks of a load are then computed."""

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises if settings do not fit together. `given` are those that are set."""
        if self.path is None:
            raise ValueError("kvmem: path is not set: set it to the folder of the blocks, or to one in /dev/shm to keep them in host memory")
        if not self.capacity_gib > 0:
            raise ValueError(f"kvmem: capacity_gib is not set: set it to the GiB that blocks may have {self.SHARE}, in the folder at path")


def parse(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """Checks the settings that an engine has at `where`."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name in given:
        if name not in known:
            raise ValueError(f"kvmem: {where} has {name!r}, which is no setting; known are {', '.join(known)}")
    values: dict[str, Any] = {name: _value(name, known[name].default, value) for name, value in given.items()}
    made = kind(**values)
    if not 0 < made.timeout_seconds < MAX_SECONDS:
        raise ValueError(f"kvmem: timeout_seconds is {made.timeout_seconds}: set a number of seconds above 0 and below {MAX_SECONDS:,}")
    made.check(given)
    return made


def _value(name: str, default: object, value: object) -> object:
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        raise ValueError(f"kvmem: {name} is {value!r}: set true or false")
    if isinstance(default, (int, float)):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and type(default)(value) == value:
            return type(default)(value)
        raise ValueError(f"kvmem: {name} is {value!r}: set a {'whole ' if isinstance(default, int) else ''}number")
    if value is None and default is None:
        return None
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return os.fspath(value)
    raise ValueError(f"kvmem: {name} is {value!r}: set a text")

# SPDX-License-Identifier: Apache-2.0
"""The settings of the connector, from `kv_connector_extra_config`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kvmem._blocks._settings import GIB as GIB, Settings
from kvmem._blocks import _settings


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of the connector."""


def parse(extra: Mapping[str, Any]) -> Config:
    """Checks `kv_connector_extra_config`."""
    return _settings.parse(Config, extra, "kv_connector_extra_config")

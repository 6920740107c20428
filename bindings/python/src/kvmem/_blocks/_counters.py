# SPDX-License-Identifier: Apache-2.0
"""What adapters count."""

from __future__ import annotations

from typing import Any

COUNTERS = {
    "stored_blocks": "Blocks stored.",
    "stored_bytes": "Bytes stored.",
    "loaded_blocks": "Blocks loaded.",
    "loaded_bytes": "Bytes loaded.",
    "load_seconds": "Seconds of loads, summed.",
    "damaged_blocks": "Blocks whose stored bytes were damaged, and that were recomputed.",
    "failed_loads": "Blocks that could not be loaded for another reason, and that were recomputed.",
    "failed_stores": "Blocks that could not be stored.",
}
"""Statistics, which are counted from one report to the next."""


def add(into: dict[str, Any], other: dict[str, Any]) -> None:
    """Adds counters."""
    for name, value in other.items():
        into[name] = into.get(name, 0) + value

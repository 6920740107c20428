# SPDX-License-Identifier: Apache-2.0
"""kvmem's counters of a worker's process, as vLLM's statistics carry them: what has happened in an interval, and what exists now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kvmem

NOW = "now"
"""The name under which statistics have what exists: gauges per rank. All other values are added."""

COUNTERS = {
    "runs": ("Runs of transfers that have ended.", ("method", "direction", "status")),
    "run_bytes": ("Bytes of the runs that have succeeded.", ("method", "direction")),
    "run_seconds": ("Seconds from submission to completion of the runs that have succeeded, summed.", ("method",)),
    "store_hits": ("Keys that gets of stores have found.", ()),
    "store_misses": ("Keys that gets of stores have not found.", ()),
    "store_evicted": ("Blocks that stores have evicted.", ()),
    "store_damaged": ("Blocks of stores that could not be read, or differed from what was stored.", ()),
}
"""Name, text and labels of each counter."""

GAUGES = {
    "runs_in_flight": ("Runs that have started and not ended, of all ranks.", ()),
    "region_bytes": ("Bytes of regions of all ranks.", ("tier",)),
    "elastic_committed_bytes": ("Bytes of elastic regions of all ranks that have memory.", ()),
    "registrations": ("Registrations of regions with agents, of all ranks.", ()),
    "handles": ("Handles of all ranks that were not closed.", ("type",)),
}
"""Name, text and labels of each gauge."""

_INTERVAL = 1.0
"""Seconds between two readings: a step takes less, and a reading some milliseconds of it."""
_TIERS = ("system", "pinned", "device", "elastic", "disk", "object", "block")
_HANDLES = {
    "region": "regions", "layout": "layouts", "transfer": "transfers", "queue": "queues", "share": "shares", "broker": "brokers", "agent": "agents",
    "directory": "directories", "store": "stores", "request": "requests",
}  # fmt: skip


def series(name: str, *labels: str) -> str:
    """A metric with the values of its labels, as one text: vLLM sends statistics as JSON or similar, whose names are texts."""
    return " ".join((name, *labels))


class ProcessCounters:
    """What kvmem has counted in this process since the last reading."""

    def __init__(self, rank: int) -> None:
        self._rank, self._last, self._due = str(rank), dict[str, float](), 0.0

    def take(self, now: float) -> dict[str, Any]:
        """The statistics of the interval that ends; none if it has begun a short time ago."""
        if now < self._due:
            return {}
        self._due = now + _INTERVAL
        found = kvmem.statistics()
        counted = _counted(found)
        made: dict[str, Any] = {name: value - self._last.get(name, 0) for name, value in counted.items() if value != self._last.get(name, 0)}
        self._last = counted
        made[NOW] = {self._rank: _present(found)}
        return made


def _counted(found: kvmem.Statistics) -> dict[str, float]:
    methods = {method.name.lower(): each for method, each in found.methods.items()} | {"request": found.requests}
    made: dict[str, float] = {}
    for method, each in methods.items():
        for (direction, status), runs in each.runs.items():
            made[series("runs", method, direction.name.lower(), status.name.lower())] = runs
        for direction, size in each.bytes.items():
            made[series("run_bytes", method, direction.name.lower())] = size
        seconds = sum(latencies.seconds for latencies in each.latencies)
        if seconds:
            made[series("run_seconds", method)] = seconds
    for name in ("hits", "misses", "evicted", "damaged"):
        made[f"store_{name}"] = getattr(found, f"num_store_{name}")
    return made


def _present(found: kvmem.Statistics) -> dict[str, int]:
    made = {
        "runs_in_flight": found.runs_in_flight, "elastic_committed_bytes": found.elastic_committed_bytes, "registrations": found.num_registrations,
    }  # fmt: skip
    made |= {series("region_bytes", tier): getattr(found, f"{tier}_bytes") for tier in _TIERS}
    return made | {series("handles", name): getattr(found, f"num_{names}") for name, names in _HANDLES.items()}


def summary(data: Mapping[str, Any]) -> dict[str, float]:
    """The counters for a line of the log: runs and bytes by method, and the runs that have failed."""
    made: dict[str, float] = {}
    for name, value in data.items():
        kind, *labels = name.split(" ")
        if kind == "runs":
            key = f"{labels[0]}_runs" if labels[2] == "ok" else "failed_runs"
        elif kind == "run_bytes":
            key = f"{labels[0]}_bytes"
        elif kind == "run_seconds":
            continue
        else:
            key = name
        if name != NOW:
            made[key] = made.get(key, 0) + value
    return made

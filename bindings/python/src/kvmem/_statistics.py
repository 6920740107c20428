# SPDX-License-Identifier: Apache-2.0
"""Counters of the process: what exists in it, and what has happened."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import blob
from kvmem._library import blob_text, ffi, lib

_MAX_BYTES = (64 << 10, 1 << 20, 16 << 20, 256 << 20, None)


class Latencies(NamedTuple):
    """Durations of the runs that have succeeded and moved at most so many bytes, and more than those of the class before."""

    max_bytes: int | None
    """None for no limit."""
    counts: tuple[int, ...]
    """The one at index i is at most 2**(10 + i) ns and more than that of the index before; the last one is more."""
    seconds: float
    """Sum of all durations."""


class MethodStatistics(NamedTuple):
    """What has happened by one method."""

    runs: dict[tuple[k.Direction, k.Status], int]
    """Runs that have ended; without what has not happened."""
    bytes: dict[k.Direction, int]
    """Of the runs that have succeeded."""
    latencies: list[Latencies]


class Statistics(NamedTuple):
    """What exists in this process, and what has happened since it was started or forked."""

    methods: dict[k.Method, MethodStatistics]
    requests: MethodStatistics
    """Those on raw descriptors, whose latencies are not measured."""
    runs_in_flight: int
    system_bytes: int
    """Bytes of the regions of a tier, without views."""
    pinned_bytes: int
    device_bytes: int
    elastic_bytes: int
    """Of addresses, of which `elastic_committed_bytes` have memory."""
    elastic_committed_bytes: int
    disk_bytes: int
    object_bytes: int
    block_bytes: int
    num_registrations: int
    num_store_hits: int
    num_store_misses: int
    num_store_evicted: int
    num_store_damaged: int
    num_regions: int
    """Handles that were not closed."""
    num_layouts: int
    num_transfers: int
    num_queues: int
    num_shares: int
    num_brokers: int
    num_agents: int
    num_directories: int
    num_stores: int
    num_requests: int
    num_leases: int
    mapped_bytes: int
    """Of regions of other processes, which are mapped here."""
    staging_bytes: int
    locked_bytes_limit: int
    """That the process may lock in memory; 2**64 - 1 without a limit."""
    excess_bytes: int
    """That staged runs have read from peers and discarded."""
    num_peer_staging_waits: int
    num_gpu_waits: int
    num_elapsed_waits: int
    """Calls that waited until their timeout had elapsed. Python waits in several such calls."""
    num_file_retries: int
    num_fallbacks: int
    """Times that a transfer took another method, because the best one could not be prepared."""


def statistics() -> Statistics:
    """Returns the counters of the process. Waits for nothing."""
    c = _read(lib.kvmem_statistics_get, "statistics")
    methods = {method: _method(method) for method in k.Method}
    return Statistics(methods, _method(0), *(int(getattr(c, name)) for name in Statistics._fields[2:]))


def statistics_text() -> str:
    """Returns the counters in Prometheus's text format, for an HTTP endpoint of the caller."""
    return blob_text(blob(lib.kvmem_statistics_text))


def export_trace() -> str:
    """Returns the last runs with their phases as JSON in Chrome's trace format, which ui.perfetto.dev shows."""
    return blob_text(blob(lib.kvmem_trace_export))


def serve_statistics() -> None:
    """Lets `kvmem-doctor top` of the same user read this process, until it ends. KVMEM_SERVE_STATISTICS=1 does so at the import."""
    _errors.call(lib.kvmem_statistics_serve)


def _method(method: int) -> MethodStatistics:
    c = _read(lib.kvmem_statistics_get_method, "method_statistics", method)
    runs = {
        (direction, k.Status(-status)): int(count)
        for direction in k.Direction
        for status, count in enumerate(c.runs[direction])
        if count > 0
    }
    moved = {direction: int(c.bytes[direction]) for direction in k.Direction if c.bytes[direction] > 0}
    classes = zip(_MAX_BYTES, c.latencies, c.latency_sums_ns)
    return MethodStatistics(runs, moved, [Latencies(limit, tuple(map(int, counts)), total / 1e9) for limit, counts, total in classes])


def _read(function: Any, struct: str, *arguments: Any) -> Any:
    out = ffi.new(f"kvmem_{struct} *")
    out.struct_size = ffi.sizeof(f"kvmem_{struct}")
    _errors.call(function, *arguments, out)
    return out

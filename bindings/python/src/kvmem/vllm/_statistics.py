# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""Statistics for vLLM's log and for Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from kvmem._blocks._counters import COUNTERS, add

HANDOVER_COUNTERS = {
    "mapped_bytes": "Bytes of those loaded that were read from mapped memory of another engine.",
    "nixl_bytes": "Bytes of those loaded that NIXL has read from another engine.",
    "offered_requests": "Requests whose blocks are or were kept for another engine.",
    "handed_over_requests": "Requests whose blocks another engine has loaded.",
    "expired_requests": "Requests whose blocks were freed at the end of their lease, before another engine had loaded them.",
}
"""What a handover counts besides."""


class KvmemStats(KVConnectorStats):
    """Counters of an interval."""

    def reset(self) -> None:
        """Begins an interval."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the counters of another rank or interval."""
        add(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        """The counters, for the log."""
        return {name: round(value, 6) for name, value in self.data.items()}

    def is_empty(self) -> bool:
        """Whether nothing has happened."""
        return not self.data


class KvmemMetrics(KVConnectorPromMetrics):
    """Counters `vllm:kvmem_...` for Prometheus."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {}
        for name, text in (COUNTERS | HANDOVER_COUNTERS).items():
            counter = metric_types[Counter](name=f"vllm:kvmem_{name}", documentation=text, labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds the counters of an interval."""
        for name, value in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(value)

# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""Statistics for vLLM's log and for Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from kvmem._blocks._counters import COUNTERS, add
from kvmem.vllm import _process

HANDOVER_COUNTERS = {
    "mapped_bytes": "Bytes of those loaded that were read from mapped memory of another engine.",
    "nixl_bytes": "Bytes of those loaded that NIXL has read from another engine.",
    "stale_blocks": "Blocks that another engine had freed or reused before they were read; their requests were recomputed.",
    "offered_requests": "Requests whose blocks are or were kept for another engine.",
    "handed_over_requests": "Requests whose blocks another engine has loaded.",
    "expired_requests": "Requests whose blocks were freed at the end of their lease or of the engine that read them, before it had loaded them.",
}
"""What a handover counts besides."""


class KvmemStats(KVConnectorStats):
    """Counters of an interval, and what exists at its end, per rank."""

    def reset(self) -> None:
        """Begins an interval."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the counters of another rank or of a later interval."""
        present = self.data.pop(_process.NOW, {}) | other.data.get(_process.NOW, {})
        add(self.data, {name: value for name, value in other.data.items() if name != _process.NOW})
        if present:
            self.data[_process.NOW] = present
        return self

    def reduce(self) -> dict[str, int | float]:
        """The counters, for the log."""
        return {name: round(value, 6) for name, value in _process.summary(self.data).items()}

    def is_empty(self) -> bool:
        """Whether nothing has happened."""
        return not self.data.keys() - {_process.NOW}


class KvmemMetrics(KVConnectorPromMetrics):
    """Counters and gauges `vllm:kvmem_...` for Prometheus."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics: dict[str, Any] = {}
        counters = {name: (text, ()) for name, text in (COUNTERS | HANDOVER_COUNTERS).items()} | _process.COUNTERS
        for name, (text, labels) in counters.items():
            self._metrics[name] = metric_types[Counter](name=f"vllm:kvmem_{name}", documentation=text, labelnames=[*labelnames, *labels])
        for name, (text, labels) in _process.GAUGES.items():
            self._metrics[name] = metric_types[Gauge](
                name=f"vllm:kvmem_{name}", documentation=text, labelnames=[*labelnames, *labels], multiprocess_mode="mostrecent"
            )
        for name in (*COUNTERS, *HANDOVER_COUNTERS):  # from the start, so that a rate has a first value
            for values in per_engine_labelvalues.values():
                self._metrics[name].labels(*values)
        self._present: dict[int, dict[str, dict[str, int]]] = {}
        """What each rank of each engine has."""

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds the counters of an interval, and takes what exists at its end."""
        for name, value in transfer_stats_data.items():
            if name != _process.NOW and (metric := self._of(name, engine_idx)) is not None:
                metric.inc(value)
        present = self._present.setdefault(engine_idx, {})
        present.update(transfer_stats_data.get(_process.NOW, {}))
        sums: dict[str, Any] = {}
        for each in present.values():
            add(sums, each)
        for name, value in sums.items():
            if (metric := self._of(name, engine_idx)) is not None:
                metric.set(value)

    def _of(self, series: str, engine: int) -> Any:
        """The metric of a series; None if another release has sent it."""
        name, *labels = series.split(" ")
        metric = self._metrics.get(name)
        return None if metric is None else metric.labels(*self.per_engine_labelvalues[engine], *labels)

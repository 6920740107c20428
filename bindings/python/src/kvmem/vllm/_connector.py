# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The class that vLLM loads, and what both of its kinds have in common: `_offload` stores blocks, `_handover` gives requests to other
engines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, KVConnectorTransferResults, SupportsHMA

from kvmem.vllm import _config, _groups
from kvmem.vllm._process import ProcessCounters
from kvmem.vllm._statistics import KvmemMetrics, KvmemStats


class KvmemConnector(KVConnectorBase_V1, SupportsHMA):
    """Keeps blocks of vLLM's cache in stores, or hands requests over to another engine."""

    def __new__(cls, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> KvmemConnector:
        """The connector of the kind that the settings ask for."""
        kind = cls
        if cls is KvmemConnector:
            if _config.parse(vllm_config.kv_transfer_config.kv_connector_extra_config or {}).directory is None:
                from kvmem.vllm._offload import OffloadConnector as kind
            else:
                from kvmem.vllm._handover import HandoverConnector as kind
        made: KvmemConnector = super().__new__(kind)
        return made

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._config = _config.parse(self._kv_transfer_config.kv_connector_extra_config or {})
        self._groups = _groups.groups_of(kv_cache_config)
        self._worker: Any = None
        self._process = ProcessCounters(vllm_config.parallel_config.rank)
        self._scheduler: Any = None

    def _check_policy(self) -> None:
        if self._kv_transfer_config.kv_load_failure_policy != "recompute":
            raise ValueError(
                "kvmem: a damaged block would end its request: set kv_load_failure_policy to recompute in --kv-transfer-config"
            )

    # ---- worker ----

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request is scheduled when its loads have ended. The handover does it by layer, if it is set."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: blocks are read after the step."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """The requests whose blocks have been loaded, or need not be kept any longer."""
        sent, received = self._worker.poll()
        failed, self._worker.failed_requests = self._worker.failed_requests, set()
        return KVConnectorTransferResults(
            finished_sending=sent, finished_recving=received, failed_recving=set() if self._fails_by_block else failed
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        """The blocks that could not be loaded: vLLM computes them."""
        failed, self._worker.failed_blocks = self._worker.failed_blocks, set()
        return failed if self._fails_by_block else set()

    @property
    def _fails_by_block(self) -> bool:
        """Whether vLLM computes from the first block that has failed. With several groups it cannot find requests by their blocks, and with
        a window the blocks before it may be missing: then all of the request is computed."""
        return len(self._groups) == 1 and self._groups[0].kind == "full"

    def get_kv_connector_stats(self) -> Any:
        """Counters of the worker since the last call, and at times those of kvmem in its process."""
        if self._worker is None:
            return None
        counters, self._worker.counters = self._worker.counters, {}
        data = counters | self._process.take(time.monotonic())
        return KvmemStats(data=data) if data else None

    # ---- scheduler ----

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """As request_finished_all_groups."""
        found: tuple[bool, dict[str, Any] | None] = self.request_finished_all_groups(request, (block_ids,))
        return found

    def take_events(self) -> Iterable[Any]:
        """None."""
        return ()

    # ---- both ----

    def shutdown(self) -> None:
        """Ends the copies in flight."""
        for part in (self._worker, self._scheduler):
            if part is not None:
                part.close()
        self._worker = None

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """A graph of several layers would not wait for each of them."""
        return bool(extra_config.get("by_layer"))

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        """Counters that another process has sent."""
        return KvmemStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> Any:
        """The counters for Prometheus."""
        return KvmemMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

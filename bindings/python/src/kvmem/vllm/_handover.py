# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The connector that hands requests over between engines. The parts do the work: `_handover_scheduler` decides, `_exchange` moves."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorRole, KVConnectorTransferResults, KVConnectorWorkerMetadata
from vllm.logger import init_logger
from vllm.v1.metrics.cache_hit_source import CacheHitSource

import kvmem
from kvmem.vllm import _cache, _identity, _ranks
from kvmem.vllm._connector import KvmemConnector
from kvmem.vllm._exchange import Exchange, Settings
from kvmem.vllm._handover_scheduler import HandoverScheduler
from kvmem.vllm._offer import HandoverStep, Replies, agent_name
from kvmem.vllm._peers import join

logger = init_logger("vllm.kvmem")

_START_TIMEOUT = 30.0


class Step(HandoverStep, KVConnectorMetadata):
    """What the workers begin in a step."""


class Report(Replies, KVConnectorWorkerMetadata):
    """What prefill has replied to the workers of decode."""

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Adds those of another rank."""
        assert isinstance(other, Report)
        self.merge(other)
        return self


class HandoverConnector(KvmemConnector):
    """Prefill keeps the blocks of a request until decode, another engine, has pulled them."""

    _cache_hit_source = CacheHitSource.P2P

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._engine = str(self._kv_transfer_config.engine_id)
        self._produces, self._consumes = bool(self._kv_transfer_config.is_kv_producer), bool(self._kv_transfer_config.is_kv_consumer)
        self._check(vllm_config.parallel_config)
        if getattr(vllm_config.model_config, "enable_sleep_mode", False):
            raise ValueError("kvmem: enable_sleep_mode is set, and after it other engines would read memory that the cache had before: remove --enable-sleep-mode")
        by_layer = self._config.by_layer and self._fails_by_block
        if self._consumes and self._config.by_layer and vllm_config.scheduler_config.async_scheduling:
            raise ValueError(
                "kvmem: by_layer is set, and with asynchronous scheduling vLLM does not compute a request again that has begun: set --no-async-scheduling"
            )
        if role == KVConnectorRole.SCHEDULER:
            ranks = vllm_config.parallel_config.tensor_parallel_size
            self._scheduler = HandoverScheduler(self._groups, self._engine, ranks, self._produces, self._consumes, by_layer)

    def _check(self, parallel: Any) -> None:
        if self._consumes:
            self._check_policy()
        for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
            size = getattr(parallel, name, 1)
            if size > 1:
                raise ValueError(f"kvmem: {name} is {size}, and requests are handed over between engines without it: set it to 1")

    # ---- worker ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Describes vLLM's cache, and publishes it."""
        config, parallel = self._vllm_config, self._vllm_config.parallel_config
        rank, ranks = parallel.rank, parallel.tensor_parallel_size
        heads = 1 if config.model_config.use_mla else config.model_config.get_total_num_kv_heads()
        model = _identity.model_identity(config, self._kv_cache_config, self._config.identity)
        packing = _identity.packing_of(config, self._kv_cache_config)
        _identity.permit_amx()
        maps = self._produces and self._config.access != "nixl"
        memory = _cache.CacheMemory.of_tensors(kv_caches, shared=maps)
        directory, agent = join(self._config, agent_name(self._engine, rank))
        groups = [
            _cache.layouts_of(group, kv_caches, self._kv_cache_config.num_blocks, model, packing, memory.region_of, agent) for group in self._groups
        ]
        opened = self._publish(directory, agent, groups, maps)
        memory.close()
        settings = Settings(self._config.lease_seconds, self._config.timeout_seconds, self._config.verify, self._config.access, rank == 0)
        sizes = [group.block_size for group in self._groups]
        self._worker = Exchange(
            agent, directory, groups, sizes, lambda sources: _ranks.legs_of(rank, ranks, sources, heads), settings, opened
        )
        self._numbers = dict(zip(self._groups[0].layers, itertools.count(1)))
        logger.info("kvmem %s: %s in %s", kvmem.__version__, agent.name, self._config.directory)

    def _publish(self, directory: Any, agent: Any, groups: Any, maps: bool) -> list[Any]:
        """Publishes the cache of a producer; a consumer only its agent. Returns what is closed at the end."""
        layouts: dict[str, kvmem.Layout] = {}
        for number, group in enumerate(groups if self._produces else ()):
            group.create_epochs()
            if group.tokens is not None and self._config.access != "mapped":
                group.tokens.serve()  # many short rows: this process gathers them
            layouts |= group.published(number)
        if not layouts or not maps:
            directory.publish(agent, layouts, _START_TIMEOUT)
            return []
        folder = _Folder()
        broker = kvmem.Broker(folder.path + "/broker")
        try:
            directory.publish(agent, layouts, _START_TIMEOUT, broker=broker)
        except kvmem.Error as error:
            if self._config.access == "mapped":
                raise ValueError(f"kvmem: the cache cannot be mapped by other engines: set access to auto or nixl: {error}") from error
            logger.info("kvmem: the cache is read by NIXL only: %s", error)
            directory.publish(agent, layouts, _START_TIMEOUT)
        return [broker, folder]

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Begins what the scheduler asks for."""
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        self._worker.give(step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Waits for the layers up to this one of the requests that are pulled by layer."""
        self._worker.wait_for_layers(self._numbers.get(layer_name, 0))

    def wait_for_save(self) -> None:
        """Nothing: decode reads blocks after their request has ended."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Waits until requests that are pulled by layer have been confirmed, or have failed: then vLLM computes them again. With speculative
        tokens it asks for failures before it calls `wait_for_save`."""
        self._worker.wait_for_requests()
        return super().get_transfer_results(finished_req_ids)

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """What prefill has replied."""
        granted, refused = self._worker.take_replies()
        rank = self._vllm_config.parallel_config.rank
        return Report({request: {rank} for request in granted}, refused) if granted or refused else None

    # ---- scheduler ----

    def on_new_request(self, request: Any) -> None:
        """Prepares a request of prefill."""
        self._scheduler.arrived(request)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        """All groups are loaded."""
        return tuple(self._kv_cache_config.transfer_group_ids)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """How many tokens prefill has."""
        found: tuple[int | None, bool] = self._scheduler.matched(request, num_computed_tokens)
        return found

    def update_connector_output(self, connector_output: Any) -> None:
        """What prefill has replied."""
        if isinstance(connector_output.kv_connector_worker_meta, Report):
            self._scheduler.replied(connector_output.kv_connector_worker_meta)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Plans the pull of a request."""
        self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """What the workers begin in this step."""
        made = self._scheduler.step()
        return Step(made.holds, made.asks, made.pulls, made.drops)

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        """Keeps the blocks of a request of prefill, and returns what decode needs to pull them."""
        from vllm.v1.request import RequestStatus

        computed = request.status in (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
        found: tuple[bool, dict[str, Any] | None] = self._scheduler.finished(request, block_ids, computed)
        return found

    def has_pending_push_work(self) -> bool:
        """Whether the workers do not know of something yet."""
        return bool(self._scheduler is not None and self._scheduler.has_work)


class _Folder:
    """A folder of this process, for the socket of its broker."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="kvmem-")

    def close(self) -> None:
        """Removes it."""
        shutil.rmtree(self.path, ignore_errors=True)

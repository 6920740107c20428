# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The connector that stores blocks. The parts do the work: `_scheduler` decides, `_worker` moves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)
from vllm.logger import init_logger
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.metrics.cache_hit_source import CacheHitSource

import kvmem
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore, others_in
from kvmem.vllm import _cache, _config, _groups, _identity, _units
from kvmem.vllm._connector import KvmemConnector
from kvmem.vllm._metadata import ReportData, StepData
from kvmem.vllm._scheduler import OffloadScheduler
from kvmem.vllm._worker import OffloadWorker

logger = init_logger("vllm.kvmem")


class Step(StepData, KVConnectorMetadata):
    """What the workers do in a step."""


class Report(ReportData, KVConnectorWorkerMetadata):
    """What the workers have done in a step."""

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Adds the report of another rank."""
        assert isinstance(other, Report)
        self.merge(other)
        return self


class Opened(KVConnectorHandshakeMetadata):
    """What the stores of a worker have at the start."""

    def __init__(self, rank: int, keys: list[bytes]) -> None:
        self.rank, self.keys = rank, keys


class OffloadConnector(KvmemConnector):
    """Keeps blocks of vLLM's cache in stores, and loads them again, also in another engine."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._check(vllm_config)
        parallel = vllm_config.parallel_config
        unit, capacity = self._config.unit_tokens, int(self._config.capacity_gib * _config.GIB)
        _groups.ensure_hashed(self._groups, kv_cache_config.hash_block_size or vllm_config.cache_config.block_size)
        self._units: _units.UnitHashes | None = None
        if unit:
            self._model = _units.model_of(vllm_config, _identity.packing_of(vllm_config, kv_cache_config))
            _units.ensure_divisible(self._groups, unit, self._model, parallel)
            self._groups = _units.divided(self._groups, unit, self._model, capacity)
            hasher = get_request_block_hasher(unit, get_hash_fn_by_name(vllm_config.cache_config.prefix_caching_hash_algo))
            self._units = _units.UnitHashes(hasher, self._groups[0].per_block, unit)
            self._identities = [_identity.unit_identity(vllm_config, kv_cache_config, group, unit, self._config.identity) for group in self._groups]
        else:
            self._groups = _groups.stored_groups(self._groups, capacity)
            whole = _identity.identity_of(vllm_config, kv_cache_config, self._groups, self._config.identity)
            self._identities = [whole] * len(self._groups)
        self._cache_hit_source = CacheHitSource.DISK
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = OffloadScheduler(self._groups, parallel.world_size, self._units.of_known if self._units is not None else None)

    def _check(self, vllm_config: Any) -> None:
        if not vllm_config.cache_config.enable_prefix_caching:
            raise ValueError("kvmem: blocks are found by their hashes, and prefix caching is off: set --enable-prefix-caching")
        self._check_policy()

    @property
    def requires_kv_delivery(self) -> bool:
        """A block that is not stored is only computed again."""
        return False

    # ---- worker ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Describes vLLM's cache, and opens the stores."""
        _identity.permit_amx()
        parallel = self._vllm_config.parallel_config
        folder = os.path.join(str(self._config.path), f"engine-{parallel.data_parallel_index}")
        opened = self._opened_units if self._units is not None else self._opened_blocks
        pairs = opened(kv_caches, folder)
        stores = [store for _, store in pairs]
        self._worker = OffloadWorker([cache for cache, _ in pairs], stores, parallel.rank)
        logger.info("kvmem %s keeps %d blocks in %s", kvmem.__version__, sum(len(store) for store in stores), folder)
        if parallel.rank == 0:
            self._warn_of_others(folder)

    def _warn_of_others(self, folder: str) -> None:
        """Names stores that only an engine with other settings uses: nothing removes them."""
        if self._units is not None:
            names = _units.names_of(self._groups, self._model)
        else:
            names = {self._name(group, rank) for group in self._groups for rank in range(self._vllm_config.parallel_config.world_size)}
        try:
            others, size = others_in(folder, names)
        except OSError as error:
            logger.info("kvmem: it is not known whether %s has stores of other settings: %s", folder, error)
            return
        if others:
            logger.warning(
                "kvmem: %s has stores that this engine does not use, with %.1f GiB: %s. Remove them, or set unit_tokens as in the engine that has made them",
                folder, size / _config.GIB, ", ".join(others),
            )  # fmt: skip

    @staticmethod
    def _name(group: _groups.Group, rank: int) -> str:
        return f"group-{group.number}-rank-{rank}"

    def _opened_blocks(self, kv_caches: dict[str, Any], folder: str) -> list[tuple[Any, Any]]:
        """The cache and the store of each group, for whole blocks of this rank."""
        made, rank = list[tuple[Any, Any]](), self._vllm_config.parallel_config.rank
        for group, identity in zip(self._groups, self._identities):
            cache = _groups.cache_layout(group, kv_caches, self._kv_cache_config.num_blocks)
            path = os.path.join(folder, self._name(group, rank))
            shape = shape_of(group.capacity, len(group.layers), group.page, "BLC")
            made.append((cache, BlockStore(path, shape, identity, self._config.timeout_seconds)))
        return made

    def _opened_units(self, kv_caches: dict[str, Any], folder: str) -> list[tuple[Any, Any]]:
        """The cache and the stores of each group, for units of this rank's heads."""
        memory = _cache.CacheMemory.of_tensors(kv_caches, shared=False)
        try:
            return [
                _units.opened(
                    group, kv_caches, memory.region_of, self._model, self._vllm_config.parallel_config.rank, self._config.unit_tokens, folder, identity,
                    self._config.timeout_seconds,
                )
                for group, identity in zip(self._groups, self._identities)
            ]  # fmt: skip
        finally:
            memory.close()

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """What the stores have, for the scheduler."""
        return Opened(self._vllm_config.parallel_config.rank, [key for store in self._worker.stores for key in store.keys()])

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Starts loads; the requests wait for them, and the step does not."""
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        if step.clears:
            self._worker.clear()
        for load in step.loads:
            self._worker.load(load)

    def wait_for_save(self) -> None:
        """Starts to store the blocks that this step fills. The scheduler keeps them until they are stored."""
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        self._worker.store(step.puts, _event() if step.puts else None)

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """What the scheduler has to know of this step."""
        found = self._worker.take_report()
        return Report(found.ended, found.stored, found.removed) if found else None

    # ---- scheduler ----

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]) -> None:
        """Takes what the stores of the workers have."""
        for opened in metadata.values():
            assert isinstance(opened, Opened)
            self._scheduler.opened(opened.rank, opened.keys)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Takes vLLM's blocks."""
        if self._scheduler is not None:
            self._scheduler.bind(gpu_block_pool)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """How many tokens are in the store."""
        count = self._scheduler.matched(request.request_id, self._hashes(request), request.num_tokens, num_computed_tokens)
        return count, count > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Plans the loads of a request."""
        self._scheduler.allocated(request.request_id, self._hashes(request), blocks.get_block_ids(), num_external_tokens)

    def _hashes(self, request: Any) -> Sequence[bytes]:
        """Of the units of a request, or of its blocks."""
        found: Sequence[bytes] = request.block_hashes if self._units is None else self._units.of(request)
        return found

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """What the workers do in this step."""
        state = scheduler_output.kv_connector_block_state
        scheduled = {request: state.resolve_block_ids(request) for request in scheduler_output.num_scheduled_tokens} if state is not None else {}
        made = self._scheduler.step(scheduled)
        return Step(made.loads, made.puts, made.clears)

    def update_connector_output(self, connector_output: Any) -> None:
        """What the workers have done."""
        if isinstance(connector_output.kv_connector_worker_meta, Report):
            self._scheduler.report(connector_output.kv_connector_worker_meta)

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        """Frees the blocks at once: those that are being stored are kept one by one."""
        self._scheduler.finished(request.request_id)
        if self._units is not None:
            self._units.forget(request.request_id)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether blocks are being stored, or must be removed: vLLM then continues to ask the workers."""
        return bool(self._scheduler is not None and self._scheduler.is_busy)

    def reset_cache(self) -> bool | None:
        """Forgets all stored blocks, such as after a change of the weights."""
        if self._scheduler is not None:
            self._scheduler.clear()
        return True


def _event() -> Any:
    """What the GPU's current work is followed by; None without a GPU."""
    import torch
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return None
    event = torch.cuda.Event()
    event.record()
    return event

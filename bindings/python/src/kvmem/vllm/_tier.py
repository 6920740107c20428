# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The secondary tier that vLLM's TieringOffloadingSpec loads: a store below vLLM's host memory. vLLM calls it in the process of the scheduler."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingMetricMetadata,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

import kvmem
from kvmem._blocks._settings import GIB
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore
from kvmem.vllm import _config
from kvmem.vllm._tier_jobs import GROUP, Ended, Positions, TierJobs

logger = init_logger("vllm.kvmem")

STORED, EVICTED, DAMAGED = (f"vllm:kvmem_tier_{name}_chunks" for name in ("stored", "evicted", "damaged"))
METRICS: dict[str, OffloadingMetricMetadata] = {
    STORED: OffloadingGaugeMetadata(documentation="Chunks in the store of the secondary tier."),
    EVICTED: OffloadingCounterMetadata(documentation="Chunks that the store of the secondary tier has evicted."),
    DAMAGED: OffloadingCounterMetadata(documentation="Chunks of the secondary tier whose stored bytes were damaged; they were not loaded."),
}


class _Request:
    """What the tier knows of a request."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.lost: set[bytes] = set()
        """Keys of chunks whose loads have failed: a miss for this request, which would otherwise ask for them without end."""


class KvmemSecondaryTierManager(SecondaryTierManager):
    """Keeps chunks of vLLM's host memory in a store, and loads them again, also in another engine. A load compares their checksums."""

    medium: ClassVar[Medium | None] = Medium.STORAGE

    def __init__(
        self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, backpressure_detector: Any = None, **settings: Any
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        config = _config.parse_tier(settings)
        self.locality = None if config.locality is None else Locality(config.locality)
        self._is_writer = not config.read_only
        steps = zip(offloading_spec.config.groups, offloading_spec.tokens_per_block)
        self._steps = {group.group_id.to_bytes(GROUP, "big"): tokens * offloading_spec.blocks_per_chunk for group, tokens in steps}
        self._requests: dict[str, _Request] = {}
        self._loads: dict[int, str] = {}
        """The request of each load."""
        self._done: list[JobResult] = []
        self._counted, self._stored = {EVICTED: 0, DAMAGED: 0}, -1
        store = _opened(config, offloading_spec, self.block_size_bytes)
        try:
            self._jobs = TierJobs(primary_kv_view, store, config.timeout_seconds)
        except BaseException:
            store.close()
            raise
        logger.info("kvmem %s has %d of %d chunks in %s", kvmem.__version__, len(store), store.capacity, config.path)

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Whether a chunk is stored. The index is in memory, so the look-up waits for nothing."""
        request = self._requests.get(req_context.req_id)
        if request is not None and key in request.lost:
            return LookupResult.MISS
        return LookupResult.HIT if self._jobs.store.has([key])[0] else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Starts to store chunks. A reader stores none."""
        if not self._is_writer:
            self._done.append(JobResult(job_metadata.job_id, True, transfer_time=0.0, transfer_bytes=0))
            return
        request = self._requests.get(job_metadata.req_context.req_id) or _Request(Positions(self._steps))
        request.positions.learn(getattr(job_metadata.req_context, "_offload_key_positions", {}))
        chains = request.positions.chains(list(job_metadata.keys), [int(chunk) for chunk in job_metadata.chunk_ids])
        self._jobs.submit_store(job_metadata.job_id, chains)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Starts to load chunks."""
        self._loads[job_metadata.job_id] = job_metadata.req_context.req_id
        self._jobs.submit_load(job_metadata.job_id, list(job_metadata.keys), [int(chunk) for chunk in job_metadata.chunk_ids])

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """The jobs that have ended since the last call. Of a load that has failed, the chunks that have arrived are used."""
        done, self._done = self._done, []
        return done + [self._result(ended) for ended in self._jobs.finished()]

    def _result(self, ended: Ended) -> JobResult:
        request = self._requests.get(self._loads.pop(ended.number, ""))
        if request is not None:
            request.lost.update(ended.lost)
        good = tuple(map(OffloadKey, ended.good)) if ended.lost and ended.good else None
        return JobResult(ended.number, not ended.lost, good, ended.seconds, ended.bytes)

    def drain_jobs(self) -> None:
        """Waits until nothing reads or writes vLLM's host memory."""
        self._jobs.drain()

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Chunks are stored as they are computed."""
        self._requests[req_context.req_id] = _Request(Positions(self._steps))
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Forgets the request. Its jobs may be in flight."""
        self._requests.pop(req_context.req_id, None)

    def shutdown(self) -> None:
        """Ends the jobs in flight, and closes the store, which the next engine can open."""
        self._jobs.close()

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, OffloadingMetricMetadata]:
        """What the store counts; vLLM counts jobs, bytes and hits of each tier."""
        return METRICS

    def get_stats(self) -> OffloadingConnectorStats | None:
        """What the store has counted since the last call."""
        info, stats = self._jobs.store.info, OffloadingConnectorStats()
        for name, count in ((EVICTED, info.num_evicted), (DAMAGED, info.num_damaged)):
            if count != self._counted[name]:
                stats.increase_counter(name, count - self._counted[name])
                self._counted[name] = count
        if self._stored != info.num_stored:
            self._stored = info.num_stored
            stats.set_gauge(STORED, info.num_stored)
        return None if stats.is_empty() else stats


def _opened(config: _config.TierConfig, spec: Any, size: int) -> BlockStore:
    capacity = int(config.capacity_gib * GIB)
    if config.capacity_gib and capacity < size:
        raise ValueError(f"kvmem: capacity_gib has {capacity:,} bytes, and a chunk needs {size:,}: set more")
    path = os.path.join(str(config.path), f"engine-{spec.config.parallel.data_parallel_index}", "tier")
    shape = shape_of(capacity // size, 1, size, "BLC")
    return BlockStore(path, shape, identity_of(spec, config.identity), config.timeout_seconds, read_only=config.read_only)


def identity_of(spec: Any, extra: str) -> dict[str, str]:
    """What the bytes of a chunk depend on, as far as a tier knows it: what vLLM's own file tier has in the names of files, and the order of
    the cache. If the bytes are those of any parallelism, vLLM's mapper has 1 for all of them."""
    fields = dict(FileMapper.from_offloading_spec("", spec, spec.blocks_per_chunk, parallel_agnostic=True).get_run_config())
    groups = fields.pop("kv_cache_groups")
    names = hashlib.sha256(json.dumps(groups, sort_keys=True).encode()).hexdigest()[:16]
    return {
        **{name.replace("_", " "): str(value) for name, value in fields.items()},
        "groups": ", ".join(f"{len(group['layer_names'])} layers of {group['tokens_per_block']} tokens" for group in groups),
        "layers": names,
        "layout": str(spec.config.kv_cache_layout),
        "seed of hashes": os.environ.get("PYTHONHASHSEED", "none"),
        "identity": extra or "none",
    }

# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The spec that vLLM's OffloadingConnector loads: vLLM decides which blocks are in host memory, and kvmem has the memory and copies."""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import CanonicalKVCaches, GPULoadStoreSpec, OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

import kvmem
from kvmem.vllm._groups import region_of
from kvmem.vllm._host_copies import HostCopies, Pages, layout_of, pairs_of
from kvmem.vllm._identity import permit_amx

logger = init_logger("vllm.kvmem")

TIMEOUT = 300.0
"""Seconds after which a copy is cancelled, which ends the engine."""


class KvmemOffloadingSpec(CPUOffloadingSpec):
    """Blocks in host memory of kvmem, page-locked with a GPU. A load compares their checksums."""

    def __init__(self, config: Any) -> None:
        size = config.extra_config.get("cpu_bytes_to_use")
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
            raise ValueError(f"kvmem: cpu_bytes_to_use is {size!r}: set the bytes of host memory for blocks in kv_connector_extra_config")
        if config.canonical_layout:
            raise ValueError("kvmem: canonical_layout is set, and KvmemOffloadingSpec keeps pages as they are: remove it")
        super().__init__(config)
        self._worker: KvmemOffloadingWorker | None = None
        if not self.num_chunks and config.worker_kv_bytes_per_block:
            raise ValueError(f"kvmem: cpu_bytes_to_use is {size:,}, and a chunk of all workers needs {self.kv_bytes_per_chunk:,}: set more")

    def _uses_shared_region(self) -> bool:
        return False  # each worker has memory of its own

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        """Allocates the host memory."""
        if self._worker is None:
            permit_amx()
            self._worker = KvmemOffloadingWorker(kv_caches, self.num_chunks, self.blocks_per_chunk)
            logger.info("kvmem %s keeps %d chunks in host memory", kvmem.__version__, self.num_chunks)
        return self._worker


class KvmemOffloadingWorker(OffloadingWorker):
    """Stores and loads the blocks of a worker."""

    def __init__(self, caches: CanonicalKVCaches, num_chunks: int, blocks_per_chunk: int) -> None:
        self._blocks_per_chunk = blocks_per_chunk
        self._on_gpu = any(each.tensor.device.type != "cpu" for each in caches.tensors)
        count = num_chunks * blocks_per_chunk
        here, host = [], []
        try:
            for each in caches.tensors:
                page, stride = each.page_size_bytes, each.tensor.stride(0)
                here.append(region_of(each.tensor, (each.tensor.shape[0] - 1) * stride + page))
                host.append(self._allocated(count * page))
            groups = []
            for refs in caches.group_data_refs:
                tensors = [(ref.tensor_idx, ref.page_size_bytes, caches.tensors[ref.tensor_idx]) for ref in refs]
                cache = layout_of([Pages(here[at], size, each.tensor.stride(0)) for at, size, each in tensors], caches.tensors[0].tensor.shape[0])
                groups.append((cache, layout_of([Pages(host[at], size, each.page_size_bytes) for at, size, each in tensors], count)))
        except kvmem.Error as error:
            raise ValueError(f"kvmem: host memory for blocks cannot be used ({error}): set less cpu_bytes_to_use") from error
        finally:
            for region in (*here, *host):
                region.close()
        self._copies = HostCopies(groups, TIMEOUT)

    def _allocated(self, size: int) -> kvmem.Region:
        if not self._on_gpu:
            return kvmem.Region.system(size)
        import torch

        return kvmem.Region.pinned(size, device=torch.cuda.current_device())

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: CPULoadStoreSpec) -> bool:
        """Copies blocks to chunks, after the GPU has computed them."""
        self._submit(job_id, True, src_spec, dst_spec)
        return True

    def submit_load(self, job_id: int, src_spec: CPULoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        """Copies chunks to blocks, after the GPU has ended what uses these."""
        self._submit(job_id, False, dst_spec, src_spec)
        return True

    def _submit(self, job_id: int, is_store: bool, blocks: GPULoadStoreSpec, chunks: CPULoadStoreSpec) -> None:
        pairs = pairs_of(blocks.block_ids, blocks.group_sizes, blocks.block_indices, chunks.block_ids, self._blocks_per_chunk)
        event = None
        if self._on_gpu:
            import torch

            event = torch.cuda.Event()
            event.record()
        self._copies.submit(job_id, is_store, pairs, event)

    def get_finished(self) -> list[TransferResult]:
        """The jobs that have ended. vLLM ends the engine if one has failed."""
        found = self._copies.finished()
        for ended in found:
            if ended.error:
                logger.error("kvmem: %s %d has failed: %s", "store" if ended.is_store else "load", ended.job, ended.error)
        return [TransferResult(ended.job, not ended.error, ended.bytes, ended.seconds) for ended in found]

    def wait(self, job_ids: set[int]) -> None:
        """Waits for jobs."""
        self._copies.wait(job_ids)

    def shutdown(self) -> None:
        """Frees the host memory."""
        self._copies.close()

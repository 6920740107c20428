# SPDX-License-Identifier: Apache-2.0
"""vLLM's TieringOffloadingSpec on a machine without a GPU, where vLLM has no worker for it. The manager, its host memory and its tiers are vLLM's; the
copies between the cache and the host memory are those of PyTorch, and end at once."""

from kvmem.vllm._host_copies import pairs_of
from kvmem.vllm._identity import permit_amx
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if self._worker is None:
            permit_amx()
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank, kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )  # fmt: skip
            self._worker = HostWorker(kv_caches, region, self.blocks_per_chunk)
        return self._worker


class HostWorker(OffloadingWorker):
    def __init__(self, caches, region, blocks_per_chunk):
        self._caches, self._region, self._per_chunk = caches, region, blocks_per_chunk
        self._host = [region.create_next_worker_view(each.page_size_bytes * blocks_per_chunk) for each in caches.tensors]
        self._done = []

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, src_spec, dst_spec, is_store=True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, dst_spec, src_spec, is_store=False)

    def _copy(self, job, blocks, chunks, is_store):
        pairs = pairs_of(blocks.block_ids, blocks.group_sizes, blocks.block_indices, chunks.block_ids, self._per_chunk)
        size = 0
        for refs, of_group in zip(self._caches.group_data_refs, pairs):
            for ref in refs:
                each = self._caches.tensors[ref.tensor_idx]
                for block, page in of_group:
                    chunk, at = divmod(page, self._per_chunk)
                    cache = each.tensor[block].flatten()[: ref.page_size_bytes]
                    host = self._host[ref.tensor_idx][chunk, at * each.page_size_bytes :][: ref.page_size_bytes]
                    host.copy_(cache) if is_store else cache.copy_(host)
                    size += ref.page_size_bytes
        self._done.append(TransferResult(job, True, size, 0.0))
        return True

    def get_finished(self):
        done, self._done = self._done, []
        return done

    def wait(self, job_ids):
        pass  # a copy has ended when it was submitted

    def shutdown(self):
        self._host = []
        self._region.cleanup()

# SPDX-License-Identifier: Apache-2.0
"""The stores of bench/22_store_peers.py, each used as an engine uses it, in its best configuration. All move blocks between one memory of the
process and a folder, by direct I/O; batches are started, and waited for.

What a batch needs in the terms of a store (key objects, memory objects) is made by `batch`, which is not timed."""

import ctypes
import os
import pathlib
import select
import types

import kvmem
import numpy as np
import torch

os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.distributed.l2_adapters.raw_block_l2_adapter import RawBlockL2Adapter, RawBlockL2AdapterConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from vllm.v1.kv_offload import config as vllm_config
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

PAGE = 4096
DEADLINE = 60.0


class Kvmem:
    """A store evicts what was used last when it is full: no batch is forgotten."""

    def __init__(self, folder, memory, capacity, durability=kvmem.Durability.NONE):
        block = memory.shape[1]
        axes = memory.view(np.uint16).reshape(len(memory), 1, 1, 1, 1, block // 2)
        self.layout = kvmem.Layout.from_tensors(axes, "BLONHC")
        shape = kvmem.Shape(num_blocks=capacity // block, num_layers=1, outer_dim=1, page_size=1, num_heads=1, inner_dim=block // 2,
                            dtype_width=2, order="BLONHC")
        flags = kvmem.DiskFlags.DIRECT_REQUIRED
        self.store = kvmem.Store(folder, shape, identity={"model": "a bench"}, durability=durability, flags=flags)

    def batch(self, keys, ids):
        return keys, ids

    def put(self, batch):
        keys, ids = batch
        return len(ids), self.store.put(self.layout, keys, ids, flags=kvmem.StoreFlags.UNRELATED)

    def get(self, batch):
        keys, ids = batch
        return len(ids), self.store.get(self.layout, keys, ids)

    def is_done(self, started):
        run = started[1]
        return run.transfer is None or run.transfer.poll()

    def wait(self, started):
        expected, run = started
        if run.wait(DEADLINE) != expected:
            raise RuntimeError(f"kvmem moved {run.num_moved} of {expected} blocks")

    def forget(self, batches):
        pass

    def close(self):
        self.store.close()
        self.layout.close()


class RawBlock:
    """LMCache's adapter on a file that is allocated before, as its server calls it: tasks, and an event fd for their ends. The memory is
    registered with io_uring, as that of the server is. Its server deletes what it evicts."""

    def __init__(self, folder, memory, capacity, io_engine):
        self.memory, block = torch.from_numpy(memory.reshape(-1)), memory.shape[1]
        slot, metadata = block + PAGE, 16 << 20
        path = pathlib.Path(folder) / "raw_block"
        size = metadata + capacity // block * slot
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        config = RawBlockL2AdapterConfig(device_path=str(path), slot_bytes=slot, meta_total_bytes=metadata, io_engine=io_engine,
                                         load_checkpoint_on_init=False)
        address = memory.ctypes.data
        self.adapter = RawBlockL2Adapter(config, L1MemoryDesc(address, memory.nbytes, PAGE, memory.nbytes))
        self.block, self.ends = block, {}
        self.fds = {"put": self.adapter.get_store_event_fd(), "get": self.adapter.get_load_event_fd()}
        if io_engine == "io_uring" and not self.adapter.report_status()["core"]["fixed_buffers_registered"]:
            raise RuntimeError("LMCache has not registered the memory with io_uring: the limit of locked memory may be too small")

    def batch(self, keys, ids):
        return [ObjectKey(key.tobytes(), "a/model", 0) for key in keys], [self.object(number) for number in ids.tolist()]

    def object(self, number):
        start = number * self.block
        data = self.memory[start : start + self.block]
        metadata = MemoryObjMetadata(torch.Size([self.block]), torch.uint8, data.data_ptr(), self.block, 1, fmt=MemoryFormat.KV_2LTD,
                                     shapes=[torch.Size([self.block])], dtypes=[torch.uint8])
        return TensorMemoryObj(data, metadata, None)

    def put(self, batch):
        return "put", self.adapter.submit_store_task(*batch), len(batch[0])

    def get(self, batch):
        return "get", self.adapter.submit_load_task(*batch), len(batch[0])

    def is_done(self, started):
        kind, task, _ = started
        if kind == "put":
            self.ends.update(self.adapter.pop_completed_store_tasks())
        elif (found := self.adapter.query_load_result(task)) is not None:
            self.ends[task] = found
        return task in self.ends

    def wait(self, started):
        kind, task, count = started
        while not self.is_done(started):
            if not select.select([self.fds[kind]], [], [], DEADLINE)[0]:
                raise RuntimeError(f"LMCache did not end a {kind}")
            os.read(self.fds[kind], 8)
        result = self.ends.pop(task)
        if not (result.is_successful() if kind == "put" else result.popcount() == count):
            raise RuntimeError(f"LMCache failed at a {kind}")

    def forget(self, batches):
        for keys, _ in batches:
            self.adapter.delete(keys)

    def close(self):
        self.adapter.close()


class FileTier:
    """vLLM's file tier with its numbers of threads, whose manager the scheduler calls. A job is done by one thread. There is no bound: what is
    forgotten is unlinked."""

    def __init__(self, folder, memory, _capacity):
        self.tier = FileSystemTierManager(self.specification(memory.shape[1]), memoryview(memory), "fs", str(folder))
        if not self.tier._use_o_direct:
            raise RuntimeError(f"{folder} is on a file system without direct I/O")
        self.context, self.jobs, self.ended = ReqContext("bench"), 0, {}

    @staticmethod
    def specification(block):
        """What the tier reads of it."""
        parallel = vllm_config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True)
        group = vllm_config.OffloadingGroupConfig(16, ("layer",), 0)
        config = vllm_config.OffloadingConfig((group,), block, False, {}, "bench", vllm_config.OffloadingModelConfig("a/model", "bfloat16"),
                                              vllm_config.OffloadingCacheConfig(16, 1), parallel)
        return types.SimpleNamespace(config=config, blocks_per_chunk=1)

    def batch(self, keys, ids):
        return [make_offload_key(key.tobytes(), 0) for key in keys], ids

    def put(self, batch):
        return self.start(self.tier.submit_store, batch, False)

    def get(self, batch):
        return self.start(self.tier.submit_load, batch, True)

    def start(self, submit, batch, is_promotion):
        self.jobs += 1
        submit(TransferJob(self.jobs, batch[0], batch[1], is_promotion, self.context))
        return self.jobs

    def is_done(self, job):
        self.ended.update((each.job_id, each.success) for each in self.tier.get_finished_jobs())
        return job in self.ended

    def wait(self, job):
        # The scheduler asks in each of its steps. The condition of the pool says it at once.
        condition = self.tier._pool._condition
        with condition:
            if not condition.wait_for(lambda: self.is_done(job), DEADLINE):
                raise RuntimeError("vLLM did not end a job")
        if not self.ended.pop(job):
            raise RuntimeError("a job of vLLM failed")

    def forget(self, batches):
        for keys, _ in batches:
            for key in keys:
                os.unlink(self.tier.file_mapper.get_file_name(key))

    def close(self):
        self.tier.shutdown()


class Foyer:
    """foyer's block engine by reference/foyer: direct I/O, four flushers, buffers of 256 MiB, and no block in its memory cache, so that gets come
    from the disk. It evicts its oldest files."""

    def __init__(self, folder, memory, capacity, library, uring):
        self.library, self.memory, self.size = library, ctypes.c_void_p(memory.ctypes.data), memory.shape[1]
        self.text = ctypes.create_string_buffer(512)
        self.store = self.library.foyer_open(os.fsencode(folder), capacity, 256 << 20, uring, self.text, len(self.text))
        if not self.store:
            raise RuntimeError(self.reason())

    @staticmethod
    def load(path):
        library = ctypes.CDLL(str(path))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.foyer_open.argtypes = [ctypes.c_char_p, size, size, ctypes.c_bool, ctypes.c_char_p, size]
        for start in (library.foyer_put, library.foyer_get):
            start.argtypes = [pointer, pointer, pointer, size, pointer, size]
        library.foyer_is_done.argtypes, library.foyer_close.argtypes = [pointer], [pointer]
        library.foyer_wait.argtypes = [pointer, pointer, ctypes.c_char_p, size]
        library.foyer_open.restype = library.foyer_put.restype = library.foyer_get.restype = pointer
        library.foyer_is_done.restype = library.foyer_wait.restype = ctypes.c_bool
        library.foyer_close.restype = None
        return library

    def reason(self):
        return self.text.value.decode(errors="replace")

    def batch(self, keys, ids):
        return keys, ids

    def put(self, batch):
        return self.start(self.library.foyer_put, *batch)

    def get(self, batch):
        return self.start(self.library.foyer_get, *batch)

    def start(self, function, keys, ids):
        return function(self.store, keys.ctypes.data, ids.ctypes.data, len(ids), self.memory, self.size)

    def is_done(self, batch):
        return self.library.foyer_is_done(batch)

    def wait(self, batch):
        if not self.library.foyer_wait(self.store, batch, self.text, len(self.text)):
            raise RuntimeError(self.reason())

    def forget(self, batches):
        pass

    def close(self):
        self.library.foyer_close(self.store)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch as a client: torch_client.py KVMEM_SIDE

It opens handles with the functions of torch.multiprocessing, and gets VMM memory as a CuPy array by DLPack.
"""

import gc
import sys

import cupy
import numpy
import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor

import driver_api
import flows

# The second byte, after the version, of PyTorch's handles of memory from cudaMalloc.
PLAIN = b"c"


class Memory:
    def __init__(self, tensor, end=lambda: None):
        self.tensor, self.end = tensor, end
        self.address = tensor.data_ptr()

    def read(self):
        return self.tensor.cpu().numpy().tobytes()

    def write(self, data):
        self.tensor.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        torch.cuda.synchronize()

    def close(self):
        torch.cuda.synchronize()
        self.end()  # first, because PyTorch frees only memory without references of other processes
        self.tensor = None
        gc.collect()


class Client:
    def __init__(self):
        torch.zeros(1, device="cuda:0")
        driver_api.start()

    def open(self, handle, offset, size):
        tensor = rebuild_cuda_tensor(
            torch.Tensor,
            tensor_size=(size,),
            tensor_stride=(1,),
            tensor_offset=0,
            storage_cls=torch.UntypedStorage,
            dtype=torch.uint8,
            storage_device=0,
            storage_handle=handle,  # in the format without a version
            storage_size_bytes=size,
            storage_offset_bytes=offset,
            requires_grad=False,
            ref_counter_handle=b"/kvmem-has-none",  # PyTorch's reference count, which kvmem does not have
            ref_counter_offset=0,
            event_handle=bytes(64),
            event_sync_required=False,
        )
        return Memory(tensor)

    def allocate(self, size):
        # Both tensors come from one segment of the caching allocator, so the shared one starts inside an allocation.
        before = torch.empty(size // 2, dtype=torch.uint8, device="cuda:0")
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda:0")
        shared = tensor.untyped_storage()._share_cuda_()
        _, handle, shared_size, shared_offset, counter, counter_offset, _, _ = shared
        if len(handle) != 66 or handle[1:2] != PLAIN:
            raise RuntimeError(f"PyTorch's handle is not one of cudaMalloc: {handle[:2]!r}, {len(handle)} bytes")
        release = torch.UntypedStorage._release_ipc_counter_cuda
        memory = Memory(tensor, lambda: release(counter, counter_offset))
        memory.before = before
        memory.handle = handle[-64:]
        base, _ = driver_api.allocation_at(memory.address)
        if (shared_size, shared_offset) != (size, memory.address - base):
            raise RuntimeError(f"PyTorch reports {shared_size} bytes at {shared_offset} of the allocation")
        return memory

    def wrap(self, address, size):
        memory = cupy.cuda.UnownedMemory(address, size, owner=None, device_id=0)
        array = cupy.ndarray((size,), numpy.uint8, cupy.cuda.MemoryPointer(memory, 0))
        return Memory(torch.from_dlpack(array))


sys.exit(flows.run("PyTorch", Client))

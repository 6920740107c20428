#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy as a client: cupy_client.py KVMEM_SIDE"""

import sys

import cupy
import numpy

import driver_api
import flows


class Memory:
    def __init__(self, array, end):
        self.array, self.end = array, end
        self.address = array.data.ptr

    def read(self):
        return cupy.asnumpy(self.array).tobytes()

    def write(self, data):
        self.array.set(numpy.frombuffer(data, numpy.uint8))
        cupy.cuda.runtime.deviceSynchronize()

    def close(self):
        cupy.cuda.runtime.deviceSynchronize()
        self.array = None
        self.end()


def view(address, size):
    """A CuPy array of memory that CuPy does not own."""
    memory = cupy.cuda.UnownedMemory(address, size, owner=None, device_id=0)
    return cupy.ndarray((size,), numpy.uint8, cupy.cuda.MemoryPointer(memory, 0))


class Client:
    def __init__(self):
        cupy.cuda.Device(0).use()
        cupy.zeros(1)
        driver_api.start()

    def open(self, handle, offset, size):
        base = cupy.cuda.runtime.ipcOpenMemHandle(handle)
        return Memory(view(base + offset, size), lambda: cupy.cuda.runtime.ipcCloseMemHandle(base))

    def allocate(self, size):
        # Both arrays come from one chunk of the pool, so the shared one starts inside an allocation.
        chunk = cupy.empty(4 * size, numpy.uint8)
        del chunk
        before = cupy.empty(size // 2, numpy.uint8)
        memory = Memory(cupy.empty(size, numpy.uint8), lambda: None)
        memory.before = before
        memory.handle = cupy.cuda.runtime.ipcGetMemHandle(memory.address)
        return memory

    def wrap(self, address, size):
        return Memory(view(address, size), lambda: None)


sys.exit(flows.run("CuPy", Client))

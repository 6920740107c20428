#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bare CUDA driver as a client: driver_client.py KVMEM_SIDE"""

import sys

import cuda
import flows


class Memory:
    def __init__(self, address, size, end):
        self.address, self.size, self.end = address, size, end

    def read(self):
        return cuda.read(self.address, self.size)

    def write(self, data):
        cuda.write(self.address, data)

    def close(self):
        self.end()


class Client:
    def __init__(self):
        cuda.start()

    def open(self, handle, offset, size):
        base = cuda.ipc_open(handle)
        print(f"note    the allocation that is opened next has the number {cuda.buffer_id(base)} here", flush=True)
        return Memory(base + offset, size, lambda: cuda.ipc_close(base))

    def allocate(self, size):
        base = cuda.allocate(2 * size)
        memory = Memory(base + 12345, size, lambda: cuda.free(base))
        memory.handle = cuda.ipc_handle(memory.address)
        return memory

    def wrap(self, address, size):
        return Memory(address, size, lambda: None)


sys.exit(flows.run("the driver", Client))

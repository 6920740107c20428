#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bare CUDA driver as a client: driver_client.py KVMEM_SIDE"""

import sys

import driver_api
import flows


class Memory:
    def __init__(self, address, size, end):
        self.address, self.size, self.end = address, size, end

    def read(self):
        return driver_api.read(self.address, self.size)

    def write(self, data):
        driver_api.write(self.address, data)

    def close(self):
        self.end()


class Client:
    def __init__(self):
        driver_api.start()

    def open(self, handle, offset, size):
        base = driver_api.ipc_open(handle)
        print(f"note    the opened allocation has the buffer id {driver_api.buffer_id(base)} in this process", flush=True)
        return Memory(base + offset, size, lambda: driver_api.ipc_close(base))

    def allocate(self, size):
        base = driver_api.allocate(2 * size)
        memory = Memory(base + 12345, size, lambda: driver_api.free(base))
        memory.handle = driver_api.ipc_handle(memory.address)
        return memory

    def wrap(self, address, size):
        return Memory(address, size, lambda: None)


sys.exit(flows.run("the driver", Client))

# SPDX-License-Identifier: Apache-2.0
"""The test of every client: it opens memory that kvmem shares, and kvmem opens memory that it shares.

A client has three methods that return memory, an object with read(), write(bytes) and close():
  open(handle, offset, size)   memory of another process, at the offset in the allocation of the handle
  allocate(size)               memory of its own allocator, also with the attributes handle and address
  wrap(address, size)          memory that the driver has mapped
Each line of the output contains its name.
"""

import os
import sys
import traceback

import driver_api
from peer import Kvmem, pattern

SIZE = 4 << 20


def expect(memory, seed):
    data, expected = memory.read(), pattern(SIZE, seed)
    if data != expected:
        at = next((i for i, pair in enumerate(zip(data, expected)) if pair[0] != pair[1]), len(data))
        raise AssertionError(f"byte {at} of {SIZE} is not what kvmem or this client wrote")


def open_memory_of_kvmem(client, kvmem):
    shared, _ = kvmem.request("allocate", SIZE, 1)
    memory = client.open(bytes.fromhex(shared["handle"]), int(shared["offset"]), SIZE)
    expect(memory, 1)
    memory.write(pattern(SIZE, 2))
    kvmem.request("verify", 2)
    memory.close()
    kvmem.request("drop")
    return f"offset {shared['offset']} of allocation {shared['buffer_id']}"


def share_with_kvmem(client, kvmem):
    memory = client.allocate(SIZE)
    memory.write(pattern(SIZE, 3))
    base, base_size = driver_api.allocation_at(memory.address)
    offset = memory.address - base
    buffer = driver_api.buffer_id(memory.address)
    kvmem.request("open", memory.handle.hex(), driver_api.uuid().hex(), offset, SIZE, base_size, buffer)
    kvmem.request("verify", 3)
    kvmem.request("fill", 4)
    expect(memory, 4)
    kvmem.request("drop")
    memory.close()
    return f"offset {offset} in {base_size} bytes"


def import_memory_of_kvmem(client, kvmem):
    _, fd = kvmem.request("create", SIZE, 5)
    mapped = driver_api.Mapped(SIZE, fd)
    os.close(fd)
    memory = client.wrap(mapped.address, SIZE)
    expect(memory, 5)
    memory.write(pattern(SIZE, 6))
    kvmem.request("verify", 6)
    memory.close()
    mapped.close()
    kvmem.request("drop")
    return "a descriptor"


def export_to_kvmem(client, kvmem):
    mapped = driver_api.Mapped(SIZE)
    memory = client.wrap(mapped.address, SIZE)
    memory.write(pattern(SIZE, 7))
    fd = mapped.export()
    kvmem.request("import", SIZE, fd=fd)
    os.close(fd)
    kvmem.request("verify", 7)
    kvmem.request("fill", 8)
    expect(memory, 8)
    memory.close()
    mapped.close()
    kvmem.request("drop")
    return "a descriptor"


FLOWS = {
    "opens kvmem's legacy handle": open_memory_of_kvmem,
    "shares a legacy handle with kvmem": share_with_kvmem,
    "imports kvmem's VMM memory": import_memory_of_kvmem,
    "exports VMM memory to kvmem": export_to_kvmem,
}


def run(name, make_client):
    """Runs every flow, each with a new kvmem process. Returns the exit status: 1 if a flow failed."""
    failed = 0
    try:
        client = make_client()
    except Exception:
        traceback.print_exc()
        print(f"FAILED  {name}: does not start", flush=True)
        return 1
    for what, flow in FLOWS.items():
        try:
            kvmem = Kvmem(sys.argv[1])
            try:
                detail = flow(client, kvmem)
            finally:
                kvmem.close()
            print(f"ok      {name} {what}: {SIZE} bytes read, {SIZE} written; {detail}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED  {name} {what}", flush=True)
    return 1 if failed else 0

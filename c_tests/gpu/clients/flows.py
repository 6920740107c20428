# SPDX-License-Identifier: Apache-2.0
"""What every client does with kvmem: it opens what kvmem shares, and kvmem opens what it shares.

A client has four ways to come by memory, each of which answers an object with read(), write(bytes) and close():
  open(handle, offset, size)   memory of another process's, `offset` bytes into what the handle names
  allocate(size)               memory of its own allocator, with the attributes handle and address besides
  wrap(address, size)          memory that the driver has mapped, as an array of the client's
Its name comes first on each line.
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


def open_ours(client, kvmem):
    shared, _ = kvmem.ask("allocate", SIZE, 1)
    memory = client.open(bytes.fromhex(shared["handle"]), int(shared["offset"]), SIZE)
    expect(memory, 1)
    memory.write(pattern(SIZE, 2))
    kvmem.ask("verify", 2)
    memory.close()
    kvmem.ask("drop")
    return f"offset {shared['offset']} of allocation {shared['buffer_id']}"


def share_theirs(client, kvmem):
    memory = client.allocate(SIZE)
    memory.write(pattern(SIZE, 3))
    base, base_size = driver_api.allocation_at(memory.address)
    offset = memory.address - base
    buffer = driver_api.buffer_id(memory.address)
    kvmem.ask("open", memory.handle.hex(), driver_api.uuid().hex(), offset, SIZE, base_size, buffer)
    kvmem.ask("verify", 3)
    kvmem.ask("fill", 4)
    expect(memory, 4)
    kvmem.ask("drop")
    memory.close()
    return f"offset {offset} in {base_size} bytes"


def import_ours(client, kvmem):
    _, fd = kvmem.ask("create", SIZE, 5)
    mapped = driver_api.Mapped(SIZE, fd)
    os.close(fd)
    memory = client.wrap(mapped.address, SIZE)
    expect(memory, 5)
    memory.write(pattern(SIZE, 6))
    kvmem.ask("verify", 6)
    memory.close()
    mapped.close()
    kvmem.ask("drop")
    return "a descriptor"


def export_theirs(client, kvmem):
    mapped = driver_api.Mapped(SIZE)
    memory = client.wrap(mapped.address, SIZE)
    memory.write(pattern(SIZE, 7))
    fd = mapped.export()
    kvmem.ask("import", SIZE, fd=fd)
    os.close(fd)
    kvmem.ask("verify", 7)
    kvmem.ask("fill", 8)
    expect(memory, 8)
    memory.close()
    mapped.close()
    kvmem.ask("drop")
    return "a descriptor"


FLOWS = {
    "opens kvmem's legacy handle": open_ours,
    "shares a legacy handle with kvmem": share_theirs,
    "imports kvmem's VMM memory": import_ours,
    "exports VMM memory to kvmem": export_theirs,
}


def run(name, make_client):
    """Runs every flow, each with a kvmem of its own; the process's exit status says whether all went well."""
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

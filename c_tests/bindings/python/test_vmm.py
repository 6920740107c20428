# SPDX-License-Identifier: Apache-2.0
"""Driver handles of GPU memory, with the stand-in driver or a real one."""

import os

import numpy as np
import pytest

import kvmem
import kvmem.vmm
from conftest import end, shape, start

PAIRS = [(3, 7), (0, 15), (9, 1)]
SIZE = 3 * 16 * 2 * 64  # bytes of a cache of the shape


@pytest.fixture(autouse=True)
def default_rates():
    kvmem.cuda.use_default_rates(0)


def filled(region, value):
    """Fills memory of a GPU, whose layout is that of conftest."""
    with kvmem.Layout.allocate(shape(), "pinned") as host, kvmem.Layout.of_regions(shape(), [region]) as layout:
        np.from_dlpack(host.tensor())[:] = value
        kvmem.move(host, layout, [(block, block) for block in range(16)])


def content(region):
    """The values of memory of a GPU."""
    with kvmem.Layout.allocate(shape(), "pinned") as host, kvmem.Layout.of_regions(shape(), [region]) as layout:
        kvmem.move(layout, host, [(block, block) for block in range(16)])
        return set(np.from_dlpack(host.tensor()).reshape(-1).tolist())


def mapped(memory, size):
    with kvmem.vmm.VmmRange(size) as addresses, kvmem.vmm.VmmMapping(addresses, 0, memory) as mapping:
        assert (mapping.address, mapping.size) == (addresses.address, size)
        assert mapping.access(0) == kvmem.Access.NONE
        mapping.set_access(0)
        assert mapping.access(0) == kvmem.Access.READ_WRITE
        return mapping.region(0)


def test_memory_is_mapped_exported_and_imported():
    size = kvmem.vmm.granularity()
    with kvmem.vmm.VmmMemory(size, flags=kvmem.VmmFlags.POSIX_FD) as memory:
        with mapped(memory, size) as region:  # range and mapping are closed: the region keeps the memory mapped
            filled(region, 7)
            fd = memory.export_fd()
            try:
                with kvmem.vmm.VmmMemory.import_fd(fd, size, 0) as imported, mapped(imported, size) as again:
                    assert content(again) == {7}
                    with pytest.raises(kvmem.Unsupported):
                        imported.export_fd()
            finally:
                os.close(fd)
            with kvmem.vmm.VmmMemory.retain(region.info.address) as retained:
                os.close(retained.export_fd())
            with pytest.raises(kvmem.InvalidState):
                memory.export_fabric()


def test_mistakes_have_an_error():
    size = kvmem.vmm.granularity(kvmem.Granularity.MINIMUM)
    with pytest.raises(kvmem.InvalidArgument):
        kvmem.vmm.VmmMemory(size + 1)
    with pytest.raises(kvmem.InvalidArgument, match="64 bytes, and this one 3"):
        kvmem.vmm.VmmMemory.import_fabric(b"abc", size)
    with kvmem.vmm.VmmMemory(size) as memory, kvmem.vmm.VmmRange(size) as addresses:
        with pytest.raises(kvmem.OutOfRange):
            kvmem.vmm.VmmMapping(addresses, size, memory)
        with pytest.raises(kvmem.InvalidState):
            memory.export_fd()
    with pytest.raises(kvmem.InvalidState, match="closed"):
        memory.export_fd()
    with pytest.raises(kvmem.InvalidArgument):
        kvmem.cuda.ipc_export(np.zeros(8).ctypes.data)


def test_another_process_opens_an_ipc_handle():
    with kvmem.Region.device(SIZE) as region:
        filled(region, 9)
        handle = kvmem.cuda.ipc_export(region.info.address)
        assert handle.offset == region.info.address - handle.base and len(handle.handle) == 64
        with pytest.raises(kvmem.InvalidArgument):
            kvmem.cuda.open_ipc(handle, SIZE)  # this process has exported it
        with pytest.raises(kvmem.InvalidArgument, match="64 bytes, and this one 1"):
            kvmem.cuda.open_ipc(handle._replace(handle=b"x"), SIZE)
        child = start(
            "import sys\nsys.path.insert(0, sys.argv[1])\n"
            "import kvmem, test_vmm\n"
            "kvmem.cuda.use_default_rates(0)\n"
            "handle = kvmem.cuda.IpcHandle(*eval(sys.argv[2]))\n"
            "with kvmem.cuda.open_ipc(handle, test_vmm.SIZE) as opened:\n"
            "    assert opened.info.origin == kvmem.Origin.IMPORTED and test_vmm.content(opened) == {9}\n"
            "    test_vmm.filled(opened, 5)\n"
            "try:\n"
            "    kvmem.cuda.open_ipc(handle, handle.base_size + 1)\n"
            "    raise AssertionError('a size past the allocation was accepted')\n"
            "except kvmem.OutOfRange:\n"
            "    pass\n",
            os.path.dirname(__file__),
            tuple(handle),
        )
        end(child)
        assert content(region) == {5}

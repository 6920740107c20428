# SPDX-License-Identifier: Apache-2.0
"""Layouts on every tier, whose bytes are read and written without the library."""

import ctypes
import os

import numpy as np

import kvmem
import oracle

GUARD = 4096
MEMORY_TIERS = ("adopted", "system", "shareable", "pinned", "device", "elastic")
GPU_TIERS = ("pinned", "device", "elastic")
FILE_TIERS = ("direct", "buffered", "small")
FILE_ORDERS = ("BLONHC", "L/BONHC", "L/OBNHC")
"""Orders of files: whole tokens are contiguous, as direct I/O needs."""
ORDERS = (*FILE_ORDERS, "BLOHNC", "BLHNOC", "L/BHNOC", "L/OHCBN")
ELASTIC_ORDERS = ("BLONHC", "L/BONHC")


def shape_of(order, blocks, alignment=0):
    return kvmem.Shape(
        num_blocks=blocks, num_layers=oracle.LAYERS, outer_dim=oracle.OUTERS, page_size=oracle.TOKENS, num_heads=oracle.HEADS,
        inner_dim=oracle.HEADS * oracle.ELEMENTS, dtype="uint16", order=order, alignment=alignment,
    )  # fmt: skip


class Driver:
    """The driver of the GPU: the stand-in, or a real one."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.library = None
        self.is_stand_in = self.library is not None and hasattr(self.library, "sim_live")
        count = ctypes.c_int()
        if self.library is not None:
            assert self.library.cuInit(0) == self.library.cuDeviceGetCount(ctypes.byref(count)) == 0
        self.num_devices = count.value

    def __bool__(self):
        return self.library is not None

    def copy(self, destination, source, size, device):
        """Copies bytes between a GPU and the host, without a call that the library counts."""
        arguments = ctypes.c_uint64(destination), ctypes.c_uint64(source), ctypes.c_size_t(size)
        if self.is_stand_in:
            self.library.sim_copy_bytes(*arguments)
            return
        context = ctypes.c_void_p()
        assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == self.library.cuCtxPushCurrent_v2(context) == 0
        # A copy from pageable memory may return before its bytes have arrived.
        assert self.library.cuMemcpy(*arguments) == self.library.cuCtxSynchronize() == 0
        assert self.library.cuCtxPopCurrent_v2(ctypes.byref(context)) == self.library.cuDevicePrimaryCtxRelease_v2(device) == 0

    def live(self):
        """Objects of this process in the stand-in."""
        counts = (ctypes.c_uint64 * 15)()
        if self.is_stand_in:
            self.library.sim_live(counts)
        return list(counts)[:14]

    def fail(self, nth, result):
        self.library.sim_fail_nth_of_all(ctypes.c_uint64(nth), result)

    def cancel_failures(self):
        self.library.sim_cancel_failures()


driver = Driver()


class Side:
    """A layout with a label for each block, over memory with guard bytes beside its regions."""

    def __init__(self, tier, order, blocks, folder, name, agent=None, device=0):
        self.tier, self.order, self.labels = tier, order, [oracle.UNKNOWN] * blocks
        self.device = device
        self.region_bytes = oracle.region_bytes(order, blocks)
        self.path = self.file = self.parent = self.layout = None
        self.views = []
        try:
            if tier == "elastic":
                self.committed = blocks
                self.layout = kvmem.Layout.allocate(shape_of(order, blocks), "elastic", agent=agent, device=device)
                self.layout.resize(blocks)
                return
            self.starts = [GUARD + (self.region_bytes + GUARD) * index for index in range(oracle.num_regions(order))]
            size = self.starts[-1] + self.region_bytes + GUARD
            self.parent = self._allocate(tier, size, folder, name)
            self._fill_guards(size)
            self.views = [self.parent.view(start, self.region_bytes) for start in self.starts]
            alignment = 4096 if tier in FILE_TIERS else 0
            self.layout = kvmem.Layout.of_regions(shape_of(order, blocks, alignment), self.views, agent=agent)
        except BaseException:
            self.close()
            raise

    def _allocate(self, tier, size, folder, name):
        if tier == "adopted":
            # At a page, as direct I/O needs.
            memory = np.zeros(size + GUARD, np.uint8)
            return kvmem.Region.adopt(memory[-memory.ctypes.data % GUARD :][:size])
        if tier in ("system", "shareable"):
            return kvmem.Region.system(size, flags=kvmem.SystemFlags.SHAREABLE if tier == "shareable" else kvmem.SystemFlags(0))
        if tier == "pinned":
            return kvmem.Region.pinned(size, device=self.device, flags=kvmem.PinnedFlags.SHAREABLE)
        if tier == "device":
            return kvmem.Region.device(size, device=self.device)
        self.path = os.path.join(folder, f"{name}.blocks")
        flags = kvmem.DiskFlags(0) if tier == "direct" else kvmem.DiskFlags.BUFFERED
        return kvmem.Region.disk(size, path=self.path, flags=flags)

    @property
    def is_on_gpu(self):
        return self.tier in ("device", "elastic")

    # ---- bytes, without the library ----

    def _read_raw(self, address_or_offset, size):
        read = np.empty(size, np.uint8)
        if self.path is not None:
            with open(self.path, "rb") as file:
                assert os.preadv(file.fileno(), [read], address_or_offset) == size
        elif self.is_on_gpu:
            driver.copy(read.ctypes.data, address_or_offset, size, self.device)
        else:
            ctypes.memmove(read.ctypes.data, address_or_offset, size)
        return read

    def _write_raw(self, address_or_offset, data):
        if self.path is not None:
            with open(self.path, "r+b") as file:
                assert os.pwrite(file.fileno(), data, address_or_offset) == data.nbytes
        elif self.is_on_gpu:
            driver.copy(address_or_offset, data.ctypes.data, data.nbytes, self.device)
        else:
            ctypes.memmove(address_or_offset, data.ctypes.data, data.nbytes)

    def _base(self):
        return 0 if self.path is not None else self.parent.info.address

    def _guards(self):
        return [(start - GUARD, GUARD) for start in [*self.starts, self.starts[-1] + self.region_bytes + GUARD]]

    def _fill_guards(self, size):
        base = self._base()
        for at, length in self._guards():
            self._write_raw(base + at, oracle.guard(length, at))

    def _places(self):
        """Where the regions are, and how many of their bytes have memory."""
        if self.tier == "elastic":
            size = oracle.region_bytes(self.order, self.committed)
            return [(region.info.address, size) for region in self._regions()]
        base = self._base()
        return [(base + start, self.region_bytes) for start in self.starts]

    def _regions(self):
        for index in range(oracle.num_regions(self.order)):
            with self.layout.region(index) as region:
                yield region

    @property
    def usable(self):
        """Blocks that have memory."""
        return self.committed if self.tier == "elastic" else len(self.labels)

    def write(self, block, label):
        """Gives a block the content of a label."""
        places = self._places()
        regions = [self._read_raw(at, size) for at, size in places]
        oracle.write(self.order, regions, self.usable, block, label)
        for (at, _), region in zip(places, regions):
            self._write_raw(at, region)
        self.labels[block] = label

    def write_all(self, labels):
        places = self._places()
        regions = [self._read_raw(at, size) for at, size in places]
        for block, label in enumerate(labels):
            oracle.write(self.order, regions, self.usable, block, label)
            self.labels[block] = label
        for (at, _), region in zip(places, regions):
            self._write_raw(at, region)

    def check(self):
        """Compares every byte that is known. Returns their number."""
        regions = [self._read_raw(at, size) for at, size in self._places()]
        if difference := oracle.first_difference(self.order, regions, self.labels[: self.usable]):
            raise AssertionError(f"{self}: {difference}")
        if self.tier != "elastic":
            base = self._base()
            for at, length in self._guards():
                if not np.array_equal(self._read_raw(base + at, length), oracle.guard(length, at)):
                    raise AssertionError(f"{self}: bytes beside its regions were written, at {at}")
        return sum(region.nbytes for region in regions)

    def forget(self, blocks):
        """The blocks may contain anything."""
        for block in blocks:
            self.labels[block] = oracle.UNKNOWN

    def resize(self, blocks):
        self.layout.resize(blocks)
        self.forget(range(min(self.committed, blocks), len(self.labels)))
        self.committed = blocks

    def spoil(self):
        """A seeded fault: one bit of a known block."""
        block = next(index for index, label in enumerate(self.labels[: self.usable]) if label != oracle.UNKNOWN)
        regions = [self._read_raw(at, size) for at, size in self._places()]
        oracle.blocks_of(self.order, regions, self.usable)[1][block][1, 3, 2, 5] ^= 1
        for (at, _), region in zip(self._places(), regions):
            self._write_raw(at, region)

    def close(self):
        for each in (self.layout, *self.views, self.parent):
            if each is not None:
                each.close()
        if self.path is not None and os.path.exists(self.path):
            os.unlink(self.path)

    def __repr__(self):
        return f"{self.tier}{f' {self.device}' if self.is_on_gpu else ''} {self.order} of {len(self.labels)} blocks"

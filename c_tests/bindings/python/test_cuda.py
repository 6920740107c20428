# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs, with the stand-in driver or a real one."""

import contextlib
import ctypes
import sys
import types

import numpy as np
import pytest

import kvmem
from conftest import shape
from kvmem import _memory
from kvmem._library import ffi, lib

PAIRS = [(3, 7), (0, 15), (9, 1)]


class OnGpu:
    """Memory of a GPU as another library gives it."""

    def __init__(self, region, lengths):
        self.region = region
        self.__cuda_array_interface__ = {
            "version": 3, "shape": lengths, "typestr": "<u2", "strides": None, "data": (region.info.address, False),
        }  # fmt: skip


@pytest.fixture(autouse=True)
def default_rates():
    kvmem.cuda.use_default_rates(0)


def test_the_work_on_the_stream_of_an_array_ends_before_its_memory_is_adopted(monkeypatch):
    driver, context, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    with kvmem.Region.device(4096) as region:
        array = OnGpu(region, (16, 8))
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == driver.cuCtxSetCurrent(context) == 0
        assert driver.cuStreamCreate(ctypes.byref(stream), 0) == 0
        array.__cuda_array_interface__["stream"] = stream.value
        kvmem.Region.adopt(array).close()
        assert driver.cuStreamDestroy_v2(stream) == driver.cuCtxSetCurrent(None) == driver.cuDevicePrimaryCtxRelease_v2(0) == 0
        results = [600, 600, 0, 400]  # twice not ready
        monkeypatch.setattr(_memory.ctypes, "CDLL", lambda name: types.SimpleNamespace(cuStreamQuery=lambda asked: results.pop(0)))
        kvmem.Region.adopt(array).close()
        assert results == [400]
        with pytest.raises(kvmem.InvalidState, match="cannot be queried .CUresult 400.: synchronise it, and pass no stream"):
            kvmem.Region.adopt(array)
        for wrong in (0, "s"):
            array.__cuda_array_interface__["stream"] = wrong
            with pytest.raises(kvmem.InvalidArgument, match="stream of __cuda_array_interface__ is .*; expected None or a stream"):
                kvmem.Region.adopt(array)


def test_devices_are_described():
    assert kvmem.cuda.info().device_count >= 1
    device = kvmem.cuda.device(0)
    assert device.name and device.total_memory > 0 and kvmem.cuda.find_device(device.uuid) == 0
    with pytest.raises(kvmem.OutOfRange):
        kvmem.cuda.device(99)
    with pytest.raises(kvmem.InvalidArgument, match="16 bytes"):
        kvmem.cuda.find_device(b"x")


def test_blocks_move_to_a_gpu_and_back():
    random = np.random.default_rng(1)
    with (
        kvmem.Layout.allocate(shape(), "pinned") as host,
        kvmem.Layout.allocate(shape("L/BONHC"), "device") as gpu,
        kvmem.Layout.allocate(shape("BLHNOC"), "system") as back,
    ):
        memory = np.from_dlpack(host.tensor())
        memory[:] = random.integers(0, 1 << 16, memory.shape, dtype=np.uint16)
        kvmem.move(host, gpu, PAIRS)
        kvmem.move(gpu, back, [(destination, source) for source, destination in PAIRS])
        moved = np.from_dlpack(back.tensor())
        for source, _ in PAIRS:
            assert (moved[source].transpose(0, 3, 2, 1, 4) == memory[source]).all()


class Torch(types.ModuleType):
    """What a pool needs of PyTorch, whose allocator is not called."""

    def __init__(self):
        super().__init__("torch")
        self.cuda = types.SimpleNamespace(
            MemPool=lambda allocator: object(), synchronize=lambda device: None, use_mem_pool=lambda pool, device: contextlib.nullcontext(),
            memory=types.SimpleNamespace(CUDAPluggableAllocator=lambda *_: types.SimpleNamespace(allocator=lambda: None)),
        )  # fmt: skip

    def empty_like(self, tensor, **_):
        return tensor


class Kept:
    """A tensor that a pool saves."""

    def __init__(self):
        self.copies = 0

    def copy_(self, source, **_):
        self.copies += 1


def test_a_pool_that_sleeps_gives_out_and_copies_no_memory(monkeypatch):
    """Its memory is released: a copy from it, or a new tensor of PyTorch in it, would end the context of the GPU."""
    monkeypatch.setitem(sys.modules, "torch", Torch())
    import kvmem.torch

    kept = Kept()
    with kvmem.torch.mem_pool(1 << 28) as pool:
        with pool.use(), pytest.raises(kvmem.Busy, match="in use"):
            pool.sleep()
        pool.sleep()
        for use in (lambda: pool.sleep(keep=[kept]), pool.trim, lambda: pool.use().__enter__()):
            with pytest.raises(kvmem.InvalidState, match="sleeps"):
                use()
        assert not kept.copies
        pool.wake()
        pool.sleep(keep=[kept])
        pool.wake()
        with pool.use():
            pool.trim()
        assert kept.copies == 2


def test_tensors_of_a_gpu_are_adopted_and_given_out():
    with kvmem.Region.device(3 * 16 * 64 * 2) as region:
        tensor = OnGpu(region, (3, 16, 2, 4, 2, 4))
        with kvmem.Layout.from_tensors(tensor, "LBONHC") as layout:
            assert layout.info.tier == kvmem.Tier.DEVICE
            given = layout.tensor(layer=1)
            assert given.__dlpack_device__() == (2, 0) and given.device == 0
            assert given.__cuda_array_interface__["data"][0] == region.info.address + 16 * 64 * 2
            assert not hasattr(given, "__array_interface__")
            with pytest.raises(kvmem.InvalidArgument, match="the memory is on a GPU, and NumPy's arrays are on the host"):
                given.numpy()
            with pytest.raises(kvmem.Unsupported, match="GPU"):
                region.memory  # noqa: B018
    with kvmem.Region.system(4096) as host, pytest.raises(kvmem.Error):
        kvmem.Region.adopt(OnGpu(host, (2048,)))


def test_tensors_on_several_devices_are_refused():
    with kvmem.Region.device(16 * 64 * 2) as region:
        tensors = [OnGpu(region, (16, 2, 4, 2, 4)), np.zeros((16, 2, 4, 2, 4), np.uint16)]
        with pytest.raises(kvmem.InvalidArgument, match="tensor 1 has device -1, and tensor 0 has 0"):
            kvmem.Layout.from_tensors(tensors, "L/BONHC")


def test_elastic_memory_grows():
    with kvmem.Layout.allocate(shape(), "elastic") as layout, kvmem.Layout.allocate(shape(), "pinned") as host:
        with pytest.raises(kvmem.InvalidState):
            kvmem.move(host, layout, PAIRS)
        layout.resize(16)
        kvmem.move(host, layout, PAIRS)
        (region,) = layout.regions
        assert region.elastic_info.num_committed >= 1
        region.close()


def test_pinned_memory_reports_progress_and_can_be_cancelled():
    seen = []
    kvmem.Region.pinned(1 << 20, progress=lambda done, total: seen.append((done, total))).close()
    assert seen[-1] == (1 << 20, 1 << 20)

    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough

    with pytest.raises(Enough):
        kvmem.Region.pinned(1 << 20, progress=stop)


class Block:
    """A tensor of 16 blocks in the pool, allocated as PyTorch does."""

    shape = (16, 2, 4, 2, 4)

    def __init__(self):
        self.block = lib.kvmem_pool_malloc(2 * self.numel(), 0, ffi.NULL)
        self.address = int(ffi.cast("uintptr_t", self.block))
        self.__cuda_array_interface__ = {
            "version": 3, "shape": self.shape, "typestr": "<u2", "strides": None, "data": (self.address, False),
        }  # fmt: skip

    def stride(self):
        return (64, 32, 8, 4, 1)

    def numel(self):
        return 16 * 64

    def element_size(self):
        return 2

    def data_ptr(self):
        return self.address


@pytest.fixture
def torch_pool(monkeypatch):
    """kvmem.torch with what it needs of PyTorch: the pool itself is the library's."""
    memory = types.SimpleNamespace(CUDAPluggableAllocator=lambda *names: types.SimpleNamespace(allocator=lambda: names))
    cuda = types.SimpleNamespace(
        MemPool=lambda allocator: allocator, use_mem_pool=lambda pool, device: contextlib.nullcontext(), synchronize=lambda device: None, memory=memory
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    import kvmem.torch

    monkeypatch.setattr(kvmem.torch, "_allocator", None)
    with kvmem.torch.mem_pool(4 << 22, extent_size=1 << 22) as pool:
        yield pool


def test_tensors_in_a_pool_are_moved_shared_and_sleep(torch_pool):
    with torch_pool.use():
        before, block = Block(), Block()  # the second does not start with an extent
        with pytest.raises(kvmem.Busy, match="in use"), torch_pool.use():
            pass
        with pytest.raises(kvmem.Busy, match="in use"):
            torch_pool.close()
    with torch_pool.region(block) as region:
        assert (region.info.address, len(region)) == (block.address, 2 * block.numel())
    one = shape(num_layers=1)
    with torch_pool.layout([block], "L/BONHC") as layout, kvmem.Layout.allocate(one, "pinned") as host:
        np.from_dlpack(host.tensor())[:] = np.arange(16 * 64, dtype=np.uint16).reshape(16, 1, 2, 4, 2, 4)
        kvmem.move(host, layout, PAIRS)
        assert layout.checksums([7]) == host.checksums([3])
        with kvmem.Share(layout) as share:
            assert share.info.num_fds > 0
        torch_pool.sleep()
        assert torch_pool.info.num_committed == 0
        torch_pool.wake()
        assert torch_pool.info.num_committed == 1
        kvmem.move(host, layout, PAIRS)
        assert layout.checksums([7]) == host.checksums([3])
    with torch_pool.region() as region, kvmem.Share(region), pytest.raises(kvmem.Busy):
        torch_pool.sleep()
    for each in (before, block):
        lib.kvmem_pool_free(each.block, 0, 0, ffi.NULL)
    torch_pool.trim()
    assert torch_pool.info.num_committed == 0
    torch_pool.close()
    assert lib.kvmem_pool_malloc(1, 0, ffi.NULL) == ffi.NULL
    with pytest.raises(kvmem.InvalidState, match="closed"):
        torch_pool.wake()


class FakeTensor:
    """As of PyTorch: exported only while its GPU is the current one."""

    current = -1

    def __init__(self, memory):
        self.memory = memory

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if FakeTensor.current != self.__dlpack_device__()[1]:
            raise BufferError("Can't export tensors on a different CUDA device index.")
        return self.memory.__dlpack__(**arguments)


@contextlib.contextmanager
def fake_device(index):
    before, FakeTensor.current = FakeTensor.current, index
    yield
    FakeTensor.current = before


def test_the_gpu_of_a_tensor_is_the_current_one_while_it_is_exported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=FakeTensor, cuda=types.SimpleNamespace(device=fake_device)))
    form = kvmem.Shape(num_blocks=4, num_layers=1, page_size=4, inner_dim=64, dtype="float16", order="BLONHC")
    with kvmem.Layout.allocate(form, "device") as pool, kvmem.Region.adopt(FakeTensor(pool.tensor())) as region:
        assert region.info.tier == kvmem.Tier.DEVICE
    assert FakeTensor.current == -1

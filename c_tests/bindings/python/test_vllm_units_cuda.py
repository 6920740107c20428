# SPDX-License-Identifier: Apache-2.0
"""kvmem.vllm's stores of heads and units with the cache in memory of a GPU: that of the stand-in driver or of a real one, and that of PyTorch."""

import numpy as np
import pytest

import kvmem
from kvmem.vllm import _cache
from test_vllm_units import PROMPT, damage, request_of, start  # noqa: F401
from vllm_workers import ELEMENTS, HEADS, LAYERS

torch = None
try:
    import torch
except ImportError:
    pass

try:
    kvmem.cuda.device(0)
except kvmem.Error as error:
    pytest.skip(f"a GPU or the stand-in driver is needed: {error}", allow_module_level=True)


@pytest.fixture(autouse=True, scope="module")
def default_rates():
    kvmem.cuda.use_default_rates(0)


class DeviceMemory:
    """Memory that kvmem has allocated, and that its own transfers fill."""

    def __init__(self, array):
        self.region = kvmem.Region.device(array.nbytes)
        self.address = self.region.info.address
        self._array, self._view = array, self.region.view(0, array.nbytes)

    def _layouts(self):
        shape = kvmem.Shape(num_blocks=1, num_layers=1, page_size=1, inner_dim=self._array.nbytes, dtype="uint8", outer_dim=1, order="BLONC")
        with kvmem.Region.adopt(self._array) as host:
            return [kvmem.Layout.of_regions(shape, [region]) for region in (host, self._view)]

    def write(self):
        host, device = self._layouts()
        with host, device:
            kvmem.move(host, device, [(0, 0)])

    def read(self):
        host, device = self._layouts()
        with host, device:
            kvmem.move(device, host, [(0, 0)])

    def close(self):
        self._view.close()


class TorchMemory:
    """The memory of a tensor, as vLLM has it, which PyTorch fills."""

    def __init__(self, array):
        self._host = torch.from_numpy(array.view(np.uint8).reshape(-1))
        self._tensor = torch.zeros(array.nbytes, dtype=torch.uint8, device="cuda")
        self.region, self.address = _cache._adopted(self._tensor.untyped_storage(), self._tensor.device), self._tensor.data_ptr()

    def write(self):
        self._tensor.copy_(self._host)
        torch.cuda.synchronize()

    def read(self):
        self._host.copy_(self._tensor)

    def close(self):
        pass


MEMORY = pytest.mark.parametrize("memory", [
    DeviceMemory,
    pytest.param(TorchMemory, marks=pytest.mark.skipif(torch is None or not torch.cuda.is_available(), reason="PyTorch with a GPU is not here")),
])  # fmt: skip


@MEMORY
@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (dict(block_size=4), dict(block_size=6)),
        (dict(block_size=4, order="LHBNC"), dict(block_size=6, order="BLNHC", ranks=2)),
        (dict(block_size=6, ranks=4), dict(block_size=4, ranks=2)),
        (dict(block_size=4, page=2), dict(block_size=6, page=3)),
    ],
)
def test_another_engine_finds_the_bytes_of_each_token_in_gpu_memory(start, memory, stored, found):
    engine = start(**stored, memory=memory)
    size = engine.group.block_size
    engine.compute(request_of(PROMPT, size), list(range(3, 3 + 24 // size)))
    assert sum(rank.worker.counters["stored_bytes"] for rank in engine.ranks) == 24 * LAYERS * HEADS * ELEMENTS * 2
    engine.close()
    engine = start(**found, memory=memory)
    size = engine.group.block_size
    blocks = list(range(1, 1 + 24 // size))
    # From the second block on, as after a hit of vLLM's own cache, and then all.
    assert engine.load(request_of(PROMPT, size), blocks, size) == 24 - size
    for rank in engine.ranks:
        rank.check(blocks, size, 24)
        assert all((part == 0).all() for part in rank.token(rank.head_cache.pages(blocks), 0))
    assert engine.load(request_of(PROMPT, size, "s"), blocks) == 24
    for rank in engine.ranks:
        rank.check(blocks, 0, 24)
        assert not rank.worker.failed_blocks


@MEMORY
def test_a_damaged_unit_is_found_on_its_way_to_gpu_memory(start, memory):
    engine = start(4, memory=memory)
    engine.compute(request_of(PROMPT, 4), [1, 2, 3, 4, 5, 6])
    damage(engine, 2, 5)
    assert engine.load(request_of(PROMPT, 4, "s"), [7, 8, 9, 10, 11, 12]) == 24
    (rank,) = engine.ranks
    assert rank.worker.failed_blocks == {9} and rank.worker.counters["damaged_blocks"] == 1
    rank.check([7, 8], 0, 8)
    rank.check([0, 0, 0, 10, 11, 12], 12, 24)

# SPDX-License-Identifier: Apache-2.0
"""PyTorch's allocator in memory of kvmem, on a GPU. Not part of the tests of a machine without one."""

import threading

import pytest
import torch

import kvmem
import kvmem.torch

MIB = 1 << 20
EXTENT = 4 * MIB


@pytest.fixture
def pool():
    with kvmem.torch.mem_pool(64 * EXTENT, extent_size=EXTENT) as made:
        yield made
    torch.cuda.synchronize()


def tensor(size=6 * MIB, value=1):
    return torch.full((size,), value, dtype=torch.uint8, device="cuda")


def test_tensors_are_in_the_pool_only_within_use(pool):
    with pool.use():
        inside = tensor()
    outside = tensor()
    with pool.region(inside) as view:
        assert view.info.address == inside.data_ptr() and len(view) == inside.numel()
    with pytest.raises(kvmem.InvalidArgument, match="not in the pool"):
        pool.region(outside)
    assert pool.info.num_committed >= 2
    assert (inside == 1).all()


def test_a_layout_of_the_pool_moves_blocks(pool):
    with pool.use():
        caches = [torch.randn(16, 2, 4, 2, 8, device="cuda").to(torch.bfloat16) for _ in range(3)]
    shape = kvmem.Shape(num_blocks=16, num_layers=3, page_size=4, num_heads=2, inner_dim=16, dtype="bfloat16", order="BLHNOC")
    torch.cuda.synchronize()
    with pool.layout(caches, "L/BONHC", dtype="bfloat16") as layout, kvmem.Layout.allocate(shape, "pinned") as host:
        assert layout.info.tier == kvmem.Tier.DEVICE
        kvmem.move(layout, host, [(3, 7)])
        assert layout.checksums([3]) == host.checksums([7])
        moved = torch.from_dlpack(host.tensor())
        for layer, cache in enumerate(caches):
            assert torch.equal(moved[7, layer], cache[3].permute(2, 1, 0, 3).cpu())


def test_sleep_releases_memory_and_wake_restores_it_at_the_same_addresses(pool):
    free = torch.cuda.mem_get_info()[0]
    with pool.use():
        kept, lost = tensor(40 * MIB, 3), tensor(40 * MIB, 4)
    addresses = kept.data_ptr(), lost.data_ptr()
    assert torch.cuda.mem_get_info()[0] < free - 70 * MIB
    pool.sleep(keep=[kept])
    assert pool.info.num_committed == 0
    assert torch.cuda.mem_get_info()[0] > free - 16 * MIB
    with pytest.raises(kvmem.InvalidState, match="sleeps"):
        pool.sleep(keep=[kept])
    pool.wake()
    assert (kept.data_ptr(), lost.data_ptr()) == addresses
    assert (kept == 3).all()
    lost.fill_(5)
    assert (lost == 5).all()


def test_a_share_keeps_the_pool_awake(pool):
    with pool.use():
        kept = tensor()
    region = pool.region()
    share = kvmem.Share(region)
    with pytest.raises(kvmem.Busy):
        pool.sleep()
    assert (kept == 1).all()
    share.close()
    region.close()
    pool.sleep()
    pool.wake()


def test_a_captured_graph_runs_after_sleep_and_wake(pool):
    with pool.use():
        source, destination = tensor(8 * MIB, 1), tensor(8 * MIB, 0)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        destination.copy_(source)
    pool.sleep()
    pool.wake()
    source.fill_(9)
    graph.replay()
    torch.cuda.synchronize()
    assert (destination == 9).all()


def test_streams_share_a_pool(pool):
    streams = [torch.cuda.Stream() for _ in range(3)]
    with pool.use():
        for turn in range(60):
            stream = streams[turn % 3]
            with torch.cuda.stream(stream):
                made = tensor((1 + turn % 5) * MIB, turn)
                equal = (made == turn).all()
            stream.synchronize()
            assert equal.item()
            del made, equal


def test_too_little_memory_is_the_error_of_pytorch(pool):
    with pool.use():
        held = [tensor(20 * MIB) for _ in range(10)]
        with pytest.raises(torch.OutOfMemoryError):
            tensor(200 * MIB)
        del held
        # PyTorch keeps the blocks of a pool as long as the pool exists, and uses them again.
        assert (tensor(20 * MIB, 2) == 2).all()


def test_tensors_outlive_their_pool():
    with kvmem.torch.mem_pool(16 * EXTENT, extent_size=EXTENT) as pool, pool.use():
        kept = tensor(8 * MIB, 6)
    assert pool.closed and (kept == 6).all()
    with pytest.raises(kvmem.InvalidState, match="closed"):
        pool.sleep()


def test_a_gpu_has_one_pool_in_use(pool):
    with kvmem.torch.mem_pool(16 * EXTENT, extent_size=EXTENT) as other:
        refused = []

        def enter():
            try:
                with other.use():
                    pass
            except kvmem.Busy as error:
                refused.append(error)

        with pool.use():
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join()
            assert len(refused) == 1
            with pytest.raises(kvmem.Busy, match="in use"):
                pool.close()
            first = tensor(1 * MIB)
        with other.use():
            second = tensor(1 * MIB)
        other.region(second).close()
        pool.region(first).close()
        del second

# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch and CuPy on a GPU. Not part of the tests of a machine without one."""

import asyncio

import numpy as np
import pytest
import torch

import kvmem

PAIRS = [(3, 7), (0, 15), (9, 1)]
BLOCKS, LAYERS, TOKENS, HEADS, SIZE = 16, 3, 4, 2, 8


def caches(device="cuda", dtype=torch.bfloat16):
    torch.manual_seed(1)
    return [torch.randn(BLOCKS, 2, TOKENS, HEADS, SIZE, device=device).to(dtype) for _ in range(LAYERS)]


def shape(order="BLHNOC", dtype="bfloat16"):
    return kvmem.Shape(
        num_blocks=BLOCKS, num_layers=LAYERS, page_size=TOKENS, num_heads=HEADS, inner_dim=HEADS * SIZE, dtype=dtype, order=order
    )


def check(tensors, moved):
    for source, destination in PAIRS:
        for layer, tensor in enumerate(tensors):
            assert torch.equal(moved[destination, layer].cpu(), tensor[source].permute(2, 1, 0, 3).cpu())


def test_a_cache_of_pytorch_moves_to_each_tier_and_back():
    tensors = caches()
    with kvmem.Layout.from_tensors(tensors, "L/BONHC", dtype="bfloat16") as engine:
        assert engine.info.tier == kvmem.Tier.DEVICE
        for tier in ("pinned", "system", "device"):
            with kvmem.Layout.allocate(shape(), tier) as pool:
                kvmem.move(engine, pool, PAIRS)
                given = torch.from_dlpack(pool.tensor())
                assert given.dtype == torch.bfloat16 and given.is_cuda == (tier == "device")
                check(tensors, given)
                assert engine.checksums([3]) == pool.checksums([7])


def test_tensors_keep_memory_of_a_gpu():
    layout = kvmem.Layout.allocate(shape(), "device")
    given = torch.from_dlpack(layout.tensor())
    layout.close()
    given.fill_(2)
    assert (given == 2).all()
    view = caches()[0].permute(0, 2, 1, 3, 4)
    with kvmem.Layout.from_tensors(view, "BONHC", axes="BNOHC") as permuted:
        assert permuted.row(3, 0, 1, 2, 1)[0] == view[3, 2, 1, 1].data_ptr()


def test_a_run_is_ordered_with_a_stream_and_captured():
    tensors = caches()
    stream = torch.cuda.Stream()
    with kvmem.Layout.from_tensors(tensors, "L/BONHC") as engine, kvmem.Layout.allocate(shape(), "device") as pool:
        with kvmem.Transfer(engine, pool) as transfer, torch.cuda.stream(stream):
            for tensor in tensors:
                tensor.mul_(2)
            transfer.submit(np.array(PAIRS, np.uint32), stream=stream.cuda_stream)
            stream.synchronize()
            transfer.wait()
            check(tensors, torch.from_dlpack(pool.tensor(dtype="bfloat16")))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                transfer.submit(stream=stream.cuda_stream)
            for tensor in tensors:
                tensor.add_(1)
            graph.replay()
            stream.synchronize()
            check(tensors, torch.from_dlpack(pool.tensor(dtype="bfloat16")))


def test_gpu_runs_are_awaited():
    tensors = caches()

    async def main():
        with kvmem.Layout.from_tensors(tensors, "L/BONHC") as engine, kvmem.Layout.allocate(shape(), "pinned") as pool:
            with kvmem.Transfer(engine, pool) as transfer:
                for _ in range(20):
                    await transfer.submit(PAIRS)
            check(tensors, torch.from_dlpack(pool.tensor()))

    asyncio.run(main())


def test_arrays_of_cupy():
    import cupy

    array = cupy.arange(BLOCKS * 2 * TOKENS * HEADS * SIZE, dtype=cupy.uint16).reshape(BLOCKS, 2, TOKENS, HEADS, SIZE)
    with kvmem.Layout.from_tensors(array, "BONHC") as layout, kvmem.Layout.allocate(shape("BLONHC", "uint16")._replace(num_layers=1), "system") as host:
        kvmem.move(layout, host, PAIRS)
        moved = np.from_dlpack(host.tensor())
        for source, destination in PAIRS:
            assert (moved[destination, 0] == array[source].get()).all()
        assert (cupy.from_dlpack(layout.tensor()) == array).all()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs")
def test_tensors_of_a_gpu_that_is_not_the_current_one():
    assert torch.cuda.current_device() == 0
    tensors = caches("cuda:1")
    with kvmem.Layout.from_tensors(tensors, "L/BONHC") as engine, kvmem.Layout.allocate(shape(), "system") as pool:
        kvmem.move(engine, pool, PAIRS)
        check(tensors, torch.from_dlpack(pool.tensor()))
    assert torch.cuda.current_device() == 0

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Row 16: scattered blocks between caches that differ, alternately by kvmem and by PyTorch, in PyTorch's memory.

    bench/16_torch.py [--output FILE] [--quick]

It needs the Python package of kvmem (`make wheel`). PyTorch's methods are those that an engine would write: advanced indexing, or index_select, permute and
index_copy_ on the GPU. If one side is the host, they copy contiguous bytes between it and the GPU once. Every byte is compared
after the first run of each method.
"""
import argparse
import random
import time

import kvmem
import torch
from python_rows import summary, write

LAYERS, OUTERS, TOKENS, HEADS, HEAD = 4, 2, 16, 8, 128  # bf16: a row of one head has 256 bytes
BLOCK = LAYERS * OUTERS * TOKENS * HEADS * HEAD * 2
AXES = {"B": None, "L": LAYERS, "O": OUTERS, "N": TOKENS, "H": HEADS, "C": HEAD}


def cache(order, blocks, heads, on_gpu):
    sizes = {**AXES, "B": blocks, "H": heads}
    shape = [sizes[axis] for axis in order]
    if on_gpu:
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda:0")
    return torch.empty(shape, dtype=torch.bfloat16, pin_memory=True)


def bits(tensor):
    return tensor.view(torch.int16)


class Case:
    """One difference: two caches, the blocks that move, and PyTorch's methods."""

    def __init__(self, name, source, destination, heads, blocks, host_ids):
        """source and destination: order, heads, whether on the GPU."""
        self.name, self.heads = name, heads
        pool = 2 * blocks
        self.source, self.destination = [cache(order, pool, own, on_gpu) for order, own, on_gpu in
                                         (source, destination)]
        bits(self.source).copy_(torch.randint(-30000, 30000, self.source.shape, dtype=torch.int16))
        self.orders = [source[0], destination[0]]
        scattered = lambda seed: random.Random(seed).sample(range(pool), blocks)
        ids = [scattered(1), scattered(2)]
        for side, tensor in enumerate((self.source, self.destination)):
            if not tensor.is_cuda and host_ids == "contiguous":
                ids[side] = list(range(blocks))
        self.pairs = list(zip(*ids))
        self.ids = [torch.tensor(each, device=tensor.device) for each, tensor in
                    zip(ids, (self.source, self.destination))]
        self.is_contiguous = host_ids == "contiguous"
        self.bytes = blocks * BLOCK * heads // HEADS

    def permuted(self, moved):
        """Returns blocks of the source in the order of the destination, with the heads that move."""
        moved = moved.narrow(self.orders[0].index("H"), 0, self.heads)
        return moved.permute([self.orders[0].index(axis) for axis in self.orders[1]])

    def axis(self, side):
        return self.orders[side].index("B")

    def selected(self):
        """Returns the blocks that move, in the memory of the source."""
        if self.source.is_cuda or not self.is_contiguous:
            return self.source.index_select(self.axis(0), self.ids[0])
        return self.source.narrow(self.axis(0), 0, len(self.pairs))

    def placed(self):
        return self.destination.narrow(self.orders[1].index("H"), 0, self.heads)

    def by_index_copy(self):
        moved = self.selected()
        if not self.source.is_cuda:
            moved = self.permuted(moved.to("cuda:0", non_blocking=True))
        else:
            moved = self.permuted(moved)
        if self.destination.is_cuda:
            self.placed().index_copy_(self.axis(1), self.ids[1], moved)
        elif self.is_contiguous:
            self.placed().narrow(self.axis(1), 0, len(self.pairs)).copy_(moved.contiguous(), non_blocking=True)
        else:
            self.placed().index_copy_(self.axis(1), self.ids[1], moved.contiguous().to("cpu"))
        torch.cuda.synchronize()

    def by_indexing(self):
        """The same by advanced indexing; within the GPU only."""
        at = lambda side: (slice(None),) * self.axis(side) + (self.ids[side],)
        self.placed()[at(1)] = self.permuted(self.source[at(0)])
        torch.cuda.synchronize()

    def expected(self):
        device = self.destination.device
        moved = self.source.to(device).index_select(self.axis(0), self.ids[0].to(device))
        return bits(self.permuted(moved).contiguous())

    def check(self, method, expected):
        bits(self.destination).zero_()
        torch.cuda.synchronize()
        method()
        found = bits(self.placed().index_select(self.axis(1), self.ids[1]).contiguous())
        if not torch.equal(found, expected):
            raise RuntimeError(f"{self.name}: a method moved other bytes")


def measure(case, rounds):
    layouts = [kvmem.Layout.from_tensors(tensor, order) for tensor, order in zip((case.source, case.destination), case.orders)]
    transfer = kvmem.Transfer(*layouts, heads=kvmem.Range(0, 0, case.heads)).prepare(case.pairs)
    methods = {"kvmem": lambda: transfer.submit().wait(30), "index_select, permute, index_copy_": case.by_index_copy}
    if case.source.is_cuda and case.destination.is_cuda:
        methods["advanced indexing"] = case.by_indexing
    expected = case.expected()
    for method in methods.values():
        case.check(method, expected)
    taken = {name: [] for name in methods}
    for turn in range(rounds + 1):
        for name, method in methods.items():
            start = time.perf_counter()
            method()
            if turn > 0:
                taken[name].append(case.bytes / (time.perf_counter() - start) / 1e9)
    for each in (transfer, *layouts):
        each.close()
    return {name: summary(values) for name, values in taken.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds = 3 if options.quick else 11
    within, across = (16, 16) if options.quick else (2048, 1024)  # blocks of 256 KiB
    nhd, hnd, host = ("LOBNHC", HEADS, True), ("LOBHNC", HEADS, True), ("BLOHNC", HEADS, False)
    cases = [("NHD to HND", nhd, hnd, HEADS, within, ""), ("HND to NHD", hnd, nhd, HEADS, within, ""),
             ("4 of 8 heads", nhd, ("LOBNHC", 4, True), 4, within, "")]
    # Tokens are innermost on one side: elements of two bytes are transposed.
    hcn = ("LOBHCN", HEADS, True)
    cases += [("NHC to HCN", nhd, hcn, HEADS, within, ""), ("HCN to NHC", hcn, nhd, HEADS, within, ""),
              ("HCBN to NHC", ("LOHCBN", HEADS, True), nhd, HEADS, within, "")]
    for ids in ("contiguous", "scattered"):
        cases += [(f"host HND to NHD, host {ids}", host, nhd, HEADS, across, ids),
                  (f"NHD to host HND, host {ids}", nhd, host, HEADS, across, ids)]
    rows = []
    for name, *rest in cases:
        case = Case(name, *rest)
        found = measure(case, rounds)
        ours = found.pop("kvmem")
        best = max(found, key=lambda each: found[each]["median"])
        for method, reference in found.items():
            ratio = ours["median"] / reference["median"]
            rows.append({"name": "16-reshape", "parameters": {
                "difference": name, "row_bytes": 2 * HEAD, "bytes": case.bytes, "best_of_pytorch": method == best,
                "pytorch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}, "ours": ours,
                "reference": reference, "reference_name": f"PyTorch: {method}", "ceiling": None, "ratio": ratio,
                "ceiling_ratio": None, "unit": "GB/s", "runs": rounds, "machine": torch.cuda.get_device_name(0)})
            print(f"16-reshape  {name}: kvmem {ours['median']:.1f} GB/s, {method} {reference['median']:.1f}: "
                  f"{ratio:.2f} x", flush=True)
        del case
        torch.cuda.empty_cache()
    if options.output:
        write(options.output, rows)


main()

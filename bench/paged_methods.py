# SPDX-License-Identifier: Apache-2.0
"""Methods of rows 21 and 22: each moves blocks of an engine's cache from or to another cache, and says when a layer is there.

A method gets the pairs of block ids when it starts, as an engine does for each request. What does not depend on them is prepared."""

import time

import kvmem
import numpy as np
import torch

DTYPE = "bfloat16"
DEADLINE = 60.0
"""Seconds that a move may take."""


class Side:
    """A cache: a layout, the first of its heads in the whole, and its memory for NIXL."""

    def __init__(self, layout, first_head=0, opened_for=None):
        """`opened_for` is the GPU that the memory was opened for, if it is on another one."""
        self.layout, self.info, self.first_head, self.opened_for = layout, layout.info, first_head, opened_for
        given = [layout.tensor(layer=layer, dtype=DTYPE) for layer in range(self.info.num_layers)]
        self.axes = given[0].axes
        self.layers = [self.torch_tensor(each) for each in given]
        """Of each layer a tensor without a copy, with `axes`."""
        self.device = self.layers[0].device

    def torch_tensor(self, given):
        if self.opened_for is not None and given.device >= 0:
            given.device = self.opened_for  # so that PyTorch reads it with kernels of that GPU
        return torch.from_dlpack(given)

    def to(self, other, tensor):
        """`tensor`, which has the axes of this side, with those of another."""
        return tensor.permute([self.axes.index(axis) for axis in other.axes])

    def heads(self, tensor, other):
        """The part of `tensor` that has the heads of `other`, which has some or all of this one's."""
        count = min(self.info.num_heads, other.info.num_heads)
        return tensor.narrow(self.axes.index("H"), max(other.first_head - self.first_head, 0), count)

    @property
    def block_axis(self):
        return self.axes.index("B")

    def descriptors(self):
        """For NIXL: address, size and device of each block in each layer and outer slot. Blocks vary fastest."""
        strides = self.layout.strides
        if not strides.size:
            raise ValueError(f"the order {self.info.order} has no contiguous blocks")
        layer, outer, block = np.meshgrid(*map(np.arange, (self.info.num_layers, self.info.outer_dim, self.info.num_blocks)), indexing="ij")
        bases = np.array(strides.bases, np.uint64)[layer * strides.layer_step + outer * strides.outer_step]
        address = bases + (layer * strides.layer_stride + outer * strides.outer_stride + block * strides.block_stride).astype(np.uint64)
        found = np.zeros((address.size, 3), np.uint64)
        found[:, 0], found[:, 1], found[:, 2] = address.reshape(-1), strides.size, max(self.device.index or 0, 0)
        return found

    @property
    def kind(self):
        return "VRAM" if self.device.type == "cuda" else "DRAM"

    def registered(self):
        """Ranges for the registration with NIXL."""
        return [(region.info.address, region.info.size, self.device.index or 0, "") for region in self.layout.regions]


class Kvmem:
    """Transfers that are created once."""

    def __init__(self, sources, destination, method=None, max_ctas=0):
        """`method` is the one that kvmem chooses, or another one; `max_ctas` limits the CTAs of a kernel."""
        self.max_ctas = max_ctas
        self.name = f"kvmem, {method.name.lower()}" if method else f"kvmem, {max_ctas} CTAs" if max_ctas else "kvmem"
        self.device = compute_device(sources[0], destination)
        self.transfers = {by_layer: [self._made(each, destination, by_layer, method, max_ctas) for each in sources] for by_layer in (False, True)}
        self.current = []

    @staticmethod
    def _made(source, destination, by_layer, method, max_ctas):
        count = min(source.info.num_heads, destination.info.num_heads)
        heads = kvmem.Range(max(destination.first_head - source.first_head, 0), max(source.first_head - destination.first_head, 0), count)
        flags = kvmem.TransferFlags.BY_LAYER if by_layer else kvmem.TransferFlags(0)
        return kvmem.Transfer(source.layout, destination.layout, heads=heads, flags=flags, method=method, max_ctas=max_ctas)

    def follow(self):
        """Nothing to do: what it moves does not depend on the work of a stream."""

    def start(self, pairs, by_layer):
        self.current = self.transfers[by_layer]
        for each in self.current:
            each.submit(pairs)

    def layer_ready(self, layer):
        """Work that is submitted later finds the layer in place."""
        for each in self.current:
            if self.device.type == "cpu":
                each.wait_layers(layer + 1, timeout=DEADLINE)
            else:
                each.wait_on_stream(torch.cuda.current_stream().cuda_stream, layer + 1)

    def has_ended(self):
        return all([each.poll() for each in self.current])

    def finish(self):
        for each in self.current:
            each.wait(timeout=DEADLINE)

    def explain(self):
        return self.transfers[False][0].explain().methods[0].method.name.lower()

    def close(self):
        for each in [*self.transfers[False], *self.transfers[True]]:
            each.close()


class PyTorch:
    """index_select, permute and index_copy_ for each layer, on a stream of their own; to and from the host one copy per block, because a
    block is contiguous there."""

    name = "PyTorch"

    def __init__(self, sources, destination):
        self.sources, self.destination, self.device = sources, destination, compute_device(sources[0], destination)
        self.on_gpu = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if self.on_gpu else None
        self.events = [torch.cuda.Event() for _ in destination.layers] if self.on_gpu else []
        self.staging = None

    def follow(self):
        """What starts later follows the work that was submitted before."""
        if self.on_gpu:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def start(self, pairs, by_layer):
        if not self.on_gpu:
            return self._move(pairs)
        with torch.cuda.stream(self.stream):
            self._move(pairs)

    def _move(self, pairs):
        source, destination = self.sources[0], self.destination
        if source.device == destination.device or source.device.type == destination.device.type:
            self._between(pairs)
        elif source.device.type == "cpu":
            self._from_host(pairs)
        else:
            self._to_host(pairs)

    def _ids(self, column, device):
        return column.to(device, non_blocking=True)

    def _between(self, pairs):
        theirs, mine = torch.from_numpy(pairs.astype(np.int64)).unbind(1)
        destination = self.destination
        there, here = self._ids(theirs, self.sources[0].device), self._ids(mine, destination.device)
        for layer, place in enumerate(destination.layers):
            for source in self.sources:
                moved = source.heads(source.layers[layer], destination).index_select(source.block_axis, there)
                moved = source.to(destination, moved.to(destination.device, non_blocking=True))
                destination.heads(place, source).index_copy_(destination.block_axis, here, moved)
            self._layer_moved(layer)

    def _staged(self, count):
        """Memory of the GPU for as many blocks, in the order of the host."""
        host = self.sources[0] if self.sources[0].device.type == "cpu" else self.destination
        if self.staging is None or len(self.staging) != count:
            self.whole = torch.from_dlpack(host.layout.tensor(dtype=DTYPE))
            self.staging = torch.empty((count, *self.whole.shape[1:]), dtype=self.whole.dtype, device=self.device)
        return self.staging, self.whole

    def _from_host(self, pairs):
        (source,), destination = self.sources, self.destination
        staging, whole = self._staged(len(pairs))
        for place, block in enumerate(pairs[:, 0].tolist()):
            staging[place].copy_(whole[block], non_blocking=True)
        here = torch.from_numpy(pairs[:, 1].astype(np.int64)).to(self.device, non_blocking=True)
        for layer, place in enumerate(destination.layers):
            place.index_copy_(destination.block_axis, here, source.to(destination, staging[:, layer]))
            self._layer_moved(layer)

    def _to_host(self, pairs):
        (source,), destination = self.sources, self.destination
        staging, whole = self._staged(len(pairs))
        there = torch.from_numpy(pairs[:, 0].astype(np.int64)).to(self.device, non_blocking=True)
        for layer, place in enumerate(source.layers):
            staging[:, layer].copy_(source.to(destination, place.index_select(source.block_axis, there)))
        for place, block in enumerate(pairs[:, 1].tolist()):
            whole[block].copy_(staging[place], non_blocking=True)
        for layer in range(len(source.layers)):
            self._layer_moved(layer)

    def _layer_moved(self, layer):
        if self.on_gpu:
            self.events[layer].record(self.stream)

    def layer_ready(self, layer):
        if self.on_gpu:
            torch.cuda.current_stream(self.device).wait_event(self.events[layer])

    def has_ended(self):
        return not self.on_gpu or self.events[-1].query()

    def finish(self):
        if self.on_gpu:
            self.events[-1].synchronize()

    def close(self):
        self.staging = None


class Nixl:
    """NIXL's Python client: lists are prepared once, and a request is made of their indices, as vLLM's connector does."""

    name = "NIXL"

    def __init__(self, agent, sources, destination, remote=None):
        """`remote` is the name of the peer's agent, and its list of descriptors and their kind; None if both sides are in this process."""
        (source,) = sources
        self.agent, self.layers, self.outers = agent, destination.info.num_layers, destination.info.outer_dim
        is_read = destination.kind == "VRAM" or remote is not None
        local, other = (destination, source) if is_read else (source, destination)
        self.operation = "READ" if is_read else "WRITE"
        self.column = 1 if is_read else 0
        self.blocks = [local.info.num_blocks, other.info.num_blocks]
        name, descriptors, kind = remote or (agent.name, other.descriptors(), other.kind)
        self.local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", local.descriptors(), local.kind)
        self.other = agent.prep_xfer_dlist(name, descriptors, kind)
        self.requests = []

    def follow(self):
        """Nothing to do: what it moves does not depend on the work of a stream."""

    def start(self, pairs, by_layer):
        self.finish()
        mine, theirs = (pairs[:, side].astype(np.int32) for side in (self.column, 1 - self.column))
        for request in self.requests:
            request.release()
        each = np.arange(self.layers * self.outers, dtype=np.int32)[:, None]
        groups = np.split(each, self.layers) if by_layer else [each]
        self.requests = [self._posted((group * self.blocks[0] + mine).reshape(-1), (group * self.blocks[1] + theirs).reshape(-1)) for group in groups]
        self.ended = 0

    def _posted(self, mine, theirs):
        request = self.agent.make_prepped_xfer(self.operation, self.local, mine, self.other, theirs)
        if self.agent.transfer(request) == "ERR":
            raise RuntimeError("NIXL: the request failed")
        return request

    def _until(self, count):
        end = time.monotonic() + DEADLINE
        while self.ended < count:
            state = self.agent.check_xfer_state(self.requests[self.ended])
            if state == "ERR" or time.monotonic() > end:
                raise RuntimeError(f"NIXL: the request is {state}")
            self.ended += state == "DONE"

    def layer_ready(self, layer):
        """The host waits: NIXL has no stream."""
        self._until(min(layer + 1, len(self.requests)))

    def has_ended(self):
        while self.ended < len(self.requests) and self.agent.check_xfer_state(self.requests[self.ended]) == "DONE":
            self.ended += 1
        return self.ended == len(self.requests)

    def finish(self):
        if self.requests:
            self._until(len(self.requests))

    def close(self):
        self.finish()
        for each in [*self.requests, self.local, self.other]:
            each.release()


def compute_device(*sides):
    """The GPU of the last side that has one, or the CPU."""
    found = [side.device for side in sides if side.device.type == "cuda"]
    return found[-1] if found else torch.device("cpu")

# SPDX-License-Identifier: Apache-2.0
"""Workers of kvmem.vllm's handover without vLLM, for its tests: they exchange blocks by real agents."""

import ctypes
import threading
import time

import numpy as np
import pytest

import kvmem
from kvmem.vllm import _cache, _config, _groups, _ranks
from kvmem.vllm._exchange import Exchange, Settings
from kvmem.vllm._offer import Ask, HandoverStep, Hold, Offer, Pull, agent_name
from kvmem.vllm._peers import join

LAYERS, ELEMENTS, HEADS = 2, 8, 4
WAIT = 60
"""Seconds until a case fails."""


def settings(extra):
    return _config.parse({"timeout_seconds": WAIT} | extra)


class Tensor:
    """What the layouts need of a tensor of PyTorch."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def dim(self):
        return self.array.ndim

    def stride(self, axis=None):
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        return strides if axis is None else strides[axis]

    def element_size(self):
        return self.array.itemsize

    def data_ptr(self):
        return self.array.ctypes.data


class Worker:
    """A rank of an engine, with a cache whose axes in memory are `order`: L, and those of vLLM's tensors (BHNC)."""

    def __init__(self, folder, engine, *, order="LBHNC", block_size=4, rank=0, ranks=1, blocks=16, packing="none", window=0, produces=True,
                 lease=60.0, timeout=30.0, verify=True, access="auto", model="m", groups=1, directory="", page=0, state=(), state_tokens=4, state_form="", **etcd):  # fmt: skip
        """The cache has pages of `page` tokens, by default whole blocks. `groups` is the number of cache groups, which have the same memory.
        `state` has the tensors of a state as (shape, dtype): then there is a second group with states, in the same memory, whose blocks have
        `state_tokens` tokens; `state_form` is what their bytes mean. `directory` is a folder by default; with `etcd`, URLs."""
        self.directory, self.agent = join(settings({"directory": directory or str(folder / "agents")} | etcd), agent_name(engine, rank))
        heads = HEADS // ranks
        self.pages_of_block = block_size // (page or block_size)
        lengths = {"L": LAYERS, "B": blocks * self.pages_of_block, "H": heads, "N": page or block_size, "C": ELEMENTS}
        shape = [lengths[axis] for axis in order]
        size = int(np.prod(shape)) * 2
        self.region = kvmem.Region.system(size, flags=kvmem.SystemFlags.SHAREABLE)
        self.memory = np.from_dlpack(self.region.tensor("uint16"))[: size // 2].reshape(shape)
        self.memory[:] = 0
        layers = np.moveaxis(self.memory, [order.index(axis) for axis in "LBHNC"], range(5))
        self.cache = layers  # [layer, page, head, token, element]
        described = _groups.Group(0, ("0", "1"), heads * block_size * ELEMENTS * 2, block_size, "window" if window else "full", window)
        self.storage = _cache.CacheMemory([self.region])
        common = blocks, {"model": model}, packing, self.storage.region_of, self.agent
        self.layouts = _cache.layouts_of(described, {str(at): Tensor(layers[at]) for at in range(LAYERS)}, *common)
        all_groups, sizes = [self.layouts] * groups, [block_size] * groups
        if state:
            self.states = [self._state(layers[at], state) for at in range(LAYERS)]  # [layer][tensor]: [block, …]
            described = _groups.Group(1, ("2", "3"), described.page, state_tokens, "state", 0, form=state_form)
            all_groups.append(_cache.layouts_of(described, {str(2 + at): [Tensor(part) for part in parts] for at, parts in enumerate(self.states)}, *common))
            sizes.append(state_tokens)
        opened = []
        if produces:
            for each in {id(each): each for each in all_groups}.values():
                each.create_epochs()
            opened.append(kvmem.Broker(folder / f"{engine}-{rank}"))
            published = {name: layout for number, each in enumerate(all_groups) for name, layout in each.published(number).items()}
            self.directory.publish(self.agent, published, WAIT, broker=opened[0])
        else:
            self.directory.publish(self.agent, {}, WAIT)
        self.exchange = Exchange(
            self.agent, self.directory, all_groups, sizes, lambda sources: _ranks.legs_of(rank, ranks, sources, HEADS),
            Settings(lease, timeout, verify, access, rank == 0), opened,
        )  # fmt: skip

    @staticmethod
    def _state(layer, parts):
        """The tensors of a state, one after the other from the begin of each page of a layer on."""
        made, begin = [], 0
        for shape, dtype in parts:
            inner = np.empty(shape, dtype)
            address = layer.ctypes.data + begin
            memory = (ctypes.c_ubyte * ((layer.shape[0] - 1) * layer.strides[0] + inner.nbytes)).from_address(address)
            made.append(np.ndarray((layer.shape[0], *shape), dtype, memory, strides=(layer.strides[0], *inner.strides)))
            begin += inner.nbytes
        return made

    def pages(self, blocks):
        """The indices of blocks in the cache."""
        return [block * self.pages_of_block + at for block in blocks for at in range(self.pages_of_block)]

    def connect(self, name):
        """Makes another worker known, so that messages can be sent to it by the agent."""
        self.directory.connect(self.agent, name, WAIT).close()

    def hold(self, *blocks, request="p"):
        self.exchange.give(HandoverStep(holds=[Hold(request, (blocks,))]))

    def pull(self, offer, blocks, first=0, tokens=None, request="d"):
        self.exchange.give(HandoverStep(pulls=[Pull(request, offer, (tuple(blocks),), first, offer.num_tokens if tokens is None else tokens)]))

    def by_layer(self, offer, blocks, tokens, request="d"):
        """Asks for a request, and pulls it by layer when prefill has replied."""
        self.exchange.give(HandoverStep(asks=[Ask(request, offer)]))
        end = time.monotonic() + WAIT
        granted = refused = set()
        while not granted and not refused:
            assert time.monotonic() < end, "prefill has not replied in time"
            granted, refused = self.exchange.take_replies()
        if granted:
            self.exchange.give(HandoverStep(pulls=[Pull(request, offer, (tuple(blocks),), 0, tokens, True)]))
        return granted, refused

    def wait(self, which):
        """The requests that were sent (0) or received (1), when there are any."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            found = self.exchange.poll()[which]
            if found:
                return found
            time.sleep(0.002)
        raise AssertionError("nothing has ended in time")

    def close(self):
        if self.memory is not None:
            self.exchange.close()
            self.memory = self.cache = self.states = None
            self.storage.close()


@pytest.fixture
def start(tmp_path):
    workers = []

    def made(engine, **more):
        workers.append(Worker(tmp_path, engine, **more))
        return workers[-1]

    yield made
    for worker in workers:
        worker.close()


class Paused:
    """Holds the thread of a worker between a decision and its act."""

    def __init__(self, owner, name):
        self._reached, self._goes_on, original = threading.Event(), threading.Event(), getattr(owner, name)

        def late(*arguments):
            self._reached.set()
            assert self._goes_on.wait(WAIT)
            return original(*arguments)

        setattr(owner, name, late)

    def wait(self):
        assert self._reached.wait(WAIT)

    def go_on(self):
        self._goes_on.set()


def fill(worker, blocks, tokens, heads=range(HEADS)):
    """Writes values that depend on layer, head, token and element."""
    size, pages = worker.cache.shape[3], worker.pages(blocks)
    for token in range(tokens):
        worker.cache[:, pages[token // size], :, token % size] = values(token, heads)


def values(token, heads=range(HEADS)):
    layer, head, element = np.meshgrid(range(LAYERS), heads, range(ELEMENTS), indexing="ij")
    return (layer * 7919 + token * 131 + head * 1009 + element * 17 + 1).astype(np.uint16)


def check(worker, blocks, tokens, first=0, heads=range(HEADS)):
    size, pages = worker.cache.shape[3], worker.pages(blocks)
    for token in range(first, tokens):
        assert (worker.cache[:, pages[token // size], :, token % size] == values(token, heads)).all(), token


def offer(blocks, tokens, block_size=4, ranks=1, request="p", engine="p"):
    return Offer(engine, request, tokens, ranks, (block_size,), (tuple(blocks),), "")

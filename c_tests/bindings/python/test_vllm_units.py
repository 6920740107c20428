# SPDX-License-Identifier: Apache-2.0
"""kvmem.vllm's stores of heads and units without vLLM: what an engine has stored is found with another block size and tensor parallelism."""

import hashlib
import os
import types

import numpy as np
import pytest
from test_vllm import Pool
from vllm_workers import ELEMENTS, HEADS, LAYERS, Tensor, values

import kvmem
from kvmem._blocks._store import others_in
from kvmem.vllm import _cache, _groups, _units
from kvmem.vllm._metadata import ReportData
from kvmem.vllm._scheduler import OffloadScheduler
from kvmem.vllm._worker import OffloadWorker

UNIT = 2
IDENTITY = {"model": "a", "unit": f"{UNIT} tokens"}
PROMPT = list(range(100, 125))  # 25 tokens, which are 6 blocks of 4, or 4 of 6
BLOCKS = 16


def hasher(size):
    """As vLLM's: the hashes of the blocks of a request that follow its `block_hashes`."""

    def hash_blocks(request):
        found = list(request.block_hashes)
        for end in range((len(found) + 1) * size, request.num_tokens + 1, size):
            before = found[-1] if found else b"none"
            found.append(hashlib.sha256(before + bytes(request.all_token_ids[end - size : end])).digest())
        return found[len(request.block_hashes) :]

    return hash_blocks


def request_of(tokens, block_size, name="r"):
    made = types.SimpleNamespace(request_id=name, all_token_ids=list(tokens), num_tokens=len(tokens), block_hashes=[])
    made.block_hashes += hasher(block_size)(made)
    return made


class HostMemory:
    """The memory of a cache, which has the bytes of an array."""

    def __init__(self, array):
        self.region, self.address = kvmem.Region.adopt(array), array.ctypes.data

    def write(self):
        """Copies the array to the memory."""

    def read(self):
        """Copies the memory to the array."""

    def close(self):
        """Ends its use; the worker has closed the region."""


class CacheTensor(Tensor):
    """A tensor in the memory of a cache."""

    def __init__(self, array, offset):
        super().__init__(array)
        self._offset = offset

    def data_ptr(self):
        return super().data_ptr() + self._offset


class Rank:
    """A worker with a cache whose axes in memory are `order`, and whose kernels see pages of `page` tokens."""

    def __init__(self, folder, group, order, model, rank, page, memory):
        self.heads = range(rank * HEADS // model.ranks, (rank + 1) * HEADS // model.ranks)
        lengths = {"L": LAYERS, "B": BLOCKS * group.block_size // page, "H": len(self.heads), "N": page, "C": ELEMENTS}
        shape = [lengths[axis] for axis in order]
        array = np.zeros(shape, np.uint16)
        self.memory = memory(array)
        self.cache = np.moveaxis(array, [order.index(axis) for axis in "LBHNC"], range(5))
        self.model, self.packing, self.page = model, model.packing, page
        storage = _cache.CacheMemory([self.memory.region])
        tensors = {str(at): CacheTensor(self.cache[at], self.memory.address - array.ctypes.data) for at in range(LAYERS)}
        self.head_cache, self.store = _units.opened(group, tensors, storage.region_of, model, rank, UNIT, str(folder), IDENTITY, 30.0)
        storage.close()
        self.worker = OffloadWorker([self.head_cache], [self.store], rank)

    def token(self, pages, token):
        """The elements of a token in all layers and heads, as an array of the axes layer, head, element that can be written to."""
        page, at = pages[token // self.page], token % self.page
        if self.packing == "none":
            return [self.cache[:, page, :, at]]
        packed = self.cache[:, page].reshape(LAYERS, len(self.heads), 2, -1)  # keys and values
        half = ELEMENTS // 2
        return [packed[:, :, 0].reshape(LAYERS, len(self.heads), half, self.page)[..., at], packed[:, :, 1].reshape(LAYERS, len(self.heads), self.page, half)[:, :, at]]

    def fill(self, blocks, tokens):
        for token in range(tokens):
            parts = self.token(self.head_cache.pages(blocks), token)
            for part, expected in zip(parts, np.split(values(token, self.heads), len(parts), axis=2)):
                part[...] = expected
        self.memory.write()

    def check(self, blocks, first, end):
        self.memory.read()
        for token in range(first, end):
            parts = self.token(self.head_cache.pages(blocks), token)
            for part, expected in zip(parts, np.split(values(token, self.heads), len(parts), axis=2)):
                assert (part == expected).all(), token


class Engine:
    """The scheduler's side, and the ranks."""

    def __init__(self, path, block_size, ranks=1, *, packing="none", order="LBHNC", page=None, kind="full", window=0, capacity=1 << 20, memory=HostMemory):
        model = _units.Model(HEADS, ranks, packing)
        group = _groups.Group(0, tuple(map(str, range(LAYERS))), HEADS // ranks * block_size * ELEMENTS * 2, block_size, kind, window)
        (self.group,) = _units.divided([group], UNIT, model, capacity)
        self.folder = path / "engine-0"
        self.ranks = [Rank(self.folder, self.group, order, model, rank, page or block_size, memory) for rank in range(ranks)]
        self.hashes = _units.UnitHashes(hasher(UNIT), self.group.per_block, UNIT)
        self.scheduler = OffloadScheduler([self.group], ranks, self.hashes.of_known)
        for number, rank in enumerate(self.ranks):
            self.scheduler.opened(number, rank.store.keys())
        self.pool = Pool({})
        self.pool.blocks += [types.SimpleNamespace(block_id=at, block_hash=None, is_null=False, references=0) for at in range(len(self.pool.blocks), BLOCKS)]
        self.scheduler.bind(self.pool)

    def matched(self, request, num_computed=0):
        return self.scheduler.matched(request.request_id, self.hashes.of(request), request.num_tokens, num_computed)

    def compute(self, request, blocks):
        """The request fills these blocks, and they are stored."""
        full = request.num_tokens // self.group.block_size
        for rank in self.ranks:
            rank.fill(blocks, full * self.group.block_size)
        self.matched(request)
        for block, each in zip(blocks[:full], request.block_hashes):
            self.pool.blocks[block].block_hash = self.group.key(each)
        return self.step({request.request_id: (blocks,)})

    def load(self, request, blocks, num_computed=0):
        """Loads what is stored after `num_computed` tokens. Returns the number of tokens."""
        count = self.matched(request, num_computed)
        self.scheduler.allocated(request.request_id, self.hashes.of(request), (blocks,), count)
        self.step({})
        return count

    def step(self, scheduled):
        made, report = self.scheduler.step(scheduled), ReportData()
        for rank in self.ranks:
            if made.clears:
                rank.worker.clear()
            for load in made.loads:
                rank.worker.load(load)
            rank.worker.store(made.puts, None)
        for rank in self.ranks:
            self.end(rank.worker)
            report.merge(rank.worker.take_report())
        self.scheduler.report(report)
        return made

    @staticmethod
    def end(worker):
        while worker._runs or worker._waiting or worker._clearing:
            for moving in worker._runs:
                moving.run.wait()
            if worker._remover is not None:
                worker._remover.join()
            worker.poll()

    def close(self):
        for rank in self.ranks:
            rank.worker.close()
            rank.memory.close()


@pytest.fixture
def start(tmp_path):
    engines = []

    def made(*arguments, **more):
        engines.append(Engine(tmp_path, *arguments, **more))
        return engines[-1]

    yield made
    for engine in engines:
        engine.close()


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (dict(block_size=4), dict(block_size=4)),
        (dict(block_size=4), dict(block_size=6)),
        (dict(block_size=6), dict(block_size=4)),
        (dict(block_size=4, ranks=2), dict(block_size=4)),
        (dict(block_size=4), dict(block_size=4, ranks=4)),
        (dict(block_size=6, ranks=4), dict(block_size=4, ranks=2)),
        (dict(block_size=4, order="LHBNC"), dict(block_size=6, order="BLNHC", ranks=2)),
        (dict(block_size=4, page=2), dict(block_size=6, page=3)),
        (dict(block_size=4, packing="vec"), dict(block_size=4, packing="vec")),
        (dict(block_size=4, packing="vec", ranks=2), dict(block_size=6, packing="vec16")),
        (dict(block_size=6, packing="vec"), dict(block_size=4, packing="vec", ranks=4)),
    ],
)
def test_another_engine_finds_the_bytes_of_each_token(start, stored, found):
    engine = start(**stored)
    size = engine.group.block_size
    assert not engine.matched(request_of(PROMPT, size))
    blocks = list(range(3, 3 + 24 // size))
    engine.compute(request_of(PROMPT, size), blocks)
    assert engine.matched(request_of(PROMPT, size)) == 24
    assert sum(rank.worker.counters["stored_bytes"] for rank in engine.ranks) == 24 * LAYERS * HEADS * ELEMENTS * 2
    engine.close()
    engine = start(**found)
    size = engine.group.block_size
    assert engine.load(request_of(PROMPT, size), list(range(8, 8 + 24 // size))) == 24
    for rank in engine.ranks:
        rank.check(list(range(8, 8 + 24 // size)), 0, 24)
        assert not rank.worker.failed_blocks and rank.worker.counters["loaded_blocks"] == 24 // size
    # From the second block on, as after a hit of vLLM's own cache.
    other = request_of(PROMPT, size, "s")
    blocks = list(range(1, 1 + 24 // size))
    assert engine.load(other, blocks, size) == 24 - size
    for rank in engine.ranks:
        rank.check(blocks, size, 24)
        assert all((part == 0).all() for part in rank.token(rank.head_cache.pages(blocks), 0))
    # Other tokens have other keys.
    assert not engine.matched(request_of([7, *PROMPT[1:]], size, "t"))


def test_blocks_follow_those_that_were_stored_with_another_size(start):
    engine = start(4)
    engine.compute(request_of(PROMPT[:13], 4), [1, 2, 3])  # 12 tokens
    engine.close()
    engine = start(6)
    assert engine.matched(request_of(PROMPT, 6)) == 12
    assert engine.matched(request_of(PROMPT[:9] + [0] * 16, 6, "s")) == 6  # 8 tokens are the same, and a block has 6
    put = engine.compute(request_of(PROMPT, 6, "t"), [1, 2, 3, 4]).puts[0]
    assert put.blocks == [3, 4] and len(put.keys) == 6
    keys = engine.hashes.of(request_of(PROMPT, 6, "u"))
    entries = {entry.key: entry.parent for entry in engine.ranks[0].store._stores[0]._store}
    every = [engine.group.key(each) for each in keys]
    assert entries == dict(zip(every, [None, *every])) and put.parent == every[5]


def test_a_window_needs_its_last_blocks_only(start):
    engine = start(4, 2, kind="window", window=6)
    request = request_of(PROMPT[:17], 4)
    for rank in engine.ranks:
        rank.fill([1, 2, 3, 4], 16)
    engine.matched(request)
    for block in (3, 4):
        engine.pool.blocks[block].block_hash = engine.group.key(request.block_hashes[block - 1])
    put = engine.step({"r": ([0, 0, 3, 4],)}).puts[0]  # the first two are out of the window, and freed
    assert put.blocks == [3, 4] and len(put.keys) == 4 and put.parent is None
    engine.close()
    engine = start(4, kind="window", window=6)
    assert engine.load(request_of(PROMPT[:17], 4), [0, 0, 9, 10]) == 16
    engine.ranks[0].check([0, 0, 9, 10], 8, 16)


def damage(engine, head, number):
    """Inverts a bit of a unit in the file of a head."""
    key = engine.group.key(engine.hashes.of(request_of(PROMPT, engine.group.block_size, "damage"))[number])
    (slot,) = [entry.slot for entry in engine.ranks[0].store._stores[head]._store if entry.key == key]
    with open(os.path.join(engine.folder, f"group-0-head-{head}", "blocks.0"), "r+b") as file:
        file.seek(slot * 4096 + 5)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_unit_is_the_block_that_has_it_and_is_stored_again(start):
    engine = start(4)
    request = request_of(PROMPT, 4)
    engine.compute(request, [1, 2, 3, 4, 5, 6])
    damage(engine, 2, 5)
    assert engine.load(request_of(PROMPT, 4, "s"), [7, 8, 9, 10, 11, 12]) == 24
    (rank,) = engine.ranks
    assert rank.worker.failed_blocks == {9} and rank.worker.counters["damaged_blocks"] == 1 and rank.worker.counters["loaded_blocks"] == 5
    rank.check([7, 8], 0, 8)
    assert engine.matched(request_of(PROMPT, 4, "t")) == 8  # not 24 again, for ever
    assert [put.blocks for put in engine.compute(request_of(PROMPT, 4, "u"), [1, 2, 3, 4, 5, 6]).puts] == [[3]]
    assert engine.matched(request_of(PROMPT, 4, "v")) == 24


def test_a_unit_that_one_head_has_lost_is_not_found_and_is_stored_again(start):
    engine = start(4, 2)
    engine.compute(request_of(PROMPT, 4), [1, 2, 3, 4, 5, 6])
    lost = engine.group.key(engine.hashes.of(request_of(PROMPT, 4, "s"))[4])
    engine.ranks[1].store._stores[0].remove([lost])
    engine.load(request_of(PROMPT, 4, "s"), [7, 8, 9, 10, 11, 12])
    first, second = engine.ranks
    assert not first.worker.failed_blocks and second.worker.failed_blocks == {9, 10, 11, 12}
    second.check([7, 8], 0, 8)
    assert engine.matched(request_of(PROMPT, 4, "t")) == 8
    engine.close()
    engine = start(4)
    assert engine.matched(request_of(PROMPT, 4)) == 8
    assert [put.blocks for put in engine.compute(request_of(PROMPT, 4), [1, 2, 3, 4, 5, 6]).puts] == [[3]]
    assert engine.load(request_of(PROMPT, 4, "u"), [7, 8, 9, 10, 11, 12]) == 24
    engine.ranks[0].check([7, 8, 9, 10, 11, 12], 0, 24)


def test_a_reset_removes_units_that_only_some_heads_have(start):
    """Otherwise a block would have heads of two sets of weights."""
    engine = start(4)
    engine.compute(request_of(PROMPT, 4), [1, 2, 3, 4, 5, 6])
    store = engine.ranks[0].store
    store._stores[0].remove(store.keys()[:1])
    engine.scheduler.clear()
    engine.step({})
    assert [len(each) for each in store._stores] == [0] * HEADS and not engine.matched(request_of(PROMPT, 4))


class Refusing:
    """A store whose next calls fail."""

    def __init__(self, store, error):
        self._store, self._error = store, error

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, *arguments, **more):
        raise self._error

    get = put


def test_what_one_head_refuses_ends_the_put_when_the_others_have_read_the_blocks(start, caplog):
    engine = start(4)
    worker, store = engine.ranks[0].worker, engine.ranks[0].store
    whole = store._stores
    store._stores = [*whole[:2], Refusing(whole[2], kvmem.TimedOut("the file system has not responded in time")), *whole[3:]]
    engine.ranks[0].fill([1], 4)
    request = request_of(PROMPT[:5], 4)
    engine.matched(request)
    engine.pool.blocks[1].block_hash = engine.group.key(request.block_hashes[0])
    worker.store(engine.scheduler.step({"r": ([1],)}).puts, None)
    assert len(worker._runs) == 1 and engine.pool.blocks[1].references == 1
    engine.step({})
    assert worker.counters["failed_stores"] == 1 and worker.counters["stored_blocks"] == 0 and not engine.pool.blocks[1].references
    assert "no blocks are stored for" in caplog.text and not engine.matched(request)
    assert [len(each) for each in whole] == [2, 2, 0, 0]
    store._stores, worker._pause.until = whole, 0.0
    engine.compute(request_of(PROMPT[:5], 4, "s"), [1])
    assert [len(each) for each in whole] == [2] * HEADS
    # A get of which the first heads have begun is waited for, and its blocks are computed.
    store._stores = [*whole[:2], Refusing(whole[2], kvmem.Busy("it has not begun")), *whole[3:]]
    assert engine.load(request_of(PROMPT[:5], 4, "t"), [7]) == 4
    assert worker.failed_blocks == {7} and not worker._runs and worker.counters["failed_loads"] == 1
    store._stores = whole


def test_units_of_a_session_that_replaces_tokens_are_hashed_again():
    hashes, request = _units.UnitHashes(hasher(UNIT), 2, UNIT), request_of(PROMPT, 4)
    first = list(hashes.of(request))
    assert len(first) == 12 and hashes.of(request) == first and hashes.of_known("r") == first
    request.all_token_ids[14:] = range(10)  # from the second half of a block on
    request.block_hashes[3:] = []
    request.num_tokens = len(request.all_token_ids)
    request.block_hashes += hasher(4)(request)
    replaced = hashes.of(request)
    assert replaced[:7] == first[:7] and replaced[7] != first[7] and len(replaced) == 12
    hashes.forget("r")
    assert hashes.of_known("r") == []


@pytest.mark.parametrize(("element", "slot"), [(2, 4096), (4096, UNIT * 4096 * LAYERS)])
def test_the_slots_do_not_depend_on_ranks_and_block_size(element, slot):
    for block_size, ranks in ((4, 1), (6, 1), (6, 2), (16, 4)):
        group = _groups.Group(0, ("0", "1"), HEADS // ranks * block_size * element, block_size, "full", 0)
        (made,) = _units.divided([group], UNIT, _units.Model(HEADS, ranks, "none"), 1 << 20)
        assert made.slots == (1 << 20) // HEADS // slot and made.capacity == made.slots // (block_size // UNIT)


def test_a_put_or_get_ends_with_its_last_run_and_each_is_looked_at():
    looked = []

    def run(name, ended):
        return types.SimpleNamespace(ended=lambda: looked.append(name) or ended)

    assert not _units.Runs([run("a", False), run("b", True)], 1, None).ended() and looked == ["a", "b"]  # a late one cancels itself
    assert _units.Runs([run("a", True), run("b", True)], 1, None).ended()


def test_the_stores_of_engines_with_other_settings_are_found(start, tmp_path):
    engine = start(4, 2)
    names = _units.names_of([engine.group], engine.ranks[0].model)
    assert names == {f"group-0-head-{head}" for head in range(HEADS)} and others_in(str(engine.folder), names) == ([], 0)
    other = engine.folder / "group-0-rank-1"
    other.mkdir()
    (other / "blocks.0").write_bytes(bytes(8192))
    (tmp_path / "engine-0" / "notes").mkdir()
    assert others_in(str(engine.folder), names) == (["group-0-rank-1"], 8192)
    packed, size = others_in(str(engine.folder), _units.names_of([engine.group], _units.Model(HEADS, 2, "vec")))
    assert packed == sorted([*names, "group-0-rank-1"]) and size > 8192


def parallel(**more):
    return types.SimpleNamespace(**({"pipeline_parallel_size": 1} | more))


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ({}, {}, None),
        ({"ranks": 3}, {}, "3 ranks do not have whole heads of the model's 4: set --tensor-parallel-size to a divisor of 4"),
        ({"ranks": 8}, {}, "8 ranks do not have whole heads of the model's 4: set --tensor-parallel-size to a divisor of 4"),
        ({"packing": "amx"}, {}, "the CPU packs blocks for amx, .*: set --dtype float32, or remove unit_tokens"),
        ({}, {"unit": 3}, "unit_tokens is 3, and cache group 0 has blocks of 4 tokens: set it to a divisor"),
        ({}, {"kind": "state"}, "cache group 0 has states, .*: remove unit_tokens"),
        ({}, {"pipeline_parallel_size": 2}, "pipeline_parallel_size is 2: set it to 1, or remove unit_tokens"),
        ({}, {"decode_context_parallel_size": 2}, "decode_context_parallel_size is 2: set it to 1, or remove unit_tokens"),
    ],
)
def test_what_cannot_be_divided_is_one_sentence(model, more, message):
    group = _groups.Group(0, ("0",), 64, 4, more.pop("kind", "full"), 0)
    arguments = [group], more.pop("unit", 2), _units.Model(**({"heads": 4, "ranks": 1, "packing": "none"} | model)), parallel(**more)
    if message is None:
        _units.ensure_divisible(*arguments)
        with pytest.raises(ValueError, match="^kvmem: capacity_gib has 32,767 bytes, and a block of group 0 needs 32,768: set more"):
            _units.divided([group], 2, arguments[2], 32767)
        assert _units.divided([group], 2, arguments[2], 32768)[0].capacity == 1
        return
    with pytest.raises(ValueError, match=f"^kvmem: .*{message}"):
        _units.ensure_divisible(*arguments)


def test_an_engine_with_another_unit_or_a_second_engine_is_refused(start, monkeypatch):
    engine = start(4)
    with pytest.raises(ValueError, match="^kvmem: another engine uses the folder"):
        start(4, 2)
    engine.close()
    monkeypatch.setitem(IDENTITY, "unit", "4 tokens")
    with pytest.raises(ValueError, match="^kvmem: .* unit is '2 tokens' in the store and '4 tokens' here.*: set another path"):
        start(4)

# SPDX-License-Identifier: Apache-2.0
"""kvmem.vllm without vLLM: its settings, and both sides of the offload over a real store. The demo runs it in vLLM."""

import os
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import kvmem
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore
from kvmem.vllm import _config, _groups, _identity
from kvmem.vllm._metadata import ReportData
from kvmem.vllm._scheduler import OffloadScheduler
from kvmem.vllm._worker import OffloadWorker

IDENTITY = {"model": "a", "block size": "32"}
BLOCKS, PAGE, STRIDE = 12, 64, 4096


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"pth": "x", "capacity_gib": 1}, "'pth', which is no setting; known are path, capacity_gib"),
        ({"path": "x"}, "capacity_gib is not set"),
        ({"path": "x", "capacity_gib": 0}, "capacity_gib is not set"),
        ({"capacity_gib": 1}, "path is not set: set it to the folder of the blocks, or to one in /dev/shm"),
        ({"capacity_gib": "1"}, "capacity_gib is '1': set a number"),
        ({"capacity_gib": float("inf")}, "capacity_gib is inf: set a number"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds is nan: set a number"),
        ({"capacity_gib": 1, "path": ""}, "path is '': set a text"),
        ({"capacity_gib": 1, "path": "x", "verify": True}, "verify is for engines that hand requests over"),
        ({"capacity_gib": 1, "identity": 7}, "identity is 7: set a text"),
        ({"capacity_gib": True}, "capacity_gib is True: set a number"),
        ({"capacity_gib": 1, "verify": "no"}, "verify is 'no': set true or false"),
        ({"capacity_gib": 1, "path": 7}, "path is 7: set a text"),
        ({"capacity_gib": 1, "timeout_seconds": 0}, "timeout_seconds is 0.0: set a number of seconds above 0"),
    ],
)
def test_a_wrong_setting_is_one_sentence(extra, message):
    with pytest.raises(ValueError, match="kvmem: ") as raised:
        _config.parse(extra)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def model(length=1024, quantization=None, **config):
    return types.SimpleNamespace(
        hf_config=types.SimpleNamespace(to_dict=lambda: {"rope_theta": 1.0, "transformers_version": str(length)} | config), hf_text_config=types.SimpleNamespace(**config),
        quantization=quantization, max_model_len=length,
    )  # fmt: skip


def test_the_configuration_is_that_of_the_model_and_not_of_the_engine():
    found = _identity.configuration_of(model())
    assert found == _identity.configuration_of(model(512))  # as long as the engine permits, and another release of transformers
    assert len({found, _identity.configuration_of(model(rope_theta=2.0)), _identity.configuration_of(model(quantization="fp8"))}) == 3
    longrope = {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 512}}
    assert _identity.configuration_of(model(512, **longrope)) != _identity.configuration_of(model(1024, **longrope))


def opened(path, capacity=8, identity=IDENTITY):
    return BlockStore(os.path.join(path, "engine-0/group-0-rank-0"), shape_of(capacity, 2, PAGE, "BLC"), identity, 30.0)


def test_a_folder_is_that_of_one_engine_with_one_identity_and_size(tmp_path):
    store = opened(tmp_path)
    with pytest.raises(ValueError, match="^kvmem: another engine uses the folder .*: set another path"):
        opened(tmp_path)
    store.close()
    with pytest.raises(ValueError, match="^kvmem: .* block size is '32' in the store and '64' here.*: set another path"):
        opened(tmp_path, identity=IDENTITY | {"block size": "64"})
    with pytest.raises(ValueError, match="^kvmem: .*8.*9.*: set another path, or remove the folder") as raised:
        opened(tmp_path, capacity=9)
    assert "\n" not in str(raised.value)
    opened(tmp_path).close()


def test_a_folder_that_cannot_be_made_or_is_damaged_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="^kvmem: the folder .* cannot be used .*: set another path"):
        opened(tmp_path / "file")
    opened(tmp_path).close()
    (tmp_path / "engine-0/group-0-rank-0/store").write_bytes(b"nothing that a store knows" * 100)
    with pytest.raises(ValueError, match="^kvmem: the folder .* cannot be used .*: set another path, or remove the folder"):
        opened(tmp_path)


class Pool:
    """vLLM's block pool as far as the scheduler's side uses it."""

    def __init__(self, hashes):
        self.blocks = [types.SimpleNamespace(block_id=at, block_hash=None, is_null=at == 0, references=0) for at in range(BLOCKS)]
        for block, key in hashes.items():
            self.blocks[block].block_hash = key

    def touch(self, blocks):
        for block in blocks:
            block.references += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.references -= 1


class Engine:
    """Both sides, and a cache of bytes."""

    def __init__(self, path, kind="full", window=0, capacity=8, timeout=30.0):
        self.group = _groups.Group(0, ("0", "1"), PAGE, 4, kind, window, capacity)
        self.hashes = [bytes([at]) * 32 for at in range(8)]
        self.keys = [self.group.key(each) for each in self.hashes]
        self.pool = Pool({at + 1: self.keys[at] for at in range(6)})
        random = np.random.default_rng(1)
        self.memory = [random.integers(0, 256, (BLOCKS, PAGE), dtype=np.uint8) for _ in range(2)]
        shape = kvmem.Shape(num_blocks=BLOCKS, num_layers=2, page_size=1, inner_dim=PAGE, dtype="uint8", outer_dim=1, order="L/BC")
        regions = [kvmem.Region.adopt(layer) for layer in self.memory]
        cache = kvmem.Layout.of_regions(shape, regions)
        for region in regions:
            region.close()
        self.folder = os.path.join(path, "engine-0/group-0-rank-0")
        self.store = BlockStore(self.folder, shape_of(capacity, 2, PAGE, "BLC"), IDENTITY, timeout)
        self.worker = OffloadWorker([cache], [self.store], 0)
        self.scheduler = OffloadScheduler([self.group], 1)
        self.scheduler.opened(0, self.store.keys())
        self.scheduler.bind(self.pool)

    def step(self, *scheduled):
        """A step in which one request has these blocks, and ends."""
        made = self.scheduler.step({"s": scheduled} if scheduled else {})
        self.scheduler.finished("s")
        if made.clears:
            self.worker.clear()
        for load in made.loads:
            self.worker.load(load)
        self.worker.store(made.puts, None)
        while self.worker._runs or self.worker._waiting or self.worker._clearing:
            self.poll()
        self.scheduler.report(self.worker.take_report())
        return made

    def poll(self):
        """Waits for what moves, and for a removal of all blocks."""
        for moving in self.worker._runs:
            moving.run.wait()
        if self.worker._remover is not None:
            self.worker._remover.join()
        self.worker.poll()

    def matched(self, num_tokens=30, num_computed=0):
        return self.scheduler.matched("r", self.hashes, num_tokens, num_computed)

    def load(self, blocks, num_tokens, num_computed=0):
        """Loads these blocks, of which vLLM has the first ones already."""
        assert self.matched(num_computed=num_computed) >= num_tokens
        self.scheduler.allocated("r", self.hashes, (blocks,), num_tokens)
        return self.step()

    def slot(self, number):
        return next(entry.slot for entry in self.store._store if entry.key == self.keys[number])

    def damage(self, number):
        """Inverts a bit of a block in the file."""
        with open(os.path.join(self.folder, "blocks.0"), "r+b") as file:
            file.seek(self.slot(number) * STRIDE + PAGE + 5)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))

    def close(self):
        self.worker.close()
        self.scheduler.close()


@pytest.fixture
def engine(tmp_path):
    made = Engine(tmp_path)
    yield made
    made.close()


def test_blocks_are_stored_once_and_come_back(engine):
    assert engine.matched() == 0
    assert [put.blocks for put in engine.step([1, 2, 3, 4]).puts] == [[1, 2, 3, 4]]
    assert not engine.step([1, 2, 3, 4]).puts and not engine.scheduler.is_busy
    assert all(not block.references for block in engine.pool.blocks)
    assert engine.matched() == 16
    assert engine.matched(num_tokens=16) == 12  # the last token is computed
    made = engine.load([1, 2, 9, 10], 8, num_computed=8)
    assert [part.blocks for part in made.loads[0].parts] == [[9, 10]]
    for layer in engine.memory:
        assert (layer[9] == layer[3]).all() and (layer[10] == layer[4]).all()
    assert not engine.worker.failed_blocks
    assert engine.worker.counters["loaded_bytes"] == 2 * 2 * PAGE and engine.worker.counters["stored_bytes"] == 4 * 2 * PAGE


def test_the_blocks_of_a_sequence_are_stored_as_one(engine):
    engine.step([1, 2])
    put = engine.step([1, 2, 3, 4]).puts[0]
    assert put.blocks == [3, 4] and put.parent == engine.keys[1]
    assert {entry.key: entry.parent for entry in engine.store._store} == dict(zip(engine.keys[:4], [None, *engine.keys[:3]]))


def test_the_next_engine_loads_what_the_last_one_has_stored(tmp_path):
    engine = Engine(tmp_path)
    engine.step([1, 2, 3, 4])
    engine.close()
    engine = Engine(tmp_path)
    engine.load([7, 8, 9, 10], 16)
    for layer in engine.memory:
        assert (layer[7:11] == layer[1:5]).all()
    engine.close()


def test_an_engine_that_is_killed_leaves_its_blocks(tmp_path):
    script = (
        "import sys, os, signal; sys.path[:0] = sys.argv[2:]\n"
        "from test_vllm import Engine\n"
        "engine = Engine(sys.argv[1]); engine.step([1, 2, 3, 4]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path, os.path.dirname(__file__)], timeout=60, env=os.environ, stderr=subprocess.PIPE)
    assert done.returncode == -9, done.stderr
    engine = Engine(tmp_path)
    engine.load([7, 8, 9, 10], 16)
    for layer in engine.memory:
        assert (layer[7:11] == layer[1:5]).all()
    engine.close()


def test_a_damaged_block_is_reported_and_not_loaded_again(engine):
    engine.step([1, 2, 3, 4])
    engine.damage(2)
    engine.load([7, 8, 9, 10], 16)
    assert engine.worker.failed_blocks == {9} and engine.worker.failed_requests == {"r"}
    assert engine.matched() == 8  # not 16 again, for ever
    assert engine.worker.counters["damaged_blocks"] == 1 and engine.worker.counters["loaded_blocks"] == 3
    assert [put.blocks for put in engine.step([1, 2, 3, 4]).puts] == [[3]]  # it is computed again, and stored again
    assert engine.matched() == 16


def test_blocks_that_the_store_has_evicted_are_no_longer_asked_for(tmp_path):
    engine = Engine(tmp_path, capacity=2)
    engine.step([1, 2])
    assert engine.matched() == 8
    engine.step([0, 0, 3, 4])
    assert engine.matched() == 0 and len(engine.store) == 2
    engine.close()


def test_a_block_that_is_gone_when_it_is_loaded_fails_the_load(engine):
    engine.step([1, 2, 3])
    assert engine.matched() == 12
    engine.store._store.remove([engine.keys[1]])
    engine.load([7, 8, 9], 12)
    assert engine.worker.failed_blocks == {8, 9} and engine.worker.failed_requests == {"r"}
    assert engine.matched() == 4


def test_after_a_reset_nothing_is_loaded_and_blocks_with_the_same_keys_are_stored_anew(engine):
    engine.step([1, 2])
    engine.scheduler.clear()
    assert engine.matched() == 0
    assert engine.scheduler.is_busy  # vLLM then steps without a request: an engine that ends before would leave the blocks
    engine.step()
    assert len(engine.store) == 0 and not engine.scheduler.is_busy
    engine.memory[0][1] += 1  # the weights have changed
    engine.step([1, 2])
    engine.load([7, 8], 8)
    assert (engine.memory[0][7] == engine.memory[0][1]).all()


def test_what_moves_during_a_reset_is_not_stored_after_it(engine):
    engine.step([1, 2])
    engine.scheduler.allocated("r", engine.hashes, ([7, 8],), 8 * bool(engine.matched()))
    engine.worker.load(engine.scheduler.step({}).loads[0])
    engine.scheduler.clear()
    engine.worker.clear()
    engine.scheduler._clears = False
    put = engine.scheduler.step({"s": ([3],)})
    engine.worker.store(put.puts, None)  # the store still has what must go
    while engine.worker._clearing:
        engine.poll()
    engine.scheduler.report(engine.worker.take_report())
    assert len(engine.store) == 0 and engine.matched() == 0 and not engine.scheduler.is_busy
    assert engine.worker.counters["failed_stores"] == 1


def test_no_step_waits_for_a_file_system_that_hangs_during_a_reset(engine):
    engine.step([1, 2])
    responds, remove = threading.Event(), engine.store.remove
    engine.store.remove = lambda keys: responds.wait(60) and remove(keys)
    engine.scheduler.clear()
    engine.worker.clear()
    engine.scheduler._clears = False
    for _ in range(3):  # steps
        assert engine.worker.poll() == (set(), set()) and engine.worker._clearing and len(engine.store) == 2
    engine.worker.store(engine.scheduler.step({"s": ([3],)}).puts, None)
    assert not engine.worker._runs and engine.worker.counters["failed_stores"] == 1
    responds.set()
    engine.step()
    assert len(engine.store) == 0 and engine.matched() == 0 and not engine.worker._clearing
    engine.step([1, 2])
    assert len(engine.store) == 2 and engine.matched() == 8


@pytest.mark.parametrize("waits_for", ["the disk", "a slot", "the GPU"])
def test_what_is_not_stored_yet_at_a_reset_is_not_stored_after_it(engine, waits_for):
    """Blocks of the weights before would be loaded later, with right checksums."""
    reached, put = [waits_for != "the GPU"], engine.store.put
    event = types.SimpleNamespace(query=lambda: reached[0])

    def busy(*arguments, **more):
        raise kvmem.Busy("all slots are in use")

    if waits_for == "a slot":
        engine.worker.store(engine.scheduler.step({"s": ([1],)}).puts, None)
        engine.store.put = busy
    engine.worker.store(engine.scheduler.step({"s": ([1, 2],)}).puts, event)
    assert len(engine.worker._runs) == (waits_for != "the GPU")
    engine.store.put = put
    engine.scheduler.clear()
    engine.step()
    reached[0] = True
    engine.step()
    assert len(engine.store) == 0 and engine.matched() == 0 and not engine.scheduler.is_busy
    assert all(not block.references for block in engine.pool.blocks)
    engine.memory[0][1] += 1  # the weights have changed
    engine.step([1, 2])
    engine.load([7, 8], 8)
    assert (engine.memory[0][7] == engine.memory[0][1]).all() and not engine.worker.failed_blocks


def test_a_report_from_before_a_reset_that_comes_after_it_is_taken_back(engine):
    engine.step([1, 2])
    late = ReportData(stored={0: set(engine.keys[:2])})
    engine.scheduler.clear()
    engine.scheduler.report(late)
    engine.step()
    assert engine.matched() == 0
    assert [put.blocks for put in engine.step([1, 2]).puts] == [[1, 2]]


def test_a_put_without_a_free_slot_begins_when_a_run_has_ended(engine):
    put, refusals = engine.store.put, [kvmem.Busy("all slots are in use")] * 2

    def busy(*arguments, **more):
        if len(engine.worker._runs) and refusals:
            raise refusals.pop()
        return put(*arguments, **more)

    engine.worker.store(engine.scheduler.step({"s": ([1],)}).puts, None)
    engine.store.put = busy
    engine.worker.store(engine.scheduler.step({"s": ([1, 2],)}).puts, None)
    engine.worker.store(engine.scheduler.step({"s": ([1, 2, 3],)}).puts, None)
    assert len(engine.worker._runs) == 1 and engine.pool.blocks[2].references == 1
    engine.step()
    assert len(engine.store) == 3 and "failed_stores" not in engine.worker.counters and not engine.scheduler.is_busy

    def pinned(*arguments, **more):
        raise kvmem.Busy("all slots are pinned")

    engine.store.put = pinned
    engine.step([1, 2, 3, 4])  # no run is left that could end
    assert engine.worker.counters["failed_stores"] == 1 and not engine.scheduler.is_busy


def test_a_put_that_waits_for_the_file_system_ends_at_the_timeout_and_others_do_not_wait(tmp_path, monkeypatch, caplog):
    engine, limits, put = Engine(tmp_path, timeout=7.0), [], kvmem.Store.put

    def hung(*arguments, run_timeout=None, **more):
        limits.append(run_timeout)
        raise kvmem.TimedOut("evict blocks of a store: the file system has not responded in time")

    monkeypatch.setattr(kvmem.Store, "put", hung)
    engine.step([1])
    engine.step([1, 2])
    assert limits == [7.0] and engine.worker.counters["failed_stores"] == 3 and not engine.scheduler.is_busy
    assert caplog.text.count("no blocks are stored for") == 1
    monkeypatch.setattr(kvmem.Store, "put", put)
    engine.worker._pause.until = 0.0
    engine.step([1, 2])
    assert len(engine.store) == 2
    engine.close()


class TooLate:
    """A run that has ended at its deadline: the file system does not respond."""

    def poll(self):
        raise kvmem.TimedOut("the run has not ended in time")

    def close(self):
        pass


def test_after_a_put_whose_run_was_late_others_are_not_tried_for_a_while(tmp_path, caplog):
    engine, puts = Engine(tmp_path), []
    put = engine.store.put

    def late(cache, keys, *arguments, **more):
        puts.append(keys)
        return kvmem.StoreRun(TooLate(), len(keys))

    engine.store.put = late
    engine.step([1])
    engine.step([1, 2])
    assert len(puts) == 1 and engine.worker.counters["failed_stores"] == 3 and not engine.scheduler.is_busy
    assert caplog.text.count("no blocks are stored for") == 1
    engine.store.put, engine.worker._pause.until = put, 0.0
    engine.step([1, 2])
    assert len(engine.store) == 2
    engine.close()


class Late:
    """A run that only a cancel ends."""

    cancelled = closed = False

    def poll(self):
        if self.cancelled:
            raise kvmem.Cancelled("cancelled")
        return False

    def cancel(self):
        self.cancelled = True

    def close(self):
        self.closed = True


def test_a_load_that_takes_too_long_is_cancelled_and_its_blocks_are_reported_when_it_has_ended(tmp_path):
    engine, late = Engine(tmp_path), Late()
    engine.step([1, 2])
    engine.store._timeout = 1e-9
    engine.store.get = lambda *arguments: kvmem.StoreRun(late, 2)
    assert engine.matched() == 8
    engine.scheduler.allocated("r", engine.hashes, ([7, 8],), 8)
    engine.worker.load(engine.scheduler.step({}).loads[0])
    assert not engine.worker.poll()[1] and late.cancelled and not engine.worker.failed_blocks
    assert engine.worker.poll()[1] == {"r"} and engine.worker.failed_blocks == {7, 8} and late.closed
    engine.scheduler.report(engine.worker.take_report())
    assert not engine.matched()
    engine.close()


def two_ranks():
    group = _groups.Group(0, ("0",), PAGE, 4, "full", 0, 8)
    scheduler, key = OffloadScheduler([group], 2), group.key(bytes(32))
    pool = Pool({1: key})
    scheduler.bind(pool)
    return scheduler, pool, key, scheduler.step({"s": ([1],)}).puts[0].number


def test_a_put_of_two_ranks_is_complete_when_both_have_reported():
    scheduler, pool, key, number = two_ranks()
    report = ReportData({number: {1}}, {1: {key}})
    scheduler.report(report)
    assert scheduler.is_busy and not scheduler.matched("r", [bytes(32)], 30, 0) and pool.blocks[1].references == 1
    report = ReportData({number: {0}}, {0: {key}})
    scheduler.report(report)
    assert not scheduler.is_busy and scheduler.matched("r", [bytes(32)], 30, 0) == 4 and not pool.blocks[1].references
    scheduler.report(ReportData(removed={1: {key}}))
    assert not scheduler.matched("r", [bytes(32)], 30, 0)
    assert scheduler.step({"t": ([1],)}).puts[0].keys == [key]


def test_a_block_is_kept_until_the_rank_that_has_not_failed_has_read_it():
    scheduler, pool, key, number = two_ranks()
    merged = ReportData({number: {0}})
    scheduler.report(merged)
    assert pool.blocks[1].references == 1 and scheduler.is_busy
    other = ReportData(stored={1: {key}})
    other.merge(ReportData({number: {1}}))
    scheduler.report(other)
    assert not pool.blocks[1].references and not scheduler.matched("r", [bytes(32)], 30, 0)


def test_more_blocks_than_the_store_has_are_stored_step_by_step(tmp_path):
    engine = Engine(tmp_path, capacity=2)
    made = engine.scheduler.step({"s": ([1, 2, 3],)})
    assert [put.blocks for put in made.puts] == [[1, 2]]
    assert [put.blocks for put in engine.scheduler.step({"s": ([1, 2, 3],)}).puts] == [[3]]
    engine.close()


@pytest.mark.parametrize(
    ("kind", "stored", "wanted", "loaded"), [("window", [0, 0, 3, 4], [0, 0, 9, 10], [9, 10]), ("state", [0, 0, 0, 4], [0, 0, 0, 10], [10])]
)
def test_of_a_window_or_a_state_only_the_last_blocks_are_needed(tmp_path, kind, stored, wanted, loaded):
    engine = Engine(tmp_path, kind, 6)
    engine.step(stored)  # the blocks before them are freed
    assert engine.matched(num_tokens=16) == 0  # they are not those of a shorter prefix
    made = engine.load(wanted, 16)
    assert [part.blocks for part in made.loads[0].parts] == [loaded]
    assert all((layer[loaded] == layer[stored[-len(loaded) :]]).all() for layer in engine.memory)
    engine.close()

# SPDX-License-Identifier: Apache-2.0
"""kvmem.vllm without vLLM: its settings, its index, and both sides of the offload over real layouts. The demo runs it in vLLM."""

import types

import numpy as np
import pytest

import kvmem
from kvmem._blocks._files import store_layout
from kvmem._blocks._index import Folder, Index, check_identity
from kvmem.vllm import _config, _groups
from kvmem.vllm._metadata import ReportData
from kvmem.vllm._scheduler import OffloadScheduler
from kvmem.vllm._worker import OffloadWorker

IDENTITY = {"model": "a", "block size": "32"}
BLOCKS, PAGE = 12, 64


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"pth": "x", "capacity_gib": 1}, "'pth', which is no setting; known are path, capacity_gib"),
        ({"path": "x"}, "capacity_gib is not set"),
        ({"capacity_gib": "1"}, "capacity_gib is '1': set a number"),
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


def stored(index, *keys):
    for key in keys:
        slot = index.reserve(key)
        index.commit(slot, (7, 8))


def test_the_least_recently_used_block_is_evicted_unless_it_is_pinned():
    index = Index(2)
    stored(index, b"a", b"b")
    pinned = index.pin(b"a")
    index.pin(b"b")
    assert index.reserve(b"c") is None  # all are pinned
    index.unpin(index.pin(b"b").slot)
    index.unpin(1)
    stored(index, b"c")
    assert b"a" in index and b"c" in index and b"b" not in index
    index.unpin(pinned.slot)


def test_a_forgotten_block_keeps_its_slot_while_it_is_read():
    index = Index(1)
    stored(index, b"a")
    slot = index.pin(b"a").slot
    index.forget(slot)
    assert b"a" not in index and index.reserve(b"b") is None
    index.unpin(slot)
    assert index.reserve(b"b") == slot


def test_a_slot_that_was_not_written_is_free_again():
    index = Index(1)
    slot = index.reserve(b"a")
    assert index.knows(b"a") and b"a" not in index
    index.abandon(slot)
    assert not index.knows(b"a") and index.reserve(b"b") == slot


def test_an_index_is_read_by_the_next_engine_of_the_same_identity_only(tmp_path):
    folder = Folder(str(tmp_path), IDENTITY)
    with pytest.raises(ValueError, match="another engine uses the folder"):
        Folder(str(tmp_path), IDENTITY)
    index = Index(3, folder.file)
    stored(index, b"a", b"b", b"c")
    index.forget(index.pin(b"b").slot)
    folder.commit()
    folder.close()
    with pytest.raises(ValueError, match="of an engine with block size 32, not 64: set another path"):
        Folder(str(tmp_path), IDENTITY | {"block size": "64"})
    with pytest.raises(ValueError, match="of an engine with block size 32, not 64: set another path"):
        check_identity(str(tmp_path), IDENTITY | {"block size": "64"})
    check_identity(str(tmp_path), IDENTITY)
    check_identity(str(tmp_path / "none"), IDENTITY)
    folder = Folder(str(tmp_path), IDENTITY)
    again = Index(3, folder.file)
    assert len(again) == 2 and again.pin(b"a").checksums == (7, 8) and b"b" not in again
    folder.close()


def test_an_index_that_cannot_be_written_raises_nothing_and_does_not_use_a_slot_twice(tmp_path):
    folder = Folder(str(tmp_path), IDENTITY)
    index = Index(2, folder.file)
    stored(index, b"a", b"b")
    folder.commit()
    folder.file.execute("PRAGMA query_only = 1")  # each write fails, as on a full disk
    assert index.reserve(b"c") is None and b"a" in index  # the file still says that its slot has it
    slot = index.pin(b"b").slot
    index.forget(slot)
    index.unpin(slot)
    assert b"b" not in index and index.reserve(b"c") is None
    folder.commit()
    folder.file.execute("PRAGMA query_only = 0")
    folder.close()
    folder = Folder(str(tmp_path), IDENTITY)
    assert len(Index(2, folder.file)) == 2
    folder.close()


def test_a_block_that_the_index_file_does_not_take_is_known_to_this_process(tmp_path):
    folder = Folder(str(tmp_path), IDENTITY)
    index = Index(2, folder.file)
    folder.file.execute("PRAGMA query_only = 1")
    stored(index, b"a")
    folder.commit()
    assert b"a" in index
    folder.file.execute("PRAGMA query_only = 0")
    folder.close()


def test_a_damaged_index_is_one_sentence(tmp_path):
    (tmp_path / "index.sqlite").write_bytes(b"nothing that sqlite knows" * 100)
    with pytest.raises(ValueError, match="cannot be read .*: remove the folder, or set another path"):
        Folder(str(tmp_path), IDENTITY)


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

    def __init__(self, kind="full", window=0, capacity=8, verify=True, timeout=30.0):
        self.group = _groups.Group(0, ("0", "1"), PAGE, 4, kind, window, capacity)
        self.hashes = [bytes([at]) * 32 for at in range(8)]
        self.scheduler = OffloadScheduler([self.group], None, 1)
        self.pool = Pool({at + 1: self.group.key(self.hashes[at]) for at in range(6)})
        self.scheduler.bind(self.pool)
        random = np.random.default_rng(1)
        self.memory = [random.integers(0, 256, (BLOCKS, PAGE), dtype=np.uint8) for _ in range(2)]
        shape = kvmem.Shape(num_blocks=BLOCKS, num_layers=2, page_size=1, inner_dim=PAGE, dtype="uint8", outer_dim=1, order="L/BC")
        regions = [kvmem.Region.adopt(layer) for layer in self.memory]
        self.cache = kvmem.Layout.of_regions(shape, regions)
        for region in regions:
            region.close()
        self.store = store_layout(capacity, 2, PAGE, b"", None, False)
        self.worker = OffloadWorker([self.cache], [self.store], 0, verify, timeout)

    def step(self, *scheduled):
        """A step in which one request has these blocks, and ends."""
        made = self.scheduler.step({"s": scheduled} if scheduled else {})
        self.scheduler.finished("s")
        for load in made.loads:
            self.worker.load(load)
        self.worker.store(made.stores, None)
        done = set()
        while self.worker._runs or self.worker._waiting:
            for moving in self.worker._runs:
                try:
                    moving.run._transfer.wait(30)
                except kvmem.Error:
                    pass  # poll reports it
            done |= self.worker.poll()[1]
        self.scheduler.report(self.worker.take_report())
        for request in done:
            self.scheduler.received(request)
        return made

    def close(self):
        self.worker.close()
        self.scheduler.close()


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.close()


def test_blocks_are_stored_once_and_come_back(engine):
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 0
    assert len(engine.step([1, 2, 3, 4]).stores) == 4
    assert not engine.step([1, 2, 3, 4]).stores and not engine.scheduler.stores_in_flight
    assert all(not block.references for block in engine.pool.blocks)
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 16
    assert engine.scheduler.matched("r", engine.hashes, 16, 0) == 12  # the last token is computed
    assert engine.scheduler.matched("r", engine.hashes, 30, 8) == 8
    engine.scheduler.allocated("r", engine.hashes, ([1, 2, 9, 10],), 8)
    assert [copy.block for copy in engine.step().loads[0].copies] == [9, 10]
    for layer in engine.memory:
        assert (layer[9] == layer[3]).all() and (layer[10] == layer[4]).all()
    assert not engine.worker.failed_blocks


def test_a_damaged_block_is_reported_and_not_loaded_again(engine):
    engine.step([1, 2, 3, 4])
    slot = engine.scheduler._indexes[0].pin(engine.group.key(engine.hashes[2]))
    engine.scheduler._indexes[0].unpin(slot.slot)
    np.from_dlpack(engine.store.tensor())[slot.slot, 1, 5] ^= 1
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 16
    engine.scheduler.allocated("r", engine.hashes, ([7, 8, 9, 10],), 16)
    engine.step()
    assert engine.worker.failed_blocks == {9} and engine.worker.failed_requests == {"r"}
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 8  # not 16 again, for ever
    assert engine.worker.counters["damaged_blocks"] == 1
    assert [copy.block for copy in engine.step([1, 2, 3, 4]).stores] == [3]  # it is computed again, and stored again
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 16


def test_a_block_that_is_evicted_between_the_question_and_the_load_fails_the_load(engine):
    engine.step([1, 2])
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 8
    engine.scheduler.clear()
    engine.scheduler.allocated("r", engine.hashes, ([7, 8],), 8)
    engine.step()
    assert engine.worker.failed_blocks == {7, 8} and engine.worker.failed_requests == {"r"}


def test_a_load_that_takes_too_long_is_cancelled_and_its_blocks_are_reported_when_it_has_ended():
    class Late:
        """A run that only a cancel ends."""

        cancelled = closed = False

        def submit(self, pairs, **options):
            return self

        def poll(self):
            if self.cancelled:
                raise kvmem.Cancelled("cancelled")
            return False

        def cancel(self):
            self.cancelled = True

        def close(self):
            self.closed = True

    engine = Engine(timeout=1e-9)
    engine.step([1, 2])
    late = Late()
    engine.worker._movers[0]._idle[False] = [late]
    engine.scheduler.matched("r", engine.hashes, 30, 0)
    engine.scheduler.allocated("r", engine.hashes, ([7, 8],), 8)
    engine.worker.load(engine.scheduler.step({}).loads[0])
    assert not engine.worker.poll()[1] and late.cancelled and not engine.worker.failed_blocks
    assert engine.worker.poll()[1] == {"r"} and engine.worker.failed_blocks == {7, 8} and late.closed
    engine.scheduler.report(engine.worker.take_report())
    engine.scheduler.received("r")
    assert not engine.scheduler.matched("r", engine.hashes, 30, 0)
    engine.close()


def test_a_store_of_two_ranks_is_complete_when_both_have_reported():
    group = _groups.Group(0, ("0",), PAGE, 4, "full", 0, 8)
    scheduler = OffloadScheduler([group], None, 2)
    key = bytes(32)
    scheduler.bind(Pool({1: group.key(key)}))
    copy = scheduler.step({"s": ([1],)}).stores[0]
    scheduler.report(ReportData(stored={(0, copy.slot): {1: 11}}))
    assert scheduler.stores_in_flight and not scheduler.matched("r", [key], 30, 0)
    scheduler.report(ReportData(stored={(0, copy.slot): {0: 10}}))
    assert not scheduler.stores_in_flight and scheduler.matched("r", [key], 30, 0) == 4
    scheduler.allocated("r", [key], ([3],), 4)
    assert scheduler.step({}).loads[0].copies[0].checksums == (10, 11)


def test_a_block_is_kept_until_the_rank_that_has_not_failed_has_read_it():
    group = _groups.Group(0, ("0",), PAGE, 4, "full", 0, 8)
    scheduler = OffloadScheduler([group], None, 2)
    pool = Pool({1: group.key(bytes(32))})
    scheduler.bind(pool)
    copy = scheduler.step({"s": ([1],)}).stores[0]
    scheduler.report(ReportData(failed={(0, copy.slot): {0}}))
    assert pool.blocks[1].references == 1 and scheduler.stores_in_flight
    scheduler.report(ReportData(stored={(0, copy.slot): {1: 11}}))
    assert not pool.blocks[1].references and not scheduler.matched("r", [bytes(32)], 30, 0)


def test_blocks_for_which_there_was_no_slot_are_stored_later():
    engine = Engine(capacity=2)
    made = engine.scheduler.step({"s": ([1, 2, 3],)})
    assert [copy.block for copy in made.stores] == [1, 2]  # the first ones, because a prefix needs them
    for copy in made.stores:
        engine.scheduler.report(ReportData(stored={(0, copy.slot): {0: 1}}))
    assert [copy.block for copy in engine.scheduler.step({"s": ([1, 2, 3],)}).stores] == [3]
    engine.close()


def test_a_sliding_window_needs_its_last_blocks_only():
    engine = Engine("window", 6)
    engine.step([0, 0, 3, 4])  # the first two are out of the window, and freed
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 16
    engine.scheduler.allocated("r", engine.hashes, ([0, 0, 9, 10],), 16)
    assert [copy.block for copy in engine.step().loads[0].copies] == [9, 10]
    engine.close()


def test_when_the_store_is_full_of_blocks_in_use_nothing_is_stored():
    engine = Engine(capacity=2)
    engine.step([1, 2])
    assert engine.scheduler.matched("r", engine.hashes, 30, 0) == 8
    engine.scheduler.allocated("r", engine.hashes, ([7, 8],), 8)
    assert not engine.scheduler.step({"s": ([3, 4],)}).stores
    engine.close()

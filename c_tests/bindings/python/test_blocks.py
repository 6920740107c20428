# SPDX-License-Identifier: Apache-2.0
"""What the adapters of engines have in common, and the parts of kvmem.lmcache that do not need LMCache."""

import os
import select
import threading

import numpy as np
import pytest

import kvmem
from kvmem._blocks._files import shape_of, store_layout
from kvmem._blocks._run import Mover
from kvmem._blocks._store import BlockStore
from kvmem.lmcache._objects import ObjectStore, form_of, key_of, parse
from kvmem.lmcache._tasks import Copy, Lane

SIZE, BLOCKS = 512, 8


@pytest.fixture
def slots():
    with store_layout(BLOCKS, 1, SIZE, b"", None, False) as layout:
        yield layout


@pytest.fixture
def lane():
    made = Lane()
    yield made
    if not made.queue.closed:
        made.close(10)


def readable(lane):
    return bool(select.select([lane.fd], [], [], 10)[0])


def moved(lane, memory, slots, slot, stores, checksum=None):
    """Copies one object as LMCache sees it: it polls the fd, reads it, and then asks."""
    ended = []
    copy = Copy(memory, slots, b"", lane.queue, stores)
    lane.start(copy, slot, stores, checksum, 10.0, ended.append)
    while not ended:
        assert readable(lane)
        os.eventfd_read(lane.fd)
        lane.collect()
    assert ended == [copy]
    return copy


def test_objects_move_to_slots_and_back_although_the_engine_reads_the_fd(slots, lane):
    source, destination = np.arange(SIZE, dtype=np.uint16).view(np.uint8)[:SIZE].copy(), np.zeros(SIZE, np.uint8)
    copy = moved(lane, source, slots, 3, True)
    checksum = copy.checksum()
    assert copy.error is None and copy.size == SIZE
    copy.close()
    copy = moved(lane, destination, slots, 3, False, checksum)
    assert copy.error is None and (source == destination).all()
    copy.close()
    copy = moved(lane, destination, slots, 3, False, checksum ^ 1)
    assert isinstance(copy.error, kvmem.Corrupt)
    copy.close()


def test_a_late_copy_ends_when_it_no_longer_uses_the_memory(slots, lane):
    ended = []
    copy = Copy(np.zeros(SIZE, np.uint8), slots, b"", lane.queue, True)
    kind = kvmem.CompletionKind
    late = kvmem.Completion(kind.RUN_ENDED, None, None, kvmem.Status.TIMED_OUT, 0, 0, False)
    copy._report(late, ended.append)
    assert not ended and isinstance(copy.error, kvmem.TimedOut)
    copy._report(kvmem.Completion(kind.MEMORY_RELEASED, None, None, kvmem.Status.OK, 0, 0, True), ended.append)
    assert ended == [copy] and isinstance(copy.error, kvmem.TimedOut)
    copy.close()


def test_a_result_that_is_found_while_another_one_is_asked_for_makes_the_fd_readable(lane):
    lane.finish(7, "seven")
    assert readable(lane)
    os.eventfd_read(lane.fd)
    assert lane.take(8) is None and lane.take(7) == "seven" and lane.take(7) is None
    lane.finish(9, "nine")
    assert readable(lane) and lane.take_all() == {9: "nine"} and not lane.take_all()


def test_a_lane_that_is_closed_ends_its_copies(slots, lane):
    ended = []
    copies = [Copy(np.zeros(SIZE, np.uint8), slots, b"", lane.queue, True) for _ in range(4)]
    for slot, copy in enumerate(copies):
        lane.start(copy, slot, True, None, 10.0, ended.append)
    lane.close(10)
    assert set(ended) == set(copies) and lane.queue.closed
    for copy in copies:
        copy.close()


class Memory:
    """An object of LMCache as far as its form is concerned."""

    def __init__(self, size, shapes, dtypes):
        self.get_size, self.get_shapes, self.get_dtypes = lambda: size, lambda: shapes, lambda: dtypes


def test_the_form_of_an_object_is_its_size_shape_and_type():
    forms = {
        form_of(Memory(*each))
        for each in [(64, [(2, 16)], ["bf16"]), (64, [(16, 2)], ["bf16"]), (64, [(2, 16)], ["f16"]), (32, [(2, 16)], ["bf16"])]
    }
    assert len(forms) == 4


def test_the_first_object_decides_the_size_of_slots_and_the_next_process_knows_it(tmp_path):
    config = parse({"path": str(tmp_path), "capacity_gib": 2**-14})
    objects = ObjectStore(config)
    assert objects.index is None
    assert objects.prepare(5000) is objects.prepare(100) and objects.block_bytes == 8192
    with pytest.raises(ValueError, match="an object has 9,000 bytes, and slots have 8,192: set block_bytes to at least 9,000"):
        objects.prepare(9000)
    objects.close()
    objects = ObjectStore(config)
    assert objects.block_bytes == 8192 and objects.index is not None
    assert objects.slots(100).info.block_stride == objects.slots(8192).info.block_stride == 8192
    objects.close()


def test_threads_that_store_the_same_blocks_get_each_slot_once():
    store = BlockStore(64, None, reports_removed=True)
    keys = [bytes([at]) for at in range(100)]
    taken = []

    def work():
        slots, _ = store.reserve(keys)
        taken.append(list(slots.values()))
        store.commit({slot: (1,) for slot in slots.values()})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    status = store.status()
    assert status["blocks"] == status["capacity_blocks"] == 64
    assert sum(store.has(keys)) == 64 and len(taken) == 4
    assert all(len(set(slots)) == len(slots) for slots in taken)
    store.delete(keys)
    assert store.status()["blocks"] == 0 and store.take_removed() and not store.take_removed()


def test_a_run_reports_the_damaged_blocks_only(slots):
    memory = np.random.default_rng(1).integers(0, 256, (BLOCKS, SIZE), dtype=np.uint8)
    with kvmem.Region.adopt(memory) as region:
        cache = kvmem.Layout.of_regions(shape_of(BLOCKS, 1, SIZE, "L/BC", b""), [region])
    mover = Mover(cache, slots, 30.0)
    run = mover.store([(block, block) for block in range(4)])
    run.wait()
    sums = run.checksums()
    assert run.ended() and run.error is None and not run.lost() and run.bytes == 4 * SIZE
    run.close()
    sums[2] ^= 1
    run = mover.load([(slot, slot + 4) for slot in range(4)], sums)
    run.wait()
    assert run.is_damaged and run.lost() == [2]
    assert (memory[4] == memory[0]).all() and (memory[7] == memory[3]).all()
    run.close()
    mover.close()


def test_the_key_of_an_object_has_all_that_names_it():
    class Key:
        chunk_hash, model_name, kv_rank, object_group_id, cache_salt = b"\1", "a", 1, 0, ""

    class Other(Key):
        cache_salt = "tenant"

    class Group(Key):
        object_group_id = 1

    assert len({key_of(Key), key_of(Other), key_of(Group)}) == 3 and len(key_of(Key)) == 32

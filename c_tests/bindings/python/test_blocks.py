# SPDX-License-Identifier: Apache-2.0
"""What the adapters of engines have in common, and the parts of kvmem.lmcache that do not need LMCache."""

import errno
import os
import select
import socket
import threading
import types

import numpy as np
import pytest

import kvmem
from kvmem._blocks import _store
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore
from kvmem.lmcache._objects import Objects, form_of, key_of, parse
from kvmem.lmcache._tasks import Copy, Lane
from kvmem.sglang._pages import PageStore
from kvmem.sglang._shared import ServedPages, SharedPages

SIZE, BLOCKS = 512, 8
KEY = bytes(32)


def opened(path, capacity=BLOCKS, timeout=30.0):
    return BlockStore(str(path / "store"), shape_of(capacity, 1, SIZE, "BLC"), {"engine": "none"}, timeout)


@pytest.fixture
def store(tmp_path):
    made = opened(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lane():
    made = Lane()
    yield made
    if not made.queue.closed:
        made.close(10)


def readable(lane):
    return bool(select.select([lane.fd], [], [], 10)[0])


def not_late(error):
    raise AssertionError(f"a run still uses the memory after its end: {error}")


def moved(lane, memory, put_or_get, key=KEY):
    """Copies one object as LMCache sees it: it polls the fd, reads it, and then asks."""
    ended = []
    copy = Copy(memory)
    if not lane.start(copy, put_or_get, key, 10.0, ended.append, not_late):
        return None
    while not ended:
        assert readable(lane)
        os.eventfd_read(lane.fd)
        lane.collect()
    assert ended == [copy]
    copy.close()
    return copy


def test_objects_move_to_a_store_and_back_although_the_engine_reads_the_fd(tmp_path, store, lane):
    source, destination = np.arange(SIZE, dtype=np.uint16).view(np.uint8)[:SIZE].copy(), np.zeros(SIZE, np.uint8)
    assert moved(lane, destination, store.get) is None
    copy = moved(lane, source, store.put)
    assert copy.error is None and copy.size == SIZE
    assert moved(lane, source, store.put) is None
    copy = moved(lane, destination, store.get)
    assert copy.error is None and (source == destination).all()
    with open(tmp_path / "store/blocks.0", "r+b") as file:
        file.write(b"?")
    copy = moved(lane, destination, store.get)
    assert isinstance(copy.error, kvmem.Corrupt)
    assert moved(lane, destination, store.get) is None and not lane._copies


def test_a_late_copy_ends_when_it_no_longer_uses_the_memory():
    ended, late = [], []
    copy = Copy(np.zeros(SIZE, np.uint8))
    kind = kvmem.CompletionKind
    timed_out = kvmem.Completion(kind.RUN_ENDED, None, None, kvmem.Status.TIMED_OUT, 0, 0, False)
    copy._report(timed_out, ended.append, late.append)
    assert not ended and len(late) == 1 and isinstance(late[0], kvmem.TimedOut)
    copy._report(kvmem.Completion(kind.MEMORY_RELEASED, None, None, kvmem.Status.OK, 0, 0, True), ended.append, late.append)
    assert ended == [copy] and isinstance(copy.error, kvmem.TimedOut) and len(late) == 1
    copy.close()


def test_a_result_that_is_found_while_another_one_is_asked_for_makes_the_fd_readable(lane):
    lane.finish(7, "seven")
    assert readable(lane)
    os.eventfd_read(lane.fd)
    assert lane.take(8) is None and lane.take(7) == "seven" and lane.take(7) is None
    lane.finish(9, "nine")
    assert readable(lane) and lane.take_all() == {9: "nine"} and not lane.take_all()


def test_a_lane_that_is_closed_ends_its_copies(store, lane):
    ended = []
    copies = [Copy(np.zeros(SIZE, np.uint8)) for _ in range(4)]
    for at, copy in enumerate(copies):
        assert lane.start(copy, store.put, bytes([at]) * 32, 10.0, ended.append, not_late)
    lane.close(10)
    assert set(ended) == set(copies) and lane.queue.closed
    for copy in copies:
        copy.close()


def test_a_copy_that_cannot_start_leaves_nothing(store, lane):
    copy = Copy(np.zeros(SIZE, np.uint8))
    with pytest.raises(kvmem.InvalidArgument):
        lane.start(copy, store.put, b"short", 10.0, lambda copy: None, not_late)
    assert not lane._copies and copy._layout.closed


def test_the_form_of_an_object_is_its_shapes_and_types():
    forms = {form_of(*each) for each in [([(2, 16)], ["bf16"]), ([(16, 2)], ["bf16"]), ([(2, 16)], ["f16"]), ([(2, 16)] * 2, ["bf16"] * 2)]}
    assert len(forms) == 4


def test_objects_of_each_size_and_form_have_a_store_which_the_next_process_finds(tmp_path):
    config = parse({"path": str(tmp_path), "capacity_gib": 2**-12, "object_kinds": 4})
    objects = Objects(config)
    assert not objects.of() and objects.found(5000, "a") is None
    store = objects.prepare(5000, "a")
    assert objects.prepare(5000, "a") is store and store.capacity == 8
    assert len({store, objects.prepare(5000, "b"), objects.prepare(100, "a")}) == 3
    with pytest.raises(ValueError, match="capacity_gib has 65,536 bytes for each of 4 kinds, and an object needs 69,632: set more"):
        objects.prepare(66000, "a")
    objects.close()
    objects = Objects(config)
    assert len(objects.of()) == 3 and len(objects.of("a")) == 2 and objects.found(5000, "b") is not None
    assert objects.status() == {"blocks": 0, "capacity_blocks": 8 + 8 + 16}
    objects.close()


def layout(count=BLOCKS):
    memory = np.random.default_rng(1).integers(0, 256, (count, SIZE), dtype=np.uint8)
    with kvmem.Region.adopt(memory) as region:
        return memory, kvmem.Layout.of_regions(shape_of(count, 1, SIZE, "L/BC"), [region])


def keys(*numbers):
    return [number.to_bytes(4, "big") * 8 for number in numbers]


def test_a_run_reports_the_damaged_blocks_only(tmp_path, store):
    memory, cache = layout()
    run = store.run(store.put(cache, keys(0, 1, 2, 3), [0, 1, 2, 3]))
    run.wait()
    assert run.ended() and run.error is None and not run.lost() and run.bytes == 4 * SIZE
    run.close()
    slot = next(entry.slot for entry in store._store if entry.key == keys(2)[0])
    with open(tmp_path / "store/blocks.0", "r+b") as file:
        file.seek(slot * 4096)
        file.write(bytes([memory[2][0] ^ 1]))
    run = store.run(store.get(cache, keys(0, 1, 2, 3), [4, 5, 6, 7]))
    run.wait()
    assert run.is_damaged and run.lost() == [2]
    assert (memory[4] == memory[0]).all() and (memory[7] == memory[3]).all()
    run.close()
    cache.close()


def test_what_a_store_evicts_vanishes_for_its_owner(store):
    memory, cache = layout(12)
    for at in range(12):
        store.put(cache, keys(at), [at]).wait()
        store.note(keys(at))
    assert len(store) == store.capacity == BLOCKS
    assert sorted(store.vanished()) == keys(0, 1, 2, 3) and not store.vanished()
    assert store.remove(keys(4, 5)) == [] and len(store) == 6 and not store.vanished()
    cache.close()


def test_an_owner_of_many_blocks_looks_at_them_after_many_evictions(tmp_path):
    store = opened(tmp_path, 256)
    memory, cache = layout(256)
    store.put(cache, keys(*range(256)), list(range(256))).wait()
    store.note(keys(*range(256)))
    found, number = [], 256
    while not found:
        store.put(cache, keys(number), [0]).wait()
        number += 1
        evicted = store._store.info.num_evicted
        found = store.vanished()
        assert bool(found) == (evicted > 256 // 64)
    assert set(found) == set(keys(*range(256))) - set(store.keys()) and len(found) == evicted
    store.close()
    cache.close()


def test_a_pinned_block_stays(store):
    memory, cache = layout(12)
    store.put(cache, keys(0), [0]).wait()
    store.pin(keys(0))
    store.put(cache, keys(*range(1, 8)), list(range(1, 8))).wait()
    store.put(cache, keys(9), [9]).wait()
    assert store.has(keys(0, 1, 9)) == [True, False, True]
    store.unpin(keys(0))
    store.put(cache, keys(10), [10]).wait()
    assert store.has(keys(0)) == [False]
    cache.close()


def test_the_key_of_an_object_has_all_that_names_it():
    class Key:
        chunk_hash, model_name, kv_rank, object_group_id, cache_salt = b"\1", "a", 1, 0, ""

    class Other(Key):
        cache_salt = "tenant"

    class Group(Key):
        object_group_id = 1

    assert len({key_of(Key), key_of(Other), key_of(Group)}) == 3 and len(key_of(Key)) == 32


def test_a_task_that_ends_after_the_close_writes_to_no_other_file():
    """The number of the fd may be that of another file then."""
    lane, other = Lane(), os.eventfd(0, os.EFD_NONBLOCK)
    number = lane.fd
    lane.finish(1, "result")
    lane.close(1)
    try:
        os.dup2(other, number)
        lane.finish(2, "late")
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
        assert lane.take_all() == {1: "result", 2: "late"}
    finally:
        os.close(number)
        os.close(other)


def test_blocks_that_are_removed_one_by_one_have_one_timeout(monkeypatch):
    now, limits = [0.0], []

    def remove(keys, timeout):
        limits.append(timeout)
        now[0] += min(timeout, 20.0)
        raise kvmem.Busy("a get reads one of them") if len(keys) > 1 else kvmem.TimedOut("the file system does not respond")

    monkeypatch.setattr(_store, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    store = object.__new__(BlockStore)
    store.__dict__.update(_timeout=30.0, _store=types.SimpleNamespace(remove=remove))
    assert store.remove([b"a", b"b", b"c"]) == [b"a", b"b", b"c"]
    assert limits == [30.0, 10.0, 0, 0]


class StuckStore:
    """A store whose pages are read while it is cleared."""

    def __init__(self):
        self.left = [b"page"]

    def keys(self):
        return self.left

    def remove(self, keys):
        return list(keys)

    def put(self, *_, **__):
        raise AssertionError("a page moves while the store is cleared")

    get = put


def test_pages_that_a_clear_does_not_reach_are_reported_and_none_move_meanwhile():
    """Pages of the weights before would be found later."""
    pages = PageStore.__new__(PageStore)
    pages.pool, pages.parts, pages._stores = types.SimpleNamespace(logical_page_size=1), [None], [StuckStore()]
    pages._timeout, pages._counters, pages._state, pages._moving, pages._clearing = 0.01, {}, threading.Condition(), 0, False
    with pytest.raises(kvmem.Busy, match="1 of those before are stored further"):
        pages.clear()
    pages._stores[0].left = []
    pages.clear()
    pages._moving = 1
    with pytest.raises(kvmem.Busy, match="pages still move"):
        pages.clear()
    pages._moving, pages._clearing = 0, True
    assert pages.set(["a"], np.zeros(1, np.int64)) == [False] and pages.load(["a"], [None], [0]) == [False]
    assert pages._moving == 0 and pages._counters == {"failed_stores": 1, "failed_loads": 1}


def test_a_page_that_is_set_during_a_clear_is_not_stored_after_it():
    """It may be from before the clear."""
    pages, results = PageStore.__new__(PageStore), []
    store = StuckStore()
    pages.pool, pages.parts, pages._stores = types.SimpleNamespace(logical_page_size=1), [None], [store]
    pages._timeout, pages._counters, pages._state, pages._moving, pages._clearing = 60.0, {}, threading.Condition(), 0, False
    late = threading.Thread(target=lambda: results.append(pages.set(["a"], np.zeros(1, np.int64))))

    def remove(keys):
        late.start()
        late.join(5)
        return []

    store.remove = remove
    pages.clear()
    late.join(60)
    assert results == [[False]]


class Pool:
    """Pages of one token."""

    logical_page_size = 1


@pytest.fixture
def shared():
    """The pages of another rank, whose end of the connection is `other`."""
    made = object.__new__(SharedPages)
    made.__dict__.update(pool=Pool(), _timeout=30.0, _lock=threading.Lock(), _counting=threading.Lock(), _counters={}, _parts=[], _buffers=[])
    made._connection, made.other = socket.socketpair()
    with made.other:
        yield made
        made._drop()


def test_counters_of_a_rank_do_not_wait_for_the_rank_that_it_asks(shared):
    counted = []
    asking = threading.Thread(target=shared.get, args=(["a"], np.array([0])), daemon=True)
    asking.start()
    shared.other.recv(1)  # it has asked, and waits for the reply
    counting = threading.Thread(target=lambda: counted.append(shared.status()), daemon=True)
    counting.start()
    counting.join(20)
    shared.other.shutdown(socket.SHUT_RDWR)
    asking.join(60)
    assert counted == [{}]


def test_a_reply_that_was_not_taken_is_not_the_reply_to_the_next_request(shared, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(shared, "_take", interrupted)
    shared.other.sendall(bytes([1, 1, 1]))
    with pytest.raises(KeyboardInterrupt):
        shared.get(["a"], np.array([0]))
    assert shared._connection is None


def test_a_rank_is_served_after_the_system_had_no_descriptor_for_it():
    served, served_by = socket.socketpair()
    steps = [OSError(errno.EMFILE, "too many open files"), (served, None)]

    class Listener:
        def accept(self):
            step = steps.pop(0) if steps else OSError(errno.EBADF, "closed")
            if isinstance(step, OSError):
                raise step
            return step

    serving = object.__new__(ServedPages)
    serving.__dict__.update(parts=[], _listener=Listener(), _connections={}, _closed=threading.Event(), _state=threading.Condition(), _timeout=30.0)
    thread = threading.Thread(target=serving._accept, daemon=True)
    thread.start()
    with served_by:
        served_by.settimeout(20)
        served_by.sendall(b"\xff" * 5)
        assert served_by.recv(1) == b""  # what is no request ends the connection
    serving._closed.set()
    thread.join(60)
    assert not thread.is_alive()

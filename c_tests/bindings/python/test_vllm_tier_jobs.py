# SPDX-License-Identifier: Apache-2.0
"""The jobs of KvmemSecondaryTierManager, without vLLM: chunks of its host memory in a store. test_vllm_tier.py has vLLM's own manager."""

import mmap
import signal
import threading

import numpy as np
import pytest
from conftest import DEADLINE, HERE, start

import kvmem
from kvmem._blocks._run import ReportedRun
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore
from kvmem.vllm import _config
from kvmem.vllm._tier_jobs import Chain, Positions, TierJobs

SIZE, CHUNKS = 4096, 8


def key(number, group=0):
    return number.to_bytes(32, "big") + group.to_bytes(4, "big")


def content(number):
    return np.random.default_rng(number).integers(-128, 128, SIZE, dtype=np.int8)


def opened(path, memory, capacity=16, timeout=30.0, **how):
    store = BlockStore(str(path / "tier"), shape_of(capacity, 1, SIZE, "BLC"), {"engine": "none"}, timeout, **how)
    return TierJobs(memoryview(memory), store, timeout)


@pytest.fixture
def memory():
    """Chunks with the contents 0 to 7."""
    return np.stack([content(number) for number in range(CHUNKS)])


@pytest.fixture
def tier(tmp_path, memory):
    made = opened(tmp_path, memory)
    yield made
    made.close()


def done(tier, count=1):
    tier.drain()
    found = tier.finished()
    assert len(found) == count and not tier._jobs
    return found[0]


def stored(tier, *numbers, parent=None):
    tier.submit_store(1, [Chain([key(number) for number in numbers], [number % CHUNKS for number in numbers], parent)])
    return done(tier)


def loaded(tier, memory, *numbers):
    """Loads chunks into the last ones of the memory, which are cleared before. What is reported has its bytes."""
    chunks = [CHUNKS - 1 - at for at in range(len(numbers))]
    memory[chunks] = 0
    tier.submit_load(2, [key(number) for number in numbers], chunks)
    result = done(tier)
    for number, chunk in zip(numbers, chunks):
        assert (key(number) in result.good) == (memory[chunk] == content(number)).all()
    return result


WRITER = """
import sys, pathlib
sys.path.insert(0, {here!r})
import test_vllm_tier_jobs as tests
memory = tests.np.stack([tests.content(number) for number in range(tests.CHUNKS)])
tier = tests.opened(pathlib.Path(sys.argv[1]), memory)
assert not tests.stored(tier, 0, 1, 2).lost
print("stored", flush=True)
sys.stdin.read()
"""


def test_chunks_of_an_engine_that_was_killed_are_loaded_into_other_chunks(tmp_path, memory):
    child = start(WRITER.format(here=str(HERE)), tmp_path)
    assert child.stdout.readline() == "stored\n"
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=DEADLINE / 2)
    tier = opened(tmp_path, memory)
    result = loaded(tier, memory, 0, 1, 2)
    assert result.good == [key(0), key(1), key(2)] and not result.lost and result.bytes == 3 * SIZE
    assert not tier.store.has([key(3)])[0]
    tier.close()


def test_chunks_that_are_stored_are_not_written_again(tier):
    assert stored(tier, 0, 1).bytes == 2 * SIZE
    again = stored(tier, 0, 1)
    assert again.good == [key(0), key(1)] and not again.lost and again.bytes == 0
    assert stored(tier, 1, 2).bytes == SIZE


def test_a_damaged_chunk_is_lost_and_those_beside_it_are_loaded(tmp_path, tier, memory):
    assert not stored(tier, 0, 1, 2).lost
    (slot,) = [entry.slot for entry in tier.store._store if entry.key == key(1)]
    with open(tmp_path / "tier/blocks.0", "r+b") as file:
        file.seek(slot * SIZE)
        file.write(bytes(byte ^ 0x80 for byte in content(1).tobytes()))
    result = loaded(tier, memory, 0, 1, 2)
    assert (result.good, result.lost, result.bytes) == ([key(0), key(2)], [key(1)], 2 * SIZE)
    assert tier.store.has([key(0), key(1), key(2)]) == [True, False, True]


def test_a_chunk_that_was_evicted_meanwhile_is_lost_and_those_beside_it_are_loaded(tmp_path, memory):
    tier = opened(tmp_path, memory, capacity=3)
    for number in (1, 0, 2):
        assert not stored(tier, number).lost
    assert tier.store.has([key(0), key(1), key(2)]) == [True] * 3  # what vLLM sees
    assert not stored(tier, 3).lost
    result = loaded(tier, memory, 0, 1, 2)
    assert (result.good, result.lost) == ([key(0), key(2)], [key(1)])
    tier.close()


def test_more_chunks_than_the_store_has_slots_are_not_stored(tmp_path, memory, caplog):
    tier = opened(tmp_path, memory, capacity=3)
    result = stored(tier, 0, 1, 2, 3)
    assert result.lost == [key(number) for number in range(4)] and not result.good
    assert "4 chunks are not stored" in caplog.text and "slots" in caplog.text
    assert not stored(tier, 0, 1, 2).lost
    tier.close()


# ---- positions ----


def positions(*numbers, step=16, group=0):
    made = Positions({group.to_bytes(4, "big"): step})
    made.learn({key(number, group): (number + 1) * step for number in numbers})
    return made


def test_chunks_follow_each_other_in_the_order_of_the_request_whatever_the_order_of_the_job():
    chains = positions(*range(6)).chains([key(4), key(1), key(2), key(5)], [40, 10, 20, 50])
    assert chains == [Chain([key(1), key(2)], [10, 20], key(0)), Chain([key(4), key(5)], [40, 50], key(3))]


def test_groups_have_positions_of_their_own():
    made = Positions({key(0)[-4:]: 16, key(0, 1)[-4:]: 32})
    made.learn({key(0): 16, key(1): 32, key(0, 1): 32})
    made.learn({key(0): 16, key(1): 32, key(0, 1): 32, key(1, 1): 64})
    chains = made.chains([key(1, 1), key(1), key(0, 1), key(0)], [3, 1, 2, 0])
    assert chains == [Chain([key(0), key(1)], [0, 1]), Chain([key(0, 1), key(1, 1)], [2, 3])]


def test_a_part_of_a_chunk_follows_the_last_whole_one_and_an_unknown_key_begins_a_sequence():
    made = positions(0, 1)
    ends = {key(0): 16, key(1): 32, key(7): 40}
    made.learn(ends)
    assert made.chains([key(7), key(9)], [0, 1]) == [Chain([key(9)], [1]), Chain([key(7)], [0], key(1))]


def test_the_last_chunks_of_a_prefix_are_evicted_before_its_head(tmp_path, memory):
    tier, order = opened(tmp_path, memory, capacity=4), positions(*range(4))
    for job in ([1, 0], [3, 2]):  # two steps of a request; the second one follows the first
        tier.submit_store(1, order.chains([key(number) for number in job], job))
        assert not done(tier).lost
    assert not stored(tier, 7).lost
    assert tier.store.has([key(number) for number in range(4)]) == [True, True, True, False]
    tier.close()


# ---- threads and ends ----


class Held:
    """A call that waits for the file system until it is released."""

    def __init__(self, call):
        self._call, self.begun, self.go, self.count = call, threading.Event(), threading.Event(), 0

    def __call__(self, *arguments, **more):
        self.count += 1
        self.begun.set()
        assert self.go.wait(DEADLINE / 2)
        return self._call(*arguments, **more)


def test_a_put_that_waits_for_the_file_system_delays_no_load_and_no_call(tier, memory):
    assert not stored(tier, 0).lost
    tier.store.put = held = Held(tier.store.put)
    tier.submit_store(1, [Chain([key(1)], [1])])
    assert held.begun.wait(DEADLINE / 2)
    tier.submit_load(2, [key(0)], [7])
    loads = []
    while not loads:  # the put waits meanwhile
        loads = tier.finished()
    assert [load.number for load in loads] == [2] and (memory[7] == content(0)).all() and not tier.store.has([key(1)])[0]
    held.go.set()
    assert done(tier).good == [key(1)]


def test_draining_waits_for_jobs_that_have_not_started(tier):
    tier.store.put = held = Held(tier.store.put)
    for number in (1, 2):
        tier.submit_store(number, [Chain([key(number)], [number])])
    drained = threading.Event()
    thread = threading.Thread(target=lambda: (tier.drain(), drained.set()))
    thread.start()
    assert held.begun.wait(DEADLINE / 2) and not drained.is_set()
    held.go.set()
    thread.join(DEADLINE / 2)
    assert drained.is_set() and sorted(ended.number for ended in tier.finished()) == [1, 2]


def test_closing_ends_what_has_started_and_drops_the_rest(tmp_path, memory):
    tier = opened(tmp_path, memory)
    tier.store.put = held = Held(tier.store.put)
    for number in (1, 2):
        tier.submit_store(number, [Chain([key(number)], [number])])
    assert held.begun.wait(DEADLINE / 2)
    closed = threading.Thread(target=tier.close)
    closed.start()
    second = tier._jobs[2].starting
    while not second.cancelled():  # the close has dropped it; it waits for the first one
        assert closed.is_alive()
    held.go.set()
    closed.join(DEADLINE / 2)
    assert not closed.is_alive() and held.count == 1
    tier = opened(tmp_path, memory)
    assert tier.store.has([key(1), key(2)]) == [True, False] and not loaded(tier, memory, 1).lost
    tier.close()


def test_chunks_in_flight_at_the_close_are_found_by_the_next_engine_or_missing(tmp_path, memory):
    tier = opened(tmp_path, memory, capacity=64)
    for number in range(64):
        tier.submit_store(number, [Chain([key(number)], [number % CHUNKS])])
    tier.close()
    chunks = np.zeros((64, SIZE), np.int8)
    tier = opened(tmp_path, chunks, capacity=64)
    present = [number for number in range(64) if tier.store.has([key(number)])[0]]
    if present:
        tier.submit_load(1, [key(number) for number in present], present)
        assert not done(tier).lost
    for number in present:
        assert (chunks[number] == content(number % CHUNKS)).all()
    tier.close()


def test_the_owner_can_release_its_view_at_any_time_and_unmap_the_memory_after_the_close(tmp_path):
    mapping = mmap.mmap(-1, CHUNKS * SIZE)
    view = memoryview(np.frombuffer(mapping, np.int8).reshape(CHUNKS, SIZE))
    store = BlockStore(str(tmp_path / "tier"), shape_of(CHUNKS, 1, SIZE, "BLC"), {"engine": "none"}, 30.0)
    tier = TierJobs(view, store, 30.0)
    assert not stored(tier, 0, 1).lost
    view.release()  # raises BufferError if that view is used
    del view
    tier.close()
    mapping.close()  # raises BufferError while anything uses it


def test_a_late_put_ends_when_it_no_longer_reads_the_memory():
    kind, run = kvmem.CompletionKind, ReportedRun(lambda **how: kvmem.StoreRun(Unended(), 1), queue=None, timeout=1.0)
    assert not run.ended()
    run._report(kvmem.Completion(kind.RUN_ENDED, None, None, kvmem.Status.TIMED_OUT, 0, 0, False))
    assert not run.ended()
    run._report(kvmem.Completion(kind.MEMORY_RELEASED, None, None, kvmem.Status.OK, 0, 0, True))
    assert run.ended() and isinstance(run.error, kvmem.TimedOut) and run.lost() == [0]


class Unended:
    """A transfer in flight."""


def test_after_a_put_that_was_late_others_are_not_tried_for_a_while(tier, caplog):
    put, calls = tier.store.put, []

    def late(*arguments, **more):
        calls.append(arguments)
        raise kvmem.TimedOut("evict blocks of a store: the file system has not responded in time")

    tier.store.put = late
    assert stored(tier, 0).lost == [key(0)] and stored(tier, 1).lost == [key(1)]
    assert len(calls) == 1 and "no blocks are stored for 300 s" in caplog.text
    tier._pause.until, tier.store.put = 0.0, put
    assert not stored(tier, 0).lost


class Stuck(Unended):
    """One whose file system does not respond. It moves nothing."""

    def close(self):
        pass


def test_while_a_put_uses_its_chunk_after_the_timeout_no_others_are_tried(tier, caplog):
    put, reports, kind = tier.store.put, [], kvmem.CompletionKind

    def stuck(*arguments, user_data, **more):
        reports.append(user_data)
        return kvmem.StoreRun(Stuck(), 1)

    tier.store.put = stuck
    tier.submit_store(1, [Chain([key(1)], [1])])
    tier._jobs[1].starting.result()
    assert not tier.finished()
    reports[0](kvmem.Completion(kind.RUN_ENDED, None, None, kvmem.Status.TIMED_OUT, 0, 0, False))
    assert not tier.finished() and "no blocks are stored for 300 s" in caplog.text
    tier.submit_store(2, [Chain([key(2)], [2])])
    tier._jobs[2].starting.result()
    assert [(ended.number, ended.lost) for ended in tier.finished()] == [(2, [key(2)])] and len(reports) == 1
    tier._pause.until = 0.0
    assert not tier.finished() and tier._pause.until > 0.0  # it is still stuck
    reports[0](kvmem.Completion(kind.MEMORY_RELEASED, None, None, kvmem.Status.OK, 0, 0, True))
    assert done(tier).lost == [key(1)]
    tier._pause.until, tier.store.put = 0.0, put
    assert not stored(tier, 1).lost


def test_after_the_close_a_job_is_refused_and_draining_ends(tmp_path, memory):
    tier = opened(tmp_path, memory)
    tier.close()
    with pytest.raises(RuntimeError, match="shutdown"):
        tier.submit_load(1, [key(0)], [0])
    tier.drain()


def test_a_reader_loads_what_another_engine_stores(tmp_path, memory):
    writer = opened(tmp_path, memory)
    assert not stored(writer, 0).lost
    own = np.zeros((CHUNKS, SIZE), np.int8)
    reader = opened(tmp_path, own, capacity=0, read_only=True)
    assert reader.store.capacity == 16 and not loaded(reader, own, 0).lost
    assert not stored(writer, 1, 2).lost
    assert not loaded(reader, own, 2, 1).lost and reader.store.has([key(1), key(2)]) == [True, True]
    writer.close()
    assert not loaded(reader, own, 1).lost
    reader.close()


# ---- settings ----


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "path is not set: set it to the folder"),
        ({"path": "/nowhere"}, "capacity_gib is not set: set it to the GiB that blocks may have per engine"),
        ({"path": "/nowhere", "capacity_gib": "1"}, "capacity_gib is '1': set a number"),
        ({"path": "/nowhere", "capacity_gib": 1, "root_dir": "/x"}, "an entry of secondary_tiers has 'root_dir', which is no setting; known are path, capacity_gib"),
        ({"path": "/nowhere", "capacity_gib": 1, "timeout_seconds": 0}, "timeout_seconds is 0.0: set a number of seconds above 0"),
        ({"path": "/nowhere", "capacity_gib": 1, "read_only": True}, "read_only and capacity_gib are set, .*: remove one"),
        ({"path": "/nowhere", "capacity_gib": 1, "read_only": 1}, "read_only is 1: set true or false"),
        ({"read_only": True}, "path is not set"),
        ({"path": "/nowhere", "capacity_gib": 1, "locality": "near"}, "locality is 'near': set LOCAL or REMOTE, or remove it"),
    ],
)
def test_a_mistake_in_the_settings_of_the_tier_is_one_sentence(given, message):
    with pytest.raises(ValueError, match=f"^kvmem: {message}") as raised:
        _config.parse_tier(given)
    assert "\n" not in str(raised.value)


def test_settings_that_fit_are_taken():
    made = _config.parse_tier({"path": "/x", "capacity_gib": 2, "locality": "LOCAL", "identity": "r2", "timeout_seconds": 5})
    assert (made.path, made.capacity_gib, made.locality, made.identity, made.timeout_seconds, made.read_only) == ("/x", 2.0, "LOCAL", "r2", 5.0, False)
    assert _config.parse_tier({"path": "/x", "read_only": True}).read_only


def test_a_reader_without_a_store_and_a_second_writer_are_one_sentence(tmp_path, memory):
    with pytest.raises(ValueError, match="^kvmem: there is no folder for the blocks .*: start the engine that writes the blocks first"):
        opened(tmp_path, memory, capacity=0, read_only=True)
    tier = opened(tmp_path, memory)
    with pytest.raises(ValueError, match="^kvmem: another engine uses the folder .* is open for writing in this process.*: set another path, or end that engine"):
        opened(tmp_path, memory)
    tier.close()

# SPDX-License-Identifier: Apache-2.0
"""kvmem.lmcache under LMCache's own storage manager, which has real L1 memory and its controllers' threads. Needs scripts/engine-env.sh lmcache."""

import contextlib
import os
import resource
import select
import threading

import pytest
import torch
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec
from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig
from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.distributed.storage_manager import StorageManager

import kvmem
from kvmem.lmcache._objects import key_of

SHAPE = MemoryLayoutDesc([torch.Size([2, 4, 16, 32])], [torch.bfloat16])
SIZE = 2 * 4 * 16 * 32 * 2
DEADLINE = 30.0


def key(number, model="a/model", group=0, salt=""):
    return ObjectKey(number.to_bytes(32, "big"), model, 0x01000100, group, salt)


@contextlib.contextmanager
def server(folder, **params):
    """A storage manager of LMCache with one adapter."""
    params = {"path": str(folder), "capacity_gib": 2**-14} | params  # 64 KiB: eight objects
    adapter = PluginL2AdapterConfig("kvmem.lmcache", "KvmemL2Adapter", {name: value for name, value in params.items() if value is not None})
    manager = StorageManager(
        StorageManagerConfig(
            l1_manager_config=L1ManagerConfig(L1MemoryManagerConfig(1 << 20, False, shm_name="")),
            eviction_config=EvictionConfig("noop"),
            l2_adapter_config=L2AdaptersConfig([adapter]),
        )
    )
    manager.adapter = manager.l2_adapters()[0][1]
    ends = threading.Semaphore(0)
    finish = manager.adapter._stores.finish

    def finished(number, result):
        manager.results.append(result)
        finish(number, result)
        ends.release()

    manager.results, manager.ends, manager.adapter._stores.finish = [], ends, finished
    try:
        yield manager
    finally:
        manager.close()


def content(number, size=SIZE):
    return torch.arange(size // 2, dtype=torch.int16).mul_(number + 1).view(torch.bfloat16)


def store(manager, *keys, desc=SHAPE):
    """Writes objects to L1, and waits until L2 has them."""
    for each, memory in manager.reserve_write(list(keys), desc).items():
        memory.raw_data[: memory.get_size()].view(torch.bfloat16).copy_(content(int.from_bytes(each.chunk_hash, "big"), memory.get_size()))
    manager.finish_write(list(keys))
    assert manager.ends.acquire(timeout=DEADLINE)
    return manager.results[-1]


def load(manager, *keys, desc=SHAPE):
    """Prefetches objects from L2, and returns how many were loaded. Their bytes are those that were stored."""
    handle = manager.submit_prefetch_task(PrefetchTaskSpec([GroupedObjectKeys(list(keys), keys[0].object_group_id, desc)]))
    assert manager.wait_prefetch_status(handle, DEADLINE)
    result = manager.query_prefetch_status(handle)
    hits = result.hit_cells[0].popcount()
    if hits:
        with manager.read_prefetched_results(list(keys[:hits]), result.l1_owners) as found:
            for each, memory in zip(keys, found):
                number = int.from_bytes(each.chunk_hash, "big")
                assert torch.equal(memory.raw_data[:SIZE].view(torch.int16), content(number).view(torch.int16))
        manager.finish_read_prefetched(list(keys[:hits]))
    return result.l2_hit_count


def test_objects_are_stored_and_the_next_server_loads_them(tmp_path):
    keys = [key(number) for number in range(4)]
    with server(tmp_path) as manager:
        result = store(manager, *keys)
        assert result.is_successful() and result.bytes_transferred() == 4 * SIZE
        assert manager.adapter.report_status()["stored_blocks"] == 4
        assert manager.adapter.get_usage().total_bytes_used == 4 * SIZE
    with server(tmp_path) as manager:
        assert load(manager, *keys) == 4
        assert manager.adapter.report_status()["loaded_blocks"] == 4
        assert load(manager, key(9)) == 0
        assert not manager.adapter._locked


def test_keys_differ_by_model_group_and_salt(tmp_path):
    with server(tmp_path) as manager:
        store(manager, key(1))
    with server(tmp_path) as manager:
        for other in (key(1, "b/model"), key(1, group=1), key(1, salt="tenant")):
            assert load(manager, other) == 0
        assert load(manager, key(1)) == 1


def test_an_object_of_another_type_is_a_miss(tmp_path):
    with server(tmp_path) as manager:
        store(manager, key(1))
    with server(tmp_path) as manager:
        assert load(manager, key(1), desc=MemoryLayoutDesc(SHAPE.shapes, [torch.float16])) == 0
        assert load(manager, key(1)) == 1


def test_a_damaged_object_is_a_miss_and_the_ones_before_it_are_loaded(tmp_path):
    keys = [key(number) for number in range(4)]
    with server(tmp_path) as manager:
        store(manager, *keys)
        (opened,) = manager.adapter._objects.of()
        slot = next(entry.slot for entry in opened._store if entry.key == key_of(keys[2]))
    (file,) = tmp_path.glob("objects-*/blocks.0")
    with file.open("r+b") as stream:
        stream.seek(slot * 8192 + 100)
        byte = stream.read(1)
        stream.seek(slot * 8192 + 100)
        stream.write(bytes([byte[0] ^ 1]))
    with server(tmp_path) as manager:
        assert load(manager, *keys) == 2
        assert manager.adapter.report_status()["damaged_blocks"] == 1
        (opened,) = manager.adapter._objects.of()
        assert opened.has([key_of(each) for each in keys]) == [True, True, False, True]


def test_a_full_store_evicts_what_was_used_least_recently(tmp_path):
    with server(tmp_path) as manager:
        for number in range(10):
            assert store(manager, key(number)).is_successful()
        status = manager.adapter.report_status()
        assert status["blocks"] == status["capacity_blocks"] == 8
        assert manager.adapter.get_usage().total_bytes_used == 8 * SIZE  # LMCache gets the keys of the evicted ones
    with server(tmp_path) as manager:
        assert load(manager, key(0)) == 0 and load(manager, key(9)) == 1


def test_objects_of_other_sizes_have_stores_of_their_own(tmp_path, monkeypatch):
    small = MemoryLayoutDesc([torch.Size([SIZE // 4])], [torch.bfloat16])
    medium = MemoryLayoutDesc([torch.Size([SIZE])], [torch.bfloat16])
    large = MemoryLayoutDesc([torch.Size([10 * SIZE // 2])], [torch.bfloat16])
    with server(tmp_path, capacity_gib=2**-13, object_kinds=2) as manager:
        assert store(manager, key(1)).is_successful()
        assert manager.adapter.report_status()["capacity_blocks"] == 8  # of 16: the other half is for another size
        said = []
        monkeypatch.setattr(manager.adapter, "_say", said.append)
        assert not store(manager, key(3, group=2), desc=large).is_successful()
        assert "capacity_gib has 65,536 bytes for each of 2 kinds, and an object needs 81,920: set more" in said[0]
        assert store(manager, key(2, group=1), desc=small).is_successful()
        assert not store(manager, key(4, group=3), desc=medium).is_successful()
        assert "capacity_gib is shared by object_kinds = 2 sizes and types, which there are: set object_kinds to more" in said[1]
        assert manager.adapter.report_status()["failed_stores"] == 2
    assert len(list(tmp_path.glob("objects-*"))) == 2
    with server(tmp_path, capacity_gib=2**-13, object_kinds=2) as manager:
        assert load(manager, key(1)) == 1


def test_memory_that_is_not_of_the_host_starts_nothing(tmp_path):
    class OnGpu:
        @property
        def byte_array(self):
            raise NotImplementedError("there are no bytes of the host")

    with server(tmp_path) as manager:
        store(manager, key(1))
        for submit in (manager.adapter.submit_store_task, manager.adapter.submit_load_task):
            with pytest.raises(NotImplementedError):
                submit([key(1)], [OnGpu()])
            with pytest.raises(NotImplementedError):
                submit([key(2)], [OnGpu()])
        assert not manager.adapter._locked and not manager.adapter._stores._copies and not manager.adapter._loads._copies


def test_deleted_objects_are_gone(tmp_path):
    with server(tmp_path) as manager:
        store(manager, key(1), key(2))
        manager.adapter.delete([key(1)])
        assert manager.adapter.get_usage().total_bytes_used == SIZE
    with server(tmp_path) as manager:
        assert load(manager, key(1)) == 0 and load(manager, key(2)) == 1


def test_an_object_stays_until_each_lock_of_it_has_ended(tmp_path):
    with server(tmp_path) as manager:
        store(manager, key(0))
        adapter = manager.adapter
        for _ in range(2):
            adapter.submit_lookup_and_lock_task([key(0)], {0: SHAPE})
        adapter.submit_unlock([key(0)])
        for number in range(1, 10):
            store(manager, key(number))
        (opened,) = adapter._objects.of()
        assert opened.has([key_of(key(0)), key_of(key(1))]) == [True, False]
        adapter.submit_unlock([key(0)])
        for number in range(10, 20):
            store(manager, key(number))
        assert opened.has([key_of(key(0))]) == [False] and not adapter._locked


def test_two_servers_cannot_use_one_folder(tmp_path):
    with server(tmp_path):
        with pytest.raises(ValueError, match="another engine uses the folder .*: set another path"):
            with server(tmp_path):
                pass


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"capacity_gib": None}, "capacity_gib is not set"),
        ({"object_kinds": 0}, "object_kinds is 0: set a whole number from 1 to 64"),
        ({"object_kinds": 1.5}, "object_kinds is 1.5: set a whole number"),
        ({"capacity": 3}, "adapter_params has 'capacity', which is no setting; known are path, capacity_gib"),
        ({"path": None}, "path is not set: set it to the folder"),
        ({"path": 7}, "path is 7: set a text"),
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path, params, message):
    with pytest.raises(ValueError, match="^kvmem: ") as raised:
        with server(tmp_path, **params):
            pass
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_another_identity_or_capacity_is_refused(tmp_path):
    with server(tmp_path, identity="weights 1") as manager:
        store(manager, key(1))
    with pytest.raises(ValueError, match="identity is 'weights 1' in the store and 'weights 2' here.*: set another path"):
        with server(tmp_path, identity="weights 2"):
            pass
    with pytest.raises(ValueError, match="capacity is .6.10352e-05 GiB. in the store and .0.00012207 GiB. here.*: set another path, or remove the folder"):
        with server(tmp_path, identity="weights 1", capacity_gib=2**-13):
            pass


def test_a_store_for_which_there_is_no_space_is_said_once_and_stores_nothing(tmp_path, monkeypatch):
    with server(tmp_path, capacity_gib=2**-9) as manager:
        said = []
        monkeypatch.setattr(manager.adapter, "_say", said.append)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
        try:
            assert not store(manager, key(1)).is_successful()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert "cannot be used" in said[0] and "RLIMIT_FSIZE" in said[0] and "\n" not in said[0]
        assert store(manager, key(2)).is_successful()


class Memory:
    """An object of the host."""

    def __init__(self):
        self.byte_array = memoryview(bytearray(SIZE))

    def get_shapes(self):
        return SHAPE.shapes

    def get_dtypes(self):
        return SHAPE.dtypes


class Stuck:
    """A run whose file system does not respond."""

    def cancel(self):
        pass

    def close(self):
        pass


def test_after_a_store_that_was_late_others_are_not_tried_for_a_while(tmp_path):
    with server(tmp_path) as manager:
        adapter = manager.adapter
        assert store(manager, key(0)).is_successful()
        (opened,) = adapter._objects.of()
        put, reports, kind = opened.put, [], kvmem.CompletionKind

        def waits(*arguments, **more):
            raise kvmem.TimedOut("the file system does not respond")

        def stuck(*arguments, user_data, **more):
            reports.append(user_data)
            return kvmem.StoreRun(Stuck(), 1)

        # Its call was late.
        opened.put = waits
        assert not store(manager, key(1)).is_successful()
        opened.put = put
        assert not store(manager, key(2)).is_successful()
        adapter._pause.until = 0.0
        assert store(manager, key(3)).is_successful()
        # Its run was late, and uses the memory of its object.
        opened.put = stuck
        adapter.submit_store_task([key(4)], [Memory()])
        reports[0](kvmem.Completion(kind.RUN_ENDED, None, None, kvmem.Status.TIMED_OUT, 0, 0, False))
        opened.put = put
        assert not store(manager, key(5)).is_successful() and adapter._stores._copies
        reports[0](kvmem.Completion(kind.MEMORY_RELEASED, None, None, kvmem.Status.OK, 0, 0, True))
        assert manager.ends.acquire(timeout=DEADLINE) and not manager.results[-1].is_successful() and not adapter._stores._copies
        adapter._pause.until = 0.0
        assert store(manager, key(6)).is_successful()


def test_the_event_fds_are_those_of_queues(tmp_path):
    with server(tmp_path) as manager:
        adapter = manager.adapter
        fds = {adapter.get_store_event_fd(), adapter.get_lookup_and_lock_event_fd(), adapter.get_load_event_fd()}
        assert fds == {adapter._stores.queue.fileno(), adapter._lookups.queue.fileno(), adapter._loads.queue.fileno()} and len(fds) == 3
        assert all(os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventfd]" for fd in fds)
        assert not select.select(fds, [], [], 0)[0]

# SPDX-License-Identifier: Apache-2.0
"""kvmem.sglang under SGLang's own host pools and the methods of its cache controller. Needs scripts/engine-env.sh sglang."""

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
import types

import pytest
import torch
from sglang.srt.managers.cache_controller import HiCacheController, PrefetchOperation, StorageOperation
from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo, MLABufferInfo
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage import StorageBackendFactory

from kvmem._blocks._settings import Settings
from kvmem.sglang._pages import name_of
from kvmem.sglang import _shared
from kvmem.sglang._shared import HEADER, LOAD, MAX_OF_PROCESS, SharedPages, _address

LAYERS, HEADS, DIM, PAGE, TOKENS = 3, 2, 16, 4, 64
SIZE = 2 * LAYERS * HEADS * DIM * PAGE * 2
"""Bytes of a page."""


def mha(layout="layer_first", dtype=torch.bfloat16):
    """A host pool of keys and values, beside device buffers on the CPU."""
    device = [torch.zeros(TOKENS, HEADS, DIM, dtype=dtype) for _ in range(2 * LAYERS)]
    pointers = torch.zeros(LAYERS, dtype=torch.uint64)
    buffers = KVBuffers(k=tuple(device[:LAYERS]), v=tuple(device[LAYERS:]), k_data_ptrs=pointers, v_data_ptrs=pointers, layout=KVBufferLayout.NHD)
    info = MHABufferInfo(buffers=buffers, page_size=PAGE, head_num=HEADS, head_dim=DIM, v_head_dim=DIM, dtype=dtype, device=torch.device("cpu"))
    with host_memory_budget_scope(1 << 30):
        pool = MHATokenToKVPoolHost(
            info, 2.0, 0, PAGE, layout, pin_memory=False, device_capacity_tokens=TOKENS, start_layer=0, end_layer=LAYERS
        )
    return filled(pool)


def mla(layout="layer_first"):
    """A host pool of latent vectors."""
    device = tuple(torch.zeros(TOKENS, 1, 24, dtype=torch.bfloat16) for _ in range(LAYERS))
    info = MLABufferInfo(
        buffers=device, data_ptrs=torch.zeros(LAYERS, dtype=torch.uint64), layer_indices=tuple(range(LAYERS)), device_layer_num=LAYERS, page_size=PAGE,
        kv_lora_rank=16, qk_rope_head_dim=8, kv_cache_dim=24, dtype=torch.bfloat16, device=torch.device("cpu"),
    )  # fmt: skip
    with host_memory_budget_scope(1 << 30):
        pool = MLATokenToKVPoolHost(
            info, 2.0, 0, PAGE, layout, pin_memory=False, device_capacity_tokens=TOKENS, start_layer=0, end_layer=LAYERS, target_layer_num=LAYERS
        )
    return filled(pool)


def filled(pool):
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(0, 1 << 15, pool.kv_buffer.shape, generator=generator, dtype=torch.int16)
    pool.kv_buffer.copy_(bits.view(pool.dtype))
    return pool


def config(**changed):
    fields = dict(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False, enable_storage_metrics=False,
        is_page_first_layout=False, model_name="a/model",
    )  # fmt: skip
    return HiCacheStorageConfig(**(fields | changed))


def extra(path, **settings):
    settings = {"path": str(path), "capacity_gib": 2**-14} | settings  # 64 KiB
    return {
        "backend_name": "kvmem", "module_path": "kvmem.sglang", "class_name": "KvmemStorage", "interface_v1": 1,
        "kvmem": {name: value for name, value in settings.items() if value is not None},
    }  # fmt: skip


@contextlib.contextmanager
def controller(path, pool, configuration=None, others=(), **settings):
    """A cache controller of SGLang as far as storage uses it, attached in the order of `attach_storage_backend`."""
    made = HiCacheController.__new__(HiCacheController)
    configuration = configuration or config()
    configuration.extra_config = extra(path, **settings)
    made.storage_backend = StorageBackendFactory.create_backend("dynamic", configuration, pool)
    try:
        made.storage_backend.register_mem_pool_host(pool)
        for name, other in others:
            made.storage_backend.register_mem_host_pool_v2(other, name)
        made.storage_backend.on_host_pools_registered()
        made.storage_host_pool = made.mem_pool_host = pool
        made.page_size, made.prefetch_sync_queue = PAGE, queue.Queue()
        made.page_get_func, made.page_set_func = made._page_get_zero_copy, made._page_set_zero_copy
        yield made
    finally:
        made.storage_backend.close()


def backup(made, tokens, pages):
    """Stores pages, as the backup thread does. Returns their hashes."""
    operation = PrefetchOperation("hash", tokens)
    made._storage_hit_query(operation)
    hashes = operation.all_hash_values
    stored = StorageOperation(indices(pages), tokens, hash_value=hashes)
    made._page_backup(stored)
    return hashes, stored.completed_tokens


def prefetch(made, tokens, pages):
    """Loads pages, as the prefetch threads do. Returns how many tokens were found and loaded."""
    operation = PrefetchOperation("load", tokens)
    operation.hash_value, found = made._storage_hit_query(operation)
    operation.host_indices = indices(pages[: len(operation.hash_value)])
    return found, made._page_transfer(operation) * PAGE


def indices(pages):
    return torch.tensor([page * PAGE + token for page in pages for token in range(PAGE)], dtype=torch.int64)


def page(pool, number):
    """The bits of a page: as numbers some would be unequal to themselves."""
    return pool.get_data_page(number * PAGE).clone().view(torch.int16)


def damage(path, made, key):
    """Inverts a bit of a page in the file of its pieces."""
    (opened,) = made.storage_backend._store("kv")._stores
    slot = next(entry.slot for entry in opened._store if entry.key == name_of(key))
    stride = opened._store.info.slot_size
    (file,) = path.glob("*/pieces-*/blocks.0")
    with file.open("r+b") as stream:
        stream.seek(slot * stride + 7)
        byte = stream.read(1)
        stream.seek(slot * stride + 7)
        stream.write(bytes([byte[0] ^ 1]))


TOKEN_IDS = list(range(100, 100 + 5 * PAGE))
POOLS = [(mha, "layer_first"), (mha, "page_first"), (mha, "page_first_direct"), (mha, "page_head"), (mla, "layer_first"), (mla, "page_first"), (mla, "page_first_direct")]


@pytest.mark.parametrize(("make", "layout"), POOLS)
def test_pages_are_stored_and_the_next_engine_loads_them(tmp_path, make, layout):
    pool = make(layout)
    configuration = config(is_mla_model=make is mla)
    kept = [page(pool, number) for number in (3, 0, 7, 8, 2)]
    with controller(tmp_path, pool, configuration) as made:
        assert prefetch(made, TOKEN_IDS, [10, 11, 12, 13, 14]) == (0, 0)
        assert backup(made, TOKEN_IDS, [3, 0, 7, 8, 2])[1] == 5 * PAGE
        assert backup(made, TOKEN_IDS, [3, 0, 7, 8, 2])[1] == 5 * PAGE  # they are not written again
        assert made.storage_backend.counters()["kv"]["stored_blocks"] == 5
    pool = make(layout)
    others = [page(pool, number) for number in (9, 15, 31)]
    with controller(tmp_path, pool, configuration) as made:
        assert prefetch(made, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, 5 * PAGE)
        assert all(torch.equal(page(pool, 10 + at), each) for at, each in enumerate(kept))
        assert all(torch.equal(page(pool, number), each) for number, each in zip((9, 15, 31), others))
        longer = TOKEN_IDS[: 3 * PAGE] + [1] * PAGE
        assert prefetch(made, longer, [20, 21, 22, 23]) == (3 * PAGE, 3 * PAGE)


def test_a_damaged_page_is_a_miss_and_the_ones_before_it_are_loaded(tmp_path):
    pool = mha("page_first")
    with controller(tmp_path, pool) as made:
        hashes, _ = backup(made, TOKEN_IDS, [0, 1, 2, 3, 4])
        damage(tmp_path, made, hashes[2])
    with controller(tmp_path, pool) as made:
        assert prefetch(made, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, 2 * PAGE)
        assert made.storage_backend.counters()["kv"]["damaged_blocks"] == 1
        assert prefetch(made, TOKEN_IDS, [10, 11, 12, 13, 14]) == (2 * PAGE, 2 * PAGE)  # not tried for ever
        assert backup(made, TOKEN_IDS, [0, 1, 2, 3, 4])[1] == 5 * PAGE
        assert prefetch(made, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, 5 * PAGE)


def test_a_full_store_evicts_what_was_used_least_recently(tmp_path):
    pool = mha()
    capacity = (1 << 16) // SIZE
    with controller(tmp_path, pool) as made:
        for first in range(capacity + 4):
            backup(made, [first] * PAGE, [first % 16])
        status = made.storage_backend.counters()["kv"]
        assert status["blocks"] == status["capacity_blocks"] == capacity
        assert prefetch(made, [0] * PAGE, [20]) == (0, 0)
        assert prefetch(made, [capacity] * PAGE, [20]) == (PAGE, PAGE)


def test_several_pools_share_the_capacity_and_are_found_together(tmp_path):
    pool, states = mha("page_first"), mla("page_first")
    keys = ["a", "b", "c", "d"]
    with controller(tmp_path, pool, others=[(PoolName.KV, pool), (PoolName.INDEXER, states)]) as made:
        storage = made.storage_backend
        assert storage.counters()["kv"]["capacity_blocks"] == storage.counters()["indexer"]["capacity_blocks"] == (1 << 16) // (SIZE + PAGE * LAYERS * 24 * 2)
        stored = [PoolTransfer(PoolName.KV, indices([0, 1, 2, 3]), keys=keys), PoolTransfer(PoolName.INDEXER, indices([4, 5]), keys=keys[:2])]
        assert storage.batch_set_v2(stored) == {PoolName.KV: [True] * 4, PoolName.INDEXER: [True] * 2}
        every = PoolTransfer(PoolName.INDEXER)
        last = PoolTransfer(PoolName.INDEXER, keys=["x"], hit_policy=PoolHitPolicy.TRAILING_PAGES)
        assert storage.batch_exists_v2(keys).kv_hit_pages == 4
        found = storage.batch_exists_v2(keys, [every])
        assert found.kv_hit_pages == 2 and found.extra_pool_hit_pages == {PoolName.KV: 4, PoolName.INDEXER: 2}
        assert storage.batch_exists_v2(keys, [last]).restorable_prefix_pages == [1, 2]
        loaded = [PoolTransfer(PoolName.KV, indices([10, 11]), keys=keys[:2]), PoolTransfer(PoolName.INDEXER, indices([12, 13]), keys=keys[:2])]
        assert all(all(each) for each in storage.batch_get_v2(loaded).values())
        assert torch.equal(page(pool, 11), page(pool, 1)) and torch.equal(page(states, 13), page(states, 5))
        storage.clear()
        assert storage.batch_exists(keys) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity_gib": None}, "capacity_gib is not set"),
        ({"pth": "x"}, "kvmem in --hicache-storage-backend-extra-config has 'pth', which is no setting; known are path"),
        ({"capacity_gib": 1e-9}, f"capacity_gib has 1 bytes, and a page needs {SIZE:,}: set more"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0.0: set a number of seconds above 0"),
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path, settings, message):
    with pytest.raises(ValueError, match="^kvmem: ") as raised:
        with controller(tmp_path, mha(), **settings):
            pass
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        ({"model_name": None}, {}, "gives no name of the model"),
        ({}, {"kvmem": {"capacity_gib": 1}}, "path is not set: set it to the folder"),
        ({}, {"interface_v1": 0}, "interface_v1 is not set: set it to 1"),
        ({}, {"kvmem": None}, 'has no settings of kvmem: set "kvmem"'),
    ],
)
def test_a_wrong_configuration_is_one_sentence(tmp_path, changed, more, message):
    with pytest.raises(ValueError, match="^kvmem: ") as raised:
        StorageBackendFactory.create_backend("dynamic", config(extra_config=extra(tmp_path) | more, **changed), mha())
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_two_engines_cannot_use_one_folder_and_two_ranks_can(tmp_path):
    with controller(tmp_path, mha()):
        with pytest.raises(ValueError, match="another engine uses the folder .*: set another path"):
            with controller(tmp_path, mha()):
                pass
    ranks = tmp_path / "ranks"
    with controller(ranks, mha(), config(tp_size=2)) as first, controller(ranks, mha(), config(tp_size=2, tp_rank=1)) as second:
        backup(first, TOKEN_IDS, [0, 1, 2, 3, 4])
        assert prefetch(second, TOKEN_IDS, [5, 6, 7, 8, 9]) == (0, 0)


def test_ranks_of_mla_load_what_the_first_one_stores(tmp_path):
    first, second = mla("page_first"), mla("page_first")
    kept = [page(first, number) for number in range(5)]
    with controller(tmp_path, second, config(is_mla_model=True, tp_size=2, tp_rank=1)) as reader:
        assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (0, 0)  # there is no file yet
        with controller(tmp_path, first, config(is_mla_model=True, tp_size=2)) as writer:
            hashes, _ = backup(writer, TOKEN_IDS, [0, 1, 2, 3, 4])
            assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, 5 * PAGE)
            assert all(torch.equal(page(second, 10 + at), each) for at, each in enumerate(kept))
            damage(tmp_path, writer, hashes[1])
            assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, PAGE)
            assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (PAGE, PAGE)
            writer.storage_backend.clear()
            assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (0, 0)
            backup(writer, TOKEN_IDS, [0, 1, 2, 3, 4])
        assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (0, 0)  # the first rank has ended
        with controller(tmp_path, first, config(is_mla_model=True, tp_size=2)) as writer:
            assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, 5 * PAGE)
            assert reader.storage_backend.counters()["kv"]["loaded_blocks"] == 15


def test_more_pages_than_are_on_their_way_at_once_arrive(tmp_path):
    first, second = mla("layer_first"), mla("layer_first")
    tokens = list(range(20 * PAGE))
    kept = [page(first, number) for number in range(20)]
    with controller(tmp_path, first, config(is_mla_model=True, tp_size=2)) as writer:
        backup(writer, tokens, list(range(20)))
        with controller(tmp_path, second, config(is_mla_model=True, tp_size=2, tp_rank=1)) as reader:
            assert prefetch(reader, tokens, list(range(31, 11, -1))) == (20 * PAGE, 20 * PAGE)
            assert all(torch.equal(page(second, 31 - at), each) for at, each in enumerate(kept))


def test_what_is_no_request_ends_its_connection_only(tmp_path):
    with controller(tmp_path, mla(), config(is_mla_model=True, tp_size=2)) as writer:
        backup(writer, TOKEN_IDS, [0, 1, 2, 3, 4])
        for request in (HEADER.pack(9, 0), HEADER.pack(1, 1 << 31), HEADER.pack(1, 2) + b"\xff\xff", HEADER.pack(1, 5) + b"cut"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger, _address(str(next(tmp_path.glob("*")))) as address:
                stranger.settimeout(30)
                stranger.connect(address)
                stranger.sendall(request)
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(1) == b""
        with controller(tmp_path, mla(), config(is_mla_model=True, tp_size=2, tp_rank=1)) as reader:
            assert prefetch(reader, TOKEN_IDS, [10, 11, 12, 13, 14]) == (5 * PAGE, 5 * PAGE)


def test_one_process_does_not_take_the_connections_of_others(tmp_path):
    with controller(tmp_path, mla(), config(is_mla_model=True, tp_size=2)) as writer, contextlib.ExitStack() as opened:
        hashes, _ = backup(writer, TOKEN_IDS, [0, 1, 2, 3, 4])
        address = str(next(tmp_path.glob("*/readers")))
        loud = [opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(MAX_OF_PROCESS + 1)]
        for each in loud:
            each.settimeout(30)
            each.connect(address)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            loud[-1].sendall(ask(hashes[:1]))
        with contextlib.suppress(ConnectionResetError):
            assert loud[-1].recv(1) == b""
        loud[0].sendall(ask(hashes[:1]))
        assert loud[0].recv(1) == b"\x01"
        other = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1])\n"
            "s.sendall(bytes.fromhex(sys.argv[2])); print(s.recv(1))"
        )
        done = subprocess.run([sys.executable, "-c", other, address, ask(hashes[:1]).hex()], capture_output=True, text=True, timeout=60)
        assert done.stdout == "b'\\x01'\n", done.stderr


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_processes_of_other_pid_namespaces_are_told_apart(tmp_path, monkeypatch, has_descriptors):
    """The kernel gives such a process the number 0 here."""
    monkeypatch.setattr(_shared, "CREDENTIALS", types.SimpleNamespace(size=12, unpack=lambda data: (0, 0, 0)))
    if not has_descriptors:
        monkeypatch.setattr(_shared, "SO_PEERPIDFD", 1 << 20)
    address, connect = str(tmp_path / "socket"), "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as opened:
        listener.bind(address)
        listener.listen()

        def name():
            connection, _ = listener.accept()
            with connection:
                return _shared._process_of(connection)

        names = []
        for _ in range(2):
            own = opened.enter_context(socket.socket(socket.AF_UNIX))
            own.connect(address)
            names.append(name())
            other = opened.enter_context(subprocess.Popen([sys.executable, "-c", connect, address], stdin=subprocess.PIPE))
            names.append(name())
        assert names[0] == names[2]
        if has_descriptors:
            assert len(set(names)) == 3 and _shared._limit_of(names[0]) == MAX_OF_PROCESS
        else:
            assert set(names) == {_shared.OTHER_NAMESPACES} and MAX_OF_PROCESS < _shared._limit_of(names[0]) < _shared.MAX_CONNECTIONS


def ask(keys):
    text = "\n".join(keys).encode()
    return HEADER.pack(1, len(text)) + text


def test_a_request_that_does_not_arrive_whole_ends_its_connection(tmp_path):
    with controller(tmp_path, mla(), config(is_mla_model=True, tp_size=2), timeout_seconds=0.2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow:
            slow.settimeout(30)
            slow.connect(str(next(tmp_path.glob("*/readers"))))
            slow.sendall(HEADER.pack(1, 5) + b"cut")
            assert slow.recv(1) == b""


def test_a_reply_that_arrives_byte_by_byte_ends_at_the_timeout(tmp_path):
    """Each byte comes in time, and all of them never."""
    pool, ended, sent = mla(), threading.Event(), []
    os.mkdir(tmp_path / "kv")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "kv" / "readers"))
        listener.listen()
        listener.settimeout(30)

        def drip():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                while len(sent) < 600:
                    connection.sendall(b"\x01")
                    sent.append(1)
                    ended.wait(0.1)

        server = threading.Thread(target=drip)
        server.start()
        pages = SharedPages(Settings(path=str(tmp_path), timeout_seconds=0.5), "kv", pool)
        assert pages.get(["a"], indices([0])) == [False]
        ended.set()
        pages.close()
        server.join(30)
        assert len(sent) < 600 and not server.is_alive()


@pytest.mark.parametrize(
    ("pool", "changed", "settings", "message"),
    [
        (lambda: mha(dtype=torch.float16), {}, {}, "dtype is 'torch.bfloat16' in the store and 'torch.float16' here"),
        (lambda: mha("page_first"), {}, {}, "layout is 'layer_first' in the store and 'page_first' here"),
        (mha, {"model_name": "b/model"}, {}, "model is 'a/model' in the store and 'b/model' here"),
        (mha, {}, {"identity": "weights 2"}, "identity is 'none' in the store and 'weights 2' here"),
        (mha, {}, {"capacity_gib": 2**-13}, "capacity is '42 pages'"),
    ],
)
def test_another_identity_is_refused(tmp_path, pool, changed, settings, message):
    with controller(tmp_path, mha()) as made:
        backup(made, TOKEN_IDS, [0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match="kvmem: the folder of blocks cannot be used ") as raised:
        with controller(tmp_path, pool(), config(**changed), **settings):
            pass
    assert message in str(raised.value) and "set another path, or remove the folder" in str(raised.value)

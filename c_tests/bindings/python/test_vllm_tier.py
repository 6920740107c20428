# SPDX-License-Identifier: Apache-2.0
"""KvmemSecondaryTierManager under vLLM's own TieringOffloadingSpec and TieringOffloadingManager, with real host memory, as vLLM's scheduler
calls them. No engine with a GPU is here: the test fills the host memory, which vLLM's workers do otherwise."""

import contextlib
import dataclasses
import gc
import itertools
import logging
import os
import pathlib
import re

import numpy as np
import pytest
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, TierFilter, TierMatcher, Locality, make_offload_key
from vllm.v1.kv_offload.config import OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig, OffloadingParallelConfig
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

import kvmem
from kvmem.vllm import KvmemSecondaryTierManager
from kvmem.vllm._tier import DAMAGED, EVICTED, METRICS, STORED, identity_of

gc.freeze()  # vLLM's modules are not looked at after each case

PAGE = pathlib.Path(__file__).parents[3] / "docs/vllm.md"
SIZE, CHUNKS, TOKENS = 8192, 16, 32
"""Bytes of a chunk of both workers, chunks in host memory, tokens of a chunk."""
PARALLEL = OffloadingParallelConfig(0, 2, 2, 1, 1, 1, 0, 1, None, False)
CONFIG = OffloadingConfig(
    (OffloadingGroupConfig(16, ("layer-0", "layer-1"), 0),), SIZE // 4, False, {}, "e", OffloadingModelConfig("a/model", "bfloat16"),
    OffloadingCacheConfig(16, 2), PARALLEL, kv_cache_layout="LBHNC",
)  # fmt: skip
HIT, MISS, PENDING = LookupResult.HIT, LookupResult.MISS, LookupResult.HIT_PENDING
engines = itertools.count()


def key(number, group=0):
    return make_offload_key(number.to_bytes(32, "big"), group)


def content(number):
    return np.random.default_rng(number).integers(-128, 128, SIZE, dtype=np.int8)


def specification(folder, settings=None, **changed):
    tier = {"type": "KvmemSecondaryTierManager", "module_path": "kvmem.vllm"} | ({"path": str(folder), "capacity_gib": 64 * SIZE / 2**30} if settings is None else settings)
    extra = {"cpu_bytes_to_use": CHUNKS * SIZE, "secondary_tiers": [tier]}
    return TieringOffloadingSpec(dataclasses.replace(CONFIG, extra_config=extra, engine_id=f"kvmem-test-{os.getpid()}-{next(engines)}", **changed))


class Engine:
    """What vLLM's scheduler does with the manager of a spec."""

    def __init__(self, spec):
        self.spec, self.manager = spec, spec.get_manager()
        self.tier = self.manager.secondary_tiers[0]
        self.view = np.asarray(memoryview(self.manager.primary_tier.get_kv_memoryview()))

    def begin(self, name, *numbers, filter=TierFilter.ALL):
        """A request with chunks in this order."""
        request = ReqContext(name, load_tier_filter=filter)
        for at, number in enumerate(numbers, 1):
            request.set_offload_key_position(key(number), at * TOKENS)
        self.manager.on_new_request(request)
        return request

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def settle(self):
        """Steps until no job is in flight, as vLLM does while a manager has pending work."""
        self.step()
        while self.manager.has_pending_work():
            self.step()

    def store(self, request, *numbers):
        """The workers fill chunks, which go to the tier."""
        prepared = self.manager.prepare_store([key(number) for number in numbers], request)
        for each, chunk in zip(prepared.keys_to_store, prepared.store_spec.chunk_ids):
            self.view[chunk] = content(int.from_bytes(each[:-4], "big"))
        self.manager.complete_store(set(prepared.keys_to_store), request)

    def load(self, request, *numbers):
        """Looks chunks up until each is found or missing. Those that are found have their bytes. Returns the results."""
        for _ in range(10):  # a look-up, a load, and what follows a failed one
            found = [self.manager.lookup(key(number), request) for number in numbers]
            self.settle()
            if all(result in (HIT, MISS) for result in found):
                break
        else:
            raise AssertionError(f"vLLM asks without end: {found}")
        for number, result in zip(numbers, found):
            if result is HIT:
                spec = self.manager.prepare_load([key(number)], request)
                (chunk,) = spec.chunk_ids
                assert (self.view[chunk] == content(number)).all()
                self.manager.complete_load([key(number)], request)
        return found

    def end(self):
        self.view = None
        self.manager.shutdown()


@contextlib.contextmanager
def engine(folder, settings=None, **changed):
    made = Engine(specification(folder, settings, **changed))
    try:
        yield made
    finally:
        made.end()


def test_a_restarted_engine_finds_the_chunks_of_the_one_before_it(tmp_path):
    """In one process here; test_vllm_tier_jobs.py kills the first one, and the demo has two engines."""
    with engine(tmp_path) as made:
        made.store(made.begin("r", 0, 1, 2), 0, 1, 2)
        made.settle()
    with engine(tmp_path) as made:
        request = made.begin("r", 0, 1, 2, 3)
        assert made.manager.lookup(key(1), request) is PENDING  # vLLM has made it a load
        assert made.load(request, 0, 1, 2, 3) == [HIT, HIT, HIT, MISS]


def test_chunks_are_found_after_they_have_left_the_host_memory(tmp_path):
    with engine(tmp_path) as made:
        first = made.begin("first", *range(CHUNKS))
        made.store(first, *range(CHUNKS))
        made.settle()
        made.manager.on_request_finished(first)
        other = made.begin("other", *range(100, 100 + CHUNKS))
        made.store(other, *range(100, 100 + CHUNKS))
        made.settle()
        assert made.load(made.begin("again", 0, 1, 2), 0, 1, 2) == [HIT] * 3
        assert made.tier._jobs.store.info.num_stored == 2 * CHUNKS


def test_a_damaged_chunk_is_a_miss_for_ever_and_those_beside_it_are_loaded(tmp_path):
    with engine(tmp_path) as made:
        made.store(made.begin("r", 0, 1, 2), 0, 1, 2)
        made.settle()
    with open(tmp_path / "engine-0/tier/blocks.0", "r+b") as file:
        stored = file.read()
        file.seek(stored.index(content(1).tobytes()))
        file.write(b"?" if content(1).tobytes()[:1] != b"?" else b"!")
    with engine(tmp_path) as made:
        assert made.load(made.begin("r", 0, 1, 2), 0, 1, 2) == [HIT, MISS, HIT]
        request = made.begin("r2", 1)
        assert made.manager.lookup(key(1), request) is MISS
        made.store(request, 1)  # computed again
        made.settle()
        assert made.tier._jobs.store.has([key(1)]) == [True] and DAMAGED in str(made.manager.get_stats().data)


def test_a_chunk_whose_load_fails_is_not_asked_for_again_by_its_request(tmp_path):
    with engine(tmp_path) as made:
        made.store(made.begin("r", 0), 0)
        made.settle()
        made.manager.reset_cache()
        get = made.tier._jobs.store.get

        def fails(*arguments, **more):
            raise kvmem.IoError("the disk does not respond")

        made.tier._jobs.store.get = fails
        request = made.begin("again", 0)
        assert made.load(request, 0) == [MISS] and made.tier._jobs.store.has([key(0)]) == [True]
        made.tier._jobs.store.get = get
        assert made.manager.lookup(key(0), request) is MISS
        assert made.load(made.begin("next", 0), 0) == [HIT]
        made.manager.on_request_finished(request)
        assert "again" not in made.tier._requests


def test_a_prefix_keeps_its_head_although_vllm_gives_chunks_in_any_order(tmp_path):
    settings = {"path": str(tmp_path), "capacity_gib": 4 * SIZE / 2**30}
    with engine(tmp_path, settings) as made:
        first = made.begin("r", 0, 1, 2, 3)
        made.store(first, 0, 1)
        made.settle()
        made.store(first, 2, 3)
        made.settle()
        made.store(made.begin("other", 9), 9)
        made.settle()
        assert made.tier._jobs.store.has([key(number) for number in (0, 1, 2, 3, 9)]) == [True, True, True, False, True]
        stats = made.manager.get_stats().data
        assert EVICTED in str(stats) and STORED in str(stats)


def test_a_reset_of_vllms_cache_waits_for_jobs_and_leaves_the_store(tmp_path):
    with engine(tmp_path) as made:
        request = made.begin("r", *range(8))
        made.store(request, *range(8))
        made.manager.reset_cache()
        assert not made.manager._jobs and not made.tier._jobs._jobs
        assert made.load(made.begin("again", 0, 7), 0, 7) == [HIT, HIT]


def test_an_engine_that_ends_with_jobs_in_flight_frees_its_host_memory(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="vllm"):
        made = Engine(specification(tmp_path))
        memory = made.manager.primary_tier._mmap_region
        made.store(made.begin("r", *range(8)), *range(8))
        made.end()
    assert memory.mmap_obj is None and not os.path.exists(memory.mmap_path)
    assert not [record for record in caplog.records if "mmap_obj" in record.getMessage()]
    with engine(tmp_path) as made:  # each is stored or not, and has its bytes
        assert set(made.load(made.begin("r", *range(8)), *range(8))) <= {HIT, MISS}


def test_a_reader_loads_what_another_engine_stores_and_stores_nothing(tmp_path):
    with engine(tmp_path) as writer, engine(tmp_path, {"path": str(tmp_path), "read_only": True}) as reader:
        writer.store(writer.begin("r", 0, 1), 0, 1)
        writer.settle()
        reader.tier._jobs.store._store.flush()  # it knows then what was stored
        assert reader.load(reader.begin("r", 0, 1), 0, 1) == [HIT, HIT]
        reader.store(reader.begin("own", 5), 5)
        reader.settle()
        assert not writer.tier._jobs.store.has([key(5)])[0]


def test_a_request_can_leave_the_tier_out(tmp_path):
    settings = {"path": str(tmp_path), "capacity_gib": 64 * SIZE / 2**30, "locality": "LOCAL"}
    with engine(tmp_path, settings) as made:
        made.store(made.begin("r", 0), 0)
        made.settle()
        made.manager.reset_cache()
        remote = TierFilter((TierMatcher(locality=Locality.REMOTE),))
        assert made.manager.lookup(key(0), made.begin("remote", 0, filter=remote)) is MISS
        assert made.load(made.begin("all", 0), 0) == [HIT]


def test_groups_of_hybrid_models_have_chunks_of_their_own(tmp_path):
    groups = (*CONFIG.groups, OffloadingGroupConfig(32, ("layer-2",), 3))
    with engine(tmp_path, groups=groups) as made:
        assert made.tier._steps == {bytes([0, 0, 0, 0]): 32, bytes([0, 0, 0, 3]): 64}
        request = made.begin("r")
        for group in (0, 3):
            made.manager.complete_store([each for each in made.manager.prepare_store([key(1, group)], request).keys_to_store], request)
        made.settle()
        assert made.tier._jobs.store.has([key(1, 0), key(1, 3), key(1, 1)]) == [True, True, False]


# ---- identity ----


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"model": OffloadingModelConfig("another/model", "bfloat16")}, "model name"),
        ({"model": OffloadingModelConfig("a/model", "fp8")}, "dtype"),
        ({"parallel": dataclasses.replace(PARALLEL, tp_size=1, pp_size=2)}, "tp size"),
        ({"kv_cache_layout": "BLHNC"}, "layout"),
        ({"groups": (OffloadingGroupConfig(16, ("layer-0", "layer-2"), 0),)}, "layers"),
        ({"groups": (OffloadingGroupConfig(32, ("layer-0", "layer-1"), 0),), "cache": OffloadingCacheConfig(16, 2)}, "groups"),
        ({"cache": OffloadingCacheConfig(16, 1), "worker_kv_bytes_per_block": SIZE // 2}, "blocks per file"),
        ({"worker_kv_bytes_per_block": SIZE // 2}, ""),
    ],
)
def test_the_store_of_an_engine_whose_chunks_have_other_bytes_is_refused(tmp_path, changed, name):
    with engine(tmp_path):
        pass
    with pytest.raises(ValueError, match="^kvmem: the folder of blocks cannot be used .*: set another path, or remove the folder") as raised:
        specification(tmp_path, {"path": str(tmp_path), "capacity_gib": 128 * SIZE / 2**30} if not name else None, **changed).get_manager()
    assert name in str(raised.value)


def test_the_identity_of_the_settings_and_the_seed_of_hashes_belong_to_the_store(tmp_path, monkeypatch):
    spec = specification(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert identity_of(spec, "r2") | {"identity": "none", "seed of hashes": "none"} == identity_of(spec, "") | {"seed of hashes": "none"}
    assert identity_of(spec, "r2")["identity"] == "r2" and identity_of(spec, "")["seed of hashes"] == "7"


def test_chunks_that_vllm_finds_equal_in_any_parallelism_are_found_by_engines_of_another_one(tmp_path):
    one = dataclasses.replace(PARALLEL, is_parallelism_agnostic=True)
    other = dataclasses.replace(one, world_size=1, tp_size=1)
    with engine(tmp_path, parallel=one) as made:
        made.store(made.begin("r", 0), 0)
        made.settle()
    with engine(tmp_path, parallel=other, worker_kv_bytes_per_block=SIZE // 2) as made:
        assert made.load(made.begin("r", 0), 0) == [HIT]


# ---- settings ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "path is not set"),
        ({"path": "/nowhere", "capacity_gb": 1}, "an entry of secondary_tiers has 'capacity_gb', which is no setting; known are"),
        ({"path": "/nowhere", "capacity_gib": 1e-6}, "capacity_gib has 1,073 bytes, and a chunk needs 8,192: set more"),
        ({"path": "/proc/kvmem", "capacity_gib": 1}, "the folder of blocks cannot be used|there is no folder for the blocks"),
        ({"path": "/nowhere", "capacity_gib": 1, "locality": "x"}, "locality is 'x': set LOCAL or REMOTE"),
    ],
)
def test_a_mistake_of_the_tier_is_one_sentence_and_leaves_nothing(tmp_path, settings, message):
    spec = specification(tmp_path, settings)
    with pytest.raises(ValueError, match="^kvmem: ") as raised:
        spec.get_manager()
    assert re.search(message, str(raised.value)) and "\n" not in str(raised.value)
    assert not os.path.exists(f"/dev/shm/vllm_offload_{spec._engine_id}.mmap")


def test_a_second_engine_of_a_folder_is_refused_and_the_first_one_goes_on(tmp_path):
    with engine(tmp_path) as made:
        with pytest.raises(ValueError, match="^kvmem: another engine uses the folder .* is open for writing in this process"):
            specification(tmp_path).get_manager()
        made.store(made.begin("r", 0), 0)
        made.settle()
        with engine(tmp_path, parallel=dataclasses.replace(PARALLEL, data_parallel_index=1)):
            pass  # that of another data parallel index has a store of its own


def test_vllm_loads_the_class_by_the_module_and_its_metrics_are_on_the_page():
    config = {"type": "KvmemSecondaryTierManager", "module_path": "kvmem.vllm"}
    assert SecondaryTierFactory.get_tier_class(config) is KvmemSecondaryTierManager
    definitions = TieringOffloadingSpec.build_metric_definitions({"secondary_tiers": [config]})
    assert METRICS.keys() <= definitions.keys()
    page = PAGE.read_text()
    for name in METRICS:
        assert f"`{name.removeprefix('vllm:kvmem_')}`" in page

# SPDX-License-Identifier: Apache-2.0
"""The classes that vLLM loads, made as vLLM makes them, with vLLM's own configuration where it is cheap: mistakes in it, and statistics."""

import dataclasses
import gc
import logging
import pathlib
import re
import types

import pytest
import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec, SlidingWindowSpec
from vllm.v1.kv_offload.config import OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig, OffloadingParallelConfig
from vllm.v1.request import Request

import kvmem
from kvmem.vllm import KvmemConnector, KvmemOffloadingSpec, _cache, _config, _groups, _identity, _peers, _process
from kvmem.vllm._handover import HandoverConnector
from kvmem.vllm._handover_scheduler import HandoverScheduler
from kvmem.vllm._scheduler import OffloadScheduler
from kvmem.vllm._statistics import COUNTERS, HANDOVER_COUNTERS, KvmemStats

gc.freeze()  # vLLM's modules are not looked at after each case

PAGE = pathlib.Path(__file__).parents[3] / "docs/vllm.md"
STORE = {"path": "/nowhere/kvmem", "capacity_gib": 1}
HANDOVER = {"directory": "/nowhere/kvmem"}
FULL = FullAttentionSpec(block_size=32, num_kv_heads=4, head_size=32, dtype=torch.float32)


def configuration(extra, *, specs=(FULL,), hash_block_size=32, algorithm="sha256", caching=True, asynchronous=False, policy="recompute", role="kv_both", sleeps=False, **parallel):
    """vLLM's configuration as far as the connector reads it, and that of the cache."""
    transfer = KVTransferConfig(
        kv_connector="KvmemConnector", kv_connector_module_path="kvmem.vllm", kv_role=role, kv_load_failure_policy=policy, kv_connector_extra_config=extra
    )  # fmt: skip
    text = types.SimpleNamespace(num_hidden_layers=2)
    model = types.SimpleNamespace(
        model="m", revision=None, dtype=torch.float32, quantization=None, max_model_len=64, hf_config=types.SimpleNamespace(to_dict=dict), hf_text_config=text, enable_sleep_mode=sleeps, use_mla=False, get_head_size=lambda: 32,
        get_total_num_kv_heads=lambda: 4,
    )  # fmt: skip
    sizes = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "decode_context_parallel_size": 1, "prefill_context_parallel_size": 1, "world_size": 1, "rank": 0, "data_parallel_index": 0}
    vllm = types.SimpleNamespace(
        kv_transfer_config=transfer, model_config=model, parallel_config=types.SimpleNamespace(**(sizes | parallel)),
        cache_config=types.SimpleNamespace(enable_prefix_caching=caching, block_size=32, cache_dtype="auto", prefix_caching_hash_algo=algorithm),
        scheduler_config=types.SimpleNamespace(async_scheduling=asynchronous),
    )  # fmt: skip
    groups = [KVCacheGroupSpec([f"layer-{number}"], spec) for number, spec in enumerate(specs)]
    return vllm, types.SimpleNamespace(kv_cache_groups=groups, hash_block_size=hash_block_size, kv_cache_layout="LBHNC", num_blocks=8)


def connector(extra, side=KVConnectorRole.SCHEDULER, **more):
    vllm, cache = configuration(extra, **more)
    return KVConnectorFactory.get_connector_class(vllm.kv_transfer_config)(vllm, side, cache)


STATE = MambaSpec(block_size=32, shapes=((4, 4),), dtypes=(torch.float32,))
WINDOW = SlidingWindowSpec(block_size=32, num_kv_heads=4, head_size=32, dtype=torch.float32, sliding_window=64)


@pytest.mark.parametrize(
    ("extra", "more", "message"),
    [
        ({}, {}, "nothing is set: set path and capacity_gib, to keep blocks, or set directory"),
        ({"pth": "x"}, {}, "which is no setting; known are"),
        ({"path": "/nowhere"}, {}, "capacity_gib is not set"),
        ({"capacity_gib": 1}, {}, "path is not set"),
        (STORE | HANDOVER, {}, "directory and path are set"),
        (STORE, {"policy": "fail"}, "a damaged block would end its request: set kv_load_failure_policy to recompute"),
        (STORE, {"caching": False}, "prefix caching is off: set --enable-prefix-caching"),
        (STORE, {"algorithm": "xxhash"}, "hashes of xxhash differ in each process: set PYTHONHASHSEED"),
        (STORE, {"hash_block_size": 16}, "has blocks of 32 tokens, and vLLM hashes blocks of 16: set --block-size"),
        (STORE | {"capacity_gib": 1e-6}, {}, "capacity_gib has 1,073 bytes, and a block of group 0 needs 32,768: set more"),
        (STORE | {"unit_tokens": -1}, {}, "unit_tokens is -1: set a divisor of the block sizes of all engines, or 0"),
        (STORE | {"unit_tokens": 1.5}, {}, "unit_tokens is 1.5: set a whole number"),
        (STORE | {"unit_tokens": 24}, {}, "unit_tokens is 24, and cache group 0 has blocks of 32 tokens: set it to a divisor"),
        (STORE | {"unit_tokens": 16}, {"tensor_parallel_size": 8}, "8 ranks do not have whole heads of the model's 4: set --tensor-parallel-size"),
        (STORE | {"unit_tokens": 16}, {"pipeline_parallel_size": 2}, "unit_tokens is set, and pipeline_parallel_size is 2: set it to 1"),
        (STORE | {"unit_tokens": 16}, {"specs": (STATE,)}, "cache group 0 has states, .*: remove unit_tokens"),
        (STORE | {"unit_tokens": 16}, {"algorithm": "xxhash"}, "hashes of xxhash differ in each process: set PYTHONHASHSEED"),
        (STORE | {"unit_tokens": 16}, {"hash_block_size": 16}, "has blocks of 32 tokens, and vLLM hashes blocks of 16: set --block-size"),
        (STORE | {"unit_tokens": 16, "capacity_gib": 1e-6}, {}, "capacity_gib has 1,073 bytes, and a block of group 0 needs 65,536: set more"),
        (HANDOVER | {"unit_tokens": 16}, {}, "directory and unit_tokens are set"),
        (HANDOVER, {"policy": "fail", "role": "kv_consumer"}, "set kv_load_failure_policy to recompute"),
        (HANDOVER, {"pipeline_parallel_size": 2}, "pipeline_parallel_size is 2, .*: set it to 1"),
        (HANDOVER, {"decode_context_parallel_size": 2}, "decode_context_parallel_size is 2, .*: set it to 1"),
        (HANDOVER, {"sleeps": True}, "enable_sleep_mode is set, .*: remove --enable-sleep-mode"),
        (HANDOVER | {"by_layer": True}, {"asynchronous": True}, "by_layer is set, .*: set --no-async-scheduling"),
    ],
)
def test_a_mistake_ends_the_engine_at_its_start_with_one_sentence_that_says_what_to_set(extra, more, message, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(ValueError, match="^kvmem: ") as raised:
        connector(extra, **more)
    assert re.search(message, str(raised.value)) and "\n" not in str(raised.value)


def test_what_is_right_starts():
    assert type(connector(STORE)).__name__ == "OffloadConnector"
    connector(STORE | {"unit_tokens": 16}, specs=(FULL, WINDOW))
    assert type(connector(HANDOVER)).__name__ == "HandoverConnector"
    connector(HANDOVER, role="kv_producer", policy="fail")  # prefill loads nothing
    connector(HANDOVER | {"by_layer": True}, role="kv_producer", asynchronous=True)
    connector(HANDOVER | {"by_layer": True}, specs=(FULL, WINDOW))
    connector(HANDOVER, specs=(STATE, FULL))
    connector(HANDOVER, specs=(STATE,))
    assert KvmemConnector.requires_piecewise_for_cudagraph({"by_layer": True}) and not KvmemConnector.requires_piecewise_for_cudagraph({})


def test_states_of_other_types_shapes_or_layers_have_another_form():
    others = [{}, {"dtypes": (torch.float16,)}, {"shapes": ((2, 8),)}, {"mamba_type": MambaAttentionBackendEnum.SHORT_CONV}]
    groups = [_groups.groups_of(configuration(HANDOVER, specs=(dataclasses.replace(STATE, **other), FULL))[1]) for other in others]
    assert len({states.form for states, _ in groups}) == len(others) and {full.form for _, full in groups} == {""}


def test_a_store_of_states_of_another_form_is_not_used():
    def identity(*specs):
        vllm, cache = configuration(STORE, specs=specs)
        return _identity.identity_of(vllm, cache, _groups.groups_of(cache), "")

    padded = dataclasses.replace(STATE, page_size_padded=FULL.page_size_bytes)
    first, other = identity(padded, FULL), identity(dataclasses.replace(padded, dtypes=(torch.float16,)), FULL)
    assert first.keys() == other.keys() and [name for name in first if first[name] != other[name]] == ["states"]
    assert "states" not in identity(FULL)


def test_vllm_hashes_states_that_are_stored_and_gives_a_block_to_the_one_that_is_loaded():
    """Its own scheduler's tables of blocks, with steps that end at blocks."""
    init_none_hash(get_hash_fn_by_name("sha256"))
    cache = KVCacheConfig(64, [], [KVCacheGroupSpec(["0"], FULL), KVCacheGroupSpec(["1"], dataclasses.replace(STATE, mamba_cache_mode="align"))])
    groups = _groups.stored_groups(_groups.groups_of(cache), 1 << 20)

    def engine():
        manager, scheduler = KVCacheManager(cache, 1024, scheduler_block_size=32, hash_block_size=32, enable_caching=True), OffloadScheduler(groups, 1)
        scheduler.bind(manager.block_pool)
        return manager, scheduler, request_of(list(range(80)), 32)

    manager, scheduler, asked = engine()
    puts = []
    for end in (32, 64, 80):
        manager.new_step_starts()
        assert manager.allocate_slots(asked, end - asked.num_computed_tokens) is not None
        asked.num_computed_tokens = end
        puts += scheduler.step({"r": manager.get_block_ids("r")}).puts
    stored = {key for put in puts for key in put.keys}
    assert groups[1].key(asked.block_hashes[1]) in stored and 0 not in {block for put in puts for block in put.blocks}

    manager, scheduler, asked = engine()
    scheduler.opened(0, stored)
    assert scheduler.matched("r", asked.block_hashes, 80, 0) == 64
    assert manager.allocate_slots(asked, 0, num_external_computed_tokens=64, delay_cache_blocks=True) is not None
    scheduler.allocated("r", asked.block_hashes, manager.get_block_ids("r"), 64)
    (load,) = scheduler.step({}).loads
    assert [part.keys for part in load.parts] == [[groups[0].key(each) for each in asked.block_hashes], [groups[1].key(asked.block_hashes[1])]]
    assert load.parts[1].blocks == [manager.get_block_ids("r")[1][1]] and all(load.parts[1].blocks)


def test_the_packing_is_that_of_keys_and_values_and_not_of_states():
    def packing(*specs):
        return _identity.packing_of(*configuration(HANDOVER, specs=specs))

    assert packing(FULL) == packing(STATE, FULL) == packing(dataclasses.replace(STATE, block_size=1024 + 16), FULL) != "none"
    assert packing(STATE) == "none"


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("count", [79, 64, 65, 31])
def test_vllm_has_the_state_in_the_block_that_is_offered_and_gives_decode_one_for_it(caching, count):
    """Its own scheduler's tables of blocks: at prefill after steps that end at blocks, and at decode while the request waits."""
    init_none_hash(get_hash_fn_by_name("sha256"))
    state = dataclasses.replace(STATE, block_size=32 if caching else 1024, mamba_cache_mode="align" if caching else "none")
    cache = KVCacheConfig(64, [], [KVCacheGroupSpec(["0"], FULL), KVCacheGroupSpec(["1"], state)])
    groups = _groups.groups_of(cache)

    def arrived(engine, length, **params):
        manager = KVCacheManager(cache, 1024, scheduler_block_size=state.block_size, hash_block_size=32, enable_caching=caching)
        asked = request_of(list(range(length)), 32)
        asked.kv_transfer_params = params
        return manager, asked, HandoverScheduler(groups, engine, 1, True, True)

    manager, asked, prefill = arrived("p", count + 1, do_remote_decode=True)
    prefill.arrived(asked)
    for end in sorted({count // 32 * 32, count} - {0}):
        manager.new_step_starts()
        assert manager.allocate_slots(asked, end - asked.num_computed_tokens) is not None
        asked.num_computed_tokens = end
    kept, params = prefill.finished(asked, manager.get_block_ids("r"), True)
    place = (count - 1) // state.block_size
    (table,) = [ids for ids, group in zip(params["remote_block_ids"], groups) if group.kind == "state"]
    assert kept and params["remote_num_tokens"] == count and table == [0] * place + [manager.get_block_ids("r")[1][place]] and table[-1]

    manager, asked, decode = arrived("d", count + 1, **params)
    assert decode.matched(asked, 0) == (count, True)
    assert manager.allocate_slots(asked, 0, num_external_computed_tokens=count, delay_cache_blocks=True) is not None
    decode.allocated(asked, manager.get_block_ids("r"), count)
    (pull,) = decode.step().pulls
    assert pull.blocks[1][place] and not any(pull.blocks[1][:place])
    manager.cache_blocks(asked, count)
    block = manager.block_pool.blocks[pull.blocks[1][place]]
    assert (block.block_hash is not None) == (caching and count % 32 == 0)  # others find only the state that ends with its block


def request_of(tokens, size, salt=None):
    hasher = get_request_block_hasher(size, get_hash_fn_by_name("sha256"))
    return Request("r", tokens, SamplingParams(max_tokens=8), None, cache_salt=salt, block_hasher=hasher)


def test_units_have_the_hashes_of_a_vllm_with_blocks_of_that_size(monkeypatch):
    """So an engine with another block size finds them, and those of another salt are not found."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    init_none_hash(get_hash_fn_by_name("sha256"))
    tokens, made = list(range(100)), connector(STORE | {"unit_tokens": 16})
    for salt in (None, "tenant"):
        request, expected = request_of(tokens, 32, salt), request_of(tokens, 16, salt).block_hashes
        assert len(request.block_hashes) == 3 and made._hashes(request) == expected[:6]
        request.append_output_token_ids(list(range(40)))
        assert made._hashes(request) == request_of([*tokens, *range(40)], 16, salt).block_hashes[:8]
        made._scheduler.finished = lambda name: None
        made.request_finished_all_groups(request, ([],))
    assert request_of(tokens, 16).block_hashes[0] != request_of(tokens, 16, "tenant").block_hashes[0]
    request = request_of(tokens, 32)
    assert connector(STORE)._hashes(request) is request.block_hashes


@pytest.fixture
def log(caplog):
    """The log of the connector: vLLM's loggers do not propagate."""
    logger = logging.getLogger("vllm.kvmem")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def test_another_unit_is_refused_and_stores_of_an_engine_without_units_are_named(tmp_path, log):
    cache = {"layer-0": torch.zeros(8, 4, 32, 64)}

    def start(unit):
        made = connector({"path": str(tmp_path), "capacity_gib": 0.01, "unit_tokens": unit}, KVConnectorRole.WORKER)
        made.register_kv_caches(cache)
        made.shutdown()

    start(0)
    assert "that this engine does not use" not in log.text
    start(16)
    unused = "engine-0 has stores that this engine does not use, with 0.0 GiB: group-0-rank-0. Remove them, or set unit_tokens"
    assert unused in log.text
    with pytest.raises(ValueError, match="^kvmem: .* unit is '16 tokens' in the store and '8 tokens' here.*: set another path"):
        start(8)
    log.clear()
    start(0)  # the store is as it was left
    assert re.search(r"does not use, with 0.0 GiB: group-0-head-0\S*, .*group-0-head-3\S*. Remove them", log.text)


def test_only_a_group_of_full_attention_is_pulled_by_layer():
    assert connector(HANDOVER | {"by_layer": True})._scheduler._by_layer
    assert not connector(HANDOVER | {"by_layer": True}, specs=(FULL, WINDOW))._scheduler._by_layer
    assert not connector(HANDOVER)._scheduler._by_layer


def test_failures_of_a_step_are_reported_in_that_step():
    made = connector(HANDOVER | {"by_layer": True})
    made._worker = worker = types.SimpleNamespace(failed_blocks=set(), failed_requests=set(), poll=lambda: (set(), set()))
    worker.wait_for_requests = lambda: worker.failed_blocks.add(7)
    made.get_transfer_results(set())
    assert made.get_block_ids_with_load_errors() == {7} and not made.get_block_ids_with_load_errors()


def test_the_layers_of_a_step_are_awaited_by_their_names():
    made, awaited = connector(HANDOVER | {"by_layer": True}), []
    made._worker, made._numbers = types.SimpleNamespace(wait_for_layers=awaited.append), {"layer-0": 1, "layer-1": 2}
    for name in ("layer-0", "layer-1", "one without a cache"):
        made.wait_for_layer_load(name)
    assert awaited == [1, 2, 0]


def test_a_cache_that_cannot_be_described_or_mapped_is_one_sentence(monkeypatch):
    apart = torch.zeros(2, 4, 8, 16).transpose(0, 1)  # heads outside of blocks
    with pytest.raises(ValueError, match="^kvmem: the bytes of a block are not contiguous .*: set VLLM_KV_CACHE_LAYOUT .* such as LBNHC"):
        _groups.block_stride(apart, 4)
    monkeypatch.setattr(_cache.os, "statvfs", lambda path: types.SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(ValueError, match="^kvmem: /dev/shm has 4,096 bytes, and the cache needs 65,536 there .*: enlarge it, .* or set access to nixl"):
        _cache.CacheMemory.of_tensors({"layer": torch.zeros(4, 4, 16, 64)}, shared=True)

    def publish(*arguments, broker=None):
        raise kvmem.Unsupported("it has no descriptor")

    mapped = connector(HANDOVER | {"access": "mapped"})
    group = types.SimpleNamespace(tokens=None, create_epochs=lambda: None, published=lambda number: {"blocks-0": None})
    with pytest.raises(ValueError, match="^kvmem: the cache cannot be mapped by other engines: set access to auto or nixl: it has no descriptor"):
        HandoverConnector._publish(mapped, types.SimpleNamespace(publish=publish), None, [group], True)


def test_an_engine_without_nixl_is_told_what_to_install(tmp_path, monkeypatch):
    def missing(*arguments, **more):
        raise kvmem.NixlUnavailable("not found")

    monkeypatch.setattr(_peers.kvmem, "Agent", missing)
    with pytest.raises(ValueError, match="^kvmem: engines reach each other by NIXL, which is not usable: install nixl-cu12 or nixl-cu13: not found"):
        _peers.join(_config.parse({"directory": str(tmp_path / "agents")}), "vllm-x-0")


# ---- KvmemOffloadingSpec ----

OFFLOADING = OffloadingConfig(
    (OffloadingGroupConfig(32, ("layer-0",), 0),), 32768, False, {}, "e", OffloadingModelConfig("m", "float32"), OffloadingCacheConfig(32, 2),
    OffloadingParallelConfig(0, 2, 2, 1, 1, 1, 0, 1, None, False),
)  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "more", "message"),
    [
        ({}, {}, "cpu_bytes_to_use is None: set the bytes of host memory"),
        ({"cpu_bytes_to_use": "1 GB"}, {}, "cpu_bytes_to_use is '1 GB': set the bytes"),
        ({"cpu_bytes_to_use": 0}, {}, "cpu_bytes_to_use is 0: set the bytes"),
        ({"cpu_bytes_to_use": -1}, {}, "cpu_bytes_to_use is -1: set the bytes"),
        ({"cpu_bytes_to_use": True}, {}, "cpu_bytes_to_use is True: set the bytes"),
        ({"cpu_bytes_to_use": 1000}, {}, "cpu_bytes_to_use is 1,000, and a chunk of all workers needs 131,072: set more"),
        ({"cpu_bytes_to_use": 1 << 20}, {"canonical_layout": True}, "canonical_layout is set, .*: remove it"),
    ],
)
def test_a_mistake_of_the_offloading_spec_is_one_sentence(extra, more, message):
    with pytest.raises(ValueError, match="^kvmem: ") as raised:
        KvmemOffloadingSpec(dataclasses.replace(OFFLOADING, extra_config=extra, **more))
    assert re.search(message, str(raised.value)) and "\n" not in str(raised.value)


def test_the_offloading_spec_has_as_many_chunks_as_fit():
    assert KvmemOffloadingSpec(dataclasses.replace(OFFLOADING, extra_config={"cpu_bytes_to_use": 1 << 20})).num_chunks == 8


# ---- statistics ----


def test_statistics_are_those_of_an_interval_and_are_summed_over_ranks():
    made = connector(STORE)
    assert made.get_kv_connector_stats() is None  # the scheduler has none
    made._worker = types.SimpleNamespace(counters={"stored_blocks": 2, "load_seconds": 0.25})
    taken = made.get_kv_connector_stats()
    assert taken.data.keys() >= {"stored_blocks", "load_seconds", _process.NOW} and not taken.is_empty()
    made._process._due = float("inf")
    assert made.get_kv_connector_stats() is None
    made._worker.counters = {"stored_blocks": 1}
    assert made.get_kv_connector_stats().data == {"stored_blocks": 1}


def test_statistics_of_ranks_and_intervals_are_added_and_what_exists_is_that_of_each_rank():
    def of(**data):
        return KvmemConnector.build_kv_connector_stats(data)

    taken = of(stored_blocks=2, now={"0": {"runs_in_flight": 3}})
    assert taken.aggregate(of(stored_blocks=3, damaged_blocks=1, now={"1": {"runs_in_flight": 4}})) is taken
    taken.aggregate(of(**{"runs memcpy host_to_host ok": 5, "runs uring read corrupt": 1, "run_bytes memcpy host_to_host": 10, "now": {"0": {"runs_in_flight": 1}}}))
    assert taken.data["now"] == {"0": {"runs_in_flight": 1}, "1": {"runs_in_flight": 4}}
    assert taken.reduce() == {"stored_blocks": 5, "damaged_blocks": 1, "memcpy_runs": 5, "failed_runs": 1, "memcpy_bytes": 10}
    taken.reset()
    assert taken.is_empty() and KvmemConnector.build_kv_connector_stats().is_empty() and of(now={"0": {"runs_in_flight": 0}}).is_empty()
    assert isinstance(taken, KvmemStats)


def test_prometheus_has_a_counter_per_engine_which_the_page_names():
    registry = CollectorRegistry()

    def registered(kind):
        return lambda **arguments: kind(registry=registry, **arguments)

    vllm, _ = configuration(STORE)
    types_of = {kind: registered(kind) for kind in (Counter, Gauge, Histogram)}
    metrics = KvmemConnector.build_prom_metrics(vllm, types_of, ["engine"], {0: ["0"], 1: ["1"]})
    every = COUNTERS | HANDOVER_COUNTERS
    metrics.observe({name: number for number, name in enumerate(every, 1)}, 1)
    metrics.observe({"stored_blocks": 10, "of another release": 5}, 1)
    page = PAGE.read_text()
    for number, name in enumerate(every, 1):
        expected = number + 10 * (name == "stored_blocks")
        assert registry.get_sample_value(f"vllm:kvmem_{name}_total", {"engine": "1"}) == expected
        assert registry.get_sample_value(f"vllm:kvmem_{name}_total", {"engine": "0"}) == 0
        assert f"`{name}`" in page
    # What the process has counted: with labels, and what exists as the sum of all ranks.
    metrics.observe({"runs memcpy host_to_host ok": 5, "store_hits": 2, "now": {"0": {"handles region": 3}, "1": {"handles region": 4}}}, 1)
    metrics.observe({"runs memcpy host_to_host ok": 1, "now": {"0": {"handles region": 1}}}, 1)
    labels = {"engine": "1", "method": "memcpy", "direction": "host_to_host", "status": "ok"}
    assert registry.get_sample_value("vllm:kvmem_runs_total", labels) == 6
    assert registry.get_sample_value("vllm:kvmem_store_hits_total", {"engine": "1"}) == 2
    assert registry.get_sample_value("vllm:kvmem_handles", {"engine": "1", "type": "region"}) == 5
    for name in (*_process.COUNTERS, *_process.GAUGES):
        assert f"`{name}" in page

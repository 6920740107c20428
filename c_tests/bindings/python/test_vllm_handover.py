# SPDX-License-Identifier: Apache-2.0
"""The handover of kvmem.vllm without vLLM: its settings, its ranks, and the scheduler's side. The demo runs it in vLLM."""

import json
import re
import types

import pytest

from kvmem.vllm import _config, _groups, _ranks
from kvmem.vllm._handover_scheduler import HandoverScheduler
from kvmem.vllm._offer import Ask, Hold, Offer, Replies, prompt_hash


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"directory": "d", "capacity_gib": 1}, "directory and capacity_gib are set"),
        ({"directory": "d", "path": "p"}, "directory and path are set"),
        ({"directory": "d", "lease_seconds": 0}, "lease_seconds is 0.0: set 1 to 3600 seconds"),
        ({"directory": "d", "lease_seconds": 4000}, "lease_seconds is 4000.0: set 1 to 3600 seconds"),
        ({"directory": "d", "access": "tcp"}, "access is 'tcp': set auto, mapped or nixl"),
        ({"directory": ""}, "directory is '': set a text"),
        ({"directory": "d", "ca_file": "c"}, "ca_file is for etcd, and directory is a folder: set directory to the URLs of etcd"),
        ({"directory": "http://e", "key_file": "k"}, "key_file is set, and certificate_file is not: set both"),
        ({"directory": "http://e", "user": "u"}, "user is set, and password_file is not: set both"),
        ({"capacity_gib": 1, "user": "u"}, "user is for engines that hand requests over: set directory"),
        ({"directory": "d", "by_layer": 1}, "by_layer is 1: set true or false"),
        ({"capacity_gib": 1, "by_layer": True}, "by_layer is for engines that hand requests over: set directory"),
        ({"capacity_gib": 1, "access": "nixl"}, "access is for engines that hand requests over: set directory"),
        ({}, "or set directory, to hand requests over"),
    ],
)
def test_a_wrong_setting_is_one_sentence(extra, message):
    with pytest.raises(ValueError, match="kvmem: ") as raised:
        _config.parse(extra)
    assert message in str(raised.value) and "\n" not in str(raised.value)


# ---- ranks ----


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("sources", [1, 2, 4, 8])
def test_each_head_is_read_once_and_each_source_hears_from_those_that_it_expects(sources, ranks, heads):
    reports = dict.fromkeys(range(sources), 0)
    takers = {}
    for rank in range(ranks):
        first, count = _ranks.heads_of(rank, ranks, heads)
        read = []
        for leg in _ranks.legs_of(rank, ranks, sources, heads):
            reports[leg.rank] += 1
            assert takers.setdefault(leg.rank, leg.takers) == leg.takers
            begin, length = _ranks.heads_of(leg.rank, sources, heads)
            if leg.heads is not None:
                assert leg.heads.source + leg.heads.length <= length
                read += [(leg.heads.destination + at, begin + leg.heads.source + at) for at in range(leg.heads.length)]
            elif leg.reads:
                assert ranks == sources and leg.rank == rank
                read += [(at, begin + at) for at in range(length)]
        assert sorted(read) == [(at, first + at) for at in range(count)]
    assert reports == takers


# ---- the scheduler's side ----


def group(kind="full", window=0, block_size=4):
    return _groups.Group(0, ("0", "1"), 256, block_size, kind, window)


def request(prompt=20, computed=None, request_id="r", **params):
    tokens = list(range(prompt))
    return types.SimpleNamespace(
        request_id=request_id, prompt_token_ids=tokens, _all_token_ids=list(tokens), num_prompt_tokens=prompt, max_tokens=1,
        num_computed_tokens=prompt if computed is None else computed, kv_transfer_params=params or None,
    )  # fmt: skip


def scheduler(*groups, **roles):
    return HandoverScheduler(
        groups or (group(),), "engine", roles.get("ranks", 1), roles.get("produces", True), roles.get("consumes", True), roles.get("by_layer", False)
    )


def offered(prompt=20, blocks=(1, 2, 3, 4, 5), **kind):
    prefill = scheduler(group(**kind))
    asked = request(prompt, do_remote_decode=True)
    kept, params = prefill.finished(asked, (list(blocks),), True)
    assert kept and prefill.step().holds == [Hold("r", (tuple(blocks),))] and not prefill.has_work
    return json.loads(json.dumps(params))  # as it arrives


def test_prefill_offers_what_decode_pulls():
    params = offered()
    decode = scheduler()
    asked = request(**params)
    assert decode.matched(asked, 8) == (12, True)
    decode.allocated(asked, ([9, 8, 7, 6, 5],), 12)
    (pull,) = decode.step().pulls
    assert (pull.first_token, pull.num_tokens, pull.blocks) == (8, 20, ((9, 8, 7, 6, 5),))
    assert pull.offer.blocks == ((1, 2, 3, 4, 5),) and pull.offer.engine == "engine"
    assert decode.matched(asked, 0) == (0, False)  # after a failure or a preemption it is computed
    assert decode.finished(asked, ([9],), True) == (False, None)


def test_by_layer_a_request_runs_when_prefill_keeps_it_for_all_ranks():
    decode = scheduler(by_layer=True, ranks=2)
    params = offered() | {"tp_size": 2}
    asked = request(**params)
    assert decode.matched(asked, 0) == (None, False) and decode.has_work
    assert decode.step().asks == [Ask("r", Offer.of(params))]
    replies = Replies({"r": {1}})
    decode.replied(replies)
    assert decode.matched(asked, 0) == (None, False) and not decode.has_work  # it is asked for once
    other = Replies({"other": {0}})
    other.merge(Replies({"r": {0}}))
    decode.replied(other)
    # The block of the last token is computed: its slot is written before the step waits for a layer.
    assert decode.matched(asked, 8) == (8, False)
    decode.allocated(asked, ([9, 8, 7, 6, 5],), 8)
    (pull,) = decode.step().pulls
    assert (pull.first_token, pull.num_tokens, pull.by_layer) == (8, 16, True)
    assert not decode._granted and not decode._denied


def test_by_layer_a_request_that_prefill_does_not_keep_is_computed_and_dropped():
    decode = scheduler(by_layer=True)
    asked = request(**offered())
    assert decode.matched(asked, 0) == (None, False)
    decode.step()
    decode.replied(Replies(refused={"r", "other"}))
    assert decode.matched(asked, 0) == (0, False)
    decode.allocated(asked, ([9],), 0)
    assert [drop.request for drop in decode.step().drops] == ["r"] and not decode._granted and not decode._denied
    aborted = request(**offered())
    assert decode.matched(aborted, 0) == (None, False)
    assert decode.finished(aborted, ([],), False) == (False, None) and not decode._granted
    assert [drop.request for drop in decode.step().drops] == ["r"]


def test_by_layer_other_blocks_ranks_and_windows_are_awaited_as_a_whole():
    asked = request(**offered())
    assert scheduler(group(block_size=8), by_layer=True).matched(asked, 0) == (20, True)
    assert scheduler(by_layer=True, ranks=2).matched(asked, 0) == (20, True)
    short = request(4, **offered(4, (1,)))
    assert scheduler(by_layer=True).matched(short, 0) == (0, False)  # its only block is that of the last token


def test_what_decode_does_not_need_is_dropped():
    decode = scheduler()
    hit = request(**offered())
    assert decode.matched(hit, 20) == (0, False)
    decode.allocated(hit, ([1],), 0)
    aborted = request(**offered())
    assert decode.finished(aborted, ([],), False) == (False, None) and decode.has_work
    assert [drop.request for drop in decode.step().drops] == ["r", "r"]


def test_a_request_that_is_aborted_while_its_blocks_are_pulled_is_neither_dropped_nor_pulled_again():
    decode = scheduler()
    asked = request(**offered())
    assert decode.matched(asked, 0) == (20, True)
    decode.allocated(asked, ([9, 8, 7, 6, 5],), 20)
    assert len(decode.step().pulls) == 1
    assert decode.finished(asked, ([9, 8, 7, 6, 5],), False) == (False, None)  # vLLM frees the blocks when the pull has ended
    assert not decode.has_work and not decode._offers and not decode._computed


def test_a_request_that_is_preempted_before_it_has_blocks_is_pulled_once():
    decode = scheduler()
    asked = request(**offered())
    assert decode.matched(asked, 0) == (20, True)
    assert decode.matched(asked, 4) == (16, True)  # vLLM had no blocks for it, and asks again
    decode.allocated(asked, ([9, 8, 7, 6, 5],), 16)
    (pull,) = decode.step().pulls
    assert (pull.first_token, pull.num_tokens) == (4, 20)
    assert decode.matched(asked, 0) == (0, False)  # preempted while it runs: it is computed
    decode.allocated(asked, ([1, 2, 3, 4, 5],), 0)
    assert not decode.has_work


def test_an_aborted_prefill_keeps_nothing():
    prefill = scheduler()
    assert prefill.finished(request(do_remote_decode=True), ([1],), False) == (False, None)
    assert prefill.finished(request(), ([1],), True) == (False, None)
    assert not prefill.has_work


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"remote_block_ids": [[1, 2, "3"]]}, "must be numbers from 0 on"),
        ({"remote_block_ids": [[1, 2, -3]]}, "must be numbers from 0 on"),
        ({"remote_block_ids": 7}, "must be a list per cache group"),
        ({"remote_block_ids": [[1]]}, "prefill has 4 tokens of cache group 0, and offers 20"),
        ({"remote_block_ids": [[1], [2]], "remote_block_sizes": [4, 4]}, "prefill has 2 cache groups, and this engine 1"),
        ({"remote_block_sizes": [0]}, "remote_block_sizes is \\[0\\], and must be numbers from 1 on"),
        ({"remote_num_tokens": None}, "must be numbers from 1 on"),
        ({"remote_num_tokens": 10**12}, "must be numbers from 1 on"),
        ({"remote_engine_id": None}, "remote_engine_id is None, and must be a text"),
        ({"remote_prompt": "0" * 32}, "send the same tokens to both"),
        ({"remote_num_tokens": 24}, "send the same tokens to both"),
    ],
)
def test_wrong_parameters_are_computed_and_the_reason_is_logged(change, message, caplog):
    decode = scheduler()
    asked = request(**(offered() | change))
    assert decode.matched(asked, 0) == (0, False)
    assert len(caplog.records) == 1 and re.search(message, caplog.text)
    decode.allocated(asked, ([1],), 0)
    assert not decode.step().pulls


def test_roles_are_checked(caplog):
    assert scheduler(consumes=False).matched(request(**offered()), 0) == (0, False) and "set kv_consumer or kv_both" in caplog.text
    assert scheduler(produces=False).finished(request(do_remote_decode=True), ([1],), True) == (False, None)
    assert "set kv_producer or kv_both" in caplog.text


def test_with_a_window_prefill_leaves_the_last_token():
    prefill = scheduler(group("window", 6))
    asked = request(do_remote_decode=True)
    prefill.arrived(asked)
    prefill.arrived(asked)
    assert asked.num_prompt_tokens == 19 and len(asked.prompt_token_ids) == len(asked._all_token_ids) == 19
    scheduler().arrived(whole := request(do_remote_decode=True))
    assert whole.num_prompt_tokens == 20


def test_a_window_needs_its_last_blocks(caplog):
    params = offered(19, (0, 0, 0, 4, 5), kind="window", window=6)
    decode = scheduler(group("window", 6))
    assert decode.matched(request(**params), 0) == (19, True)
    assert decode.matched(request(**offered(19, (0, 0, 0, 0, 5), kind="window", window=6)), 0) == (0, False)
    assert "within its window" in caplog.text
    assert scheduler(group("window", 6, block_size=8)).matched(request(**params), 0) == (0, False)
    assert "set --block-size of decode so that it divides that of prefill" in caplog.text


def hybrid(state_tokens=4):
    """A cache group with keys and values, and one with states."""
    return group(), _groups.Group(1, ("2", "3"), 256, state_tokens, "state", 0)


def offered_state(table=(0, 0, 0, 0, 9), prompt=20, state_tokens=4):
    prefill = scheduler(*hybrid(state_tokens))
    asked = request(prompt, do_remote_decode=True)
    prefill.arrived(asked)
    asked.num_computed_tokens = asked.num_prompt_tokens
    kept, params = prefill.finished(asked, ([1, 2, 3, 4, 5], list(table)), True)
    assert kept
    return json.loads(json.dumps(params)), prefill.step().holds[0].blocks


@pytest.mark.parametrize(
    ("table", "kept", "state_tokens"),
    [
        ((0, 0, 0, 8, 9), (0, 0, 0, 0, 9), 4),  # the state at the last boundary, which is cached, and the running one
        ((0, 0, 0, 8, 9, 10, 11), (0, 0, 0, 0, 9), 4),  # and blocks for speculative tokens
        ((9,), (9,), 1024),  # without prefix caching
        ((9, 10), (9,), 1024),
    ],
)
def test_prefill_offers_the_state_before_the_last_token(table, kept, state_tokens):
    params, held = offered_state(table, state_tokens=state_tokens)
    assert held == ((1, 2, 3, 4, 5), kept) and params["remote_num_tokens"] == 19
    decode = scheduler(*hybrid())
    asked = request(20, **params)
    assert decode.matched(asked, 8) == (11, True)
    decode.allocated(asked, ([9, 8, 7, 6, 5], [0, 0, 0, 0, 4]), 11)
    assert decode.step().pulls[0].num_tokens == 19


def test_a_state_after_other_tokens_than_those_of_the_prompt_is_not_offered(caplog):
    for computed, table in ((21, (0, 0, 0, 0, 9, 10)), (20, (0, 0, 0, 0, 0)), (20, (0, 0, 0, 9))):
        prefill = scheduler(*hybrid())
        asked = request(20, computed, do_remote_decode=True)
        assert prefill.finished(asked, ([1, 2, 3, 4, 5], list(table)), True) == (False, None) and not prefill.has_work
    assert caplog.text.count("the states of cache group 1 are not those of its prompt") == 3


@pytest.mark.parametrize(
    ("change", "prompt", "message"),
    [
        ({}, 19, "prefill has computed 19 tokens, and the states of cache group 1 are those after them"),
        ({}, 18, "send the same tokens to both"),
        ({"remote_num_tokens": 18}, 20, "send the same tokens to both"),
        ({"remote_prompt": ""}, 20, "prefill offers no state of cache group 1 after 19 tokens"),
        ({"remote_block_ids": [[1, 2, 3, 4, 5], [0, 0, 0, 0, 0]]}, 20, "prefill offers no state of cache group 1 after 19 tokens"),
        ({"remote_block_ids": [[1, 2, 3, 4, 5], [0, 0, 0, 8, 9]]}, 20, "prefill offers no state of cache group 1 after 19 tokens"),
        ({"remote_block_ids": [[1, 2, 3, 4, 5], []]}, 20, "prefill has 0 tokens of cache group 1"),
    ],
)
def test_a_state_that_decode_cannot_continue_from_is_computed(change, prompt, message, caplog):
    params, _ = offered_state()
    assert scheduler(*hybrid()).matched(request(prompt, **(params | change)), 0) == (0, False)
    assert message in caplog.text


def test_the_state_after_a_full_block_is_in_that_block():
    params, held = offered_state(prompt=21)
    assert held[1] == (0, 0, 0, 0, 9) and params["remote_num_tokens"] == 20


def test_a_longer_prompt_continues_from_the_state():
    params, _ = offered_state()
    assert scheduler(*hybrid()).matched(request(40, **params), 4) == (15, True)


def test_a_prompt_hash_is_that_of_its_tokens():
    assert prompt_hash([1, 2]) == prompt_hash([1, 2]) != prompt_hash([2, 1]) and prompt_hash(None) == ""

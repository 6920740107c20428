# SPDX-License-Identifier: Apache-2.0
"""The workers of kvmem.vllm's handover without vLLM: those of two engines exchange blocks. The demo runs them in vLLM."""

import threading
import time
from types import SimpleNamespace

import pytest

from kvmem.vllm import _ranks
from kvmem.vllm._held import HeldRequests
from kvmem.vllm._offer import HandoverStep, Hold, Offer, Pull, agent_name, message
from vllm_workers import ELEMENTS, HEADS, LAYERS, WAIT, check, fill, offer, start, values  # noqa: F401


@pytest.mark.parametrize("access", ["mapped", "nixl"])
@pytest.mark.parametrize(
    ("order", "block_size"), [("LBHNC", 4), ("LBHNC", 16), ("LBHNC", 2), ("LBNHC", 4), ("BLHNC", 4), ("LHBNC", 4), ("BHLNC", 8)]
)  # fmt: skip
def test_blocks_arrive_in_other_orders_and_block_sizes(start, access, order, block_size):
    prefill, decode = start("p"), start("d", order=order, block_size=block_size, access=access, produces=False)
    source, destination = (3, 1, 7, 2, 9), [5, 4, 6, 8, 10, 11, 2, 1, 12, 13]
    fill(prefill, source, 18)
    prefill.hold(*source)
    decode.pull(offer(source, 18), destination)
    assert decode.wait(1) == {"d"} and prefill.wait(0) == {"p"}
    check(decode, destination, 18)
    assert not decode.exchange.failed_requests and not decode.exchange.failed_blocks
    assert decode.exchange.counters["mapped_bytes" if access == "mapped" else "nixl_bytes"] > 0
    assert decode.exchange.counters["loaded_blocks"] == -(-18 // block_size)
    assert prefill.exchange.counters == {"offered_requests": 1, "handed_over_requests": 1}


@pytest.mark.parametrize("access", ["mapped", "nixl"])
@pytest.mark.parametrize(("sources", "ranks", "block_size"), [(2, 1, 4), (1, 2, 4), (2, 1, 8), (4, 2, 4)])
def test_ranks_may_differ(start, access, sources, ranks, block_size):
    source, destination = (3, 1, 7), [5, 4, 6]
    prefills = [start("p", rank=rank, ranks=sources) for rank in range(sources)]
    decodes = [start("d", rank=rank, ranks=ranks, block_size=block_size, access=access, produces=False) for rank in range(ranks)]
    for rank, prefill in enumerate(prefills):
        first, count = _ranks.heads_of(rank, sources, HEADS)
        fill(prefill, source, 11, range(first, first + count))
        prefill.hold(*source)
    for decode in decodes:
        decode.pull(offer(source, 11, ranks=sources), destination)
    for rank, decode in enumerate(decodes):
        assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
        first, count = _ranks.heads_of(rank, ranks, HEADS)
        check(decode, destination, 11, heads=range(first, first + count))
    for rank, prefill in enumerate(prefills):
        assert prefill.wait(0) == {"p"}
        assert prefill.exchange.counters == ({} if rank else {"offered_requests": 1, "handed_over_requests": 1})


def test_only_tokens_that_decode_does_not_have_are_read(start):
    prefill, decode = start("p"), start("d", block_size=2, produces=False)
    fill(prefill, (3, 1), 8)
    prefill.hold(3, 1)
    decode.pull(offer((3, 1), 8), [9, 8, 7, 6], first=4)
    assert decode.wait(1) == {"d"}
    check(decode, [9, 8, 7, 6], 8, first=4)
    assert not decode.cache[:, [9, 8]].any()


@pytest.mark.parametrize("block_size", [4, 8])
@pytest.mark.parametrize("verify", [True, False])
def test_damaged_blocks_are_found_by_checksums_and_otherwise_not(start, block_size, verify):
    prefill, decode = start("p"), start("d", block_size=block_size, verify=verify, produces=False)
    fill(prefill, (3, 1, 7), 12)
    prefill.hold(3, 1, 7)
    drop = offer((2,), 4, request="other")  # a pull of it shows that the checksums of the first request are computed
    prefill.hold(2, request="other")
    decode.pull(drop, [1] if block_size == 4 else [1], request="first", tokens=4)
    assert decode.wait(1) == {"first"}
    prefill.cache[1, 1, 2, 3, 5] ^= 1
    decode.pull(offer((3, 1, 7), 12), [5, 4, 6])
    assert decode.wait(1) == {"d"}
    if not verify:
        assert not decode.exchange.failed_requests
        with pytest.raises(AssertionError):
            check(decode, [5, 4, 6], 12)
    else:
        assert decode.exchange.failed_requests == {"d"} and decode.exchange.counters["damaged_blocks"] == 1
        assert decode.exchange.failed_blocks == ({4} if block_size == 4 else {5, 4})
    sent = set()
    while "p" not in sent:
        sent |= prefill.wait(0)


def test_a_question_that_comes_before_its_request_gets_a_reply_when_the_request_comes(start):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    decode.pull(offer((3,), 4), [5])
    while not prefill.exchange._early:
        time.sleep(0.002)
    prefill.hold(3)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    check(decode, [5], 4)


def test_a_lease_ends_and_a_late_pull_fails(start, caplog):
    prefill, decode = start("p", lease=0.05), start("d", produces=False)
    prefill.hold(3)
    assert prefill.wait(0) == {"p"} and prefill.exchange.counters == {"offered_requests": 1, "expired_requests": 1}
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"} and decode.exchange.failed_blocks == {5}
    assert "does not keep it any longer" in caplog.text


def test_a_dropped_request_is_released(start):
    prefill, decode = start("p"), start("d", produces=False)
    prefill.hold(3)
    decode.exchange.give(HandoverStep(drops=[offer((3,), 4)]))
    assert prefill.wait(0) == {"p"}


def test_a_transfer_from_an_engine_that_was_restarted_is_not_used_again(start):
    """It reads memory of the one before it, whose blocks had the same epochs."""
    prefill, decode = start("p"), start("d", produces=False)
    pulls, known, idle = decode.exchange._pulls, decode.exchange._peers._peers, []
    keep = pulls._keep

    def late(name, run):
        before, known[name] = known[name], SimpleNamespace(idle={})
        keep(name, run)
        idle.append(known[name].idle)
        known[name] = before

    pulls._keep = late
    prefill.hold(3)
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and idle == [{}]


def test_workers_are_found_when_the_system_has_no_more_threads(start, monkeypatch):
    """Two at once: each would have a thread of its own."""
    prefill, decode = start("p"), start("d", produces=False)

    def no_thread(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    pulls = [Pull(name, offer((3,), 4, engine=engine), ((block,),), 0, 4) for name, engine, block in (("other", "none", 6), ("d", "p", 5))]
    decode.exchange.give(HandoverStep(pulls=pulls))
    ended = set()
    while ended != {"other", "d"}:
        ended |= decode.wait(1)
    check(decode, [5], 4)
    assert decode.exchange.failed_requests == {"other"}


def test_prefill_that_does_not_exist_or_reply_leads_to_computation(start, caplog):
    prefill, decode = start("p"), start("d", produces=False, timeout=0.3)
    decode.pull(offer((3,), 4, engine="none"), [5], request="none")
    assert decode.wait(1) == {"none"} and decode.exchange.failed_blocks == {5} and "is not reached" in caplog.text
    decode.pull(offer((3,), 4), [6], request="unknown")  # prefill waits for a request that never comes
    assert decode.wait(1) == {"unknown"} and decode.exchange.failed_blocks == {5, 6} and "within 0.3 s" in caplog.text
    assert prefill.exchange.poll() == (set(), set())


def test_prefill_that_ends_while_decode_waits_leads_to_computation(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    decode.pull(offer((3,), 4), [5])
    while not prefill.exchange._early:
        time.sleep(0.002)
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    assert decode.wait(1) == {"d"} and decode.exchange.failed_blocks == {5} and "has ended" in caplog.text


@pytest.mark.parametrize("change", [{"model": "another"}, {"packing": "amx", "block_size": 8}])
def test_engines_that_do_not_fit_are_computed_with_the_reason(start, caplog, change):
    prefill, decode = start("p", packing=change.get("packing", "none")), start("d", produces=False, **change)
    prefill.hold(3)
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_blocks == {5}
    assert ("cannot be divided" if "packing" in change else "identit") in caplog.text
    assert prefill.wait(0) == {"p"}  # it is not kept until its lease ends


def test_block_ids_outside_of_the_cache_are_computed(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    prefill.hold(3)
    decode.pull(offer((99,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_blocks == {5} and "cannot be read" in caplog.text


def test_the_packing_of_the_cpu_is_divided_by_tokens_and_heads(start):
    """Keys are elements × tokens, values tokens × elements: the last axis of vLLM's tensor is twice as long as a head."""
    prefill, decode = start("p", packing="vec"), start("d", packing="vec", block_size=8, produces=False)
    half = ELEMENTS // 2

    def keys_and_values(worker, block, head):
        flat = worker.cache[:, block, head].reshape(LAYERS, -1)
        tokens = worker.cache.shape[3]
        return flat[:, : half * tokens].reshape(LAYERS, half, tokens), flat[:, half * tokens :].reshape(LAYERS, tokens, half)

    for at, block in enumerate((3, 1, 7)):
        for head in range(HEADS):
            keys, value = keys_and_values(prefill, block, head)
            for token in range(4):
                keys[:, :, token] = values(at * 4 + token)[:, head, :half]
                value[:, token] = values(at * 4 + token)[:, head, half:]
    prefill.hold(3, 1, 7)
    decode.pull(offer((3, 1, 7), 12), [5, 4])
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    for token in range(12):
        for head in range(HEADS):
            keys, value = keys_and_values(decode, [5, 4][token // 8], head)
            assert (keys[:, :, token % 8] == values(token)[:, head, :half]).all() and (value[:, token % 8] == values(token)[:, head, half:]).all()


@pytest.mark.parametrize("block_size", [8, 3, 1])
def test_block_sizes_that_prefill_does_not_have_fail_their_request_only(start, caplog, block_size):
    prefill, decode = start("p"), start("d", produces=False, block_size=8 if block_size == 3 else 4)
    fill(prefill, (3, 1), 8)
    prefill.hold(3, 1)
    decode.pull(offer((3, 1), 4, block_size=block_size), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"} and "has failed" not in caplog.text


def test_a_message_that_is_right_for_one_group_only_leaves_no_group_unread(start, caplog):
    """The blocks of the first group arrive, and those of the second are never asked for: the request has failed."""
    prefill, decode = start("p", groups=2), start("d", produces=False, groups=2)
    fill(prefill, (3,), 4)
    sums = prefill.exchange._held._checksums
    prefill.exchange._held._checksums = lambda blocks: [sums(blocks)[0], 5]
    prefill.exchange.give(HandoverStep(holds=[Hold("p", ((3,), (3,)))]))
    both = Offer("p", "p", 4, 1, (4, 4), ((3,), (3,)), "")
    decode.exchange.give(HandoverStep(pulls=[Pull("d", both, ((5,), (6,)), 0, 4)]))
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"} and "has failed" not in caplog.text


def test_a_failure_loses_only_its_own_request(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    legs = decode.exchange._pulls._legs
    decode.exchange._pulls._legs = lambda sources: legs(sources) if sources == 1 else 1 / 0
    wrong, right = Pull("wrong", offer((3,), 4, ranks=2), ((6,),), 0, 4), Pull("d", offer((3,), 4), ((5,),), 0, 4)
    decode.exchange.give(HandoverStep(pulls=[wrong, right]))
    received = set()
    while received < {"wrong", "d"}:
        received |= decode.wait(1)
    assert decode.exchange.failed_requests == {"wrong"} and "cannot be divided" in caplog.text and "has failed" not in caplog.text
    check(decode, [5], 4)


def test_a_drop_that_fails_loses_no_request(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    decode.pull(offer((3,), 4), [5])
    legs = decode.exchange._pulls._legs
    decode.exchange._pulls._legs = lambda sources: legs(sources) if sources == 1 else 1 / 0
    decode.exchange.give(HandoverStep(drops=[offer((3,), 4, ranks=2, request="wrong")]))
    fill(prefill, (3,), 4)
    prefill.hold(3)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests and "has failed" not in caplog.text
    check(decode, [5], 4)


def test_a_peer_does_not_take_the_place_of_the_questions_of_others(start, caplog):
    prefill, loud, decode = start("p"), start("l", produces=False), start("d", produces=False)
    fill(prefill, (3,), 4)
    name = agent_name("p", 0)
    loud.connect(name)
    for number in range(5000):
        loud.agent.notify(name, message("ask", request=str(number), tag=0))
    loud.agent.notify(name, message("done", request="l", tag=0, takers=1, compare=False))
    while "too many others" not in caplog.text:
        time.sleep(0.002)
    decode.pull(offer((3,), 4), [5])
    while not any(each.sender == agent_name("d", 0) for each in prefill.exchange._early):
        time.sleep(0.002)
    prefill.hold(3)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    check(decode, [5], 4)


def test_a_tensor_parallelism_that_no_engine_has_is_refused():
    params = offer((3,), 4).params()
    assert Offer.of(params).ranks == 1
    with pytest.raises(ValueError, match="tp_size is 4294967295, and must be at most"):
        Offer.of(params | {"tp_size": 2**32 - 1})


def test_messages_of_others_are_ignored(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    decode.connect(agent_name("p", 0))
    for data in (b"\xff", b"[]", b'{"kvmem.vllm": "ask"}', b'{"kvmem.vllm": "done", "tag": 1}', b'{"kvmem.vllm": "grant", "tag": 1}', b'{"kvmem.vllm": "kept", "tag": "1"}',
                 b"[" * 20000, b'{"kvmem.vllm": "done", "tag": 1, "request": "p", "takers": 1e999, "compare": 0}',
                 b'{"kvmem.vllm": "done", "tag": 1, "request": "p"}', b'{"kvmem.vllm": "kept", "tag": 1, "changed": 5}'):  # fmt: skip
        decode.agent.notify(agent_name("p", 0), data)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    assert "the handover has failed" not in caplog.text


def test_each_rank_renews_the_lease_once():
    held = HeldRequests([], 10, 1)
    held.hold(Hold("p", ()), 0)
    assert held.next_deadline == 10 and held.asked("p", "a", 9) == ([], []) and held.next_deadline == 19
    assert held.asked("p", "a", 18) == ([], []) and held.next_deadline == 19
    assert held.asked("p", "b", 18) == ([], []) and held.next_deadline == 28
    held.expire(27)
    assert not held.sent and held.done("p", "a", 2, False) == [] and not held.sent
    held.expire(28)
    assert held.sent == {"p"} and held.counters == {"offered_requests": 1, "expired_requests": 1}
    assert held.asked("p", "b", 28) is None and held.done("p", "b", 2, False) is None and held.is_known("p") and not held.is_known("q")

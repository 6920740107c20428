# SPDX-License-Identifier: Apache-2.0
"""Pulls by layer of kvmem.vllm's handover without vLLM: a step begins the pull, and computes each layer when it has arrived."""

import threading
import time

import pytest

import kvmem
from kvmem.vllm import _exchange, _pulls
from kvmem.vllm._offer import Ask, HandoverStep, Pull, agent_name
from vllm_workers import ELEMENTS, HEADS, LAYERS, WAIT, check, fill, offer, start  # noqa: F401


@pytest.mark.parametrize("order", ["LBHNC", "BLHNC"])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("access", ["mapped", "nixl"])
def test_by_layer_a_step_waits_for_each_layer(start, access, verify, order):
    prefill, decode = start("p", order=order), start("d", order=order, access=access, verify=verify, produces=False)
    fill(prefill, (3, 1, 7), 12)
    prefill.hold(3, 1, 7)
    assert decode.by_layer(offer((3, 1, 7), 12), [5, 4, 6], 12) == ({"d"}, set())
    for layer in range(LAYERS):
        decode.exchange.wait_for_layers(layer + 1)
        assert (decode.cache[layer, [5, 4, 6]] == prefill.cache[layer, [3, 1, 7]]).all()
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and not decode.exchange.failed_blocks  # it has not waited
    assert decode.exchange.counters["loaded_blocks"] == 3 and prefill.wait(0) == {"p"}
    check(decode, [5, 4, 6], 12)


def test_by_layer_the_first_layer_does_not_wait_for_the_second(start, monkeypatch):
    """A run whose layers move when the test says so."""
    submit = kvmem.Transfer.submit

    class Run(kvmem.Transfer):
        def __init__(self, *arguments, layers_per_completion, flags, **more):
            assert layers_per_completion == 1 and flags & kvmem.TransferFlags.BY_LAYER
            super().__init__(*arguments, flags=kvmem.TransferFlags.REPORT_RELEASE, **more)

        def submit(self, *arguments, user_data, **more):
            self.begin = lambda: submit(self, *arguments, user_data=user_data, **more)
            runs.append((self, user_data))

    runs = []
    monkeypatch.setattr(_pulls.kvmem, "Transfer", Run)
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    decode.by_layer(offer((3,), 4), [5], 4)
    end = time.monotonic() + WAIT
    while not runs and time.monotonic() < end:
        time.sleep(0.002)
    (run, user_data), layers = runs[0], threading.Thread(target=decode.exchange.wait_for_layers, args=(2,))
    moved = kvmem.Completion(kvmem.CompletionKind.LAYERS_MOVED, run, user_data, kvmem.Status.OK, 0, 1, False)
    decode.exchange._post(lambda now: decode.exchange._pulls.completed(moved))
    decode.exchange.wait_for_layers(1)
    layers.start()
    assert decode.exchange._layers == {"d": 1} and layers.is_alive()
    run.begin()
    layers.join(WAIT)
    assert not layers.is_alive()
    decode.exchange.wait_for_requests()
    assert not decode.exchange.poll()[1] and not decode.exchange.failed_blocks
    check(decode, [5], 4)


def test_by_layer_a_step_fails_if_nixl_may_still_write_to_its_blocks(start, monkeypatch):
    """A run that does not end in time, as if prefill were frozen."""
    submit, runs = kvmem.Transfer.submit, []
    monkeypatch.setattr(kvmem.Transfer, "submit", lambda *arguments, **more: runs.append(lambda: submit(*arguments, **more)))
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    decode.by_layer(offer((3,), 4), [5], 4)
    with monkeypatch.context() as limits:
        limits.setattr(_exchange, "_GRACE", 0.01)
        limits.setattr(decode.exchange._settings, "timeout", 0)
        for waits in (lambda: decode.exchange.wait_for_layers(1), decode.exchange.wait_for_requests):
            with pytest.raises(RuntimeError, match="NIXL may still write to blocks of a request: restart this engine"):
                waits()
    end = time.monotonic() + WAIT
    while not runs and time.monotonic() < end:
        time.sleep(0.002)
    runs[0]()
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and not decode.exchange.failed_blocks
    check(decode, [5], 4)


def test_by_layer_damaged_blocks_are_found_at_the_end_of_the_step(start):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3, 1, 7), 12)
    prefill.hold(3, 1, 7)
    end = time.monotonic() + WAIT
    while "p" not in prefill.exchange._held._held and time.monotonic() < end:
        time.sleep(0.002)
    prefill.cache[1, 1, 2, 3, 5] ^= 1
    decode.by_layer(offer((3, 1, 7), 12), [5, 4, 6], 12)
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and decode.exchange.failed_blocks == {4}
    assert decode.exchange.counters["damaged_blocks"] == 1 and decode.exchange.counters["loaded_blocks"] == 2
    assert decode.exchange.counters["loaded_bytes"] == 2 * LAYERS * HEADS * 4 * ELEMENTS * 2 and prefill.wait(0) == {"p"}


def test_by_layer_a_peer_that_ends_before_the_pull_is_refused_and_afterwards_its_blocks_are_computed(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    assert decode.by_layer(offer((3,), 4, engine="none"), [5], 4, "none") == (set(), {"none"})
    prefill.hold(3)
    decode.exchange.give(HandoverStep(asks=[Ask("d", offer((3,), 4))]))
    end, granted = time.monotonic() + WAIT, set()
    while not granted and time.monotonic() < end:
        granted, _ = decode.exchange.take_replies()
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    refused = set()
    while not refused and time.monotonic() < end:
        _, refused = decode.exchange.take_replies()
    assert granted == refused == {"d"} and "has ended" in caplog.text
    decode.exchange.poll()
    assert decode.exchange.counters["failed_loads"] == 2
    # The scheduler has planned the pull before it knew that.
    decode.exchange.give(HandoverStep(pulls=[Pull("d", offer((3,), 4), ((5,),), 0, 4, True)]))
    decode.exchange.wait_for_layers(1)
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and decode.exchange.failed_blocks == {5}


def test_by_layer_what_was_asked_for_and_is_not_needed_is_released(start):
    prefill, decode = start("p"), start("d", produces=False)
    prefill.hold(3)
    decode.exchange.give(HandoverStep(asks=[Ask("d", offer((3,), 4))]))
    decode.exchange.give(HandoverStep(drops=[offer((3,), 4)]))
    assert prefill.wait(0) == {"p"} and not decode.exchange._pulls._pulls

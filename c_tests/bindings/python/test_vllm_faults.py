# SPDX-License-Identifier: Apache-2.0
"""Faults of one worker or of one part of kvmem.vllm's handover: they end requests of that worker only, and no other one waits for it."""

import contextlib
import threading
import time

import pytest

import kvmem
from kvmem.vllm import _exchange
from kvmem.vllm._offer import agent_name
from vllm_workers import WAIT, Paused, check, fill, offer, start  # noqa: F401


@pytest.mark.parametrize("call", ["watch", "look_up", "open_layout"])
def test_a_worker_whose_directory_or_process_hangs_delays_no_other(start, monkeypatch, call):
    prefill, slow, decode = start("p"), start("s"), start("d", produces=False)
    responds, hangs = threading.Event(), threading.Event()
    owner = kvmem.Entry if call == "open_layout" else kvmem.Directory
    original = getattr(owner, call)

    def hanging(self, name, *arguments, **more):
        if agent_name("s", 0) in (name, getattr(self, "agent", "")):
            hangs.set()
            assert responds.wait(WAIT)
        return original(self, name, *arguments, **more)

    monkeypatch.setattr(owner, call, hanging)
    for worker in (prefill, slow):
        fill(worker, (3,), 4)
    slow.hold(3)
    decode.pull(offer((3,), 4, engine="s"), [6], request="slow")
    try:
        assert hangs.wait(WAIT)
        for request in ("first", "second"):
            prefill.hold(3, request=request)
            decode.pull(offer((3,), 4, request=request), [5], request=request)
            assert decode.wait(1) == {request} and not decode.exchange.failed_requests
            check(decode, [5], 4)
    finally:
        responds.set()
    assert decode.wait(1) == {"slow"} and "slow" not in decode.exchange.failed_requests
    check(decode, [6], 4)


@pytest.mark.parametrize("fault", ["begin", "granted", "completed"])
def test_a_failure_that_was_not_expected_ends_its_request_only(start, caplog, monkeypatch, fault):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    pulls = decode.exchange._pulls
    original = getattr(pulls, fault)

    def failing(*arguments):
        is_of_it = {
            "begin": lambda pull, _now: pull.request == "wrong",
            "granted": lambda _name, tag, *_sums: pulls._pulls[tag].asked.request == "wrong",
            "completed": lambda completion: completion.user_data[0].asked.request == "wrong",
        }[fault]
        if is_of_it(*arguments):
            raise AssertionError("a fault")
        return original(*arguments)

    monkeypatch.setattr(pulls, fault, failing)
    for request in ("wrong", "right"):
        prefill.hold(3, request=request)
    for request, block in (("wrong", 6), ("right", 5)):
        decode.pull(offer((3,), 4, request=request), [block], request=request)
    received = set()
    while received < {"wrong", "right"}:
        received |= decode.wait(1)
    assert decode.exchange.failed_requests == {"wrong"} and decode.exchange.failed_blocks == {6}
    assert "a fault" in caplog.text
    check(decode, [5], 4)


def test_blocks_that_cannot_be_kept_because_of_a_failure_are_freed_and_others_are_kept(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    checksums = prefill.exchange._held._checksums

    def failing(blocks):
        assert blocks != ((4,),), "a fault"
        return checksums(blocks)

    prefill.exchange._held._checksums = failing
    prefill.hold(4, request="wrong")
    prefill.hold(3)
    assert prefill.wait(0) == {"wrong"} and "a fault" in caplog.text
    decode.pull(offer((4,), 4, request="wrong"), [6], request="wrong")
    assert decode.wait(1) == {"wrong"} and decode.exchange.failed_requests == {"wrong"}
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"wrong"}
    check(decode, [5], 4)


def test_an_agent_that_fails_once_ends_no_request(start, caplog, monkeypatch):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    taken, failures = kvmem.Agent.take_notifications, [kvmem.OutOfMemory("a fault")]

    def failing(agent, *arguments):
        if agent is decode.agent and failures and decode.exchange._pulls._pulls:
            raise failures.pop()
        return taken(agent, *arguments)

    monkeypatch.setattr(_exchange, "_RETRY", 0.01)
    monkeypatch.setattr(kvmem.Agent, "take_notifications", failing)
    prefill.hold(3)
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests and "a fault" in caplog.text
    check(decode, [5], 4)


def test_a_step_by_layer_waits_for_the_limit_of_a_pull_and_no_longer(start):
    decode, limits = start("d", produces=False, timeout=20), []

    class Moved(contextlib.nullcontext):
        def wait_for(self, _done, limit):
            limits.append(limit)

    decode.exchange._moved, decode.exchange._layers = Moved(), {"d": 0}
    with pytest.raises(RuntimeError, match="NIXL may still write"):
        decode.exchange.wait_for_layers(1)
    decode.exchange._moved, decode.exchange._layers = threading.Condition(decode.exchange._lock), {}
    assert limits == [20 + _exchange._GRACE] and _exchange._GRACE <= 2


@pytest.mark.parametrize("is_known", [True, False])
def test_the_blocks_that_an_engine_reads_are_freed_when_it_ends(start, is_known):
    """Long before their lease ends, also if the engine ends before prefill has found it in the directory."""
    prefill, decode = start("p", lease=3600), start("d", produces=False)
    prefill.cache[:, 3] = prefill.cache[:, 4] = 1
    prefill.hold(4, request="of another engine")
    prefill.hold(3)
    held = Paused(prefill.exchange, "_reply") if not is_known else None
    read = Paused(decode.exchange._pulls, "_read")
    decode.pull(offer((3,), 4), [5])
    (held or read).wait()
    decode.exchange._directory.withdraw(agent_name("d", 0), WAIT)
    if held is not None:
        held.go_on()
    assert prefill.wait(0) == {"p"} and prefill.exchange.counters["expired_requests"] == 1
    prefill.cache[:, 3] = 7
    read.go_on()
    if is_known:
        assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"}
    assert prefill.exchange._held.is_known("of another engine") and "of another engine" in prefill.exchange._held._held


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_worker_that_ends_while_it_is_looked_up_is_noticed(start, monkeypatch, caplog, is_taken):
    """The directory reports the end before the worker is known here. It reports none of an entry that was not reported yet."""
    prefill, decode = start("p"), start("d", produces=False)
    look_up, found, goes_on = kvmem.Directory.look_up, threading.Event(), threading.Event()

    def late(self, name, timeout):
        entry = look_up(self, name, timeout)
        if name == agent_name("p", 0) and self is decode.directory:
            found.set()
            assert goes_on.wait(WAIT)
        return entry

    watch, pauses = kvmem.Directory.watch, []

    def before_events_are_taken(self, name, timeout):
        if self is decode.directory and not is_taken and not pauses:  # the worker is looked up again after its end
            pauses.append(Paused(decode.exchange._peers, "lost"))
            decode.exchange._post(lambda _now: None)
            pauses[0].wait()
        watch(self, name, timeout)

    monkeypatch.setattr(kvmem.Directory, "look_up", late)
    monkeypatch.setattr(kvmem.Directory, "watch", before_events_are_taken)
    decode.pull(offer((3,), 4), [5])
    assert found.wait(WAIT)
    search, end = decode.exchange._peers._searches[agent_name("p", 0)], time.monotonic() + WAIT

    def taken(kind):
        while not any(event.kind == kind for event in search.events):
            assert time.monotonic() < end
            time.sleep(0.002)

    if is_taken:
        taken(kvmem.DirectoryChange.PUBLISHED)
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    if is_taken:
        taken(kvmem.DirectoryChange.WITHDRAWN)
    else:
        for _ in range(2):  # the thread of the directory notices changes between two requests
            with pytest.raises(kvmem.NotFound):
                look_up(decode.directory, agent_name("p", 0), WAIT)
        pauses[0].go_on()
    goes_on.set()
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"}
    assert "vllm-p-0 has ended" in caplog.text

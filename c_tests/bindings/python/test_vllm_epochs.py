# SPDX-License-Identifier: Apache-2.0
"""Blocks of kvmem.vllm's handover that are not those of the request any longer when decode reads them: the cases of issue 52234 of vLLM.
Decode computes them, and never takes blocks of another prompt. python.sh runs this file again with NIXL over TCP."""

import threading

import pytest

import kvmem
from vllm_workers import WAIT, check, fill, offer, start  # noqa: F401

ACCESS = pytest.mark.parametrize("access", ["mapped", "nixl"])
VERIFY = pytest.mark.parametrize("verify", [True, False])
SOURCE, DESTINATION, TOKENS = (3, 1, 7), [5, 4, 6], 12


class Paused:
    """Holds the thread of a worker between a decision and its act."""

    def __init__(self, owner, name):
        self._reached, self._goes_on, original = threading.Event(), threading.Event(), getattr(owner, name)

        def late(*arguments):
            self._reached.set()
            assert self._goes_on.wait(WAIT)
            return original(*arguments)

        setattr(owner, name, late)

    def wait(self):
        assert self._reached.wait(WAIT)

    def go_on(self):
        self._goes_on.set()


def reuse(prefill):
    """The owner fills blocks that it has freed with another prompt."""
    prefill.cache[:, list(SOURCE)] = 7


def lost(decode, request="d"):
    assert decode.wait(1) == {request} and decode.exchange.failed_requests == {request}
    assert decode.exchange.failed_blocks == set(DESTINATION)


@ACCESS
def test_unknown_owner(start, access):
    prefill, decode = start("p"), start("d", access=access, produces=False)
    fill(prefill, SOURCE, TOKENS)
    prefill.hold(*SOURCE)
    decode.pull(offer(SOURCE, TOKENS, engine="unknown"), DESTINATION)
    lost(decode)
    assert not decode.cache.any()


@ACCESS
def test_block_out_of_range(start, access):
    prefill, decode = start("p"), start("d", access=access, produces=False)
    fill(prefill, SOURCE, TOKENS)
    prefill.hold(*SOURCE)
    decode.pull(offer((3, 1, 1 << 20), TOKENS), DESTINATION)
    lost(decode)
    assert not decode.cache.any() and prefill.wait(0) == {"p"}


@ACCESS
@VERIFY
def test_reference_used_twice(start, access, verify, caplog):
    prefill, decode = start("p"), start("d", access=access, verify=verify, produces=False)
    fill(prefill, SOURCE, TOKENS)
    prefill.hold(*SOURCE)
    decode.pull(offer(SOURCE, TOKENS), DESTINATION, request="first")
    assert decode.wait(1) == {"first"} and not decode.exchange.failed_requests and prefill.wait(0) == {"p"}
    reuse(prefill)
    decode.pull(offer(SOURCE, TOKENS), DESTINATION)
    lost(decode)
    check(decode, DESTINATION, TOKENS)
    assert "does not keep it any longer" in caplog.text


def read_late(prefill, decode):
    """Prefill grants a read, its lease ends, and it reuses the blocks before decode reads them."""
    fill(prefill, SOURCE, TOKENS)
    read = Paused(decode.exchange._pulls, "_read")
    prefill.hold(*SOURCE)
    decode.pull(offer(SOURCE, TOKENS), DESTINATION)
    read.wait()
    prefill.exchange._post(lambda _now: prefill.exchange._held._end("p"))  # as the end of its lease does
    assert prefill.wait(0) == {"p"}
    reuse(prefill)
    read.go_on()


@ACCESS
@VERIFY
def test_block_reused_by_its_owner(start, access, verify, caplog):
    prefill, decode = start("p"), start("d", access=access, verify=verify, produces=False)
    read_late(prefill, decode)
    lost(decode)
    assert decode.exchange.counters["stale_blocks"] == len(SOURCE)
    assert "has freed blocks before they were read: set its lease_seconds to more" in caplog.text


@ACCESS
def test_control_without_epochs_blocks_of_another_prompt_are_taken(start, access, monkeypatch):
    submit = kvmem.Transfer.submit
    monkeypatch.setattr(kvmem.Transfer, "submit", lambda self, *arguments, **more: submit(self, *arguments, **(more | {"epochs": None})))
    prefill, decode = start("p"), start("d", access=access, verify=False, produces=False)
    read_late(prefill, decode)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    assert (decode.cache[:, DESTINATION] == 7).all()


@ACCESS
def test_lease_over(start, access, caplog):
    prefill, decode = start("p", lease=0.05), start("d", access=access, verify=False, produces=False)
    fill(prefill, SOURCE, TOKENS)
    prefill.hold(*SOURCE)
    assert prefill.wait(0) == {"p"}
    reuse(prefill)
    decode.pull(offer(SOURCE, TOKENS), DESTINATION)
    lost(decode)
    assert not decode.cache.any() and "does not keep it any longer" in caplog.text


@ACCESS
def test_prefill_that_is_frozen_after_it_has_granted_a_read_delays_nothing(start, access):
    prefill, decode = start("p"), start("d", access=access, produces=False)
    fill(prefill, SOURCE, TOKENS)
    done = Paused(prefill.exchange._held, "done")
    prefill.hold(*SOURCE)
    decode.pull(offer(SOURCE, TOKENS), DESTINATION)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    check(decode, DESTINATION, TOKENS)
    done.wait()
    done.go_on()
    assert prefill.wait(0) == {"p"}


@ACCESS
def test_requests_with_the_same_prefix_keep_its_blocks_until_the_last_has_ended(start, access):
    prefill, decode = start("p"), start("d", access=access, verify=False, produces=False)
    fill(prefill, SOURCE, TOKENS)
    prefill.hold(*SOURCE, request="first")
    prefill.hold(*SOURCE[:2], request="second")
    read = Paused(decode.exchange._pulls, "_read")
    decode.pull(offer(SOURCE[:2], 8, request="second"), DESTINATION[:2], request="second")
    read.wait()
    prefill.exchange._post(lambda _now: prefill.exchange._held._end("first"))
    assert prefill.wait(0) == {"first"}
    read.go_on()
    assert decode.wait(1) == {"second"} and not decode.exchange.failed_requests
    check(decode, DESTINATION, 8)
    assert prefill.wait(0) == {"second"} and not prefill.exchange._held._users
    assert prefill.layouts.blocks.epochs([3, 1, 7]) == [1, 1, 1]

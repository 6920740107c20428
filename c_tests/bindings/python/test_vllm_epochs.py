# SPDX-License-Identifier: Apache-2.0
"""Blocks of kvmem.vllm's handover that are not those of the request any longer when decode reads them: the cases of issue 52234 of vLLM.
Decode computes them, and never takes blocks of another prompt. python.sh runs this file again with NIXL over TCP."""

import time

import pytest

import kvmem
from vllm_workers import HEADS, WAIT, Paused, check, fill, offer, start  # noqa: F401

ACCESS = pytest.mark.parametrize("access", ["mapped", "nixl"])
VERIFY = pytest.mark.parametrize("verify", [True, False])
SOURCE, DESTINATION, TOKENS = (3, 1, 7), [5, 4, 6], 12


def reuse(prefill):
    """The owner fills blocks that it has freed with another prompt."""
    prefill.cache[:, prefill.pages(SOURCE)] = 7


def lost(decode, request="d", blocks=DESTINATION):
    assert decode.wait(1) == {request} and decode.exchange.failed_requests == {request}
    assert decode.exchange.failed_blocks == set(blocks)


class Form:
    """A pull between engines that may differ."""

    def __init__(self, start, name, **decode):
        self.by_layer, ranks = name == "by layer", 2 if name == "other ranks" else 1
        size = 6 if name in ("other block size", "pages") else 4
        page = 2 if name == "pages" else 0
        self.prefills = [start("p", rank=rank, ranks=ranks, page=page) for rank in range(ranks)]
        self.decode = start("d", block_size=size, produces=False, **decode)
        self.blocks, self.offer = DESTINATION[: TOKENS // size], offer(SOURCE, TOKENS, ranks=ranks)
        for rank, prefill in enumerate(self.prefills):
            fill(prefill, SOURCE, TOKENS, range(rank * HEADS // ranks, (rank + 1) * HEADS // ranks))

    def pull(self):
        if self.by_layer:
            assert self.decode.by_layer(self.offer, self.blocks, TOKENS) == ({"d"}, set())
        else:
            self.decode.pull(self.offer, self.blocks)

    def lost(self):
        if not self.by_layer:
            lost(self.decode, blocks=self.blocks)
            return
        self.decode.exchange.wait_for_requests()
        assert self.decode.exchange.poll() == (set(), set()) and self.decode.exchange.failed_blocks == set(self.blocks)

    def arrived(self):
        if self.by_layer:
            self.decode.exchange.wait_for_requests()
        else:
            assert self.decode.wait(1) == {"d"}
        assert not self.decode.exchange.failed_requests and not self.decode.exchange.failed_blocks


FORMS = pytest.mark.parametrize("name", ["alike", "by layer", "other block size", "pages", "other ranks"])


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


def read_late(form):
    """Prefill grants a read, its lease ends, and it reuses the blocks before decode reads them. Of two ranks, the second does."""
    read = Paused(form.decode.exchange._pulls, "_read")
    for prefill in form.prefills:
        prefill.hold(*SOURCE)
    form.pull()
    read.wait()
    end = time.monotonic() + WAIT
    while not getattr(prefill.exchange._held._held.get("p"), "renewed", None):  # each rank has granted its read
        assert time.monotonic() < end
        time.sleep(0.002)
    prefill.exchange._post(lambda _now: prefill.exchange._held._end("p"))  # as the end of its lease does
    assert prefill.wait(0) == {"p"}
    reuse(prefill)
    read.go_on()


@ACCESS
@VERIFY
@FORMS
def test_block_reused_by_its_owner(start, access, verify, name, caplog):
    form = Form(start, name, access=access, verify=verify)
    read_late(form)
    form.lost()
    assert form.decode.exchange.counters["stale_blocks"] == len(SOURCE)
    assert "has freed blocks before they were read: set its lease_seconds to more" in caplog.text


@ACCESS
@FORMS
def test_control_without_epochs_blocks_of_another_prompt_are_taken(start, access, name, monkeypatch):
    submit = kvmem.Transfer.submit
    monkeypatch.setattr(kvmem.Transfer, "submit", lambda self, *arguments, **more: submit(self, *arguments, **(more | {"epochs": None})))
    form = Form(start, name, access=access, verify=False)
    read_late(form)
    form.arrived()
    assert (form.decode.cache[:, form.blocks, HEADS // 2 :] == 7).all()


@ACCESS
@FORMS
def test_blocks_that_are_kept_arrive_and_without_verify_prefill_is_not_asked_again(start, access, name):
    form = Form(start, name, access=access, verify=False)
    done = Paused(form.prefills[0].exchange._held, "done")
    for prefill in form.prefills:
        prefill.hold(*SOURCE)
    form.pull()
    form.arrived()
    check(form.decode, form.blocks, TOKENS)
    done.wait()
    done.go_on()
    for prefill in form.prefills:
        assert prefill.wait(0) == {"p"}


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

# SPDX-License-Identifier: Apache-2.0
"""The handover of models with states beside keys and values (Mamba, linear attention), without vLLM: the two cache groups have the same memory.
The demo hands such models over between unmodified engines."""

import numpy as np
import pytest

from kvmem.vllm._offer import HandoverStep, Hold, Offer, Pull
from vllm_workers import LAYERS, check, fill, start  # noqa: F401

STATE = (((3, 4), "uint16"), ((2, 8), "float32"))
"""A convolution and a recurrence: 88 bytes of the 256 of a page."""
SOURCE, TOKENS = (3, 1, 7), 11
DESTINATION = (5, 4, 6)


def pair(start, prefill=(), **decode):
    """A prefill worker that keeps a request whose state is in its block 9, and a decode worker."""
    made = start("p", state=STATE, **dict(prefill)), start("d", produces=False, **({"state": STATE} | decode))
    fill(made[0], SOURCE, TOKENS)
    for layer, parts in enumerate(made[0].states):
        for part in parts:
            part[9] = np.arange(1, part[9].size + 1).reshape(part[9].shape) + 100 * layer
    return made


def hold(prefill, table):
    prefill.exchange.give(HandoverStep(holds=[Hold("p", (SOURCE, table))]))


def pull(decode, table, source=(0, 0, 9), size=4, tokens=TOKENS):
    offer = Offer("p", "p", TOKENS, 1, (4, size), (SOURCE, source), "")
    decode.exchange.give(HandoverStep(pulls=[Pull("d", offer, (DESTINATION, table), 0, tokens)]))


def lost(decode):
    """The request has failed, and nothing of it has been counted as loaded."""
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"}
    assert not decode.exchange.counters.get("loaded_blocks")


@pytest.mark.parametrize("order", ["LBHNC", "BLHNC"])
@pytest.mark.parametrize("access", ["mapped", "nixl"])
@pytest.mark.parametrize("verify", [True, False])
def test_the_state_arrives_in_the_block_after_the_last_token_and_no_other_byte_changes(start, order, access, verify):
    prefill, decode = pair(start, {"order": order}.items(), order=order, access=access, verify=verify)
    decode.cache[:, 8] = 7
    hold(prefill, (0, 0, 9))
    pull(decode, (0, 0, 8))
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests and prefill.wait(0) == {"p"}
    check(decode, DESTINATION, TOKENS)
    for layer in range(LAYERS):
        for here, there in zip(decode.states[layer], prefill.states[layer]):
            assert here[8].any() and (here[8] == there[9]).all()
        page = decode.cache[layer, 8].reshape(-1)
        assert (page[44:] == 7).all() and page.size == 128  # the state has the first 88 bytes
    unused = [block for block in range(16) if block not in (*DESTINATION, 8)]
    assert not decode.cache[:, unused].any()
    assert decode.exchange.counters["loaded_blocks"] == 4 and decode.exchange.counters["loaded_bytes"] == LAYERS * (3 * 256 + 88)


@pytest.mark.parametrize(("there", "source", "here", "table"), [(1024, (9,), 4, (0, 0, 8)), (4, (0, 0, 9), 1024, (8,)), (1024, (9,), 512, (8, 12)), (4, (0, 0, 9), 4, (0, 0, 8, 12))])
def test_tables_may_have_one_state_or_one_per_block_and_blocks_for_speculative_tokens(start, there, source, here, table):
    prefill, decode = pair(start, {"state_tokens": there}.items(), state_tokens=here)
    hold(prefill, source)
    pull(decode, table, source, there)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    assert all((decode.states[layer][at][8] == prefill.states[layer][at][9]).all() for layer in range(LAYERS) for at in range(2))
    assert not decode.cache[:, 12].any()


@pytest.mark.parametrize(
    ("decode", "table", "tokens", "message"),
    [
        ({}, (0, 0, 8), 10, "prefill offers the states after 11 tokens, and decode needs those after 10"),
        ({}, (0, 0, 0), TOKENS, "vLLM has given no block to the state after 11 tokens"),
        ({}, (0, 0), TOKENS, "cannot be read"),
        ({"block_size": 2}, (0, 0, 8), TOKENS, "set the same --tensor-parallel-size, --block-size and VLLM_KV_CACHE_LAYOUT"),
        ({"order": "LBNHC"}, (0, 0, 8), TOKENS, "set the same --tensor-parallel-size, --block-size and VLLM_KV_CACHE_LAYOUT"),
        ({"state": (((3, 4), "float16"), ((2, 8), "float32"))}, (0, 0, 8), TOKENS, "a state is read as a whole"),
        ({"state": (((6, 2), "uint16"), ((2, 8), "float32"))}, (0, 0, 8), TOKENS, "a state is read as a whole"),
        ({"state_form": "another kind of layer"}, (0, 0, 8), TOKENS, "a state is read as a whole"),
    ],
)
def test_a_state_that_is_not_that_of_the_tokens_of_decode_is_not_used(start, caplog, decode, table, tokens, message):
    prefill, decode = pair(start, **decode)
    hold(prefill, (0, 0, 9))
    pull(decode, table, tokens=tokens)
    lost(decode)
    assert message in caplog.text and not any(part.any() for parts in decode.states for part in (parts[0][8], parts[1][8]))
    assert prefill.wait(0) == {"p"}


@pytest.mark.parametrize("access", ["mapped", "nixl"])
@pytest.mark.parametrize("tensor", [0, 1])
def test_a_damaged_state_is_noticed(start, access, tensor):
    prefill, decode = pair(start, access=access)
    hold(prefill, (0, 0, 9))
    while prefill.exchange.counters.get("offered_requests") != 1:  # its checksums were computed
        prefill.exchange.poll()
    prefill.states[1][tensor][9, 1, 1] += 1
    pull(decode, (0, 0, 8))
    lost(decode)
    assert decode.exchange.counters["damaged_blocks"] == 1


@pytest.mark.parametrize("access", ["mapped", "nixl"])
def test_a_state_that_its_owner_has_freed_is_stale(start, access, caplog):
    prefill, decode = pair(start, access=access, verify=False)
    hold(prefill, (0, 0, 9))
    granted = decode.exchange._pulls.granted

    def late(name, tag, sums, epochs):
        prefill.exchange._groups[1].raise_epochs([9])  # as the end of its lease does
        granted(name, tag, sums, epochs)

    decode.exchange._pulls.granted = late
    pull(decode, (0, 0, 8))
    lost(decode)
    assert decode.exchange.counters["stale_blocks"] == 1 and "has freed blocks before they were read" in caplog.text

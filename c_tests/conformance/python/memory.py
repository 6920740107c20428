# SPDX-License-Identifier: Apache-2.0
"""Steps that write and compare host memory."""

import ctypes

import kvmem
from step import Failed


def part(step, state, size):
    offset = step.given.number("offset")
    return state.find(step.name, kvmem.Region).memory[offset : offset + size]


def write(step, state):
    data = bytes.fromhex(step.given.text("bytes"))
    part(step, state, len(data))[:] = data


def read(step, state):
    wanted = bytes.fromhex(step.given.text("bytes"))
    compare(wanted, bytes(part(step, state, len(wanted))))


def elements(step, state):
    """The address of each element of a block, in the order of layers, outer slots, tokens, heads and elements; and its bytes."""
    layout = state.find(step.name, kvmem.Layout)
    info, s, block = layout.info, layout.strides, step.given.number("block")
    heads = max(info.num_heads, 1)
    addresses = [
        s.bases[layer * s.layer_step + outer * s.outer_step + token * s.token_step + head * s.head_step]
        + block * s.block_stride + layer * s.layer_stride + outer * s.outer_stride + token * s.token_stride + head * s.head_stride
        + element * s.element_stride
        for layer in range(info.num_layers) for outer in range(info.outer_dim) for token in range(info.page_size)
        for head in range(heads) for element in range(info.inner_dim // heads)
    ]  # fmt: skip
    return addresses, info.dtype_width


def pattern(seed, size):
    return bytes((31 * seed + 7 * i + 13 * (i // 256)) % 256 for i in range(size))


def fill(step, state):
    addresses, width = elements(step, state)
    data = pattern(step.given.number("seed"), len(addresses) * width)
    for index, address in enumerate(addresses):
        ctypes.memmove(address, data[index * width : (index + 1) * width], width)


def expect(step, state):
    addresses, width = elements(step, state)
    found = b"".join(ctypes.string_at(address, width) for address in addresses)
    compare(pattern(step.given.number("seed"), len(found)) if "seed" in step.given else bytes.fromhex(step.given.text("bytes")), found)


def compare(wanted, found):
    if found != wanted:
        raise Failed(f"expected {wanted.hex()}, found {found.hex()}")

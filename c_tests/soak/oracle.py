# SPDX-License-Identifier: Apache-2.0
"""What each block must contain, and where its elements are in memory: computed without the library.

A block has a label. Each of its 16-bit elements is a function of the label and of the element's layer, outer slot, token, head and index,
so that a block of other content is found, and also an element at a wrong place."""

import functools
import zlib

import numpy as np

LAYERS, OUTERS, TOKENS, HEADS, ELEMENTS = 4, 2, 16, 4, 64
BLOCK_BYTES = 2 * LAYERS * OUTERS * TOKENS * HEADS * ELEMENTS
LENGTHS = {"L": LAYERS, "O": OUTERS, "N": TOKENS, "H": HEADS, "C": ELEMENTS}
UNKNOWN = -1
"""The label of a block that may contain anything."""


def label_of(*names):
    """The label of a block that is known by names: the same in all processes."""
    return zlib.crc32(repr(names).encode()) | 1 << 40


@functools.lru_cache(512)
def content(label):
    """The elements of a block, with axes L, O, N, H, C."""
    mixed = np.arange(BLOCK_BYTES // 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64(label * 0xBF58476D1CE4E5B9 % (1 << 64))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    made = (mixed >> np.uint64(40)).astype(np.uint16).reshape(LAYERS, OUTERS, TOKENS, HEADS, ELEMENTS)
    made.flags.writeable = False
    return made


def guard(size, at):
    """Bytes beside regions, which nothing writes."""
    return (np.arange(at, at + size, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(24)).astype(np.uint8)


def num_regions(order):
    return LAYERS if "/" in order else 1


def region_bytes(order, blocks):
    return blocks * BLOCK_BYTES // num_regions(order)


def blocks_of(order, regions, blocks):
    """The memory of a layout as one array per layer or one for all, with axes [L,] B, O, N, H, C."""
    inner = order.rpartition("/")[2]
    lengths = LENGTHS | {"B": blocks}
    wanted = [axis for axis in "LBONHC" if axis in inner]
    arrays = []
    for region in regions:
        shaped = region.view(np.uint16).reshape([lengths[axis] for axis in inner])
        arrays.append(shaped.transpose([inner.index(axis) for axis in wanted]))
    return arrays if "/" in order else list(arrays[0])


def write(order, regions, blocks, block, label):
    for layer, array in enumerate(blocks_of(order, regions, blocks)):
        array[block] = content(label)[layer]


def first_difference(order, regions, labels):
    """Where the memory of a layout differs from what the labels say; None if it does not."""
    arrays = blocks_of(order, regions, len(labels))
    for block, label in enumerate(labels):
        if label == UNKNOWN:
            continue
        expected = content(label)
        for layer, array in enumerate(arrays):
            if not np.array_equal(array[block], expected[layer]):
                differing = np.argwhere(array[block] != expected[layer])
                outer, token, head, element = map(int, differing[0])
                return (
                    f"block {block}, layer {layer}: {len(differing)} of {expected[layer].size} elements differ, the first at outer slot {outer}, "
                    f"token {token}, head {head}, element {element}: {array[block][tuple(differing[0])]:#06x}, expected "
                    f"{expected[layer][tuple(differing[0])]:#06x} of label {label:#x}"
                )
    return None

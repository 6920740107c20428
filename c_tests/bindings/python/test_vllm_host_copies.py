# SPDX-License-Identifier: Apache-2.0
"""The copies of KvmemOffloadingSpec, without vLLM: blocks of several groups in chunks of several blocks. The demo runs it in vLLM."""

import numpy as np
import pytest

import kvmem
from kvmem.vllm._host_copies import HostCopies, Pages, layout_of, pairs_of

PAGE, BLOCKS, CHUNKS, PER_CHUNK = 64, 12, 5, 2


@pytest.mark.parametrize(
    ("blocks", "sizes", "firsts", "chunks", "per_chunk", "expected"),
    [
        ([7, 3], [2], [0], [4, 1], 1, [[(7, 4), (3, 1)]]),
        ([7, 3, 5], [3], [0], [4, 1], 2, [[(7, 8), (3, 9), (5, 2)]]),
        ([7, 3], [2], [1], [4, 1], 2, [[(7, 9), (3, 2)]]),  # the first block is the second one of its chunk
        ([7, 3], [1, 1], [3, 2], [4, 1], 2, [[(7, 9)], [(3, 2)]]),
        ([7], [0, 1], [3, 0], [1], 2, [[], [(7, 2)]]),
    ],
)
def test_blocks_are_paired_with_pages_of_their_chunks(blocks, sizes, firsts, chunks, per_chunk, expected):
    assert pairs_of(np.array(blocks), sizes, firsts, np.array(chunks), per_chunk) == expected


@pytest.mark.parametrize(("blocks", "sizes", "chunks"), [([1, 2, 3], [3], [0]), ([1], [2], [0])])
def test_lists_that_do_not_agree_are_refused(blocks, sizes, chunks):
    with pytest.raises(ValueError, match="^kvmem: vLLM names"):
        pairs_of(blocks, sizes, [0], chunks, PER_CHUNK)


class Event:
    """Work of a GPU."""

    reached = False

    def query(self):
        return self.reached

    def synchronize(self):
        self.reached = True


class Host:
    """Two groups over the same three tensors: the first has two of them, the second one."""

    def __init__(self, timeout=30.0):
        random = np.random.default_rng(1)
        self.cache = [random.integers(0, 256, (BLOCKS, PAGE), dtype=np.uint8) for _ in range(3)]
        self.memory = [np.zeros((CHUNKS * PER_CHUNK, PAGE), np.uint8) for _ in range(3)]
        groups = [(self._layout(self.cache, at), self._layout(self.memory, at)) for at in ([0, 1], [2])]
        self.copies = HostCopies(groups, timeout)

    def _layout(self, arrays, numbers):
        regions = [kvmem.Region.adopt(arrays[number]) for number in numbers]
        try:
            return layout_of([Pages(region, PAGE, PAGE) for region in regions], len(arrays[0]))
        finally:
            for region in regions:
                region.close()

    def done(self, job):
        self.copies.wait({job})
        (ended,) = self.copies.finished()
        assert ended.job == job
        return ended


@pytest.fixture
def host():
    made = Host()
    yield made
    made.copies.close()


def test_blocks_of_all_groups_come_back_in_other_blocks(host):
    kept = [array.copy() for array in host.cache]
    host.copies.submit(1, True, [[(3, 6), (4, 7)], [(5, 0)]], None)
    stored = host.done(1)
    assert stored.is_store and stored.bytes == (2 * 2 + 1) * PAGE and not stored.error
    host.copies.submit(2, False, [[(8, 6), (9, 7)], [(10, 0)]], None)
    assert host.done(2).bytes == stored.bytes
    for number in (0, 1):
        assert (host.cache[number][8:10] == kept[number][3:5]).all() and (host.cache[number][:8] == kept[number][:8]).all()
    assert (host.cache[2][10] == kept[2][5]).all() and (host.cache[2][8:10] == kept[2][8:10]).all()


def test_a_page_that_is_damaged_fails_its_load_and_no_other(host):
    host.copies.submit(1, True, [[(3, 6), (4, 7)], []], None)
    assert not host.done(1).error
    host.memory[1][7][5] ^= 1
    host.copies.submit(2, False, [[(8, 6), (9, 7)], []], None)
    assert "1 of 2 blocks are damaged in host memory" in host.done(2).error
    host.copies.submit(3, False, [[(8, 6)], []], None)
    assert not host.done(3).error


def test_a_page_that_was_never_stored_fails_its_load(host):
    host.copies.submit(1, False, [[(8, 6)], []], None)
    assert "cannot be copied" in host.done(1).error


def test_a_job_begins_when_the_gpu_has_reached_its_event(host):
    event = Event()
    host.copies.submit(1, True, [[(3, 6)], []], event)
    assert not host.copies.finished() and not host.memory[0].any()
    event.reached = True
    assert not host.done(1).error and (host.memory[0][6] == host.cache[0][3]).all()
    late = Event()
    host.copies.submit(2, True, [[(4, 7)], []], late)
    host.copies.wait({2, 99})  # a job that is not known has ended
    assert late.reached and host.done(2).bytes == 2 * PAGE


def test_jobs_in_flight_end_with_the_engine(host):
    host.copies.submit(1, True, [[(3, 6)], [(5, 0)]], None)
    host.copies.submit(2, True, [[(4, 7)], []], Event())
    host.copies.close()
    host.copies = Host().copies


def test_layers_of_different_pages_are_one_sentence():
    with kvmem.Region.system(4096) as first, kvmem.Region.system(4096) as second:
        with pytest.raises(ValueError, match="^kvmem: the layers of a cache group have pages of .* use another offloading spec"):
            layout_of([Pages(first, 64, 64), Pages(second, 128, 128)], 4)

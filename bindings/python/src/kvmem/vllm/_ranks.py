# SPDX-License-Identifier: Apache-2.0
"""Which ranks of prefill a rank of decode reads, and which heads, if the two engines differ in tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import kvmem


@dataclass(frozen=True)
class Leg:
    """What a rank of decode does with a rank of prefill."""

    rank: int
    """Rank of prefill."""
    heads: kvmem.Range | None
    """Heads to read; None for all, of equal ranks."""
    reads: bool
    """Whether it reads; otherwise it only reports that it needs nothing."""
    takers: int
    """Ranks of decode that report to this rank of prefill."""


def legs_of(rank: int, ranks: int, sources: int, num_heads: int) -> list[Leg]:
    """The legs of a rank of decode, of `ranks`, to the `sources` ranks of prefill. `num_heads` are those of the model: with more ranks than
    heads, several ranks have the same head."""
    if ranks == sources:
        return [Leg(rank, None, True, 1)]
    wanted = [_read_by(each, ranks, sources, num_heads) for each in range(ranks)]
    for source in range(sources):  # each rank of prefill keeps blocks until a report, also if it has only copies of heads
        if not any(source in each for each in wanted):
            wanted[source % ranks][source] = None
    found = []
    for source, heads in sorted(wanted[rank].items()):
        found.append(Leg(source, heads, heads is not None, sum(source in each for each in wanted)))
    return found


def heads_of(rank: int, ranks: int, num_heads: int) -> tuple[int, int]:
    """The first head of a rank, and their number."""
    return rank * num_heads // ranks, max(num_heads // ranks, 1)


def _read_by(rank: int, ranks: int, sources: int, num_heads: int) -> dict[int, kvmem.Range | None]:
    first, count = heads_of(rank, ranks, num_heads)
    copies = max(sources // num_heads, 1)
    found: dict[int, kvmem.Range | None] = {}
    for source in range(rank % copies, sources, copies):
        begin, length = heads_of(source, sources, num_heads)
        low, high = max(first, begin), min(first + count, begin + length)
        if low < high:
            found[source] = kvmem.Range(low - begin, low - first, high - low)
    return found

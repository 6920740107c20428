# SPDX-License-Identifier: Apache-2.0
"""A request that decode pulls, the ranks of prefill that it reads, and the runs that move its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kvmem
from kvmem.vllm._offer import Ask, Pull
from kvmem.vllm._ranks import Leg


@dataclass
class Run:
    """Blocks of one group that move from one rank."""

    transfer: kvmem.Transfer
    peer: Any
    """The worker of prefill as it was found. One of its name that is found later has other memory."""
    key: Any
    group: int
    pairs: list[tuple[int, int]] | None
    """None if tokens move by block tables."""
    mapped: bool
    sums: Sequence[int] | None = None
    """Those of a run by layer, which are compared at its end."""
    error: kvmem.Error | None = None
    pages: int = 1
    """Entries of the source table that a block has."""
    skipped: int = 0
    """Pages of the first block that are not in the source table."""

    def differing(self) -> list[int]:
        """The indices of the pairs whose blocks differ from what was expected, after its end."""
        if self.sums is None:
            return self.transfer.mismatches()
        return [at for at, (sum_, expected) in enumerate(zip(self.transfer.checksums(), self.sums)) if sum_ != expected]


@dataclass
class LegState:
    """What happens with one rank of prefill: it is asked, blocks move, and it confirms that they were kept until then."""

    name: str
    leg: Leg
    runs: list[Run] = field(default_factory=list)
    sums: list[list[int]] | None = None
    """What prefill has replied to the question; None until then."""
    epochs: list[list[int]] = field(default_factory=list)
    """Epochs of the blocks per group; empty if prefill gives none."""
    fenced: bool = True
    """The runs have found by the epochs that prefill has kept the blocks until then: it need not confirm that."""
    ended: bool = False
    compared: bool = True
    """The runs have compared all blocks with the checksums of prefill."""


@dataclass
class PullState:
    """A request that is asked for, or pulled."""

    asked: Ask
    tag: int
    begun: float
    pull: Pull | None = None
    """None until decode has blocks for it."""
    legs: dict[str, LegState] = field(default_factory=dict)
    reason: str = ""
    """Why it failed."""
    failed: set[int] = field(default_factory=set)
    """Blocks of the first group that must be computed."""
    layers: int = 0
    """Layers that have moved, from the first on."""

    @property
    def waits_for_blocks(self) -> bool:
        """Whether prefill has replied, and decode has no blocks for the request yet."""
        return self.pull is None and all(each.sums is not None for each in self.legs.values())


def stale_blocks(run: Run) -> int:
    """How many blocks of a run that has failed have other epochs than expected."""
    if not isinstance(run.error, kvmem.Stale):
        return 0
    try:
        return len({(at + run.skipped) // run.pages for at in run.transfer.mismatches()})
    except kvmem.Error:  # the peer is stale, as one that was replaced
        return 0


def table(blocks: Sequence[int], block_size: int, page_size: int, first_token: int) -> kvmem.Table:
    """The table of a side from a token on. vLLM's kernels may see a block as several pages."""
    pages, rest = divmod(block_size, page_size)
    if rest or not pages:
        raise kvmem.InvalidArgument(f"blocks of {block_size} tokens are offered, and pages of {page_size} published")
    begin = first_token // page_size
    ids = [block * pages + at for block in blocks[begin // pages :] for at in range(pages)]
    return kvmem.Table(ids[begin % pages :], first_token % page_size)


def of_pages(values: Sequence[int], block_size: int, page_size: int, first_token: int) -> list[int]:
    """The values of the blocks that the pages of `table` belong to."""
    pages, begin = block_size // page_size, first_token // page_size
    return [value for value in values[begin // pages :] for _ in range(pages)][begin % pages :]


def page_size_of(layout: kvmem.Layout) -> int:
    """Tokens per block of a layout with parts."""
    with layout.part(layout.info.part_names[0]) as part:
        return part.info.page_size

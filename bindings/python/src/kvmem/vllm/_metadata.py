# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's side and the workers tell each other in a step. vLLM pickles it between processes.

Keys end with the number of their cache group, so those of two groups differ."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Part:
    """Blocks of one cache group, and their keys in its store."""

    group: int
    keys: list[bytes]
    """Of each block as many, one after the other."""
    blocks: list[int]
    """In vLLM's cache."""

    @property
    def per_block(self) -> int:
        """Keys of a block."""
        return len(self.keys) // len(self.blocks)


@dataclass
class Load:
    """Blocks that a request waits for."""

    request: str
    parts: list[Part]


@dataclass
class Put(Part):
    """Consecutive blocks of a request, to store."""

    number: int
    parent: bytes | None
    """Key of the block before the first one."""
    related: bool
    """Each block continues the one before it, and is not evicted before those after it."""


@dataclass
class StepData:
    """From the scheduler to the workers."""

    loads: list[Load] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    clears: bool = False
    """All blocks that are stored now are removed."""


@dataclass
class ReportData:
    """From the workers to the scheduler. Those of several ranks are merged."""

    ended: dict[int, set[int]] = field(default_factory=dict)
    """Number of a put: the ranks that no longer read its blocks."""
    stored: dict[int, set[bytes]] = field(default_factory=dict)
    """Rank: keys that its store has."""
    removed: dict[int, set[bytes]] = field(default_factory=dict)
    """Rank: keys that its store has not, or that cannot be loaded."""

    def merge(self, other: ReportData) -> None:
        """Adds what another rank has reported."""
        for number, ranks in other.ended.items():
            self.ended.setdefault(number, set()).update(ranks)
        for mine, others in ((self.stored, other.stored), (self.removed, other.removed)):
            for rank, keys in others.items():
                mine.setdefault(rank, set()).update(keys)

    def __bool__(self) -> bool:
        return bool(self.ended or self.stored or self.removed)

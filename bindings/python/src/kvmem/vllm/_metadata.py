# SPDX-License-Identifier: Apache-2.0
"""What the scheduler's side and the workers tell each other in a step. vLLM pickles it between processes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Copy:
    """A block of vLLM's cache and its slot in the store of its group."""

    group: int
    block: int
    slot: int
    checksums: tuple[int, ...] = ()
    """Of each rank, for loads."""


@dataclass
class Load:
    """Blocks that a request waits for."""

    request: str
    copies: list[Copy]
    missing: list[int] = field(default_factory=list)
    """Blocks of vLLM's cache that are not stored any more: the load has failed."""


@dataclass
class StepData:
    """From the scheduler to the workers."""

    loads: list[Load] = field(default_factory=list)
    stores: list[Copy] = field(default_factory=list)


@dataclass
class ReportData:
    """From the workers to the scheduler. Those of several ranks are merged."""

    stored: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    """(group, slot): checksum by rank."""
    failed: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """(group, slot): ranks that could not write it."""
    damaged: set[tuple[int, int]] = field(default_factory=set)
    """Slots that cannot be loaded, such as those whose content is not what was stored."""

    def merge(self, other: ReportData) -> None:
        """Adds what another rank has reported."""
        for key, sums in other.stored.items():
            self.stored.setdefault(key, {}).update(sums)
        for key, ranks in other.failed.items():
            self.failed.setdefault(key, set()).update(ranks)
        self.damaged |= other.damaged

    def __bool__(self) -> bool:
        return bool(self.stored or self.failed or self.damaged)

# SPDX-License-Identifier: Apache-2.0
"""Blocks that prefill keeps until decode has them or has ended, or a lease ends."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kvmem
from kvmem._blocks._counters import add
from kvmem.vllm._cache import GroupLayouts
from kvmem.vllm._offer import Hold

_MAX_ENDED = 4096
"""Requests that are remembered after their end, so that a late question is refused at once."""


@dataclass
class _Held:
    blocks: tuple[tuple[int, ...], ...]
    deadline: float
    sums: list[list[int]] | None
    """Checksums per group; None if they are not computed."""
    epochs: list[list[int]]
    """Those of the blocks per group: which use of a block its bytes belong to."""
    takers: set[str] = field(default_factory=set)
    """Agents that have the blocks, or do not need them."""
    renewed: set[str] = field(default_factory=set)
    """Agents that have asked: each renews the lease once, so that it is bounded."""


class HeldRequests:
    """The requests of a rank of prefill. One thread uses it; nothing in it waits for a peer."""

    def __init__(self, groups: Sequence[GroupLayouts], lease: float, timeout: float, counts: bool = True) -> None:
        """One rank of an engine `counts` its requests, because vLLM sums the counters of all."""
        self._groups, self._lease, self._timeout, self._counts = groups, lease, timeout, counts
        self._held: dict[str, _Held] = {}
        self._users: Counter[tuple[int, int]] = Counter()
        """How many requests have each block, by group and id: requests with the same prefix share blocks."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.sent: set[str] = set()
        """Requests whose blocks vLLM may free."""
        self.counters: dict[str, Any] = {}

    def hold(self, hold: Hold, now: float) -> None:
        """Keeps the blocks of a request."""
        self._count("offered_requests")
        epochs = [self._epochs(group, ids) for group, ids in zip(self._groups, hold.blocks)]
        self._held[hold.request] = _Held(hold.blocks, now + self._lease, self._checksums(hold.blocks), epochs)
        self._users.update(_used(hold.blocks))

    def refuse(self, hold: Hold) -> None:
        """Does not keep the blocks of a request, because of a failure: vLLM frees them, and decode computes them."""
        if hold.request in self._held:
            self._end(hold.request)
        else:
            self._forget(hold.request)

    def _epochs(self, group: GroupLayouts, ids: Sequence[int]) -> list[int]:
        """0 for blocks out of a window. Decode does not read those."""
        found = iter(group.epochs([block for block in ids if block]))
        return [next(found) if block else 0 for block in ids]

    def _checksums(self, blocks: Sequence[Sequence[int]]) -> list[list[int]] | None:
        """The checksums of each block, 0 for those out of a window. None if they cannot be computed: decode then compares without them."""
        try:
            found = []
            for group, ids in zip(self._groups, blocks):
                used = [block for block in ids if block]
                sums = iter(group.whole.checksums(used, timeout=self._timeout) if used else ())
                found.append([next(sums) if block else 0 for block in ids])
            return found
        except kvmem.Error:
            return None

    def is_known(self, request: str) -> bool:
        """Whether the request is kept, or has ended. Otherwise its message may have come before it."""
        return request in self._held or request in self._ended

    def asked(self, request: str, taker: str, now: float) -> tuple[list[list[int]], list[list[int]]] | None:
        """Decode begins to read: its lease begins again. Returns checksums and epochs, or None if the blocks are not kept any longer."""
        held = self._held.get(request)
        if held is None:
            return None
        if taker not in held.renewed:
            held.renewed.add(taker)
            held.deadline = now + self._lease
        return held.sums or [], held.epochs

    def done(self, request: str, taker: str, takers: int, compare: bool) -> list[list[int]] | None:
        """A rank of decode has the blocks. Returns the blocks that have changed since they were kept, as [group, index], if it asks for that;
        None if they are not kept any longer, so that what it has read may be of another request."""
        held = self._held.get(request)
        if held is None:
            return None
        changed = self._changed(held) if compare else []
        held.takers.add(taker)
        if len(held.takers) >= takers:
            self._count("handed_over_requests")
            self._end(request)
        return changed

    def _changed(self, held: _Held) -> list[list[int]]:
        """Those whose checksums differ now; all if they cannot be compared."""
        now = self._checksums(held.blocks) if held.sums else None
        before = held.sums or [[0] * len(ids) for ids in held.blocks]
        after = now or [[1] * len(ids) for ids in held.blocks]
        return [[group, at] for group, (old, new) in enumerate(zip(before, after)) for at, (a, b) in enumerate(zip(old, new)) if a != b]

    def expire(self, now: float) -> None:
        """Ends the leases that are over."""
        for request in [request for request, held in self._held.items() if held.deadline <= now]:
            self._count("expired_requests")
            self._end(request)

    def lost(self, taker: str) -> None:
        """An agent has ended: it does not read what it has asked for any longer, and its engine ends with it."""
        for request in [request for request, held in self._held.items() if taker in held.renewed and taker not in held.takers]:
            self._count("expired_requests")
            self._end(request)

    def _count(self, name: str) -> None:
        if self._counts:
            add(self.counters, {name: 1})

    def _end(self, request: str) -> None:
        """Ends a request. vLLM learns it after the epochs were raised, and writes to the blocks after that."""
        held = self._held.pop(request)
        self._users.subtract(_used(held.blocks))
        for number, group in enumerate(self._groups):
            free = [block for group_of, block in _used(held.blocks) if group_of == number and self._users[number, block] <= 0]
            if free:
                group.raise_epochs(free)
            for block in free:
                del self._users[number, block]
        self._forget(request)

    def _forget(self, request: str) -> None:
        self.sent.add(request)
        self._ended[request] = None
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)

    @property
    def next_deadline(self) -> float | None:
        """When the next lease ends."""
        return min((held.deadline for held in self._held.values()), default=None)


def _used(blocks: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The blocks of a request, by group and id, without those out of a window."""
    return [(number, block) for number, ids in enumerate(blocks) for block in ids if block]

# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side of the offload: which blocks are stored, and which are loaded. It moves no bytes, and opens no store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kvmem._blocks._store import longest
from kvmem.vllm._groups import Group
from kvmem.vllm._metadata import Load, Part, Put, ReportData, StepData


class OffloadScheduler:
    """Decides what moves, by the keys that the stores of the workers have. They report what they have stored and removed. A block that a
    store has evicted meanwhile fails its load, and is computed."""

    def __init__(self, groups: Sequence[Group], world_size: int, hashes_of: Callable[[str], Sequence[bytes]] | None = None) -> None:
        """`hashes_of` returns the hashes of the units of a request; None if blocks are stored under vLLM's own hashes."""
        self._hashes_of = hashes_of
        self._groups, self._every = groups, (1 << world_size) - 1
        self._ranks: dict[bytes, int] = {}
        """The ranks that have each key, as bits."""
        self._pool: Any = None
        self._loads: list[Load] = []
        self._computed: dict[str, int] = {}
        self._numbers = itertools.count()
        self._puts: dict[int, tuple[list[Any], list[bytes], int]] = {}
        """Blocks of vLLM's that are kept, their keys, and the ranks that still read them, as bits."""
        self._pending: set[bytes] = set()
        self._seen: dict[str, list[int]] = {}
        self._clears = False

    def bind(self, pool: Any) -> None:
        """Takes vLLM's blocks, of which those being stored are kept."""
        self._pool = pool

    # ---- loads ----

    def matched(self, request: str, hashes: Sequence[bytes], num_tokens: int, num_computed: int) -> int:
        """How many tokens after the first `num_computed` can be loaded. The last token of a prompt is always computed. `hashes` are those of
        the request's units, or of its blocks if there are no units."""
        size = self._groups[0].block_size
        self._computed[request] = num_computed
        if num_computed % size:
            return 0
        first, last = num_computed // size, min((num_tokens - 1) // size, len(hashes) // self._groups[0].per_block)
        for group in self._groups:
            if group.kind == "full":
                last = first + longest(self._has_block(group, hashes, at) for at in range(first, last))
        # The other groups need their last blocks only: the longest prefix whose blocks all of them have.
        while last > first and not all(self._has_end(group, hashes, first, last) for group in self._groups if group.kind != "full"):
            last -= 1
        return (last - first) * size

    def _has(self, key: bytes) -> bool:
        return self._ranks.get(key) == self._every

    def _has_block(self, group: Group, hashes: Sequence[bytes], block: int) -> bool:
        return all(self._has(key) for key in group.keys(hashes, block))

    def _has_end(self, group: Group, hashes: Sequence[bytes], first: int, last: int) -> bool:
        return all(self._has_block(group, hashes, at) for at in range(max(first, group.first_block(last * group.block_size)), last))

    def allocated(self, request: str, hashes: Sequence[bytes], blocks: Sequence[Sequence[int]], num_loaded: int) -> None:
        """vLLM has given blocks to the tokens that are loaded. They follow those that it had when it called `matched`."""
        num_computed = self._computed.pop(request, 0)
        if not num_loaded:
            return
        load = Load(request, [])
        for group in self._groups:
            first, last = num_computed // group.block_size, (num_computed + num_loaded) // group.block_size
            wanted = range(max(first, group.first_block(last * group.block_size)), last)
            load.parts.append(Part(group.number, [key for at in wanted for key in group.keys(hashes, at)], [blocks[group.number][at] for at in wanted]))
        self._loads.append(load)

    # ---- stores ----

    def step(self, scheduled: Mapping[str, Sequence[Sequence[int]]]) -> StepData:
        """What the workers do in this step. `scheduled` has the blocks of each scheduled request, per group."""
        made = StepData(self._loads, [], self._clears)
        self._loads, self._clears = [], False
        for request, blocks in scheduled.items():
            seen = self._seen.setdefault(request, [0] * len(self._groups))
            for at, (group, ids) in enumerate(zip(self._groups, blocks)):
                seen[at] = self._store(request, group, ids, seen[at], made.puts)
        return made

    def _store(self, request: str, group: Group, ids: Sequence[int], first: int, puts: list[Put]) -> int:
        """Stores the full blocks of a request from the first on that is not stored. Returns which block is the next to look at."""
        blocks = [self._pool.blocks[each] for each in ids[first:]]
        full = longest(block.is_null or block.block_hash is not None for block in blocks)
        keys = self._keys(request, group, blocks[:full], first)
        full = len(keys)
        absent = [at for at in range(full) if not blocks[at].is_null and not all(self._knows(key) for key in keys[at])]
        if not absent:
            return first + full
        begin, end = absent[0], min(absent[-1] + 1, absent[0] + group.capacity)  # a put has at most as many blocks as the store
        run = [at for at in range(begin, end) if not blocks[at].is_null]
        related = group.kind == "full"
        put = Put(
            group.number, [key for at in run for key in keys[at]], [blocks[at].block_id for at in run], next(self._numbers),
            self._last_key(request, group, ids, first + begin) if related else None, related,
        )  # fmt: skip
        kept = [blocks[at] for at in run]
        self._pool.touch(kept)
        self._pending.update(put.keys)
        self._puts[put.number] = kept, put.keys, self._every
        puts.append(put)
        return first + (full if end > absent[-1] else end)

    def _keys(self, request: str, group: Group, blocks: Sequence[Any], first: int) -> list[list[bytes]]:
        """The keys of each block of a request from `first` on, up to the first whose units are not hashed."""
        if self._hashes_of is None:
            return [[block.block_hash] for block in blocks]
        hashes = self._hashes_of(request)
        return [group.keys(hashes, at) for at in range(first, min(first + len(blocks), len(hashes) // group.per_block))]

    def _last_key(self, request: str, group: Group, ids: Sequence[int], block: int) -> bytes | None:
        """The key before those of a block; None if it is the first one."""
        before = self._keys(request, group, [self._pool.blocks[ids[block - 1]]], block - 1) if block else []
        return before[0][-1] if before else None

    def _knows(self, key: bytes) -> bool:
        """Whether the block is stored, or is being written."""
        return self._has(key) or key in self._pending

    def opened(self, rank: int, keys: Iterable[bytes]) -> None:
        """What the stores of a rank have at the start."""
        for key in keys:
            self._ranks[key] = self._ranks.get(key, 0) | 1 << rank

    def report(self, found: ReportData) -> None:
        """What the workers have done."""
        for rank, keys in found.removed.items():
            for key in keys:
                left = self._ranks.pop(key, 0) & ~(1 << rank)
                if left:
                    self._ranks[key] = left
        for rank, keys in found.stored.items():
            self.opened(rank, keys)
        for number, ranks in found.ended.items():
            blocks, keys_of, readers = self._puts[number]
            for rank in ranks:
                readers &= ~(1 << rank)
            self._puts[number] = blocks, keys_of, readers
            if not readers:  # until then another rank may still read the blocks
                del self._puts[number]
                self._pending.difference_update(keys_of)
                self._pool.free_blocks(blocks)

    def finished(self, request: str) -> None:
        """The request has ended."""
        self._computed.pop(request, None)
        self._seen.pop(request, None)

    @property
    def is_busy(self) -> bool:
        """Whether blocks are being stored, or no step has had the workers remove them yet."""
        return bool(self._puts) or self._clears

    def clear(self) -> None:
        """Forgets all blocks, and has the workers remove them."""
        self._ranks.clear()
        self._clears = True

    def close(self) -> None:
        """Nothing is open."""

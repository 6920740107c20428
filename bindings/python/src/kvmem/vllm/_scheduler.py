# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side of the offload: which blocks are stored, which are loaded, and where. It moves no bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvmem._blocks._index import Folder, Index, longest
from kvmem.vllm._groups import Group
from kvmem.vllm._metadata import Copy, Load, ReportData, StepData


class OffloadScheduler:
    """Decides what moves. Keys are vLLM's block hashes with the group's number, so blocks of two groups never meet."""

    def __init__(self, groups: Sequence[Group], folder: Folder | None, world_size: int) -> None:
        self._groups, self._folder, self._world_size = groups, folder, world_size
        self._indexes = [Index(group.capacity, folder.file if folder else None, group.number) for group in groups]
        self._pool: Any = None
        self._loads: list[Load] = []
        self._computed: dict[str, int] = {}
        self._pinned: dict[str, list[tuple[int, int]]] = {}
        self._sources: dict[tuple[int, int], Any] = {}
        self._sums: dict[tuple[int, int], dict[int, int]] = {}
        self._broken: dict[tuple[int, int], set[int]] = {}
        self._seen: dict[str, list[int]] = {}

    def bind(self, pool: Any) -> None:
        """Takes vLLM's blocks, of which those being stored are kept."""
        self._pool = pool

    # ---- loads ----

    def matched(self, request: str, hashes: Sequence[bytes], num_tokens: int, num_computed: int) -> int:
        """How many tokens after the first `num_computed` can be loaded. The last token of a prompt is always computed."""
        size = self._groups[0].block_size
        self._computed[request] = num_computed
        if num_computed % size:
            return 0
        first, last = num_computed // size, min((num_tokens - 1) // size, len(hashes))
        for group in self._groups:
            if group.kind == "full":
                index = self._indexes[group.number]
                last = first + longest(group.key(hashes[at]) in index for at in range(first, last))
        # The other groups need their last blocks only: the longest prefix whose blocks all of them have.
        while last > first and not all(self._has_end(group, hashes, first, last) for group in self._groups if group.kind != "full"):
            last -= 1
        return (last - first) * size

    def _has_end(self, group: Group, hashes: Sequence[bytes], first: int, last: int) -> bool:
        index = self._indexes[group.number]
        return all(group.key(hashes[at]) in index for at in range(max(first, group.first_block(last * group.block_size)), last))

    def allocated(self, request: str, hashes: Sequence[bytes], blocks: Sequence[Sequence[int]], num_loaded: int) -> None:
        """vLLM has given blocks to the tokens that are loaded. They follow those that it had when it called `matched`."""
        num_computed = self._computed.pop(request, 0)
        if not num_loaded:
            return
        load, pinned = Load(request, []), self._pinned.setdefault(request, [])
        for group in self._groups:
            first, last = num_computed // group.block_size, (num_computed + num_loaded) // group.block_size
            for at in range(max(first, group.first_block(last * group.block_size)), last):
                block = blocks[group.number][at]
                found = self._indexes[group.number].pin(group.key(hashes[at]))
                if found is None:
                    load.missing.append(block)
                else:
                    pinned.append((group.number, found.slot))
                    load.copies.append(Copy(group.number, block, found.slot, found.checksums))
        self._loads.append(load)

    # ---- stores ----

    def step(self, scheduled: Mapping[str, Sequence[Sequence[int]]]) -> StepData:
        """What the workers do in this step. `scheduled` has the blocks of each scheduled request, per group."""
        loads, self._loads = self._loads, []
        made = StepData(loads=loads)
        for request, blocks in scheduled.items():
            seen = self._seen.setdefault(request, [0] * len(self._groups))
            for group, ids in zip(self._groups, blocks):
                at = seen[group.number]
                while at < len(ids) and self._store(group, ids[at], made.stores):
                    at += 1
                seen[group.number] = at
        return made

    def _store(self, group: Group, block_id: int, stores: list[Copy]) -> bool:
        """Stores a block unless it is stored. Returns whether it needs no further look: it is full, and there was a slot."""
        block = self._pool.blocks[block_id]
        key = block.block_hash
        if block.is_null:
            return True
        if key is None:
            return False
        index = self._indexes[group.number]
        if index.knows(key):
            return True
        slot = index.reserve(key)
        if slot is None:
            return False
        self._pool.touch([block])
        self._sources[group.number, slot] = block
        stores.append(Copy(group.number, block_id, slot))
        return True

    def report(self, found: ReportData) -> None:
        """What the workers have done."""
        for place in found.damaged:
            self._indexes[place[0]].forget(place[1])
        for place, sums in found.stored.items():
            self._sums.setdefault(place, {}).update(sums)
            self._end_store(place)
        for place, ranks in found.failed.items():
            self._broken.setdefault(place, set()).update(ranks)
            self._end_store(place)
        if self._folder is not None and (found.damaged or found.stored):
            self._folder.commit()

    def _end_store(self, place: tuple[int, int]) -> None:
        sums, broken = self._sums.get(place, {}), self._broken.get(place, set())
        if len(sums) + len(broken) < self._world_size:
            return  # another rank may still read the block, and write the slot
        group, slot = place
        self._sums.pop(place, None)
        if self._broken.pop(place, None):
            self._indexes[group].abandon(slot)
        else:
            self._indexes[group].commit(slot, tuple(sums[rank] for rank in range(self._world_size)))
        self._pool.free_blocks([self._sources.pop(place)])

    def finished(self, request: str) -> None:
        """The request has ended."""
        self._computed.pop(request, None)
        self._seen.pop(request, None)

    def received(self, request: str) -> None:
        """The loads of a request have ended."""
        for group, slot in self._pinned.pop(request, ()):
            self._indexes[group].unpin(slot)

    @property
    def stores_in_flight(self) -> bool:
        """Whether blocks are being stored."""
        return bool(self._sources)

    def clear(self) -> None:
        """Forgets all blocks."""
        for index in self._indexes:
            index.clear()

    def close(self) -> None:
        """Ends the use of the folder."""
        if self._folder is not None:
            self._folder.close()

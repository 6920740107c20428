# SPDX-License-Identifier: Apache-2.0
"""Blocks that are stored per head and in units of tokens, so that engines with another block size and tensor parallelism find them.

Each head of a cache group has a store, whose slots have the tokens of a unit in all layers of the group. The rank with the head writes it.
The key of a unit is vLLM's hash of the tokens up to its end, with the unit as the block size."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import kvmem
from kvmem._blocks._run import Run
from kvmem._blocks._store import BlockStore
from kvmem.vllm import _cache
from kvmem.vllm._groups import Group
from kvmem.vllm._ranks import heads_of

_ALIGNMENT = 4096
"""Slots of a store begin at multiples of it."""
_PARTS = {"none": ("",), "vec": ("-keys", "-values"), "vec16": ("-keys", "-values")}
"""The stores of a head by the packing of the cache: the CPU backend has another order of axes for keys than for values."""


@dataclass(frozen=True)
class Model:
    """How vLLM has divided the model and its cache."""

    heads: int
    """Heads of keys and values, of all ranks."""
    ranks: int
    packing: str
    """How a block is packed: `_identity.packing_of`."""


def model_of(config: Any, packing: str) -> Model:
    """From vLLM's configuration."""
    heads = 1 if config.model_config.use_mla else config.model_config.get_total_num_kv_heads()
    return Model(heads, config.parallel_config.tensor_parallel_size, packing)


def ensure_divisible(groups: Sequence[Group], unit: int, model: Model, parallel: Any) -> None:
    """Raises ValueError with what to set, if blocks cannot be stored by head and unit."""
    for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
        size = getattr(parallel, name, 1)
        if size > 1:
            raise ValueError(f"kvmem: unit_tokens is set, and {name} is {size}: set it to 1, or remove unit_tokens")
    if model.heads % model.ranks:
        raise ValueError(
            f"kvmem: unit_tokens is set, and {model.ranks} ranks do not have whole heads of the model's {model.heads}: "
            f"set --tensor-parallel-size to a divisor of {model.heads}, or remove unit_tokens"
        )
    if model.packing not in _PARTS:
        raise ValueError(
            f"kvmem: unit_tokens is set, and the CPU packs blocks for {model.packing}, whose tokens cannot be divided: "
            "set --dtype float32, or remove unit_tokens"
        )
    for group in groups:
        if group.kind == "state":
            raise ValueError(f"kvmem: unit_tokens is set, and cache group {group.number} has states, which are not those of tokens: remove unit_tokens")
        if group.block_size % unit:
            raise ValueError(
                f"kvmem: unit_tokens is {unit}, and cache group {group.number} has blocks of {group.block_size} tokens: "
                "set it to a divisor of the block sizes of all engines"
            )


def divided(groups: Sequence[Group], unit: int, model: Model, capacity_bytes: int) -> list[Group]:
    """The groups with units, and with the blocks that each may store: they share `capacity_bytes` of all ranks, so that the number of slots
    does not depend on the ranks or the block size."""
    parts, found = len(_PARTS[model.packing]), []
    for group in groups:
        per_block = group.block_size // unit
        size = group.page * model.ranks // model.heads // per_block // parts * len(group.layers)
        slots = capacity_bytes // len(groups) // model.heads // parts // (-(-size // _ALIGNMENT) * _ALIGNMENT)
        if slots < per_block:
            raise ValueError(
                f"kvmem: capacity_gib has {capacity_bytes:,} bytes, and a block of group {group.number} needs "
                f"{per_block * len(groups) * model.heads * parts * -(-size // _ALIGNMENT) * _ALIGNMENT:,}: set more"
            )
        found.append(replace(group, capacity=slots // per_block, per_block=per_block, slots=slots))
    return found


class HeadCache:
    """The blocks of a group in vLLM's memory, of which a put or get has one head."""

    def __init__(self, layout: kvmem.Layout, block_size: int, num_heads: int) -> None:
        """Owns the layout: with tokens and heads, and with parts for keys and values if the CPU packs them."""
        names = layout.info.part_names
        self.layouts = [layout.part(name) for name in names] or [layout]
        if names:
            layout.close()
        self.lanes = [(head, part) for head in range(num_heads) for part in self.layouts]
        self._pages = block_size // self.layouts[0].info.page_size

    def pages(self, blocks: Sequence[int]) -> list[int]:
        """vLLM's kernels may see a block as several pages."""
        return [block * self._pages + at for block in blocks for at in range(self._pages)]

    def close(self) -> None:
        """Closes the layouts."""
        for layout in self.layouts:
            layout.close()


class Runs:
    """Runs in several stores, which move the same units."""

    def __init__(self, runs: Sequence[Run], count: int, error: kvmem.Error | None) -> None:
        """`error` is why a run did not start."""
        self._runs, self.count, self._error = runs, count, error

    def ended(self) -> bool:
        """Whether none of them is in flight."""
        return all([run.ended() for run in self._runs])  # each of them looks at its limit

    def wait(self) -> None:
        """Waits for the end of each."""
        for run in self._runs:
            run.wait()

    @property
    def error(self) -> kvmem.Error | None:
        """How one has failed."""
        return self._error or next((run.error for run in self._runs if run.error is not None), None)

    @property
    def is_damaged(self) -> bool:
        """Whether bytes were not those that were stored, and nothing else has failed."""
        failed = [run for run in self._runs if run.error is not None]
        return self._error is None and bool(failed) and all(run.is_damaged for run in failed)

    def lost(self) -> list[int]:
        """The indices of the units that some run has not moved."""
        if self._error is not None:
            return list(range(self.count))
        return sorted({at for run in self._runs for at in run.lost() if at < self.count})

    @property
    def bytes_moved(self) -> int:
        """Of all runs."""
        return sum(run.bytes_moved for run in self._runs)

    def close(self) -> None:
        """Ends the use of the transfers."""
        for run in self._runs:
            run.close()

    def abort(self) -> None:
        """Cancels the runs, and waits for the end of each up to the timeout."""
        for run in self._runs:
            run.abort()


class UnitStore:
    """The stores of a rank's heads as one `BlockStore`: a unit is stored if each of them has it."""

    def __init__(self, stores: Sequence[BlockStore]) -> None:
        """Owns the stores, which have the order of `HeadCache.lanes`."""
        self._stores = stores

    def __len__(self) -> int:
        return min(len(store) for store in self._stores)

    def keys(self) -> list[bytes]:
        """Of all units that each store has."""
        first, *others = self._stores
        found = first.keys()
        for other in others:
            found = [key for key, is_stored in zip(found, other.has(found)) if is_stored]
        return found

    def put(self, cache: HeadCache, keys: Sequence[bytes], blocks: Sequence[int], *, parent: bytes | None = None, related: bool = False) -> Runs:
        """Starts to store the units of some blocks that are not stored."""

        def start(store: BlockStore, head: int, part: kvmem.Layout, pages: Sequence[int]) -> kvmem.StoreRun:
            return store.put(part, keys, pages, parent=parent, related=related, heads=kvmem.Range(head, 0, 1))

        runs, error = self._begin(cache, blocks, start)
        return Runs(runs, max(run.count for run in runs) if error is None else len(keys), error)

    def get(self, cache: HeadCache, keys: Sequence[bytes], blocks: Sequence[int]) -> Runs:
        """Starts to load the first units, up to the first that a store has not."""

        def start(store: BlockStore, head: int, part: kvmem.Layout, pages: Sequence[int]) -> kvmem.StoreRun:
            return store.get(part, keys, pages, heads=kvmem.Range(0, head, 1))

        runs, error = self._begin(cache, blocks, start)
        return Runs(runs, min(run.count for run in runs), error)

    def _begin(
        self, cache: HeadCache, blocks: Sequence[int], start: Callable[[BlockStore, int, kvmem.Layout, Sequence[int]], kvmem.StoreRun]
    ) -> tuple[list[Run], kvmem.Error | None]:
        pages, runs = cache.pages(blocks), list[Run]()
        for store, (head, part) in zip(self._stores, cache.lanes):
            try:
                runs.append(store.run(start(store, head, part, pages)))
            except kvmem.Error as error:
                if not runs:
                    raise
                return runs, error  # what has begun uses the blocks until its end
        return runs, None

    @staticmethod
    def run(runs: Runs) -> Runs:
        """A put or get that the caller polls."""
        return runs

    def clear(self) -> list[bytes]:
        """Removes all units, also those that only some stores have. Returns those that cannot be removed yet."""
        return [key for store in self._stores for key in store.clear()]

    def note(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those of the keys that are stored. The owner knows them now."""
        found = [set(store.note(keys)) for store in self._stores]
        return [key for key in keys if all(key in each for each in found)]

    def forget(self, keys: Sequence[bytes]) -> None:
        """The owner knows that these are not stored."""
        for store in self._stores:
            store.forget(keys)

    def vanished(self) -> list[bytes]:
        """Known keys that a store no longer has. The owner knows that now."""
        return list({key for store in self._stores for key in store.vanished()})

    def close(self) -> None:
        """Closes the stores."""
        for store in self._stores:
            store.close()


def opened(
    group: Group, caches: Mapping[str, Any], region_of: _cache.RegionOf, model: Model, rank: int, unit: int, folder: str, identity: Mapping[str, str], timeout: float
) -> tuple[HeadCache, UnitStore]:
    """The cache of a group, and the stores of the heads that this rank has."""
    layout, stores = _cache.token_layout(group, caches, model.packing, region_of), list[BlockStore]()
    first, count = heads_of(rank, model.ranks, model.heads)
    cache = HeadCache(layout, group.block_size, count)
    try:
        for head, part in cache.lanes:
            path = os.path.join(folder, _name(group, first + head, _PARTS[model.packing][cache.layouts.index(part)]))
            stores.append(BlockStore(path, _slots(part, group.slots, unit), identity, timeout))
    except BaseException:
        UnitStore(stores).close()
        cache.close()
        raise
    return cache, UnitStore(stores)


def names_of(groups: Sequence[Group], model: Model) -> set[str]:
    """The names of the stores of all ranks."""
    return {_name(group, head, part) for group in groups for head in range(model.heads) for part in _PARTS[model.packing]}


def _name(group: Group, head: int, part: str) -> str:
    return f"group-{group.number}-head-{head}{part}"


def _slots(part: kvmem.Layout, count: int, unit: int) -> kvmem.Shape:
    """Units of one head."""
    info = part.info
    return kvmem.Shape(
        num_blocks=count, num_layers=info.num_layers, page_size=unit, inner_dim=info.inner_dim // info.num_heads, dtype_width=info.dtype_width,
        outer_dim=1, num_heads=1, order="BLHNC",
    )  # fmt: skip


class UnitHashes:
    """The hashes of the units of requests. vLLM hashes blocks of its own size."""

    def __init__(self, hasher: Callable[[Any], list[bytes]], per_block: int, unit: int) -> None:
        """`hasher` returns the hashes of a request that follow its `block_hashes`, as vLLM's does."""
        self._hasher, self._per_block, self._unit = hasher, per_block, unit
        self._requests: dict[str, _Request] = {}

    def of(self, request: Any) -> list[bytes]:
        """The hashes of all units of the blocks that vLLM has hashed."""
        seen = self._requests.get(request.request_id)
        if seen is None or not seen.continues(request):
            seen = self._requests[request.request_id] = _Request(request)
        seen.hash(self._hasher, self._per_block, self._unit)
        return seen.block_hashes

    def of_known(self, name: str) -> list[bytes]:
        """The same of a request that `of` has seen; none of another one."""
        seen = self._requests.get(name)
        return self.of(seen.request) if seen is not None else []

    def forget(self, name: str) -> None:
        """The request has ended."""
        self._requests.pop(name, None)


class _Request:
    """A request as its hasher sees it, with the hashes of units instead of those of blocks."""

    def __init__(self, request: Any) -> None:
        self.request, self.block_hashes, self.num_tokens = request, list[bytes](), 0
        self._blocks, self._last = 0, b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request, name)

    def continues(self, request: Any) -> bool:
        """Whether the tokens that were hashed are still the first ones of the request: a session may replace some."""
        hashes = request.block_hashes
        return request is self.request and self._blocks <= len(hashes) and (not self._blocks or hashes[self._blocks - 1] == self._last)

    def hash(self, hasher: Callable[[Any], list[bytes]], per_block: int, unit: int) -> None:
        """Hashes the units of blocks that vLLM has hashed since."""
        hashes = self.request.block_hashes
        if len(hashes) == self._blocks:
            return
        self.num_tokens = len(hashes) * per_block * unit
        self.block_hashes += hasher(self)
        self._blocks, self._last = len(hashes), hashes[-1]

# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The class that SGLang loads. SGLang calls it on its prefetch and backup threads, and waits for each call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

import kvmem
from kvmem._blocks import _settings
from kvmem._blocks._settings import GIB, Settings
from kvmem._blocks._store import longest
from kvmem.sglang._pages import PageStore, pieces_of
from kvmem.sglang._shared import ServedPages, SharedPages

logger = logging.getLogger("sglang.kvmem")


class KvmemStorage(HiCacheStorage):
    """Keeps pages of the host pools in stores, which verify them when they are loaded."""

    def __init__(self, storage_config: Any, kwargs: Mapping[str, Any] | None = None) -> None:
        self._settings = _parse(storage_config.extra_config or {})
        self._config = storage_config
        _check(storage_config)
        self._identity = _identity(storage_config, self._settings.identity)
        self._lock = threading.Lock()
        self._waiting: dict[str, Any] = {}
        self._stores: dict[str, PageStore | SharedPages] = {}
        self._capacity = 0

    # ---- host pools ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Takes the pool of keys and values."""
        super().register_mem_pool_host(mem_pool_host)
        self._register(str(PoolName.KV), mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Takes another pool, such as that of an indexer or of states."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(str(host_pool_name), host_pool)

    def _register(self, name: str, pool: Any) -> None:
        with self._lock:
            known = self._stores.get(name)
            if known is None or known.pool is not pool:
                self._waiting[name] = pool
        if self._capacity:
            self._open()  # a pool that came later has as many pages as the others

    def on_host_pools_registered(self) -> None:
        """All pools are known: opens the files, which share the capacity."""
        self._open()

    def _open(self) -> None:
        with self._lock:
            if not self._capacity:
                page = sum(piece.size for pool in self._waiting.values() for piece in pieces_of(pool))
                self._capacity = int(self._settings.capacity_gib * GIB) // max(page, 1)
                if not self._capacity:
                    raise ValueError(f"kvmem: capacity_gib has {int(self._settings.capacity_gib * GIB):,} bytes, and a page needs {page:,}: set more")
            for name, pool in list(self._waiting.items()):
                self._stores[name] = self._opened(name, pool)
                del self._waiting[name]
                logger.info("kvmem %s keeps %d pages of the pool %s in %s", kvmem.__version__, self._capacity, name, self._settings.path)

    def _opened(self, name: str, pool: Any) -> PageStore | SharedPages:
        is_shared = self._is_shared(name) and self._config.tp_size > 1
        folder = f"{self._folder(is_shared)}-{name}"
        if is_shared and not self._config.is_storage_writer:
            return SharedPages(self._settings, folder, pool)
        return (ServedPages if is_shared else PageStore)(self._settings, folder, pool, self._capacity, self._identity)

    def _is_shared(self, name: str) -> bool:
        """Whether all ranks of tensor parallelism have the same pages, as with MLA, of which the first rank stores them. States of Mamba
        differ also with MLA."""
        return bool(self._config.is_mla_model) and name != str(PoolName.MAMBA)

    def _folder(self, is_shared: bool) -> str:
        """Ranks whose pages differ have folders of their own."""
        config = self._config
        rank = 0 if is_shared else config.tp_rank
        return f"dp{config.dp_rank}-pp{config.pp_rank}-cp{config.attn_cp_rank}-tp{rank}"

    def _store(self, name: Any) -> PageStore | SharedPages:
        found = self._stores.get(str(name))
        if found is None:
            self._open()
            found = self._stores[str(name)]
        return found

    # ---- interface v1: the pool of keys and values ----

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many of the first pages are stored."""
        return longest(self._store(PoolName.KV).has(keys))

    def exists(self, key: str) -> bool:
        """Whether a page is stored."""
        return self._store(PoolName.KV).has([key])[0]

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Loads pages into the host pool."""
        return self._store(PoolName.KV).get(keys, host_indices)

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Stores pages of the host pool."""
        return self._store(PoolName.KV).set(keys, host_indices)

    # ---- interface v2: several pools ----

    def batch_exists_v2(self, keys: list[str], pool_transfers: Sequence[Any] | None = None, extra_info: Any = None) -> Any:
        """Up to which page a prefix can be loaded, from all pools."""
        pages = self.batch_exists(keys)
        hits = {PoolName.KV: pages} if pages else {}
        restorable = list(range(1, pages + 1))
        for transfer in pool_transfers or []:
            if not restorable:
                break
            complete = self._complete(transfer, keys[:pages])
            if complete:
                hits[transfer.name] = max(complete)
            restorable = [length for length in restorable if length in complete]
        return PoolTransferResult(restorable[-1] if restorable else 0, hits, restorable)

    def _complete(self, transfer: Any, keys: list[str]) -> set[int]:
        """The lengths of prefixes that a pool has."""
        has = self._store(transfer.name).has(keys)
        if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
            return set(range(1, longest(has) + 1))
        if transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
            trailing = max(1, len(transfer.keys or ()))
            return {length for length in range(1, len(keys) + 1) if all(has[max(0, length - trailing) : length])}
        raise ValueError(f"kvmem: the hit policy {transfer.hit_policy} of the pool {transfer.name} is not supported: use another storage backend")

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        """Loads pages into several pools."""
        return {each.name: self._store(each.name).get(each.keys or [], each.host_indices) for each in transfers}

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[str, list[bool]]:
        """Stores pages of several pools."""
        return {each.name: self._store(each.name).set(each.keys or [], each.host_indices) for each in transfers}

    # ---- the interface before v1, which copies each page: interface_v1 is required, so SGLang does not call it ----

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> None:
        """A miss."""
        return None

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[None]:
        """Misses."""
        return [None] * len(keys)

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Not stored."""
        return False

    def batch_set(self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None) -> bool:
        """Not stored."""
        return False

    # ---- rest ----

    def clear(self) -> None:
        """Forgets all pages, such as after a change of the weights."""
        failures = []
        for store in self._stores.values():
            try:
                store.clear()
            except kvmem.Busy as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def counters(self) -> dict[str, dict[str, Any]]:
        """Counters of each pool."""
        return {name: store.status() for name, store in self._stores.items()}

    def close(self) -> None:
        """Closes the files."""
        for name, store in self._stores.items():
            logger.info("kvmem ends the pool %s: %s", name, store.status())
            store.close()
        self._stores.clear()


def _parse(extra: Mapping[str, Any]) -> Settings:
    if not extra.get("interface_v1"):
        raise ValueError("kvmem: interface_v1 is not set: set it to 1 in --hicache-storage-backend-extra-config")
    given = extra.get("kvmem")
    if not isinstance(given, Mapping):
        raise ValueError(
            'kvmem: --hicache-storage-backend-extra-config has no settings of kvmem: set "kvmem": {"path": FOLDER, "capacity_gib": NUMBER} in it'
        )
    return _settings.parse(Settings, given, "kvmem in --hicache-storage-backend-extra-config")


def _check(config: Any) -> None:
    if config.dcp_size > 1:
        raise ValueError(f"kvmem: decode context parallelism {config.dcp_size} is not supported: set it to 1, or another storage backend")
    if not config.model_name:
        raise ValueError("kvmem: SGLang gives no name of the model, which pages depend on: set --served-model-name")


def _identity(config: Any, extra: str) -> dict[str, str]:
    """What pages depend on. A pool adds its own properties."""
    return {
        "engine": "SGLang",
        "model": str(config.model_name),
        "tensor parallelism": str(config.tp_size),
        "pipeline parallelism": str(config.pp_size),
        "context parallelism": str(config.attn_cp_size),
        "identity": extra or "none",
    }

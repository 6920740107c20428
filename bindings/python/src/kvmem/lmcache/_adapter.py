# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-unimported, unused-ignore"
# pyright: reportMissingImports=false
"""The class that LMCache's server loads. LMCache calls it on the threads of its store and its prefetch controllers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface

import kvmem
from kvmem.lmcache._objects import ObjectStore, key_of, parse
from kvmem.lmcache._tasks import Copy, Lane, Task

logger = init_logger("lmcache.kvmem")


class KvmemL2Adapter(L2AdapterInterface):
    """Keeps objects in a file or in host memory, and verifies them when they are loaded.

    It evicts by itself, so LMCache's eviction is not used."""

    def __init__(self, params: Mapping[str, Any], l1_memory_desc: Any = None) -> None:
        super().__init__()
        self._config = parse(params)
        self._objects = ObjectStore(self._config)
        self._stores, self._lookups, self._loads = Lane(), Lane(), Lane()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._locked: dict[Any, list[int]] = {}
        self._known: dict[bytes, tuple[Any, int]] = {}
        self._closed = False
        self._said: set[str] = set()
        logger.info("kvmem %s keeps objects in %s", kvmem.__version__, self._config.path or "host memory")

    # ---- event fds: of a queue each ----

    def get_store_event_fd(self) -> int:
        """Readable when stores have ended."""
        return self._stores.fd

    def get_lookup_and_lock_event_fd(self) -> int:
        """Readable when lookups have ended."""
        return self._lookups.fd

    def get_load_event_fd(self) -> int:
        """Readable when loads have ended."""
        return self._loads.fd

    # ---- store ----

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Starts to store objects. Those that are stored already are not written again."""
        task = Task(next(self._numbers), keys, objects)
        names = [key_of(key) for key in keys]
        try:
            index = self._objects.prepare(max(len(memory) for memory in task.memories))
        except ValueError as error:
            self._say(str(error))
            self._stores.finish(task.number, L2StoreResult(False, 0))
            return task.number
        task.slots, without = index.reserve(names)
        task.good = set(range(len(keys))) - set(task.slots) - set(without)
        task.left = 1 + len(task.slots)
        for at, slot in task.slots.items():
            self._copy(self._stores, task, at, slot, None, lambda copy, at=at: self._stored(task, at, copy, names[at]))
        self._end_store(task)
        return task.number

    def _copy(self, lane: Lane, task: Task, at: int, slot: int, checksum: int | None, ended: Any) -> None:
        """Starts a copy. If it cannot start, `ended` gets no copy."""
        stores, memory = lane is self._stores, task.memories[at]
        try:
            copy = Copy(memory, self._objects.slots(len(memory)), self._objects.digest, lane.queue, stores)
            lane.start(copy, slot, stores, checksum, self._config.timeout_seconds, ended)
        except (kvmem.Error, ValueError) as error:
            self._say(f"kvmem: an object cannot be copied: {error}")
            ended(None)

    def _stored(self, task: Task, at: int, copy: Copy | None, name: bytes) -> None:
        index = self._objects.index
        assert index is not None
        if copy is None or copy.error is not None:
            index.abandon([task.slots[at]])
            index.count(failed_stores=1)
        else:
            task.written[task.slots[at]] = (copy.checksum(), task.forms[at])
            task.good.add(at)
            task.bytes += copy.size
            with self._lock:
                self._known[name] = (task.keys[at], copy.size)
        if copy is not None:
            copy.close()
        self._end_store(task)

    def _end_store(self, task: Task) -> None:
        task.left -= 1
        if task.left:
            return
        index = self._objects.index
        assert index is not None
        index.commit(task.written)
        index.count(stored_blocks=len(task.written), stored_bytes=task.bytes)
        stored = [at for at in task.good if task.slots.get(at) in task.written]
        if stored:
            self._notify_keys_stored([task.keys[at] for at in stored], [len(task.memories[at]) for at in stored])
        self._tell_removed()
        self._stores.finish(task.number, L2StoreResult(len(task.good) == len(task.keys), task.bytes))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        """The results of all stores that have ended."""
        self._stores.collect()
        return self._stores.take_all()

    # ---- lookup ----

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: Mapping[int, Any]) -> int:
        """Looks up objects, which are not evicted until they are unlocked."""
        number, found = next(self._numbers), Bitmap(len(keys))
        index = self._objects.index
        hits = []
        if index is not None:
            for at, stored in enumerate(index.pin(key_of(key) for key in keys)):
                if stored is not None:
                    found.set(at)
                    hits.append(keys[at])
                    with self._lock:
                        self._locked.setdefault(keys[at], []).append(stored.slot)
        if hits:
            self._notify_keys_accessed(hits)
        self._lookups.finish(number, found)
        return number

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        """Which objects are stored, once."""
        return self._lookups.take(task_id)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Ends one lock of each object."""
        slots = []
        with self._lock:
            for key in keys:
                held = self._locked.get(key)
                if held:
                    slots.append(held.pop())
                    if not held:
                        del self._locked[key]
        if slots and self._objects.index is not None:
            self._objects.index.unpin(slots)

    # ---- load ----

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Starts to load objects."""
        task = Task(next(self._numbers), keys, objects)
        index = self._objects.index
        found = index.pin(key_of(key) for key in keys) if index is not None else [None] * len(keys)
        task.slots = {at: stored.slot for at, stored in enumerate(found) if stored is not None}
        task.left = 1 + len(task.slots)
        for at, stored in enumerate(found):
            if stored is None:
                continue
            checksum, form = stored.checksums
            if form == task.forms[at]:
                expected = checksum if self._config.verify else None
                self._copy(self._loads, task, at, stored.slot, expected, lambda copy, at=at: self._loaded(task, at, copy))
            else:  # of an engine with another type or shape, which has the same name
                self._loaded(task, at, None)
        self._end_load(task)
        return task.number

    def _loaded(self, task: Task, at: int, copy: Copy | None) -> None:
        index = self._objects.index
        assert index is not None
        slot = task.slots[at]
        if copy is not None and copy.error is None:
            task.good.add(at)
            index.count(loaded_blocks=1, loaded_bytes=copy.size)
        else:
            damaged = copy is not None and isinstance(copy.error, kvmem.Corrupt)
            index.forget([slot])
            index.count(**{"damaged_blocks" if damaged else "failed_loads": 1})
        index.unpin([slot])
        if copy is not None:
            copy.close()
        self._end_load(task)

    def _end_load(self, task: Task) -> None:
        task.left -= 1
        if task.left:
            return
        found = Bitmap(len(task.keys))
        for at in task.good:
            found.set(at)
        self._tell_removed()
        self._loads.finish(task.number, found)

    def query_load_result(self, task_id: int) -> Any:
        """Which objects were loaded, once."""
        self._loads.collect()
        return self._loads.take(task_id)

    # ---- rest ----

    def delete(self, keys: list[Any]) -> None:
        """Removes objects. One that is being loaded is removed after that."""
        if self._objects.index is not None:
            self._objects.index.delete(key_of(key) for key in keys)
            self._tell_removed()

    def _tell_removed(self) -> None:
        """Reports what was evicted or removed, of what this server has stored."""
        if self._objects.index is None:
            return
        with self._lock:
            removed = [self._known.pop(name) for name in self._objects.index.take_removed() if name in self._known]
        if removed:
            self._notify_keys_deleted([key for key, _ in removed], [size for _, size in removed])

    def _say(self, sentence: str) -> None:
        """Logs each sentence once."""
        if sentence not in self._said:
            self._said.add(sentence)
            logger.warning("%s", sentence)

    def report_status(self) -> dict[str, Any]:
        """Counters, for LMCache's status."""
        counters = self._objects.index.status() if self._objects.index is not None else {"blocks": 0}
        return {
            "is_healthy": not self._closed,
            "type": "KvmemL2Adapter",
            "path": self._config.path,
            "block_bytes": self._objects.block_bytes,
            **counters,
        }

    def close(self) -> None:
        """Ends the copies in flight, and closes the files."""
        if self._closed:
            return
        self._closed = True
        for lane in (self._stores, self._loads, self._lookups):
            lane.close(self._config.timeout_seconds)
        self._objects.close()

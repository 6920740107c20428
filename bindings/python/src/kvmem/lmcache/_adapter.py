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
from kvmem._blocks._pause import Pause
from kvmem._blocks._store import BlockStore
from kvmem.lmcache._objects import Objects, form_of, key_of, parse
from kvmem.lmcache._tasks import Copy, Lane, Task

logger = init_logger("lmcache.kvmem")


class KvmemL2Adapter(L2AdapterInterface):
    """Keeps objects in stores, which verify them when they are loaded.

    It evicts by itself, so LMCache's eviction is not used."""

    def __init__(self, params: Mapping[str, Any], l1_memory_desc: Any = None) -> None:
        super().__init__()
        self._config = parse(params)
        self._objects = Objects(self._config)
        self._stores, self._lookups, self._loads = Lane(), Lane(), Lane()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._locked: dict[bytes, int] = {}
        """How often each object is locked."""
        self._known: dict[bytes, tuple[Any, int]] = {}
        """What this server has stored: the key of LMCache, and the size."""
        self._deleted: set[bytes] = set()
        """Objects that are removed when no load reads them any more."""
        self._closed = False
        self._said: set[str] = set()
        self._pause = Pause(logger)
        logger.info("kvmem %s keeps objects in %s", kvmem.__version__, self._config.path)

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
        for at in range(len(keys)):
            try:
                store = self._objects.prepare(len(task.memories[at]), task.forms[at])
            except ValueError as error:
                self._say(str(error))
                self._objects.count(failed_stores=1)
                continue
            self._copy(self._stores, task, at, store, self._put(store), self._stored, self._pause.note)
        self._end_store(task)
        return task.number

    def _put(self, store: BlockStore) -> Any:
        """The put of a store, which fails during a pause."""

        def put(*arguments: Any, **more: Any) -> kvmem.StoreRun:
            self._pause.check()
            return store.put(*arguments, **more)

        return put

    def _copy(self, lane: Lane, task: Task, at: int, store: BlockStore, put_or_get: Any, ended: Any, late: Any) -> None:
        """Starts a copy, and calls `ended` with it when it has ended, and `late` before that with the error of a late run. `ended` gets an error
        if it cannot start, or None if there is nothing to copy."""
        task.left += 1
        result: Copy | kvmem.Error | None = None
        try:
            name = key_of(task.keys[at])
            copy, timeout = Copy(task.memories[at]), self._config.timeout_seconds
            if lane.start(copy, put_or_get, name, timeout, lambda copy: ended(task, at, store, copy), late):
                return
        except kvmem.Error as error:
            self._say(f"kvmem: an object cannot be copied: {error}")
            result = error
        ended(task, at, store, result)

    def _stored(self, task: Task, at: int, store: BlockStore, result: Copy | kvmem.Error | None) -> None:
        name, error = key_of(task.keys[at]), result.error if isinstance(result, Copy) else result
        if error is not None:
            self._pause.note(error)
            self._objects.count(failed_stores=1)
        else:
            task.good.add(at)
            store.note([name])
        if isinstance(result, Copy):
            if error is None:
                task.moved.append(at)
                task.bytes += result.size
                with self._lock:
                    self._known[name] = (task.keys[at], result.size)
            result.close()
        self._end_store(task)

    def _end_store(self, task: Task) -> None:
        task.left -= 1
        if task.left:
            return
        self._objects.count(stored_blocks=len(task.moved), stored_bytes=task.bytes)
        if task.moved:
            self._notify_keys_stored([task.keys[at] for at in task.moved], [len(task.memories[at]) for at in task.moved])
        self._tell_removed([])
        self._stores.finish(task.number, L2StoreResult(len(task.good) == len(task.keys), task.bytes))

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        """The results of all stores that have ended."""
        self._stores.collect()
        return self._stores.take_all()

    # ---- lookup ----

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: Mapping[int, Any]) -> int:
        """Looks up objects, which are not evicted until they are unlocked."""
        number, found = next(self._numbers), Bitmap(len(keys))
        hits = []
        for at, key in enumerate(keys):
            desc = group_layout_descs.get(key.object_group_id)
            if self._lock_object(key_of(key), self._objects.of(form_of(desc.shapes, desc.dtypes) if desc is not None else None)):
                found.set(at)
                hits.append(key)
        if hits:
            self._notify_keys_accessed(hits)
        self._lookups.finish(number, found)
        return number

    def _lock_object(self, name: bytes, stores: Sequence[BlockStore]) -> bool:
        with self._lock:
            if name in self._deleted:
                return False
            for store in stores:
                store.pin([name])
                if store.has([name])[0]:
                    self._locked[name] = self._locked.get(name, 0) + 1
                    return True
        return False

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        """Which objects are stored, once."""
        return self._lookups.take(task_id)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Ends one lock of each object."""
        with self._lock:
            for name in map(key_of, keys):
                left = self._locked.pop(name, 1) - 1
                if left:
                    self._locked[name] = left
                    continue
                for store in self._objects.of():
                    store.unpin([name])

    # ---- load ----

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Starts to load objects."""
        task = Task(next(self._numbers), keys, objects)
        for at in range(len(keys)):
            store = self._objects.found(len(task.memories[at]), task.forms[at])
            if store is not None:
                self._copy(self._loads, task, at, store, store.get, self._loaded, lambda error: None)
        self._end_load(task)
        return task.number

    def _loaded(self, task: Task, at: int, store: BlockStore, result: Copy | kvmem.Error | None) -> None:
        error = result.error if isinstance(result, Copy) else result
        if isinstance(error, kvmem.Corrupt):  # the store has it no more
            self._objects.count(damaged_blocks=1)
            self._tell_removed([key_of(task.keys[at])])
        elif error is not None:
            self._objects.count(failed_loads=1)
        if isinstance(result, Copy):
            if error is None:
                task.good.add(at)
                self._objects.count(loaded_blocks=1, loaded_bytes=result.size)
            result.close()
        self._end_load(task)

    def _end_load(self, task: Task) -> None:
        task.left -= 1
        if task.left:
            return
        found = Bitmap(len(task.keys))
        for at in task.good:
            found.set(at)
        self._remove([])
        self._loads.finish(task.number, found)

    def query_load_result(self, task_id: int) -> Any:
        """Which objects were loaded, once."""
        self._loads.collect()
        return self._loads.take(task_id)

    # ---- rest ----

    def delete(self, keys: list[Any]) -> None:
        """Removes objects. One that is being loaded is removed after that."""
        self._remove([key_of(key) for key in keys])

    def _remove(self, names: Sequence[bytes]) -> None:
        with self._lock:
            self._deleted.update(names)
            wanted = list(self._deleted)
        if not wanted:
            self._tell_removed([])
            return
        left = {name for store in self._objects.of() for name in store.remove(wanted)}
        with self._lock:
            self._deleted = self._deleted.difference(wanted) | left
        self._tell_removed([name for name in wanted if name not in left])

    def _tell_removed(self, names: Sequence[bytes]) -> None:
        """Reports what was removed, and what the stores have evicted, of what this server has stored."""
        gone = [*names, *(name for store in self._objects.of() for name in store.vanished())]
        with self._lock:
            removed = [self._known.pop(name) for name in gone if name in self._known]
        if removed:
            self._notify_keys_deleted([key for key, _ in removed], [size for _, size in removed])

    def _say(self, sentence: str) -> None:
        """Logs each sentence once."""
        if sentence not in self._said:
            self._said.add(sentence)
            logger.warning("%s", sentence)

    def report_status(self) -> dict[str, Any]:
        """Counters, for LMCache's status."""
        return {"is_healthy": not self._closed, "type": "KvmemL2Adapter", "path": self._config.path, **self._objects.status()}

    def close(self) -> None:
        """Ends the copies in flight, and closes the files."""
        if self._closed:
            return
        self._closed = True
        for lane in (self._stores, self._loads, self._lookups):
            lane.close(self._config.timeout_seconds)
        self._objects.close()

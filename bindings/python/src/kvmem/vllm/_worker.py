# SPDX-License-Identifier: Apache-2.0
"""The worker's side of the offload: puts of vLLM's blocks into the stores, and gets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kvmem
from kvmem._blocks._counters import add
from kvmem._blocks._pause import Pause
from kvmem._blocks._run import Run
from kvmem.vllm._metadata import Load, Part, Put, ReportData
from kvmem.vllm._units import HeadCache, Runs

logger = logging.getLogger("vllm.kvmem")


@dataclass
class _Moving:
    """Blocks of one group that move together."""

    run: Run | Runs
    part: Part
    request: str
    """The request that waits for a load; "" for a put."""


@dataclass
class _Waiting:
    runs: int
    failed: bool = False
    blocks: set[int] = field(default_factory=set)
    begun: float = 0.0


class OffloadWorker:
    """Moves blocks between the cache and the store of each group. Nothing here waits for bytes, except `close`. A put of a full store waits
    for the file system, which removes what is evicted, and a thread removes all blocks."""

    def __init__(self, caches: Sequence[kvmem.Layout | HeadCache], stores: Sequence[Any], rank: int) -> None:
        """`stores` are one per group: a BlockStore for a cache that is a Layout, and a UnitStore for a HeadCache."""
        self._caches, self.stores, self._rank = caches, stores, rank
        self._runs: list[_Moving] = []
        self._waiting: dict[str, _Waiting] = {}
        self._queued: list[tuple[Any, list[Put]]] = []
        self._later: list[Put] = []
        """Puts that found no free slot: they begin when a run has ended."""
        self._clearing = False
        self._remover: threading.Thread | None = None
        """Removes the blocks of a clear, because each call may wait for the file system."""
        self._removed: list[list[bytes]] = []
        """Per store that it has looked at: the keys that it leaves, of those that it should remove."""
        self._pause = Pause(logger)
        self._report = ReportData()
        self.failed_blocks: set[int] = set()
        """Blocks of vLLM's cache that could not be loaded."""
        self.failed_requests: set[str] = set()
        """Requests that wait for them."""
        self.counters: dict[str, Any] = {}

    # ---- begin ----

    def load(self, load: Load) -> None:
        """Starts the loads of a request."""
        waiting = self._waiting[load.request] = _Waiting(0, begun=time.monotonic())
        for part in load.parts:
            if not part.keys:
                continue
            run = None if self._clearing else self._get(part)
            found = run.count // part.per_block if run is not None else 0
            if run is not None:
                waiting.runs += 1
                self._runs.append(_Moving(run, part, load.request))
            if found < len(part.blocks):
                self._not_loaded(waiting, part, range(found, len(part.blocks)), "failed_loads")

    def _get(self, part: Part) -> Run | Runs | None:
        """Starts to load the first blocks that are stored."""
        store = self.stores[part.group]
        try:
            found: Run | Runs = store.run(store.get(self._caches[part.group], part.keys, part.blocks))
            return found
        except kvmem.Error:
            return None

    def store(self, puts: list[Put], event: Any) -> None:
        """Stores blocks after the GPU has reached `event`, which may be None."""
        if puts:
            self._queued.append((event, puts))
        self._start_puts()

    def _start_puts(self) -> None:
        while self._queued and (self._queued[0][0] is None or self._queued[0][0].query()):
            for put in self._queued.pop(0)[1]:
                self._put(put)

    def _put(self, put: Put) -> None:
        store = self.stores[put.group]
        try:
            if self._clearing:
                raise kvmem.Cancelled("the blocks that have these keys are being removed")
            self._pause.check()
            run = store.run(store.put(self._caches[put.group], put.keys, put.blocks, parent=put.parent, related=put.related))
        except kvmem.Error as error:
            if isinstance(error, kvmem.Busy) and self._runs:
                self._later.append(put)
            else:
                self._pause.note(error)
                self._put_ended(put, len(put.blocks))
            return
        if run.error is not None:
            self._pause.note(run.error)
        self._runs.append(_Moving(run, put, ""))

    def clear(self) -> None:
        """Removes all blocks that are stored now, when nothing moves any more. What waits to be stored is dropped. Until the end nothing is
        loaded or stored, because the new blocks have the same keys."""
        self._clearing = True
        dropped = [put for _, puts in self._queued for put in puts] + self._later
        self._queued, self._later = [], []
        for put in dropped:
            self._put_ended(put, len(put.blocks))
        self._remove_all()

    def _remove_all(self) -> None:
        if not self._clearing or self._runs:
            return
        if self._remover is not None:
            if self._remover.is_alive():
                return
            self._remover = None
            self._clearing = len(self._removed) < len(self.stores) or any(self._removed)
        if self._clearing:
            self._begin_removal()

    def _begin_removal(self) -> None:
        self._removed = []
        for store in self.stores:
            self._tell([], store.keys())  # the scheduler may get reports from before the clear after it
        remover = threading.Thread(target=self._remove, args=(self._removed,), name="kvmem-clear", daemon=True)
        try:
            remover.start()
            self._remover = remover
        except RuntimeError as error:  # the system has no thread: the next step tries again
            logger.warning("kvmem: the blocks that are removed are still stored: %s", error)

    def _remove(self, left: list[list[bytes]]) -> None:
        for store in self.stores:
            left.append(store.clear())

    # ---- end ----

    def poll(self) -> tuple[set[str], set[str]]:
        """Ends what has moved. Returns no requests that were sent, and those whose loads have all ended, also if they have failed."""
        self._start_puts()
        running = []
        for moving in self._runs:
            if not moving.run.ended():
                running.append(moving)
                continue
            self._ended(moving)
            moving.run.close()
        some_ended, self._runs = len(running) < len(self._runs), running
        self._remove_all()
        if some_ended:
            later, self._later = self._later, []
            for put in later:
                self._put(put)
        ended = {request for request, waiting in self._waiting.items() if not waiting.runs}
        for request in ended:
            waiting = self._waiting.pop(request)
            add(self.counters, {"load_seconds": time.monotonic() - waiting.begun})
            if waiting.failed:
                self.failed_requests.add(request)
                self.failed_blocks |= waiting.blocks
        return set(), ended

    def _ended(self, moving: _Moving) -> None:
        run, part = moving.run, moving.part
        lost = sorted({at // part.per_block for at in run.lost()})
        if isinstance(part, Put):  # a block of which some units were stored is counted, too
            good = -(-run.count // part.per_block) - len(lost)
            add(self.counters, {"stored_blocks": good, "stored_bytes": run.bytes_moved})
            if run.error is not None:
                self._pause.note(run.error)
            self._put_ended(part, len(lost))
            return
        good = run.count // part.per_block
        lost = [at for at in lost if at < good]
        good -= len(lost)
        waiting = self._waiting[moving.request]
        waiting.runs -= 1
        add(self.counters, {"loaded_blocks": good, "loaded_bytes": run.bytes_moved})
        if lost:
            self._not_loaded(waiting, part, lost, "damaged_blocks" if run.is_damaged else "failed_loads")

    def _put_ended(self, put: Put, num_failed: int) -> None:
        store = self.stores[put.group]
        self._report.ended[put.number] = {self._rank}
        self._tell([] if self._clearing else store.note(put.keys), store.vanished())
        if num_failed:
            add(self.counters, {"failed_stores": num_failed})

    def _not_loaded(self, waiting: _Waiting, part: Part, lost: Sequence[int], counter: str) -> None:
        # After any error the scheduler does not ask for these blocks again until they have been stored: vLLM asks at once, and would wait
        # for ever.
        keys = [key for at in lost for key in part.keys[at * part.per_block : (at + 1) * part.per_block]]
        self.stores[part.group].forget(keys)
        self._tell([], keys)
        add(self.counters, {counter: len(lost)})
        waiting.failed = True
        waiting.blocks.update(part.blocks[at] for at in lost)

    def _tell(self, stored: Sequence[bytes], removed: Sequence[bytes]) -> None:
        has = self._report.stored.setdefault(self._rank, set())
        lacks = self._report.removed.setdefault(self._rank, set())
        has.update(stored)
        lacks.difference_update(stored)
        has.difference_update(removed)
        lacks.update(removed)

    def take_report(self) -> ReportData:
        """What the scheduler has to know."""
        made, self._report = self._report, ReportData()
        return made

    def close(self) -> None:
        """Waits for what moves, and closes the stores."""
        if self._remover is not None:
            self._remover.join()  # each of its calls has a limit
        for moving in self._runs:
            moving.run.abort()
        for cache in self._caches:
            cache.close()
        for store in self.stores:
            store.close()

# SPDX-License-Identifier: Apache-2.0
"""The worker's side of the offload: copies between vLLM's cache and the stores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kvmem
from kvmem._blocks._counters import add
from kvmem._blocks._run import Mover, Run
from kvmem.vllm._metadata import Copy, Load, ReportData


@dataclass
class _Moving:
    """Copies of one group that move together."""

    run: Run
    copies: list[Copy]
    request: str
    """The request that waits for a load; "" for a store."""


@dataclass
class _Waiting:
    runs: int
    failed: bool = False
    blocks: set[int] = field(default_factory=set)
    begun: float = 0.0


class OffloadWorker:
    """Moves blocks between the cache and the store of each group. Nothing here waits, except `close`."""

    def __init__(
        self, caches: Sequence[kvmem.Layout], stores: Sequence[kvmem.Layout], rank: int, verify: bool, timeout: float
    ) -> None:
        self._movers = [Mover(cache, store, timeout) for cache, store in zip(caches, stores)]
        self._rank, self._verify = rank, verify
        self._runs: list[_Moving] = []
        self._waiting: dict[str, _Waiting] = {}
        self._queued: list[tuple[Any, list[Copy]]] = []
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
        if load.missing:
            self._failed(waiting, load.missing)
        for group in sorted({copy.group for copy in load.copies}):
            copies = [copy for copy in load.copies if copy.group == group]
            sums = [copy.checksums[self._rank] for copy in copies] if self._verify else None
            try:
                run = self._movers[group].load([(copy.slot, copy.block) for copy in copies], sums)
            except kvmem.Error:
                self._failed(waiting, [copy.block for copy in copies])
                continue
            waiting.runs += 1
            self._runs.append(_Moving(run, copies, load.request))

    def store(self, copies: list[Copy], event: Any) -> None:
        """Stores blocks after the GPU has reached `event`, which may be None."""
        if copies:
            self._queued.append((event, copies))
        self._start_stores()

    def _start_stores(self) -> None:
        while self._queued and (self._queued[0][0] is None or self._queued[0][0].query()):
            _, all_copies = self._queued.pop(0)
            for group in sorted({copy.group for copy in all_copies}):
                copies = [copy for copy in all_copies if copy.group == group]
                try:
                    run = self._movers[group].store([(copy.block, copy.slot) for copy in copies])
                except kvmem.Error:
                    self._not_stored(copies)
                    continue
                self._runs.append(_Moving(run, copies, ""))

    # ---- end ----

    def poll(self) -> tuple[set[str], set[str]]:
        """Ends what has moved. Returns no requests that were sent, and those whose loads have all ended, also if they have failed."""
        self._start_stores()
        running = []
        for moving in self._runs:
            if not moving.run.ended():
                running.append(moving)
                continue
            if moving.run.error is None:
                self._moved(moving)
            else:
                self._not_moved(moving)
            moving.run.close()
        self._runs = running
        ended = {request for request, waiting in self._waiting.items() if not waiting.runs}
        for request in ended:
            waiting = self._waiting.pop(request)
            add(self.counters, {"load_seconds": time.monotonic() - waiting.begun})
            if waiting.failed:
                self.failed_requests.add(request)
                self.failed_blocks |= waiting.blocks
        return set(), ended

    def _moved(self, moving: _Moving) -> None:
        run, copies = moving.run, moving.copies
        if moving.request:
            self._waiting[moving.request].runs -= 1
            add(self.counters, {"loaded_blocks": len(copies), "loaded_bytes": run.bytes})
            return
        for copy, found in zip(copies, run.checksums()):
            self._report.stored[copy.group, copy.slot] = {self._rank: found}
        add(self.counters, {"stored_blocks": len(copies), "stored_bytes": run.bytes})

    def _not_moved(self, moving: _Moving) -> None:
        run, copies = moving.run, moving.copies
        if not moving.request:
            self._not_stored(copies)
            return
        waiting = self._waiting[moving.request]
        waiting.runs -= 1
        lost = [copies[at] for at in run.lost()]
        # After any error the store's blocks are not asked for again: vLLM asks at once, and would wait for ever.
        self._report.damaged |= {(copy.group, copy.slot) for copy in lost}
        good = len(copies) - len(lost)
        size = run.bytes // len(copies) if good else 0
        counter = "damaged_blocks" if run.is_damaged else "failed_loads"
        add(self.counters, {counter: len(lost), "loaded_blocks": good, "loaded_bytes": good * size})
        self._failed(waiting, [copy.block for copy in lost])

    def _failed(self, waiting: _Waiting, blocks: Sequence[int]) -> None:
        waiting.failed = True
        waiting.blocks.update(blocks)

    def _not_stored(self, copies: list[Copy]) -> None:
        self._report.failed.update({(copy.group, copy.slot): {self._rank} for copy in copies})
        add(self.counters, {"failed_stores": len(copies)})

    def take_report(self) -> ReportData:
        """What the scheduler has to know."""
        made, self._report = self._report, ReportData()
        return made

    def close(self) -> None:
        """Waits for the copies in flight, and closes the layouts."""
        for moving in self._runs:
            moving.run.abort()
        for mover in self._movers:
            mover.close()

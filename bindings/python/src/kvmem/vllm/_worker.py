# SPDX-License-Identifier: Apache-2.0
"""The worker's side of the offload: copies between vLLM's cache and the stores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kvmem
from kvmem.vllm._metadata import Copy, Load, ReportData, add


@dataclass
class _Run:
    """Copies of one group that move together."""

    transfer: kvmem.Transfer
    copies: list[Copy]
    request: str
    """The request that waits for a load; "" for a store."""
    begun: float
    cancelled: bool = False


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
        self._caches, self._stores, self._rank, self._verify, self._timeout = caches, stores, rank, verify, timeout
        self._runs: list[_Run] = []
        self._waiting: dict[str, _Waiting] = {}
        self._idle: dict[tuple[int, bool], list[kvmem.Transfer]] = {}
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
                transfer = self._take(group, False)
                transfer.submit([(copy.slot, copy.block) for copy in copies], checksums=sums)
            except kvmem.Error:
                self._failed(waiting, [copy.block for copy in copies])
                continue
            waiting.runs += 1
            self._runs.append(_Run(transfer, copies, load.request, waiting.begun))

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
                    transfer = self._take(group, True)
                    transfer.submit([(copy.block, copy.slot) for copy in copies], flags=kvmem.SubmitFlags.CHECKSUM)
                except kvmem.Error:
                    self._not_stored(copies)
                    continue
                self._runs.append(_Run(transfer, copies, "", time.monotonic()))

    def _take(self, group: int, stores: bool) -> kvmem.Transfer:
        idle = self._idle.setdefault((group, stores), [])
        if idle:
            return idle.pop()
        cache, store = self._caches[group], self._stores[group]
        return kvmem.Transfer(cache, store) if stores else kvmem.Transfer(store, cache)

    # ---- end ----

    def poll(self) -> set[str]:
        """Ends what has moved. Returns the requests whose loads have all ended, also those that have failed."""
        self._start_stores()
        running = []
        for run in self._runs:
            try:
                if not run.transfer.poll():
                    self._cancel_late(run)
                    running.append(run)
                    continue
                self._moved(run)
            except kvmem.Error as error:
                self._not_moved(run, error)
            # A transfer that has failed may have work in flight, and is not used again.
            else:
                self._idle[run.copies[0].group, not run.request].append(run.transfer)
                continue
            run.transfer.close()
        self._runs = running
        ended = {request for request, waiting in self._waiting.items() if not waiting.runs}
        for request in ended:
            waiting = self._waiting.pop(request)
            add(self.counters, {"load_seconds": time.monotonic() - waiting.begun})
            if waiting.failed:
                self.failed_requests.add(request)
                self.failed_blocks |= waiting.blocks
        return ended

    def _cancel_late(self, run: _Run) -> None:
        """Cancels a run after the timeout. It ends when the parts that have started have ended: a deadline of the run itself would end it
        earlier, while vLLM's blocks and the slots may still be written."""
        if not run.cancelled and time.monotonic() - run.begun > self._timeout:
            run.cancelled = True
            run.transfer.cancel()

    def _moved(self, run: _Run) -> None:
        size = run.transfer.info.bytes
        if run.request:
            self._waiting[run.request].runs -= 1
            add(self.counters, {"loaded_blocks": len(run.copies), "loaded_bytes": size})
            return
        for copy, found in zip(run.copies, run.transfer.checksums()):
            self._report.stored[copy.group, copy.slot] = {self._rank: found}
        add(self.counters, {"stored_blocks": len(run.copies), "stored_bytes": size})

    def _not_moved(self, run: _Run, error: kvmem.Error) -> None:
        if not run.request:
            self._not_stored(run.copies)
            return
        waiting = self._waiting[run.request]
        waiting.runs -= 1
        is_damaged = isinstance(error, kvmem.Corrupt)
        lost = self._damaged(run.copies) if is_damaged else run.copies
        # After any error the store's blocks are not asked for again: vLLM asks at once, and would wait for ever.
        self._report.damaged |= {(copy.group, copy.slot) for copy in lost}
        good = len(run.copies) - len(lost)
        size = run.transfer.info.bytes // len(run.copies) if good else 0
        counter = "damaged_blocks" if is_damaged else "failed_loads"
        add(self.counters, {counter: len(lost), "loaded_blocks": good, "loaded_bytes": good * size})
        self._failed(waiting, [copy.block for copy in lost])

    def _damaged(self, copies: list[Copy]) -> list[Copy]:
        """Those whose bytes are not what was stored; all if that cannot be found out."""
        try:
            found = self._caches[copies[0].group].checksums([copy.block for copy in copies], timeout=self._timeout)
        except kvmem.Error:
            return copies
        return [copy for copy, each in zip(copies, found) if each != copy.checksums[self._rank]] or copies

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
        for run in self._runs:
            try:
                run.transfer.cancel()
                run.transfer.wait(self._timeout)
            except kvmem.Error:
                pass  # no request waits for it any more
            run.transfer.close()
        for idle in self._idle.values():
            for transfer in idle:
                transfer.close()
        for layout in (*self._caches, *self._stores):
            layout.close()

# SPDX-License-Identifier: Apache-2.0
"""Jobs of a secondary tier: chunks of vLLM's host memory that are stored, or loaded. Nothing here needs vLLM."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import kvmem
from kvmem._blocks._pause import Pause
from kvmem._blocks._run import ReportedRun
from kvmem._blocks._shape import shape_of
from kvmem._blocks._store import BlockStore

logger = logging.getLogger("vllm.kvmem")

GROUP = 4
"""Bytes at the end of a key that are the number of the cache group."""
_QUIET = 60.0
"""Seconds between two warnings."""
_RELEASE = 1.0
"""Seconds in which memory is released after its last use."""


@dataclass
class Chain:
    """Chunks of a job of which each follows the one before it in a request."""

    keys: list[bytes]
    chunks: list[int]
    parent: bytes | None = None
    """Key of the chunk before the first one."""


class Positions:
    """Where the chunks of a request are in it, by their keys, which end with the number of their cache group. The store evicts a chunk before
    the one that it follows, so that no prefix loses its head."""

    def __init__(self, tokens_per_chunk: Mapping[bytes, int]) -> None:
        """`tokens_per_chunk` is that of each group, by the end of its keys."""
        self._steps = tokens_per_chunk
        self._keys: dict[tuple[bytes, int], bytes] = {}
        self._ends: Mapping[bytes, int] = {}
        self._count = 0

    def learn(self, ends: Mapping[bytes, int]) -> None:
        """Takes the token at which each chunk ends. The mapping only grows."""
        self._ends = ends
        for key, end in itertools.islice(ends.items(), self._count, None):
            self._keys[key[-GROUP:], end] = key
        self._count = len(ends)

    def _before(self, key: bytes) -> bytes | None:
        """The key of the last whole chunk before one."""
        group, end = key[-GROUP:], self._ends.get(key, 0)
        step = self._steps.get(group, 1)
        return self._keys.get((group, (end - 1) // step * step))

    def chains(self, keys: Sequence[bytes], chunks: Sequence[int]) -> list[Chain]:
        """The chunks in the order of the request."""
        made: list[Chain] = []
        for key, chunk in sorted(zip(keys, chunks), key=lambda each: (each[0][-GROUP:], self._ends.get(each[0], 0))):
            parent = self._before(key)
            if made and parent is not None and made[-1].keys[-1] == parent:
                made[-1].keys.append(key)
                made[-1].chunks.append(chunk)
            else:
                made.append(Chain([key], [chunk], parent))
        return made


@dataclass
class Ended:
    """A job that has ended."""

    number: int
    good: list[bytes]
    """The keys of the chunks that are stored, or were loaded."""
    lost: list[bytes]
    """The others."""
    bytes: int
    seconds: float


@dataclass
class _Job:
    number: int
    is_load: bool
    chains: Sequence[Chain]
    begun: float = field(default_factory=time.monotonic)
    runs: list[tuple[ReportedRun, list[bytes]]] = field(default_factory=list)
    """Each with the keys of its chunks, in order."""
    good: list[bytes] = field(default_factory=list)
    error: kvmem.Error | None = None
    """Why chunks were not moved."""
    starting: Future[None] = field(default_factory=Future)


class TierJobs:
    """Puts and gets between chunks and a store, whose ends one queue reports.

    The calls that start them may wait for the file system: a put that evicts, and a get of a reader. So a thread per direction makes them, and
    no method here waits, except `drain` and `close`."""

    def __init__(self, memory: memoryview, store: BlockStore, timeout: float) -> None:
        """`memory` has the chunks one after the other, of which each is an item."""
        import numpy

        self.store, self._timeout = store, timeout
        pages = numpy.asarray(memory)
        self._released = threading.Event()
        weakref.finalize(pages, self._released.set)
        with kvmem.Region.adopt(pages) as region:
            self._chunks = kvmem.Layout.of_regions(shape_of(len(pages), 1, pages.nbytes // len(pages), "BLC"), [region])
        self._queue = kvmem.Queue()
        self._pause = Pause(logger)
        self._jobs: dict[int, _Job] = {}
        self._quiet_until = 0.0
        self._loader, self._storer = _thread("kvmem-tier-load"), _thread("kvmem-tier-store")

    # ---- begin ----

    def submit_store(self, number: int, chains: Sequence[Chain]) -> None:
        """Adds a job that stores chunks. Those that are stored are not written again."""
        self._submit(_Job(number, False, chains), self._storer, self._put)

    def submit_load(self, number: int, keys: list[bytes], chunks: list[int]) -> None:
        """Adds a job that loads chunks."""
        self._submit(_Job(number, True, [Chain(keys, chunks)]), self._loader, self._get)

    def _submit(self, job: _Job, thread: ThreadPoolExecutor, start: Callable[[_Job, Chain], None]) -> None:
        job.starting = thread.submit(self._start, job, start)
        self._jobs[job.number] = job

    @staticmethod
    def _start(job: _Job, start: Callable[[_Job, Chain], None]) -> None:
        for chain in job.chains:
            try:
                start(job, chain)
            except kvmem.Error as error:
                job.error = error

    def _put(self, job: _Job, chain: Chain) -> None:
        self._pause.check()
        try:
            run = ReportedRun(
                self.store.put, self._chunks, chain.keys, chain.chunks, parent=chain.parent, related=True, queue=self._queue, timeout=self._timeout
            )
        except kvmem.Error as error:
            self._pause.note(error)
            raise
        # It moves those that are not stored. If it fails, it is not known which these are.
        job.runs.append((run, chain.keys))

    def _get(self, job: _Job, chain: Chain) -> None:
        """Starts a get for each series of chunks that are stored. One may have been evicted since vLLM has looked it up."""
        first = 0
        while first < len(chain.keys):
            run = ReportedRun(self.store.get, self._chunks, chain.keys[first:], chain.chunks[first:], queue=self._queue, timeout=self._timeout)
            job.runs.append((run, chain.keys[first : first + run.count]))
            first += run.count + 1

    # ---- end ----

    def finished(self) -> list[Ended]:
        """The jobs that have ended since the last call."""
        self._queue.dispatch()
        ended = []
        for job in list(self._jobs.values()):
            if self._has_ended(job):
                ended.append(self._end(job))
            elif job.starting.done() and not job.is_load:
                self._pause_if_late(job)
        return ended

    def _pause_if_late(self, job: _Job) -> None:
        """Late puts use the chunks until the file system responds. Further ones would take all chunks that vLLM has."""
        for run, _ in job.runs:
            error = run.late()
            if error is not None:
                self._pause.note(error)

    @staticmethod
    def _has_ended(job: _Job) -> bool:
        return job.starting.done() and all(run.ended() for run, _ in job.runs)

    def _end(self, job: _Job) -> Ended:
        del self._jobs[job.number]
        job.starting.result()  # raises what is no failure of kvmem
        good, size = list[bytes](), 0
        for run, keys in job.runs:
            lost = set(run.lost()) if job.is_load or run.error is None else set(range(len(keys)))
            good += [key for at, key in enumerate(keys) if at not in lost]
            size += run.bytes_moved
            job.error = run.error or job.error
            run.close()
        moved = set(good)
        lost_keys = [key for chain in job.chains for key in chain.keys if key not in moved]
        if lost_keys:
            self._say(job, len(lost_keys))
        return Ended(job.number, good, lost_keys, size, time.monotonic() - job.begun)

    def _say(self, job: _Job, count: int) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + _QUIET
        verb = "loaded" if job.is_load else "stored"
        logger.warning("kvmem: %d chunks are not %s: %s", count, verb, job.error or "they were evicted meanwhile")

    def drain(self) -> None:
        """Waits until no job uses the chunks. `finished` returns them afterwards."""
        for job in self._jobs.values():
            if not job.starting.cancelled():
                job.starting.exception()
        while not all(map(self._has_ended, self._jobs.values())):
            self._queue.dispatch(None)

    def close(self) -> None:
        """Drops the jobs that have not started, waits for the others up to the timeout, and closes the store. The memory has no users then,
        unless the file system does not end what it has begun."""
        for thread in (self._storer, self._loader):
            thread.shutdown(wait=True, cancel_futures=True)
        if not self._wait(self._timeout):
            for job in self._jobs.values():
                for run, _ in job.runs:
                    run.cancel()
            self._wait(self._timeout)
        for job in self._jobs.values():
            for run, _ in job.runs:
                run.close()
        self._jobs.clear()
        self._chunks.close()
        self.store.close()
        self._queue.close()
        self._released.wait(_RELEASE)

    def _wait(self, seconds: float) -> bool:
        """Whether all jobs end in time."""
        end = time.monotonic() + seconds
        while not all(map(self._has_ended, self._jobs.values())):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._queue.dispatch(left)
        return True


def _thread(name: str) -> ThreadPoolExecutor:
    """An executor whose thread runs: it starts no other one, which could fail."""
    made = ThreadPoolExecutor(1, name)
    try:
        made.submit(int).result()
    except RuntimeError as error:
        raise ValueError(f"kvmem: the system has no thread for the secondary tier ({error}): raise the limit of threads") from error
    return made

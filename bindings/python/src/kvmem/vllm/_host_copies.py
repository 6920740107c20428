# SPDX-License-Identifier: Apache-2.0
"""Copies between vLLM's cache and chunks in host memory, whose slots vLLM's own manager assigns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import kvmem
from kvmem._blocks._run import Run
from kvmem._blocks._shape import shape_of


@dataclass(frozen=True)
class Pages:
    """A range of memory with a page of each block, of vLLM's cache or of the host."""

    memory: kvmem.Region
    size: int
    """Bytes of a page."""
    stride: int
    """Bytes from one page to the next."""


def layout_of(pages: Sequence[Pages], num_blocks: int) -> kvmem.Layout:
    """The blocks of a cache group, of which each has a page in every range."""
    forms = {(each.size, each.stride) for each in pages}
    if len(forms) != 1:
        raise ValueError(
            f"kvmem: the layers of a cache group have pages of (bytes, stride) {sorted(forms)}, and one form is supported: use another offloading spec"
        )
    size, stride = forms.pop()
    return kvmem.Layout.of_regions(shape_of(num_blocks, len(pages), size, "L/BC", stride), [each.memory for each in pages])


def pairs_of(
    blocks: Sequence[int], group_sizes: Sequence[int], first_blocks: Sequence[int], chunks: Sequence[int], blocks_per_chunk: int
) -> list[list[tuple[int, int]]]:
    """The blocks of vLLM's cache, and the pages in host memory, of each group. The first block of a group may be within its chunk."""
    found, block, chunk = [], 0, 0
    for size, first in zip(group_sizes, first_blocks):
        skipped = first % blocks_per_chunk if size else 0
        count = -(-(size + skipped) // blocks_per_chunk)
        pages = [number * blocks_per_chunk + at for number in chunks[chunk : chunk + count] for at in range(blocks_per_chunk)]
        pages = pages[skipped : skipped + size]
        if len(pages) != size or len(blocks[block : block + size]) != size:
            raise ValueError(f"kvmem: vLLM names {len(chunks)} chunks and {len(blocks)} blocks for groups of {list(group_sizes)} blocks")
        found.append(list(zip(map(int, blocks[block : block + size]), map(int, pages))))
        block, chunk = block + size, chunk + count
    return found


@dataclass
class Ended:
    """A job that has ended."""

    job: int
    is_store: bool
    bytes: int
    seconds: float
    error: str
    """Why it has failed; "" if it has not."""


@dataclass
class _Job:
    number: int
    is_store: bool
    pairs: Sequence[Sequence[tuple[int, int]]]
    event: Any
    """What the GPU must have reached before; None for nothing."""
    begun: float
    runs: list[tuple[int, kvmem.Transfer, Run]] = field(default_factory=list)
    """Group, transfer and run."""
    is_started: bool = False
    bytes: int = 0
    error: str = ""


class HostCopies:
    """Jobs that store and load blocks. The checksum of each page in host memory is kept, and compared by each load."""

    def __init__(self, groups: Sequence[tuple[kvmem.Layout, kvmem.Layout]], timeout: float) -> None:
        self._groups, self._timeout = groups, timeout
        self._checksums: list[dict[int, int]] = [{} for _ in groups]
        self._idle: dict[tuple[int, bool], list[kvmem.Transfer]] = {}
        self._jobs: dict[int, _Job] = {}

    def submit(self, number: int, is_store: bool, pairs: Sequence[Sequence[tuple[int, int]]], event: Any) -> None:
        """Adds a job with the pairs (block, page) of each group."""
        job = self._jobs[number] = _Job(number, is_store, pairs, event, time.monotonic())
        self._start(job)

    def _start(self, job: _Job) -> None:
        if job.is_started or (job.event is not None and not job.event.query()):
            return
        job.is_started = True
        for group, pairs in enumerate(job.pairs):
            if not pairs or job.error:
                continue
            try:
                job.runs.append(self._run(group, job.is_store, pairs))
            except (kvmem.Error, KeyError) as error:
                job.error = f"blocks cannot be copied: {error!r}"

    def _run(self, group: int, is_store: bool, pairs: Sequence[tuple[int, int]]) -> tuple[int, kvmem.Transfer, Run]:
        sums = self._checksums[group]
        idle = self._idle.setdefault((group, is_store), [])
        cache, host = self._groups[group]
        transfer = idle.pop() if idle else kvmem.Transfer(cache, host) if is_store else kvmem.Transfer(host, cache)
        try:
            if is_store:
                transfer.submit(list(pairs), flags=kvmem.SubmitFlags.CHECKSUM)
            else:
                transfer.submit([(page, block) for block, page in pairs], checksums=[sums[page] for _, page in pairs])
        except BaseException:
            transfer.close()
            raise
        return group, transfer, Run(kvmem.StoreRun(transfer, len(pairs)), self._timeout)

    def finished(self) -> list[Ended]:
        """The jobs that have ended since the last call. Waits for nothing."""
        found = []
        for job in list(self._jobs.values()):
            self._start(job)
            if job.is_started and all(run.ended() for _, _, run in job.runs):
                found.append(self._end(job))
        return found

    def _end(self, job: _Job) -> Ended:
        del self._jobs[job.number]
        for group, transfer, run in job.runs:
            if run.error is not None:
                job.error = job.error or f"{len(run.lost())} of {run.count} blocks are damaged in host memory or were not copied: {run.error}"
                run.close()
                continue
            job.bytes += run.bytes
            if job.is_store:
                self._checksums[group].update(zip((page for _, page in job.pairs[group]), transfer.checksums()))
            self._idle[group, job.is_store].append(transfer)
        return Ended(job.number, job.is_store, job.bytes, time.monotonic() - job.begun, job.error)

    def wait(self, numbers: set[int]) -> None:
        """Waits for jobs, which `finished` returns afterwards. A copy that is late is cancelled."""
        for number in numbers & self._jobs.keys():
            job = self._jobs[number]
            if not job.is_started:
                job.event.synchronize()
                self._start(job)
            for _, _, run in job.runs:
                run.wait()

    def close(self) -> None:
        """Ends the jobs in flight, and frees the host memory."""
        for job in self._jobs.values():
            for _, _, run in job.runs:
                run.abort()
        for transfers in self._idle.values():
            for transfer in transfers:
                transfer.close()
        for cache, host in self._groups:
            cache.close()
            host.close()

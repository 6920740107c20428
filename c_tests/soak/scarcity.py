# SPDX-License-Identifier: Apache-2.0
"""What a process may lack during an operation, and the failures that are then right."""

import contextlib
import os
import resource

import kvmem
from memory import driver

CUDA_OUT_OF_MEMORY, CUDA_UNKNOWN = 2, 999
CUDA = (kvmem.CudaError, kvmem.OutOfMemory, kvmem.CudaUnavailable, kvmem.Stale)
MEMORY = (kvmem.OutOfMemory,)
DISK = (kvmem.OutOfMemory, kvmem.IoError)
PEER = (kvmem.PeerLost, kvmem.TimedOut, kvmem.Stale, kvmem.NotFound, kvmem.NixlError, kvmem.Busy, kvmem.PermissionDenied)
"""Failures of what a peer has a part in, which may be killed, stopped or restarted at any time."""


@contextlib.contextmanager
def limit(which, value):
    before = resource.getrlimit(which)
    resource.setrlimit(which, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


@contextlib.contextmanager
def few_files(spare):
    """Only `spare` more files can be opened."""
    free = [os.dup(2) for _ in range(spare + 1)]
    for fd in free:
        os.close(fd)
    with limit(resource.RLIMIT_NOFILE, free[-1]):
        yield


def small_files(size):
    """No file grows beyond `size`. Python ignores SIGXFSZ."""
    return limit(resource.RLIMIT_FSIZE, size)


@contextlib.contextmanager
def little_memory(spare):
    """The process can map only `spare` more bytes."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    with limit(resource.RLIMIT_AS, used + spare):
        yield


@contextlib.contextmanager
def failing_driver(nth, result):
    """The nth call of the stand-in from here on fails, whatever it is."""
    driver.fail(nth, result)
    try:
        yield
    finally:
        driver.cancel_failures()

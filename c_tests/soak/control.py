# SPDX-License-Identifier: Apache-2.0
"""A page that the coordinator and its workers share: counts survive a worker that is killed."""

import mmap

import numpy as np

OPERATIONS = (
    "create", "destroy", "move", "burst", "cancel", "resize", "scarce files", "scarce file size", "scarce memory", "driver fault", "fork",
    "put", "get", "remove", "reopen", "read by others", "publish", "fetch", "pull", "notify", "inventory", "write objects", "read objects",
)  # fmt: skip
METHODS = ("", "memcpy", "CUDA copy", "CUDA batch", "CUDA 2D", "CUDA kernel", "CUDA staged", "io_uring", "pread", "NIXL", "NIXL staged", "NIXL served")
MAX_WORKERS = 16
WORKER = np.dtype([
    ("beats", np.uint64), ("operation", np.uint32), ("compared", np.uint64), ("refused", np.uint64), ("stops", np.uint64),
    ("between_gpus", np.uint64),
    ("done", np.uint64, (len(OPERATIONS),)), ("methods", np.uint64, (16,)),
])  # fmt: skip
PAGE = np.dtype([
    ("finish", np.uint32), ("full", np.uint32), ("full_windows", np.uint64), ("server", np.uint32), ("server_windows", np.uint64),
    ("server_lives", np.uint64), ("workers", WORKER, (MAX_WORKERS,)),
])  # fmt: skip


def create(path):
    with open(path, "wb") as file:
        file.truncate(PAGE.itemsize)
    return attach(path)


def attach(path):
    with open(path, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), PAGE.itemsize), PAGE, count=1)[0:1]

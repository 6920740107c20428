# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors in memory of kvmem: it can be shared with other processes by file descriptor, registered with NIXL, and released
and restored at the same addresses.

    with kvmem.torch.mem_pool(64 << 30) as pool:
        with pool.use():
            caches = [torch.zeros(..., device="cuda") for _ in range(layers)]
        layout = pool.layout(caches, order="L/BONHC")
        pool.sleep()        # the memory is free for others
        pool.wake()         # the tensors have memory again, at their addresses

An engine that takes a context for its allocations, such as vLLM's `get_mem_pool_context`, gets `pool.use()`."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kvmem import _constants as k
from kvmem import _errors
from kvmem._layout import Layout
from kvmem._library import ffi, lib
from kvmem._library import path as library_path
from kvmem._region import ElasticInfo, Region

__all__ = ["MemPool", "mem_pool"]

_in_use: dict[int, MemPool] = {}
"""The pool of each GPU that a thread allocates from now."""
_current: dict[int, MemPool] = {}
"""The pool of each GPU that was in use last."""
_lock = threading.Lock()
_allocator: Any = None
"""That of all pools. It is never freed, because PyTorch calls it for tensors that outlive their pool."""


def mem_pool(size: int, *, device: int = 0, extent_size: int = 0, flags: k.ElasticFlags = k.ElasticFlags(0)) -> MemPool:
    """Makes a pool of elastic memory on a GPU. It reserves addresses for `size` bytes, and commits memory in extents of
    `extent_size` bytes (64 MiB by default) when PyTorch allocates."""
    return MemPool(Region.elastic(size, device=device, extent_size=extent_size, flags=flags), device)


class MemPool:
    """A region of a GPU from which PyTorch allocates tensors while `use` is entered.

    PyTorch keeps what its tensors have freed for later tensors of the pool; PyTorch 2.11 does not return it in
    `torch.cuda.empty_cache()` while the pool is open. Tensors may outlive the pool: the memory is freed with the last one."""

    def __init__(self, region: Region, device: int = 0) -> None:
        """`region` is device or elastic memory, which the pool closes."""
        torch = importlib.import_module("torch")
        self.device = device
        self._region = region
        self._sleeps = False
        self._saved: list[tuple[Any, Any]] = []
        info = region.info
        self._address, self._size = info.address, info.size
        self._torch = torch
        self.pool: Any = torch.cuda.MemPool(_allocator_of(torch).allocator())
        """The torch.cuda.MemPool, such as for `torch.cuda.graph(pool=pool.pool.id)` within `use`."""

    # ---- allocation ----

    @contextlib.contextmanager
    def use(self) -> Iterator[MemPool]:
        """Tensors that this thread creates on the GPU are in the pool. A GPU has one pool in use at a time, by one thread, because
        PyTorch passes no pool to an allocator: another `use` raises Busy. A pool that sleeps raises InvalidState: PyTorch would give new
        tensors the memory that it keeps, which is released."""
        with _lock:
            self._ensure_awake()
            if self.device in _in_use:
                raise _errors.Busy(f"a pool of cuda:{self.device} is in use; a GPU has one in use at a time, by one thread")
            # It stays current afterwards, for graphs that are captured with it.
            _errors.call(lib.kvmem_pool_set_current, self.device, self._open._handle)
            _in_use[self.device] = _current[self.device] = self
        try:
            with self._torch.cuda.use_mem_pool(self.pool, self.device):
                yield self
        finally:
            with _lock:
                del _in_use[self.device]

    # ---- regions and layouts ----

    def region(self, tensor: Any = None) -> Region:
        """The memory of a tensor as a view of the pool's region, or the whole region. A transfer or a share of it keeps the pool from
        sleeping. It keeps the pool's memory, and not the tensor: keep the tensor, or PyTorch gives its memory to another one."""
        region = self._open
        if tensor is None:
            return region.view(0, self._size)
        spans = ((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
        size = (sum(spans) + 1) * tensor.element_size() if tensor.numel() else 0
        return self._view(int(tensor.data_ptr()), int(size))

    def _view(self, address: int, size: int) -> Region:
        offset = address - self._address
        if not 0 <= offset <= self._size - size:
            raise _errors.InvalidArgument(f"the {size} bytes at {address:#x} are not in the pool: create the tensor within pool.use()")
        return self._open.view(offset, size)

    def layout(self, tensors: Any, order: str, *, agent: Any = None, **options: Any) -> Layout:
        """The layout of tensors of the pool, as `Layout.from_tensors` describes it. It keeps the tensors.

        `sleep` does not see its transfers and shares: wait for the transfers, and close the shares, before. With an agent, the whole
        pool is registered, extent by extent, also those that it commits later; then no block may cross the end of an extent, and
        `sleep` deregisters them. Such a layout keeps the memory, and not the tensors."""
        region_of = None if agent is None else self._view
        return Layout.from_tensors(tensors, order, agent=agent, region_of=region_of, **options)

    @property
    def info(self) -> ElasticInfo:
        """Extents of the pool, and how many have memory."""
        return self._open.elastic_info

    # ---- sleep and wake ----

    def sleep(self, keep: Sequence[Any] = ()) -> None:
        """Releases the memory of all tensors of the pool, after all work on the GPU has ended. Their addresses stay reserved. They must not
        be used until `wake`; the content is lost, except that of the tensors in `keep`, which is saved in page-locked host memory.

        Raises Busy, and releases nothing, while a transfer or a share uses a region of the pool."""
        region, torch = self._open, self._torch
        self._ensure_awake()
        region.elastic_info  # noqa: B018 - raises for device memory, which cannot be released
        saved = [(tensor, torch.empty_like(tensor, device="cpu", pin_memory=True)) for tensor in keep]
        for tensor, host in saved:
            host.copy_(tensor, non_blocking=True)
        torch.cuda.synchronize(self.device)
        with _lock:
            if _in_use.get(self.device) is self:
                raise _errors.Busy("the pool is in use: leave pool.use() first")
            # Before the content is lost: a signal may interrupt this thread after it.
            self._sleeps, self._saved = True, saved
            try:
                _errors.call(lib.kvmem_pool_commit, region._handle, k.POOL_NOTHING)
            except _errors.Error:
                self._sleeps, self._saved = False, []
                raise

    def wake(self) -> None:
        """Gives memory to the tensors again, and restores what `sleep` has saved. Raises OutOfMemory, and can be called again, while others
        use the memory."""
        _errors.call(lib.kvmem_pool_commit, self._open._handle, k.POOL_BLOCKS)
        for tensor, host in self._saved:
            tensor.copy_(host, non_blocking=True)
        self._torch.cuda.synchronize(self.device)
        self._sleeps, self._saved = False, []

    def trim(self) -> None:
        """Releases the memory that PyTorch has returned. What it keeps for later tensors is released by `sleep`."""
        self._ensure_awake()
        _errors.call(lib.kvmem_pool_commit, self._open._handle, k.POOL_BLOCKS)

    # ---- the end ----

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._region.closed

    @property
    def _open(self) -> Region:
        if self._region.closed:
            raise _errors.InvalidState("this MemPool is closed")
        return self._region

    def _ensure_awake(self) -> None:
        if self._sleeps:
            raise _errors.InvalidState("the pool sleeps: call wake() first")

    def close(self) -> None:
        """Ends the pool. Tensors keep their memory. Closing it again does nothing."""
        if self._region.closed:
            return
        with _lock:
            if _in_use.get(self.device) is self:
                raise _errors.Busy("the pool is in use: leave pool.use() first")
            if _current.get(self.device) is self:
                _errors.call(lib.kvmem_pool_set_current, self.device, ffi.NULL)
                del _current[self.device]
        self._saved = []
        self.pool = None
        self._region.close()

    def __enter__(self) -> MemPool:
        self._open  # noqa: B018 - fails if it is closed
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<kvmem.torch.MemPool closed>"
        return f"<kvmem.torch.MemPool on cuda:{self.device}, {self._size:,} bytes at {self._address:#x}>"


def _allocator_of(torch: Any) -> Any:
    global _allocator
    with _lock:
        if _allocator is None:
            allocator = torch.cuda.memory.CUDAPluggableAllocator
            _allocator = allocator(library_path, "kvmem_pool_malloc", "kvmem_pool_free")
        return _allocator

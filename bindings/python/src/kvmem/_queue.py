# SPDX-License-Identifier: Apache-2.0
"""Queues of completions: for event loops, selectors, asyncio and callbacks."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import Handle, create
from kvmem._library import ffi, lib
from kvmem._time import interruptible

if TYPE_CHECKING:
    import asyncio

_BATCH = 64

_tokens = itertools.count(1)
"""Numbers of runs, of all queues: what reports who uses a block has no queue."""
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_queues_lock = threading.Lock()


class Completion(NamedTuple):
    """End of a run of a transfer, layers that have moved, memory that is released, or the arrival of messages or events."""

    kind: k.CompletionKind
    source: Any
    """The transfer, agent or directory that reported it; None if it was freed since."""
    user_data: Any
    """What the run was submitted with."""
    status: k.Status
    bytes: int
    """At the end of a run: bytes moved; 0 after a failure."""
    num_layers: int
    """Layers of the run that have moved, from the first on."""
    released: bool
    """The run no longer uses its memory. It is False at the end of a run whose started parts still do, as after a timeout."""

    @property
    def error(self) -> _errors.Error | None:
        """How the run failed, or None. The message is that of the last run of the transfer."""
        if self.status >= 0:
            return None
        failed = getattr(self.source, "_failure", None)
        found: _errors.Error | None = None
        with contextlib.suppress(_errors.InvalidState):  # the transfer is closed, and its message with it
            found = failed() if failed else None
        if found is not None and found.status == self.status:
            return found
        return _errors.make(self.status, f"the run ended with {self.status.name}")


def user_data_of(token: int) -> Any:
    """The user_data of the run with this number; None if its last completion was taken."""
    with _queues_lock:
        queues = list(_queues)
    for queue in queues:
        run = queue._runs.get(token)
        if run is not None:
            return run[1]
    return None


class Queue(Handle):
    """A queue of completions. Its fd is readable while it has completions.

    With asyncio, `async for completion in queue` and `await transfer` need no thread. Without, `poll`, `wait` and `fileno` serve
    `selectors`; `dispatch` calls callbacks."""

    __slots__ = ("_array", "_count", "_lock", "_loop", "_pending", "_ready", "_runs", "_waiters")
    _type = "queue"

    def __init__(self) -> None:
        self._own(create(lib.kvmem_queue_create, "queue"))
        with _queues_lock:
            _queues.add(self)
        self._lock = threading.Lock()
        self._array = ffi.new("kvmem_completion[]", _BATCH)
        self._count = ffi.new("size_t *")
        self._runs: dict[int, tuple[Any, Any, k.CompletionKind | None]] = {}
        self._ready: deque[Completion] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._pending: dict[int, set[asyncio.Future[None]]] = {}  # several tasks may await one run
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None  # weak: the queue of a loop does not keep it

    def fileno(self) -> int:
        """The event fd, for select, poll and epoll. Do not read or close it."""
        out = ffi.new("int32_t *")
        _errors.call(lib.kvmem_queue_get_fd, self._handle, out)
        return int(out[0])

    # ---- runs ----

    def _expect(self, source: Any, user_data: Any, last: k.CompletionKind | None) -> int:
        """The number in C of what will report. `last` is the kind of its last completion; None if there is none."""
        token = next(_tokens)
        # A run keeps its transfer, so that its error can be read; an agent or a directory is not kept.
        self._runs[token] = (weakref.ref(source) if last is None else source, user_data, last)
        return token

    def _report(self, source: Any, function: Any, user_data: Any) -> None:
        """Has an agent or a directory report here."""
        token = self._expect(source, user_data, None)
        try:
            _errors.call(function, source._handle, self._handle, token)
        except BaseException:
            self._forget(token)
            raise

    def _forget(self, token: int) -> None:
        self._runs.pop(token, None)

    # ---- reading ----

    def poll(self) -> list[Completion]:
        """Removes all completions, oldest first. Never waits."""
        return self._take(0)

    def wait(self, timeout: float | None = None) -> list[Completion]:
        """Removes all completions, and waits for one if there is none. Raises TimedOut after `timeout` seconds."""
        found: list[Completion] = []

        def look(limit: int) -> bool:
            found.extend(self._take(limit))
            return bool(found)

        if not interruptible(look, timeout):
            raise _errors.TimedOut(f"no completion arrived within {timeout} s")
        return found

    def dispatch(self, timeout: float | None = 0) -> int:
        """Calls the user_data of each completion that is callable, with the completion. Returns their number.

        Waits up to `timeout` seconds for the first one. If a call raises, the next `dispatch` makes those after it."""
        try:
            completions = self.wait(timeout) if timeout != 0 else self.poll()
        except _errors.TimedOut:
            return 0
        callbacks: list[tuple[Callable[[Completion], object], Completion]] = [
            (each.user_data, each) for each in completions if callable(each.user_data)
        ]
        for at, (callback, completion) in enumerate(callbacks):
            try:
                callback(completion)
            except BaseException:
                self._put_back([left for _, left in callbacks[at + 1 :]])
                raise
        return len(callbacks)

    def _put_back(self, completions: list[Completion]) -> None:
        with self._lock:
            self._ready.extendleft(reversed(completions))
        if completions:
            os.eventfd_write(self.fileno(), 1)

    def _take(self, limit: int) -> list[Completion]:
        with self._lock:
            found = list(self._ready)
            self._ready.clear()
        handle = self._handle
        array, count = ffi.new("kvmem_completion[]", _BATCH), ffi.new("size_t *")
        while True:
            error = ffi.new("kvmem_error **")
            status = lib.kvmem_queue_wait(handle, 0 if found else limit, array, _BATCH, count, error)
            if status < 0:
                failure = _errors.taken(status, error)
                if status == k.Status.TIMED_OUT:
                    return found
                raise failure
            found.extend(self._made(array[index]) for index in range(count[0]))
            if count[0] < _BATCH:
                return found

    def _made(self, c: Any) -> Completion:
        token, kind = c.user_data, k.CompletionKind(c.kind)
        source, user_data, last = self._runs.get(token, (None, None, kind))
        if last is None:
            source = source()
        elif kind == last or (kind == k.CompletionKind.RUN_ENDED and c.released):
            self._runs.pop(token, None)
        completion = Completion(kind, source, user_data, k.Status(c.status), c.bytes, c.num_layers, bool(c.released))
        if kind in (k.CompletionKind.RUN_ENDED, last):
            for future in tuple(self._pending.pop(token, ())):
                future.get_loop().call_soon_threadsafe(_settle, future)
        return completion

    # ---- asyncio ----

    def _attached(self) -> asyncio.AbstractEventLoop | None:
        return None if self._loop is None else self._loop()

    def _attach(self) -> asyncio.AbstractEventLoop:
        import asyncio

        loop = asyncio.get_running_loop()
        attached = self._attached()
        if attached is not None and attached is not loop and not attached.is_closed():
            raise _errors.InvalidState("the queue is read by another event loop; use a queue per loop")
        if attached is not loop:
            own: weakref.ref[Queue] = weakref.ref(self)
            loop.add_reader(self.fileno(), _drain, own)
            self._loop = weakref.ref(loop)
        return loop

    def _detach(self) -> None:
        loop = self._attached()
        if loop is not None and not loop.is_closed() and not self.closed:
            loop.remove_reader(self.fileno())
        self._loop = None

    async def _ended(self, token: int, is_in_flight: Callable[[], bool]) -> None:
        """Waits until the run with this number has ended, if it is in flight."""
        future: asyncio.Future[None] = self._attach().create_future()
        waiting = self._pending.setdefault(token, set())
        waiting.add(future)
        try:
            self._drain()
            # After the future is known: another thread may take the completion at any time.
            if token in self._runs and is_in_flight():
                await future
        finally:
            waiting.discard(future)
            if not waiting and self._pending.get(token) is waiting:
                del self._pending[token]

    def _drain(self) -> None:
        """Reads completions. Those that no task awaits stay for `async for`, `poll` and `wait`."""
        awaited = set(self._pending)
        handle = self._handle
        while True:
            _errors.call(lib.kvmem_queue_wait, handle, 0, self._array, _BATCH, self._count)
            for index in range(self._count[0]):
                token = self._array[index].user_data
                completion = self._made(self._array[index])
                if token not in awaited or completion.kind != k.CompletionKind.RUN_ENDED:
                    self._keep(completion)
            if self._count[0] < _BATCH:
                break
        waiting = len(self._waiters) if self._ready else 0
        for _ in range(waiting):  # all, because one that is cancelled now takes none; those that find none wait again
            _settle(self._waiters.popleft())

    def _keep(self, completion: Completion) -> None:
        with self._lock:
            self._ready.append(completion)

    def __aiter__(self) -> AsyncIterator[Completion]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Completion]:
        while True:
            yield await self.next()

    async def next(self) -> Completion:
        """The next completion."""
        loop = self._attach()
        self._drain()
        while True:
            with self._lock:
                if self._ready:
                    return self._ready.popleft()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Closes the queue. Transfers that report to it continue; their completions are discarded."""
        self._detach()
        failure = _errors.InvalidState("the queue was closed")
        futures = [*itertools.chain.from_iterable(self._pending.values()), *self._waiters]
        for future in futures:
            if not future.done():
                future.set_exception(failure)
        self._pending.clear()
        self._waiters.clear()
        self._runs.clear()
        super().close()

    def __del__(self) -> None:
        if hasattr(self, "_loop"):
            self._detach()  # the loop would read the next file with this number
        super().__del__()

    def _describe(self) -> str:
        return f"fd {self.fileno()}, {len(self._runs)} expected"


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _drain(queue: weakref.ref[Queue]) -> None:
    found = queue()
    if found is not None and not found.closed:
        found._drain()


class _LoopQueue(Queue):
    """The queue of an event loop, which is closed with the loop. It is for `await` only: other completions are read and dropped."""

    __slots__ = ()

    def _keep(self, completion: Completion) -> None:
        pass

    def __del__(self) -> None:
        self._c = None


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Queue] = weakref.WeakKeyDictionary()


def queue_of_loop() -> Queue | None:
    """The queue of the event loop that runs in this thread, if there is one."""
    asyncio = sys.modules.get("asyncio")  # without it no loop runs
    if asyncio is None:
        return None
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    queue = _of_loops.get(loop)
    if queue is None or queue.closed:
        queue = _of_loops[loop] = _LoopQueue()
        queue._attach()  # so that runs that no task awaits are forgotten, too
    return queue

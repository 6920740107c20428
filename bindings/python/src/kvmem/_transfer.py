# SPDX-License-Identifier: Apache-2.0
"""Transfers: blocks move between two layouts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from kvmem import _constants as k
from kvmem import _errors
from kvmem._arrays import Pairs, block_ids, block_pairs, epoch_list, results
from kvmem._explanation import ComparedMethod, Explanation
from kvmem._handle import Handle, Options, blob, create, handle_of, read
from kvmem._layout import Layout
from kvmem._library import blob_text, ffi, lib
from kvmem._queue import Queue, queue_of_loop
from kvmem._time import nanoseconds, run_ends


T = TypeVar("T")


class Range(NamedTuple):
    """Layers, outer slots or heads: `length` from `source` on in the source and from `destination` on in the destination."""

    source: int
    destination: int
    length: int


def set_ranges(options: Options, layers: Range | None, outers: Range | None, heads: Range | None) -> None:
    """What is moved of each block."""
    for name, part in (("layer", layers), ("outer", outers), ("head", heads)):
        if part is not None:
            _errors.ensure_kind(part, Range, f"{name}s", "kvmem.Range(source, destination, length)")
            setattr(options.c, f"source_{name}", part.source)
            setattr(options.c, f"destination_{name}", part.destination)
            setattr(options.c, f"num_{name}s", part.length)


class Table(NamedTuple):
    """Block table of one side: the blocks that hold consecutive tokens of a sequence."""

    blocks: Any
    """Ids, as an array of uint32 or any sequence."""
    first_token: int = 0
    """Token in the first block at which the move begins."""
    token_step: int = 0
    """As in C; 0 for 1."""


class TransferInfo(NamedTuple):
    """Properties of a transfer with the blocks that were prepared or submitted last."""

    bytes: int
    num_pieces: int
    num_moves: int
    """Contiguous ranges."""
    num_requests: int
    """Requests of NIXL, or reads or writes of a file."""
    duration_ns: int
    """Nanoseconds of the last run that has ended."""
    method: k.Method
    layers_moved: int
    """Layers of the last run that have moved, with TransferFlags.BY_LAYER."""


_ERROR = ffi.typeof("kvmem_error **")
_NO_FLAGS = k.SubmitFlags(0)

class Transfer(Handle):
    """Moves blocks between two layouts, run by run. A run is in flight from `submit` to its end, which `wait`, `await` and the queue
    report. Closing a transfer does not end its run.

    Threads may share a transfer, but it has one run in flight at a time."""

    __slots__ = ("_last", "_queue", "_submit", "_token")
    _type = "transfer"

    def __init__(
        self,
        source: Layout,
        destination: Layout,
        *,
        layers: Range | None = None,
        outers: Range | None = None,
        heads: Range | None = None,
        parts: Sequence[str] | None = None,
        flags: k.TransferFlags = k.TransferFlags(0),
        method: k.Method | None = None,
        compute: k.Compute = k.Compute.MAY_RUN,
        max_ctas: int = 0,
        staging_size: int = 0,
        stall_timeout: float | None = None,
        queue: Queue | None = None,
        layers_per_completion: int = 0,
    ) -> None:
        """Creates a transfer. Moves nothing.

        layers, outers, heads  what is moved of each block; all by default
        parts                  names of the parts to move, of layouts that were combined
        method                 use this method, or fail; the fastest by default
        stall_timeout          seconds without progress of a peer
        queue                  receives a completion per run. Within an event loop of asyncio, the default is the queue of the loop,
                               so that `await transfer` works
        layers_per_completion  with TransferFlags.BY_LAYER: the queue also reports when so many further layers have moved"""
        self._queue = queue if queue is not None else queue_of_loop()
        self._token = 0
        releases = k.TransferFlags.REPORT_RELEASE in flags
        self._last = k.CompletionKind.MEMORY_RELEASED if releases else k.CompletionKind.RUN_ENDED
        options = Options(
            "transfer_options",
            flags=flags,
            method=method or 0,
            compute=compute,
            max_ctas=max_ctas,
            staging_size=staging_size,
            stall_timeout_ns=0 if stall_timeout is None else nanoseconds(stall_timeout, "stall_timeout"),
            queue=self._queue,
            layers_per_completion=layers_per_completion,
            parts=parts or None,
            num_parts=len(parts or ()),
        )
        set_ranges(options, layers, outers, heads)
        self._submit = Options("submit_options")
        # Handles are in no variable: an error that is kept has this frame in its traceback.
        made = create(
            lib.kvmem_transfer_create, "transfer", handle_of(source, Layout, "source"), handle_of(destination, Layout, "destination"), options.c
        )
        self._own(made)

    # ---- runs ----

    def submit(
        self,
        pairs: Pairs = None,
        *,
        source_table: Table | None = None,
        destination_table: Table | None = None,
        num_tokens: int = 0,
        flags: k.SubmitFlags = _NO_FLAGS,
        checksums: Any = None,
        epochs: Any = None,
        notification: bytes | None = None,
        run_timeout: float | None = None,
        user_data: Any = None,
        stream: int | None = None,
    ) -> Transfer:
        """Starts a run, and returns the transfer: `transfer.submit(pairs).wait()`.

        pairs         (source, destination) block ids: an array of uint32 of the shape (n, 2) is passed without a copy
        source_table, destination_table, num_tokens
                      instead of pairs: the tokens move from the blocks of one table to those of the other, also between block sizes
        flags         VERIFY compares the blocks with those of the source, and CHECKSUM computes their checksums: `mismatches` and
                      `checksums` return what the run has found
        checksums     expected CRC32C of each block; the run ends with Corrupt if one differs
        epochs        expected epoch of each source block, of pairs or of source_table, as its owner has published it; the run ends with
                      Stale if one differs
        notification  sent to the remote agent after the last byte
        run_timeout   seconds that the run may take
        user_data     any object, for the completion; `Queue.dispatch` calls it if it is callable. Without a queue it is ignored
        stream        a CUDA stream, as an integer: the run is ordered with its other work, and may be captured

        Without blocks, those that were prepared or submitted last are moved again."""
        options = self._run(pairs, source_table, destination_table, num_tokens, flags, checksums, epochs, notification, run_timeout)
        queue = self._queue
        token = 0
        if queue is not None:
            if options is None:
                options = self._last_blocks()
            token = options.c.user_data = queue._expect(self, user_data, self._last)
        c = options.c if options is not None else ffi.NULL
        error = ffi.new(_ERROR)
        if stream is None:
            status = lib.kvmem_transfer_submit(self._handle, c, error)
        else:
            status = lib.kvmem_transfer_submit_on_stream(self._handle, c, ffi.cast("struct CUstream_st *", stream), error)
        if status < 0:
            if queue is not None:
                queue._forget(token)
            raise _errors.taken(status, error)
        self._token = token
        if options is not None:
            self._submit = options
        return self

    def prepare(
        self,
        pairs: Pairs = None,
        *,
        source_table: Table | None = None,
        destination_table: Table | None = None,
        num_tokens: int = 0,
        flags: k.SubmitFlags = _NO_FLAGS,
        checksums: Any = None,
        epochs: Any = None,
        notification: bytes | None = None,
        run_timeout: float | None = None,
    ) -> Transfer:
        """Prepares the blocks of the next run, which `submit()` starts. Moves nothing."""
        options = self._run(pairs, source_table, destination_table, num_tokens, flags, checksums, epochs, notification, run_timeout)
        if options is None:
            raise _errors.InvalidArgument("there are neither pairs nor tables")
        _errors.call(lib.kvmem_transfer_prepare, self._handle, options.c)
        self._submit = options
        return self

    def _run(
        self,
        pairs: Pairs,
        source_table: Table | None,
        destination_table: Table | None,
        num_tokens: int,
        flags: k.SubmitFlags,
        checksums: Any,
        epochs: Any,
        notification: bytes | None,
        run_timeout: float | None,
    ) -> Options | None:
        """The options of a run; None if nothing is given."""
        if pairs is None and source_table is None and destination_table is None:
            if flags or num_tokens or any(each is not None for each in (checksums, epochs, notification, run_timeout)):
                raise _errors.InvalidArgument("flags, checksums, epochs, notification and run_timeout belong to blocks: pass pairs or tables, too")
            return None
        options = Options("submit_options")
        c = options.c
        if pairs is not None:
            array, count = block_pairs(pairs)
            options.kept.append(array)
            c.pairs, c.num_pairs = array, count
        elif checksums is not None:
            raise _errors.InvalidArgument("checksums are of pairs, and there are none")
        if source_table is not None:
            c.source_table = _block_table(source_table, "source_table", options)
        if destination_table is not None:
            c.destination_table = _block_table(destination_table, "destination_table", options)
        if num_tokens:
            c.num_tokens = num_tokens
        if flags is not _NO_FLAGS:  # the default; a look at flags takes as long as the rest
            c.flags = flags
        if checksums is not None:
            sums = block_ids(checksums)
            if len(sums) != c.num_pairs:
                raise _errors.InvalidArgument(f"there are {len(sums)} checksums for {c.num_pairs} pairs")
            options.kept.append(sums)
            c.checksums = sums
        if epochs is not None:
            expected = epoch_list(epochs)
            count, what = (c.num_pairs, "pairs") if source_table is None else (c.source_table.num_blocks, "blocks of source_table")
            if len(expected) != count:
                raise _errors.InvalidArgument(f"there are {len(expected)} epochs for {count} {what}")
            options.kept.append(expected)
            c.epochs = expected
        if notification is not None:
            message = ffi.from_buffer(notification) if len(notification) else ffi.new("char[1]")
            options.kept.append(message)
            c.notification, c.notification_size = message, len(notification)
        if run_timeout is not None:
            c.run_timeout_ns = nanoseconds(run_timeout, "run_timeout")
        return options

    def _last_blocks(self) -> Options:
        """Options with the blocks of the last run, to submit these again under another number."""
        if not self._submit.c.num_pairs and not self._submit.c.source_table:
            raise _errors.InvalidState("the transfer has no blocks yet: pass pairs or tables")
        # A copy: threads that submit at once have a number each, and one of them fails.
        again, last = Options("submit_options"), self._submit
        again.c[0] = last.c[0]
        again.kept = last.kept
        return again

    def poll(self) -> bool:
        """Whether the last run has ended. Raises how it failed. Never waits."""
        status = lib.kvmem_transfer_poll(self._handle, ffi.NULL)
        if status == 0:
            return True
        if status == 1:
            return False
        failure = self._failure()
        if failure is None:
            return True
        raise failure

    def _failure(self) -> _errors.Error | None:
        error = ffi.new(_ERROR)
        status = lib.kvmem_transfer_poll(self._handle, error)
        return _errors.taken(status, error) if status < 0 else None

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the end of the last run. Raises how it failed, or TimedOut if it is still in flight after `timeout` seconds.

        Ctrl-C interrupts the wait, and not the run."""
        wait = lambda limit, error: lib.kvmem_transfer_wait(self._handle, limit, error)  # noqa: E731
        if not run_ends(wait, self._status, timeout):
            raise _errors.TimedOut(f"the run is still in flight after {timeout} s")

    def _status(self) -> int:
        return int(lib.kvmem_transfer_poll(self._handle, ffi.NULL))

    def __await__(self) -> Generator[Any, None, None]:
        """Waits for the end of the last run in asyncio. If the task is cancelled, the run continues."""
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        if self._queue is None:
            raise _errors.InvalidState(
                "the transfer has no queue: create it within the event loop, or with queue=kvmem.Queue(), so that it can be awaited"
            )
        while not self.poll():
            await self._queue._ended(self._token, lambda: self._status() == k.Status.IN_PROGRESS)

    def cancel(self) -> None:
        """Cancels the parts of the last run that have not started. Never waits."""
        _errors.call(lib.kvmem_transfer_cancel, self._handle)

    @overload
    def mismatches(self) -> list[int]: ...
    @overload
    def mismatches(self, *, out: T) -> T: ...
    def mismatches(self, *, out: Any = None) -> Any:
        """The indices of the pairs, or of the moved tokens of block tables, that differ after the last run, which has compared them.

        With `out`, an array of uint64, they are written to it, and its part that has them is returned."""
        return self._found(lib.kvmem_transfer_get_mismatches, "uint64", out)

    @overload
    def checksums(self) -> list[int]: ...
    @overload
    def checksums(self, *, out: T) -> T: ...
    def checksums(self, *, out: Any = None) -> Any:
        """The checksums that the last run has computed, with SubmitFlags.CHECKSUM, in the order of the pairs.

        With `out`, an array of uint32, they are written to it, and its part that has them is returned."""
        return self._found(lib.kvmem_transfer_get_checksums, "uint32", out)

    def _found(self, get: Callable[..., int], item: str, out: Any) -> Any:
        count = ffi.new("size_t *")
        if out is not None:
            found = results(out, item)
            _errors.call(get, self._handle, found, len(found), count)
            if count[0] > len(found):
                raise _errors.OutOfRange(f"out has {len(found)} elements, and there are {count[0]} results")
            return out[: count[0]]
        capacity = 0
        while True:
            found = ffi.new(f"{item}_t[]", capacity)
            _errors.call(get, self._handle, found, capacity, count)
            if count[0] <= capacity:
                return list(found)[: count[0]]
            capacity = count[0]  # another thread may start a run with more of them between two calls

    # ---- layers ----

    @property
    def layers_moved(self) -> int:
        """How many layers of the last run have moved, with TransferFlags.BY_LAYER."""
        return self.info.layers_moved

    def wait_layers(self, num_layers: int = 0, timeout: float | None = None) -> None:
        """Waits until the first layers of the last run have moved; 0 for all."""
        wait = lambda limit, error: lib.kvmem_transfer_wait_layers(self._handle, num_layers, limit, error)  # noqa: E731
        if not run_ends(wait, self._status, timeout):
            raise _errors.TimedOut(f"{num_layers or 'all'} layers have not moved after {timeout} s")

    def wait_on_stream(self, stream: int, num_layers: int = 0) -> None:
        """Makes a CUDA stream wait until the first layers have moved; 0 for all."""
        _errors.call(lib.kvmem_transfer_wait_on_stream, self._handle, num_layers, ffi.cast("struct CUstream_st *", stream))

    # ---- information ----

    @property
    def info(self) -> TransferInfo:
        """Properties of the transfer with its last blocks."""
        c = read(lib.kvmem_transfer_get_info, "transfer_info", self._handle)
        return TransferInfo(c.bytes, c.num_pieces, c.num_moves, c.num_requests, c.duration_ns, k.Method(c.method), c.layers_moved)

    def methods(self) -> list[ComparedMethod]:
        """The methods that were compared for the last blocks. The first is used."""
        capacity = len(k.Method)
        out, count = ffi.new("kvmem_compared_method[]", capacity), ffi.new("size_t *")
        _errors.call(lib.kvmem_transfer_get_methods, self._handle, out, capacity, count)
        return [
            ComparedMethod(
                k.Method(c.method), k.Choice(c.choice), c.bytes_per_second, bool(c.assumed), ffi.string(c.reason).decode(errors="replace")
            )
            for c in out[0 : min(count[0], capacity)]
        ]

    def explain(self) -> Explanation:
        """Why the transfer takes its method for the last blocks."""
        return Explanation(blob_text(blob(lib.kvmem_transfer_explain, self._handle)), self.methods())

    def _describe(self) -> str:
        status = lib.kvmem_transfer_poll(self._handle, ffi.NULL)
        return {0: "ended", 1: "in flight", int(k.Status.INVALID_STATE): "not submitted"}.get(status) or "failed"


def _block_table(table: Table, name: str, options: Options) -> Any:
    _errors.ensure_kind(table, Table, name, "kvmem.Table(blocks)")
    ids = block_ids(table.blocks)
    made = ffi.new("kvmem_block_table *", (ids, len(ids), table.first_token, table.token_step))
    options.kept += [ids, made]
    return made


def move(
    source: Layout,
    destination: Layout,
    pairs: Pairs,
    *,
    run_timeout: float | None = None,
    progress: Callable[[int, int], object] | None = None,
    batch: int = 0,
    epochs: Any = None,
    **options: Any,
) -> int:
    """Moves blocks and waits for the end. Returns the number of bytes. `epochs` and `run_timeout` are as in `Transfer.submit`, and `options`
    are those of `Transfer`.

    With `progress(done, total)`, in bytes, the pairs move in batches of `batch` pairs, by default a hundredth of them. Each batch is a run with this
    `run_timeout`. All pairs are checked before the first batch, and errors name pairs by their indices in `pairs`."""
    with Transfer(source, destination, **options) as transfer:
        if progress is None:
            transfer.submit(pairs, epochs=epochs, run_timeout=run_timeout).wait()
            return transfer.info.bytes
        listed = pairs if hasattr(pairs, "__len__") else list(_as_iterable(pairs))
        expected = None if epochs is None else list(epochs)
        if len(listed) or expected:
            transfer.prepare(listed, epochs=expected)
        size = batch or max(len(listed) // 100, 1)
        done = 0
        for start in range(0, len(listed), size):
            part = listed[start : start + size]
            part_epochs = None if expected is None else expected[start : start + size]
            try:
                transfer.submit(part, epochs=part_epochs, run_timeout=run_timeout).wait()
            except _errors.Stale as error:
                raise _of_list(error, transfer.mismatches(), start, len(part)) from None
            done += transfer.info.bytes
            progress(done, done * len(listed) // (start + len(part)))
        return done


def _of_list(error: _errors.Stale, stale: list[int], start: int, count: int) -> _errors.Stale:
    """The error of a batch, with the index of its first stale pair in the whole list."""
    if not stale:
        return error
    message = error.message.replace(f"of pair {stale[0]},", f"of pair {start + stale[0]},")
    return _errors.Stale(f"pairs {start} to {start + count - 1}: {message}", error.cause)


def _as_iterable(pairs: Iterable[Any]) -> Iterable[Any]:
    return pairs

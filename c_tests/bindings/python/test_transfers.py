# SPDX-License-Identifier: Apache-2.0
"""Transfers, queues, asyncio."""

import asyncio
import gc
import os
import re
import selectors

import numpy as np
import pytest

import kvmem
from conftest import shape
from kvmem._time import run_ends

PAIRS = [(3, 7), (0, 15), (9, 1)]


@pytest.fixture
def copy():
    """Another order of the same cache."""
    with kvmem.Layout.allocate(shape("BLHNOC"), "system") as layout:
        yield layout


def check(tensors, copy, pairs=PAIRS):
    moved = np.from_dlpack(copy.tensor())  # B L H N O C
    for source, destination in pairs:
        for layer, tensor in enumerate(tensors):
            assert (moved[destination, layer] == tensor[source].transpose(2, 1, 0, 3)).all()


@pytest.mark.parametrize("made", [list, tuple, iter, lambda pairs: np.array(pairs, np.uint32), lambda pairs: np.array(pairs)[::1]])
def test_pairs_of_each_kind(cache, copy, made):
    tensors, layout = cache
    with kvmem.Transfer(layout, copy) as transfer:
        transfer.submit(made(PAIRS)).wait()
        assert transfer.poll() and transfer.info.bytes == 3 * 3 * 2 * 4 * 8 * 2
        assert transfer.info.method == kvmem.Method.MEMCPY
    check(tensors, copy)


@pytest.mark.parametrize(
    ("pairs", "kind", "message"),
    [
        ([(0, 16)], kvmem.OutOfRange, "destination is 16"),
        ([(0, 1), (-1, 0)], kvmem.OutOfRange, r"pairs\[1\] is \(-1, 0\); a block id is a number from 0 to 2\^32 - 1"),
        ([(0, 1 << 32)], kvmem.OutOfRange, "block id"),
        ([(0, 1, 2)], kvmem.InvalidArgument, "pairs"),
        ([0, 1], kvmem.InvalidArgument, "pairs"),
        (np.zeros((3, 3), np.uint32), kvmem.InvalidArgument, r"shape \(3, 3\)"),
        ([(0, 1), (2, 1)], kvmem.InvalidArgument, "twice|destination"),
        ([], kvmem.InvalidArgument, "pairs"),
        (None, kvmem.InvalidState, "no blocks"),
    ],
)
def test_pairs_that_are_none_are_refused(cache, copy, pairs, kind, message):
    with kvmem.Transfer(cache[1], copy) as transfer, pytest.raises(kind, match=message):
        transfer.submit(pairs)


def test_runs_are_repeated_and_prepared(cache, copy):
    tensors, layout = cache
    with kvmem.Transfer(layout, copy) as transfer:
        transfer.prepare(PAIRS)
        transfer.submit().wait()
        check(tensors, copy)
        tensors[1][3] += 1
        transfer.submit().wait()
        check(tensors, copy)


def test_threads_that_repeat_a_run_have_a_number_each(cache, copy):
    """The number of one that fails, because a run is in flight, would be that of the run."""
    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
        transfer.submit(PAIRS).wait()
        first, second = transfer._last_blocks(), transfer._last_blocks()
        first.c.user_data, second.c.user_data = 1, 2
        assert first.c.user_data == 1 and first.c.pairs == second.c.pairs and first.kept


def test_ranges_of_layers_outers_and_heads(cache, copy):
    tensors, layout = cache
    with kvmem.Transfer(layout, copy, layers=kvmem.Range(1, 0, 2), outers=kvmem.Range(0, 1, 1), heads=kvmem.Range(1, 0, 1)) as transfer:
        transfer.submit([(2, 5)]).wait()
    moved = np.from_dlpack(copy.tensor())
    for layer in range(2):
        assert (moved[5, layer, 0, :, 1] == tensors[layer + 1][2, 0, :, 1]).all()
        assert not moved[5, layer, 1].any() and not moved[5, layer, 0, :, 0].any()


def test_block_tables_move_tokens_between_block_sizes(cache):
    tensors, layout = cache
    with kvmem.Layout.allocate(shape("BLONHC", num_blocks=8, page_size=8), "system") as other, kvmem.Transfer(layout, other) as transfer:
        transfer.submit(source_table=kvmem.Table([4, 2, 9]), destination_table=kvmem.Table(np.array([6, 1], np.uint32)), num_tokens=11).wait()
        moved = np.from_dlpack(other.tensor())
    tokens = np.concatenate([tensors[1][block] for block in (4, 2, 9)], axis=1)
    assert (moved[6, 1] == tokens[:, :8]).all() and (moved[1, 1][:, :3] == tokens[:, 8:11]).all()


def test_checksums_are_compared(cache, copy):
    tensors, layout = cache
    sums = layout.checksums([source for source, _ in PAIRS])
    with kvmem.Transfer(layout, copy) as transfer:
        transfer.submit(PAIRS, checksums=sums).wait()
        with pytest.raises(kvmem.Corrupt):
            transfer.submit(PAIRS, checksums=[sums[0], 1, 2]).wait()
        assert transfer.mismatches() == [1, 2]
        with pytest.raises(kvmem.InvalidState):
            transfer.checksums()
        transfer.submit(PAIRS, flags=kvmem.SubmitFlags.VERIFY | kvmem.SubmitFlags.CHECKSUM).wait()
        assert transfer.mismatches() == []
        assert transfer.checksums() == list(sums)
        with pytest.raises(kvmem.InvalidArgument, match="2 checksums for 3 pairs"):
            transfer.submit(PAIRS, checksums=sums[:2])


def test_blocks_of_a_run_in_flight_are_accessed():
    big = shape(num_blocks=64, num_layers=64, inner_dim=2048)
    with kvmem.Layout.allocate(big, "system") as source, kvmem.Layout.allocate(big, "system") as destination:
        assert source.accesses(range(64)) == []
        with kvmem.Queue() as other, kvmem.Queue() as queue, kvmem.Transfer(source, destination, queue=queue) as transfer:
            found = []
            while not found:  # until the run is in flight when that is asked
                run = transfer.submit([(block, block) for block in range(64)], user_data=other)
                found = source.accesses([9, 3, 9])
                run.wait()
            assert found == [kvmem.BlockAccess(block, kvmem.Accessor.RUN, True, False, other, None, 0, "") for block in (3, 9)]
        assert source.accesses([3, 9]) == []
        with pytest.raises(kvmem.OutOfRange, match=r"blocks\[1\] is 64"):
            source.accesses([0, 64])


def test_leased_blocks_are_accessed():
    with kvmem.Layout.allocate(shape(), "system") as layout:
        with layout.lease([2, 1, 2]) as lease:
            assert lease.remaining == float("inf") and repr(lease) == "<kvmem.Lease without an end>"
            found = layout.accesses([0, 1, 2])
            reader = [kvmem.Accessor.LEASE, True, False, None, float("inf"), os.getpid(), ""]
            assert found == [kvmem.BlockAccess(block, *reader) for block in (1, 2)]
            lease.renew(1000)
            assert 0 < lease.remaining <= 1000 and re.fullmatch(r"<kvmem.Lease for another \d+\.\d{3} s>", repr(lease))
            lease.renew(0)
            while layout.accesses([1]):  # the shortest duration is a millisecond
                pass
            with pytest.raises(kvmem.Stale, match="lease them again"):
                lease.renew()
            assert repr(lease) == "<kvmem.Lease over>"
            with layout.lease([1], 1000, flags=kvmem.LeaseFlags.WRITES):
                (writer,) = layout.accesses([1, 2])
                assert writer.writes and 0 < writer.remaining <= 1000.001  # rounded up
            layout.lease([1], 1e300).close()
            with layout.lease([2], float("inf")) as endless, layout.lease([1], 0.002):
                while layout.accesses([1]):  # 2**64 - 1 nanoseconds have no end at first
                    pass
                assert endless.remaining == float("inf")
        assert layout.accesses([0, 1, 2]) == []
        with pytest.raises(kvmem.InvalidArgument, match="duration is -1"):
            layout.lease([1], -1)
        with pytest.raises(TypeError, match="duration is a str; expected a number of seconds, or None for no end"):
            layout.lease([1], "2")
        with pytest.raises(kvmem.OutOfRange, match=r"blocks\[1\] is 64"):
            layout.lease([0, 64])
        with pytest.raises(kvmem.OutOfRange, match=r"blocks\[2\] is -1; a block id is a number from 0 to 2\^32 - 1"):
            layout.lease([0, 1, -1])


def test_reused_blocks_are_stale(cache, copy):
    tensors, layout = cache
    with kvmem.Transfer(layout, copy) as transfer:
        with pytest.raises(kvmem.InvalidState, match="create_epochs"):
            transfer.submit(PAIRS, epochs=[0, 0, 0])
        layout.create_epochs()
        assert layout.raise_epochs([9, 3]) == [1, 1]
        epochs = layout.epochs([source for source, _ in PAIRS])
        assert epochs == [1, 0, 1]
        transfer.submit(PAIRS, epochs=epochs).wait()
        check(tensors, copy)
        layout.raise_epochs(np.array([0], np.uint32))
        with pytest.raises(kvmem.Stale):
            transfer.submit(PAIRS, epochs=np.array(epochs, np.uint64)).wait()
        assert transfer.mismatches() == [1]
        with pytest.raises(kvmem.InvalidArgument, match="2 epochs for 3 pairs"):
            transfer.submit(PAIRS, epochs=epochs[:2])
        with pytest.raises(kvmem.InvalidArgument, match="no list of numbers"):
            transfer.submit(PAIRS, epochs=["a", 1, 2])
        with pytest.raises(kvmem.OutOfRange, match=r"epochs\[\d\] is -?\d+; an epoch is a number from 0 to 2\^64 - 1"):
            transfer.submit(PAIRS, epochs=[-1, 1, 2])
    with kvmem.Layout.allocate(shape("BLHNOC"), "system") as other, kvmem.Region.system(16) as small:
        with pytest.raises(kvmem.OutOfRange):
            other.create_epochs(small)
        with pytest.raises(TypeError, match="table is a list; expected kvmem.Region"):
            other.create_epochs([0] * 16)


def test_a_move_expects_epochs(cache, copy):
    tensors, layout = cache
    layout.create_epochs()
    kvmem.move(layout, copy, PAIRS, epochs=[0, 0, 0])
    check(tensors, copy)
    layout.raise_epochs([PAIRS[2][0]])
    seen = []
    with pytest.raises(kvmem.Stale):
        kvmem.move(layout, copy, PAIRS, epochs=[0, 0, 0], batch=2, progress=lambda done, total: seen.append(done))
    assert len(seen) == 1  # the first batch is not stale
    with pytest.raises(kvmem.Stale, match=r"^pairs 2 to 2: 1 of 1 source blocks .* the first, of pair 2, has epoch 1"):
        kvmem.move(layout, copy, PAIRS, epochs=[0, 0, 0], batch=1, progress=print)
    # Pairs of later batches are named by their indices in the list, before a batch moves.
    with pytest.raises(kvmem.OutOfRange, match=r"pairs\[2\].source is 99"):
        kvmem.move(layout, copy, [*PAIRS[:2], (99, 0)], batch=1, progress=lambda done, total: seen.append(done))
    with pytest.raises(kvmem.OutOfRange, match=r"epochs\[2\] is -1"):
        kvmem.move(layout, copy, PAIRS, epochs=[0, 0, -1], batch=1, progress=lambda done, total: seen.append(done))
    assert len(seen) == 1
    kvmem.move(layout, copy, PAIRS, epochs=np.array([0, 0, 1], np.uint64), batch=2, progress=lambda done, total: seen.append(done))
    assert len(seen) == 3
    for more in ({}, {"progress": print}):
        with pytest.raises(kvmem.InvalidArgument, match="2 epochs for 3 pairs"):
            kvmem.move(layout, copy, PAIRS, epochs=[0, 0], **more)
        with pytest.raises(kvmem.InvalidArgument, match="1 epochs? for 0 pairs|no pairs"):
            kvmem.move(layout, copy, [], epochs=[0], **more)


@pytest.mark.parametrize("name", ["timeout", "run_timeout", "stall_timeout"])
def test_a_time_that_is_no_number_is_named(cache, copy, name):
    with pytest.raises(TypeError, match=f"^{name} is a str; expected a number of seconds, or None"):
        with kvmem.Transfer(cache[1], copy, **({name: "1"} if name == "stall_timeout" else {})) as transfer:
            transfer.submit(PAIRS, **({name: "1"} if name == "run_timeout" else {})).wait("1")


@pytest.mark.parametrize("more", [{}, {"progress": print}])
def test_a_move_has_the_limit_of_a_run(cache, copy, more):
    with pytest.raises(TypeError, match="^run_timeout is a str; expected a number of seconds, or None"):
        kvmem.move(cache[1], copy, PAIRS, run_timeout="1", **more)
    assert kvmem.move(cache[1], copy, PAIRS, run_timeout=60, **more) > 0


def test_results_are_written_to_arrays(cache, copy):
    tensors, layout = cache
    sums = np.zeros(16, np.uint32)
    found = layout.checksums([source for source, _ in PAIRS], out=sums)
    assert len(found) == 3 and found.base is sums and found.all() and not sums[3:].any()
    with kvmem.Transfer(layout, copy) as transfer:
        transfer.submit(PAIRS, checksums=found, flags=kvmem.SubmitFlags.CHECKSUM).wait()
        assert (transfer.checksums(out=np.zeros(3, np.uint32)) == found).all()
        found[1] += 1
        with pytest.raises(kvmem.Corrupt):
            transfer.submit(PAIRS, checksums=found).wait()
        assert transfer.mismatches(out=np.zeros(3, np.uint64)).tolist() == [1]
        found[0] += 1
        with pytest.raises(kvmem.Corrupt):
            transfer.submit(PAIRS, checksums=found).wait()
        with pytest.raises(kvmem.OutOfRange, match="1 elements, and there are 2"):
            transfer.mismatches(out=np.zeros(1, np.uint64))
    with pytest.raises(kvmem.OutOfRange, match="2 elements, and there are 3"):
        layout.checksums([0, 1, 2], out=sums[:2])
    for wrong in (np.zeros(9, np.int32), np.zeros(9, np.uint64), np.zeros((3, 3), np.uint32), sums[::2], b"123456789012"):
        with pytest.raises(kvmem.InvalidArgument, match="expected one axis of uint32"):
            layout.checksums([0, 1, 2], out=wrong)


def test_explanations(cache, copy):
    with kvmem.Transfer(cache[1], copy) as transfer:
        transfer.prepare(PAIRS)
        explained = transfer.explain()
        assert "memcpy" in str(explained) and explained.methods[0].choice == kvmem.Choice.USED
        assert "<table>" in explained._repr_html_()


def test_move_reports_progress(cache, copy):
    tensors, layout = cache
    seen = []
    moved = kvmem.move(layout, copy, [(block, block) for block in range(16)], batch=3, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) == 6 and seen[-1] == (moved, moved)
    check(tensors, copy, [(block, block) for block in range(16)])


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_queues_report_each_run_once(cache, copy):
    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
        with pytest.raises(kvmem.TimedOut):
            queue.wait(0.01)
        for number in range(100):
            transfer.submit(PAIRS, user_data=number)
            (completion,) = queue.wait(60)
            assert completion.user_data == number and completion.source is transfer and completion.error is None
        assert queue.poll() == []


def test_failures_have_their_message(cache, copy):
    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
        transfer.submit(PAIRS, checksums=[1, 2, 3])
        (completion,) = queue.wait(60)
        assert isinstance(completion.error, kvmem.Corrupt) and "are corrupt" in str(completion.error)


def test_selectors_and_callbacks(cache, copy):
    seen = []
    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer, selectors.DefaultSelector() as selector:
        selector.register(queue, selectors.EVENT_READ)
        transfer.submit(PAIRS, user_data=seen.append)
        assert selector.select(60)
        assert queue.dispatch() == 1 and seen[0].source is transfer


def test_layers_are_reported_before_the_end(cache, copy):
    flags = kvmem.TransferFlags.BY_LAYER | kvmem.TransferFlags.REPORT_RELEASE
    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue, flags=flags, layers_per_completion=1) as transfer:
        transfer.submit(PAIRS, user_data="run")
        seen = queue.wait(60)
        while seen[-1].kind == kvmem.CompletionKind.LAYERS_MOVED:
            seen += queue.wait(60)
        assert {completion.user_data for completion in seen} == {"run"}
        assert [each.kind for each in seen[:-1]] == [kvmem.CompletionKind.LAYERS_MOVED] * (len(seen) - 1) and len(seen) > 1
        assert seen[-1].kind == kvmem.CompletionKind.RUN_ENDED and seen[-1].released and seen[-1].num_layers == 3
        assert not queue._runs


def test_a_refused_run_reports_nothing(cache, copy):
    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
        with pytest.raises(kvmem.OutOfRange):
            transfer.submit([(0, 99)])
        assert not queue._runs and queue.poll() == []


def test_many_transfers_are_awaited_at_once(cache):
    tensors, layout = cache

    async def one(number):
        with kvmem.Layout.allocate(shape("BLHNOC"), "system") as own:
            with kvmem.Transfer(layout, own) as transfer:
                for _ in range(5):
                    await transfer.submit([(number % 16, 3)])
            check(tensors, own, [(number % 16, 3)])

    async def main():
        await asyncio.gather(*map(one, range(50)))

    asyncio.run(main())
    asyncio.run(main())  # another loop


def test_runs_that_no_task_awaits_are_forgotten(cache, copy):
    from kvmem._queue import queue_of_loop

    async def main():
        for _ in range(50):
            kvmem.move(cache[1], copy, PAIRS)
        queue = queue_of_loop()
        while queue._runs:
            await asyncio.sleep(0)
        assert not queue._ready

    asyncio.run(main())


def test_async_for(cache, copy):
    async def main():
        queue = kvmem.Queue()
        transfer = kvmem.Transfer(cache[1], copy, queue=queue)

        async def submit():
            for number in range(10):
                while True:
                    try:
                        transfer.submit(PAIRS, user_data=number)
                        break
                    except kvmem.Busy:
                        await asyncio.sleep(0)
                await asyncio.sleep(0)

        task = asyncio.ensure_future(submit())
        seen = []
        async for completion in queue:
            seen.append(completion.user_data)
            if len(seen) == 10:
                break
        await task
        assert seen == list(range(10))
        waiting = asyncio.ensure_future(queue.next())
        await asyncio.sleep(0)
        queue.close()
        with pytest.raises(kvmem.InvalidState, match="closed"):
            await waiting
        transfer.close()

    asyncio.run(main())


def test_several_tasks_await_one_run_and_one_of_them_is_cancelled(cache, copy, monkeypatch):
    async def wait(transfer):
        await transfer

    async def main():
        with kvmem.Transfer(cache[1], copy) as transfer:
            with monkeypatch.context() as in_flight:
                in_flight.setattr(kvmem.Queue, "_drain", lambda queue: None)
                in_flight.setattr(kvmem.Transfer, "poll", lambda transfer: False)
                in_flight.setattr(kvmem.Transfer, "_status", lambda transfer: int(kvmem.Status.IN_PROGRESS))
                transfer.submit(PAIRS)
                tasks = [asyncio.ensure_future(wait(transfer)) for _ in range(3)]
                await asyncio.sleep(0)
                tasks.pop().cancel()
                await asyncio.sleep(0)
            await asyncio.wait_for(asyncio.gather(*tasks), 60)

    asyncio.run(main())


def test_each_of_the_tasks_that_wait_gets_a_completion(cache, copy):
    """Also if the first one is cancelled when it could get one."""

    async def main():
        with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
            tasks = [asyncio.ensure_future(queue.next()) for _ in range(3)]
            await asyncio.sleep(0)
            for number in range(2):
                transfer.submit(PAIRS, user_data=number).wait(60)
            queue._drain()
            tasks.pop(0).cancel()
            found = await asyncio.wait_for(asyncio.gather(*tasks), 60)
            assert sorted(each.user_data for each in found) == [0, 1]

    asyncio.run(main())


def test_a_completion_has_an_error_also_if_its_transfer_is_closed(cache, copy):
    with kvmem.Queue() as queue:
        with kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
            transfer.submit(PAIRS, checksums=[1, 2, 3])
        (completion,) = queue.wait(60)
        assert isinstance(completion.error, kvmem.Corrupt)


def test_a_loop_that_has_ended_leaves_no_queue(cache, copy):
    async def main():
        with kvmem.Transfer(cache[1], copy) as transfer:
            await transfer.submit(PAIRS)
        return kvmem.statistics().num_queues

    def queues_during_a_loop():
        found = asyncio.run(main())
        gc.collect()
        return found

    first = queues_during_a_loop()
    assert first > 0 and [queues_during_a_loop() for _ in range(3)] == [first] * 3


def test_a_queue_that_is_freed_leaves_its_loop():
    async def main():
        queue = kvmem.Queue()
        queue._attach()
        fd = queue.fileno()
        with pytest.warns(ResourceWarning, match="not closed"):
            del queue
            gc.collect()
        assert not asyncio.get_running_loop().remove_reader(fd)

    asyncio.run(main())


def test_failures_are_raised_by_await(cache, copy):
    async def main():
        with kvmem.Transfer(cache[1], copy) as transfer:
            with pytest.raises(kvmem.Corrupt):
                await transfer.submit(PAIRS, checksums=[1, 2, 3])

    asyncio.run(main())


def test_a_transfer_without_a_queue_cannot_be_awaited(cache, copy):
    transfer = kvmem.Transfer(cache[1], copy)

    async def main():
        with pytest.raises(kvmem.InvalidState, match="queue"):
            await transfer.submit(PAIRS)

    asyncio.run(main())
    transfer.close()


def test_the_log_is_that_of_python(caplog):
    import logging

    with caplog.at_level(logging.DEBUG):
        kvmem.log_to(logging.getLogger("kvmem"), kvmem.LogLevel.DEBUG)
        kvmem.Region.system(4096).close()
        kvmem.log_to(None)
    assert any("region" in record.name or "region" in record.message for record in caplog.records)


def test_a_run_that_ends_after_a_wait_has_timed_out_is_not_late():
    """The wait and the status are two calls, between which the run may end."""
    ends = [kvmem.Status.TIMED_OUT, kvmem.Status.OK]
    assert run_ends(lambda limit, error: ends.pop(0), lambda: kvmem.Status.OK, 10) and not ends
    ends = [kvmem.Status.TIMED_OUT, kvmem.Status.CANCELLED]
    with pytest.raises(kvmem.Cancelled):
        run_ends(lambda limit, error: ends.pop(0), lambda: kvmem.Status.CANCELLED, 10)
    assert not run_ends(lambda limit, error: kvmem.Status.TIMED_OUT, lambda: kvmem.Status.IN_PROGRESS, 0.01)

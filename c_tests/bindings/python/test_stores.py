# SPDX-License-Identifier: Apache-2.0
"""Stores: blocks under keys survive, what is missing or damaged is reported."""

from __future__ import annotations

import asyncio
import pathlib

import kvmem
import pytest

SHAPE = kvmem.Shape(num_blocks=4, num_layers=2, page_size=4, inner_dim=64, dtype_width=2, order="BLONHC", alignment=4096)
IDENTITY = {"model": "llama", "dtype": b"bf16"}
KEYS = [bytes([number]) * 32 for number in range(4)]


def filled(value: int) -> kvmem.Layout:
    layout = kvmem.Layout.allocate(SHAPE, "system")
    for region in layout.regions:
        with region:
            region.memory[:] = bytes([value]) * region.info.size
    return layout


def test_blocks_survive_and_a_get_takes_the_first_keys(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store"
    with kvmem.Store(path, SHAPE, identity=IDENTITY) as store, filled(7) as source:
        assert store.put(source, KEYS[:2], [0, 1]).wait(60) == 2
        assert store.put(source, KEYS[:3], [0, 1, 2]).wait(60) == 1
    with kvmem.Store(path, SHAPE._replace(num_blocks=0), identity=IDENTITY) as store, filled(1) as destination, filled(7) as source:
        assert store.contains(KEYS) == [True, True, True, False]
        assert store.get(destination, KEYS, [3, 2, 1, 0]).wait(60) == 3
        assert destination.checksums([3, 2, 1]) == source.checksums([0, 1, 2])
        assert store.get(destination, KEYS[3:], [0]).wait(60) == 0
        assert [entry.parent for entry in store] == [None, KEYS[0], KEYS[1]]
        assert (store.info.num_slots, store.info.num_stored, store.info.num_hits) == (4, 3, 3)
        assert store.pin(KEYS) == 3 and store.unpin(KEYS) == 3
        assert store.remove(KEYS[2:]) == 1
        assert store.verify() == 0
        store.flush()
    assert "model is 'llama'" in kvmem.Store.describe(path)


def test_engines_with_other_blocks_heads_and_layers_find_them(tmp_path: pathlib.Path) -> None:
    shape = SHAPE._replace(num_blocks=8, num_heads=4)
    with kvmem.Store(tmp_path / "store", shape, identity=IDENTITY) as store:
        with kvmem.Layout.allocate(shape._replace(num_blocks=2, page_size=8, order="L/BONHC"), "system") as source:
            for region in source.regions:
                with region:
                    region.memory[:] = bytes(number * 31 % 251 for number in range(region.info.size))
            assert store.put(source, KEYS[:3], [1, 0]).wait(60) == 3
            with kvmem.Layout.allocate(shape._replace(page_size=2, num_heads=2, num_layers=1, inner_dim=32), "system") as part:
                ranges = {"layers": kvmem.Range(1, 0, 1), "heads": kvmem.Range(2, 0, 2)}
                assert store.get(part, KEYS, [0, 1, 2, 3, 4, 5, 6, 7], **ranges).wait(60) == 3
                with kvmem.Layout.allocate(shape._replace(page_size=2, num_heads=2, num_layers=1, inner_dim=32), "system") as expected:
                    tables = {"source_table": kvmem.Table([1, 0]), "destination_table": kvmem.Table([0, 1, 2, 3, 4, 5, 6, 7])}
                    with kvmem.Transfer(source, expected, **ranges) as transfer:
                        transfer.submit(num_tokens=12, **tables)
                        transfer.wait(60)
                    assert part.checksums([0, 1, 2, 3, 4, 5]) == expected.checksums([0, 1, 2, 3, 4, 5])
            with pytest.raises(kvmem.InvalidArgument, match="num_blocks is 3; 3 keys of 4 tokens are in 2 blocks of 8 tokens"):
                store.put(source, KEYS[:3], [0, 1, 1])
            with pytest.raises(kvmem.InvalidArgument, match="a slot is written as a whole"):
                store.put(source, KEYS[3:], [0], heads=kvmem.Range(0, 0, 1))


def test_misuse_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store"
    with kvmem.Store(path, SHAPE, identity=IDENTITY) as store, filled(1) as source:
        with pytest.raises(kvmem.Busy, match="this process"):
            kvmem.Store(path, SHAPE, identity=IDENTITY)
        with pytest.raises(kvmem.InvalidArgument, match="15 bytes"):
            store.contains([b"x" * 15])
        with pytest.raises(kvmem.InvalidArgument, match="one size"):
            store.contains([b"x" * 16, b"x" * 17])
        with pytest.raises(kvmem.InvalidArgument, match="num_blocks is 2"):
            store.put(source, KEYS[:1], [0, 1])
        with pytest.raises(kvmem.InvalidArgument, match="blocks are no list of block ids"):
            store.put(source, KEYS[:1], [0.5])
        for wrong, expected in ((1.5, "a whole number"), (-1, "a number from 0 to 2\\^64 - 1")):
            with pytest.raises(kvmem.InvalidArgument, match=f"quota is {wrong}: expected {expected}"):
                store.open_namespace("tenant", quota=wrong)
        with pytest.raises(TypeError, match="layout is a bytes; expected kvmem.Layout"):
            store.put(b"bytes", KEYS[:1], [0])
        with pytest.raises(TypeError, match="keys are one key; give a list"):
            store.put(source, KEYS[0], [0])
        with pytest.raises(TypeError, match="a key is a str; give bytes"):
            store.contains(["x" * 16])
        with pytest.raises(kvmem.InvalidArgument, match="flags is 'unrelated'"):
            store.put(source, KEYS[:1], [0], flags="unrelated")
    with pytest.raises(kvmem.InvalidArgument, match="model is 'llama' in the store and 'qwen' here"):
        kvmem.Store(path, SHAPE, identity=IDENTITY | {"model": "qwen"})
    with pytest.raises(TypeError, match="the value of 'layers' in identity is an int; give text or bytes"):
        kvmem.Store(path, SHAPE, identity=IDENTITY | {"layers": 32})
    with pytest.raises(TypeError, match="identity is a str; give names with values"):
        kvmem.Store(path, SHAPE, identity="llama")
    with pytest.raises(TypeError, match="shape is a dict; expected kvmem.Shape"):
        kvmem.Store(path, SHAPE._asdict(), identity=IDENTITY)
    with pytest.raises(kvmem.InvalidArgument, match="durability is 'relaxed': give one of kvmem.Durability.STRICT, "):
        kvmem.Store(path, SHAPE, identity=IDENTITY, durability="relaxed")


def test_a_store_is_read_beside_its_writer(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "store"
    reading = kvmem.DiskFlags.OPEN_EXISTING | kvmem.DiskFlags.READ_ONLY
    with (
        kvmem.Store(path, SHAPE, identity=IDENTITY) as store,
        kvmem.Store(path, SHAPE, identity=IDENTITY, flags=reading) as reader,
        filled(7) as source,
        filled(1) as destination,
    ):
        assert store.put(source, KEYS[:2], [0, 1]).wait(60) == 2
        assert reader.get(destination, KEYS, [3, 2, 1, 0]).wait(60) == 2
        assert destination.checksums([3, 2]) == source.checksums([0, 1])
        with pytest.raises(kvmem.PermissionDenied, match="open for reading"):
            reader.remove(KEYS[:1])


def test_a_put_can_be_awaited(tmp_path: pathlib.Path) -> None:
    async def put() -> None:
        with kvmem.Store(tmp_path / "store", SHAPE, identity=IDENTITY) as store, filled(1) as source:
            assert await store.put(source, KEYS[:1], [0]) == 1
            assert store.contains(KEYS[:1]) == [True]
            assert await store.put(source, KEYS[:1], [0]) == 0
            assert await store.get(source, KEYS[:2], [1, 2]) == 1

    asyncio.run(put())


@pytest.mark.parametrize("awaits", [False, True])
def test_the_indices_of_damaged_blocks_are_known_after_the_wait(tmp_path: pathlib.Path, awaits: bool) -> None:
    async def awaited(store: kvmem.Store, destination: kvmem.Layout) -> kvmem.StoreRun:
        run = store.get(destination, KEYS[:3], [0, 1, 2])
        with pytest.raises(kvmem.Corrupt, match="2 of 3 blocks"):
            await run
        return run

    path = tmp_path / "store"
    with kvmem.Store(path, SHAPE, identity=IDENTITY) as store, filled(7) as source, filled(1) as destination:
        put = store.put(source, KEYS[:3], [0, 1, 2])
        assert put.wait(60) == 3 and put.mismatches() == []
        slots = {entry.key: entry.slot for entry in store}
        with open(path / "blocks.0", "r+b") as file:
            for key in (KEYS[0], KEYS[2]):
                file.seek(slots[key] * store.info.slot_size)
                file.write(b"damage")
        if awaits:
            run = asyncio.run(awaited(store, destination))
        else:
            run = store.get(destination, KEYS[:3], [0, 1, 2])
            with pytest.raises(kvmem.Corrupt, match="2 of 3 blocks"):
                run.wait(60)
        assert run.transfer is not None and run.transfer.closed
        assert run.mismatches() == [0, 2]
        assert store.contains(KEYS[:3]) == [False, True, False]
        missing = store.get(destination, KEYS[:1], [0])
        assert missing.wait(60) == 0 and missing.mismatches() == []
        stored = store.get(destination, KEYS[1:2], [1])
        assert stored.wait(60) == 1 and stored.mismatches() == []

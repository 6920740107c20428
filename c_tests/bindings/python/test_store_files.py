# SPDX-License-Identifier: Apache-2.0
"""The files of a store are what docs/store.md says: a reader that is written from the page finds what kvmem has stored."""

from __future__ import annotations

import hashlib
import os
import pathlib
import random

import kvmem
import pytest
from conftest import HERE, start
from store_files import StoreFiles

SHAPE = kvmem.Shape(num_blocks=16, num_layers=2, outer_dim=2, page_size=4, inner_dim=24, num_heads=3, dtype_width=2, order="BLONHC", alignment=4096)
SIZE = 2 * 2 * 4 * 24 * 2
SECRET = bytes(range(32))
ORDERS = {"STRICT": "BLONHC", "RELAXED": "BNHOLC", "NONE": "BHCLNO"}
"""Of slots, with each durability."""


def opened(path: pathlib.Path | str, durability: str) -> dict[str, kvmem.Store]:
    """A store, and two namespaces of it."""
    shape = SHAPE._replace(order=ORDERS[durability])
    store = kvmem.Store(path, shape, identity={"model": "llama", "dtype": b"\xff\0", "none": ""}, durability=kvmem.Durability[durability])
    size = store.info.slot_size
    plain = store.open_namespace("plain", quota=5 * size)
    return {"": store, "plain": plain, "secret": store.open_namespace("secret", quota=5 * size, key=SECRET)}


def elements(key: bytes) -> bytes:
    """What is stored under a key, by layer, outer slot, token and head."""
    return hashlib.shake_128(key).digest(SIZE)


def change(handles: dict[str, kvmem.Store], steps: int) -> None:
    """Puts, gets and removes blocks. With more keys than slots, the store evicts."""
    chance = random.Random(steps)
    with kvmem.Layout.allocate(SHAPE, "system") as source:
        for _ in range(steps):
            handle, size = chance.choice(list(handles.values())), chance.choice((16, 33, 64))
            keys = [hashlib.shake_128(b"%d" % number).digest(size) for number in chance.sample(range(12), 4)]
            for region in source.regions:
                with region:
                    for block, key in enumerate(keys):
                        region.memory[block * 4096 :][:SIZE] = elements(key)
            handle.put(source, keys[1:], [1, 2, 3], parent=chance.choice((keys[0], None))).wait(60)
            handle.get(source, keys[2:], [0, 1]).wait(60)
            if chance.random() < 0.2:
                handle.remove(keys[1:2])
        handles[""].flush()


def agree(path: pathlib.Path, handles: dict[str, kvmem.Store]) -> StoreFiles:
    """The files have what handles list, with its bytes."""
    files = StoreFiles(path, {"secret": SECRET})
    numbers = {"": 0} | {each["name"]: each["number"] for each in files.namespaces}
    listed = {(numbers[name], *entry) for name, handle in handles.items() for entry in handle}
    found = {(*block.name, block.parent and block.parent[1], block.checksum, False, block.slot) for block, _ in files.blocks}
    assert found == listed
    for block, stored in files.blocks:
        assert stored is not None and files.slots.by_layer(stored) == elements(block.name[1])
    return files


def close(handles: dict[str, kvmem.Store]) -> None:
    for handle in handles.values():
        handle.close()


@pytest.mark.parametrize("durability", ORDERS)
def test_files_are_as_the_page_says(tmp_path: pathlib.Path, durability: str) -> None:
    path = tmp_path / "store"
    handles = opened(path, durability)
    agree(path, handles)
    change(handles, 500)
    files = agree(path, handles)
    assert files.generation > 1 and files.skipped == 0
    assert (int(files.writer), files.published) == (os.getpid(), (files.generation, files.records))
    assert len(files.blocks) == 16 and handles[""].info.num_evicted > 0
    # Without the key, blocks of an encrypted namespace are the same ones, with hashes of their keys.
    hidden = StoreFiles(path, {})
    assert [block.checksum for block, _ in hidden.blocks] == [block.checksum for block, _ in files.blocks]
    assert {block.name[0] for block, stored in hidden.blocks if stored is None} == {files.namespaces[1]["number"]}
    damaged = next(block for block, _ in files.blocks if block.name[0] == 0).slot
    with open(path / "blocks.0", "r+b") as file:
        file.seek(damaged * handles[""].info.slot_size)
        file.write(b"damaged")
    assert handles[""].verify() == 1
    handles[""].flush()
    assert agree(path, handles).retired == {damaged}
    plain = handles.pop("plain")
    stored = plain.info.num_stored
    plain.close()
    assert handles[""].remove_namespace("plain") == stored > 0
    agree(path, handles)
    close(handles)
    handles = opened(path, durability)
    files = agree(path, handles)
    assert [each["number"] for each in files.namespaces] == [2, 3] and files.retired == {damaged}
    change(handles, 20)
    agree(path, handles)
    close(handles)


WRITER = """
import sys, test_store_files
handles = test_store_files.opened(*sys.argv[1:])
while True:
    test_store_files.change(handles, 20)
    print(flush=True)
"""


@pytest.mark.parametrize("durability", ORDERS)
def test_files_of_a_killed_writer_have_what_the_next_one_finds(tmp_path: pathlib.Path, durability: str) -> None:
    path = tmp_path / "store"
    for rounds in range(1, 4):
        writer = start(WRITER, path, durability, cwd=HERE)
        for _ in range(rounds):
            assert writer.stdout.readline() == "\n"
        writer.kill()
        writer.wait()
        killed = StoreFiles(path, {"secret": SECRET})
        handles = opened(path, durability)
        assert agree(path, handles).blocks == killed.blocks
        close(handles)

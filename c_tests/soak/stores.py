# SPDX-License-Identifier: Apache-2.0
"""A store whose blocks are functions of their keys, with a record beside it of what the store has acknowledged."""

import hashlib
import mmap

import kvmem
import memory
import oracle

KEYS = 96
SLOTS = 64
IDENTITY = {"model": "soak", "dtype": "uint16"}
ABSENT, STORED, ANY = 0, 1, 2
"""What the store has of a key: nothing for sure; the block for sure; either, because a call or a process ended in between."""


def key(number):
    return hashlib.sha256(number.to_bytes(8, "little")).digest()


def label(number):
    return oracle.label_of("key", number)


def shape(slots=0):
    return memory.shape_of("BLONHC", slots)


class Record:
    """The state of each key, in a mapped file: it survives a worker that is killed at any instruction."""

    def __init__(self, path):
        with open(path, "a+b") as file:
            file.truncate(KEYS)
            self.states = mmap.mmap(file.fileno(), KEYS)

    def set(self, numbers, state):
        for number in numbers:
            self.states[number] = state

    def close(self):
        self.states.close()


class KeptStore:
    """The store of a worker. The caller evicts, so a block that was put stays until it is removed: not more keys than slots are used.
    With `evicts`, the store evicts, and a get may miss."""

    def __init__(self, path, record_path, slot, durability):
        self.path = path
        self.evicts = slot % 2 == 1
        self.keys = KEYS if self.evicts else SLOTS
        self.durability = kvmem.Durability(durability)
        self.record = Record(record_path)
        self.store = None
        self.unwritten = []
        """Changes since the last flush, in order: the numbers of keys, and their state."""

    def open(self):
        self.store = kvmem.Store(
            self.path, shape(SLOTS), identity=IDENTITY, durability=self.durability,
            eviction=kvmem.Eviction.STORE if self.evicts else kvmem.Eviction.CALLER, timeout=60,
        )  # fmt: skip
        self.agrees()

    def agrees(self):
        """What is stored agrees with the record."""
        stored = self.store.contains([key(number) for number in range(KEYS)])
        for number, is_stored in enumerate(stored):
            state = self.record.states[number]
            if state == STORED and not is_stored and not self.evicts:
                raise AssertionError(f"{self.path}: key {number} was stored, and is lost")
            if state == ABSENT and is_stored:
                raise AssertionError(f"{self.path}: key {number} was removed or never stored, and is found")

    def put(self, source, numbers, blocks):
        """The blocks have the content of the keys."""
        self.record.set([number for number in numbers if self.record.states[number] == ABSENT], ANY)
        keys = [key(number) for number in numbers]
        self.store.put(source.layout, keys, blocks, flags=kvmem.StoreFlags.UNRELATED, run_timeout=100).wait(130)
        self._changed(numbers, STORED)

    def get(self, destination, numbers, blocks):
        """Returns how many blocks were loaded."""
        found = self.store.get(destination.layout, [key(number) for number in numbers], blocks, run_timeout=100).wait(130)
        if found < len(numbers) and self.record.states[numbers[found]] == STORED and not self.evicts:
            raise AssertionError(f"{self.path}: key {numbers[found]} is stored, and a get does not find it")
        return found

    def remove(self, numbers):
        self.record.set(numbers, ANY)
        self.store.remove([key(number) for number in numbers], timeout=60)
        self._changed(numbers, ABSENT)

    def flush(self):
        changes, self.unwritten = self.unwritten, []
        self.store.flush(timeout=60)
        for numbers, state in changes:
            self.record.set(numbers, state)

    def _changed(self, numbers, state):
        """A process that is killed loses what was not written yet, which only a relaxed store has."""
        if self.durability == kvmem.Durability.RELAXED:
            self.unwritten.append((numbers, state))
        else:
            self.record.set(numbers, state)

    def close(self):
        self.unwritten = []
        if self.store is not None:
            self.store.close()
            self.store = None


def audit(path, record_path, evicts):
    """After all processes have ended: every stored block has its bytes, and the slots add up. Returns the number of blocks."""
    record = Record(record_path)
    with kvmem.Store(path, shape(), identity=IDENTITY, flags=kvmem.DiskFlags.OPEN_EXISTING, timeout=60) as store:
        numbers = {key(number): number for number in range(KEYS)}
        stored = [numbers[each] for each in store.keys()]
        assert len(set(stored)) == len(stored) == store.info.num_stored, f"{path}: the number of keys is not that of blocks"
        assert store.info.num_retired == 0, f"{path}: {store.info.num_retired} slots are retired"
        lost = [number for number in range(KEYS) if record.states[number] == STORED and number not in stored]
        assert evicts or not lost, f"{path}: keys {lost} were stored, and are lost"
        assert not [number for number in stored if record.states[number] == ABSENT], f"{path}: a removed key is found"
        assert store.verify(timeout=120) == 0, f"{path}: damaged blocks"
        side = memory.Side("adopted", "BLONHC", max(len(stored), 1), None, "audit")
        if stored:
            got = store.get(side.layout, [key(number) for number in stored], list(range(len(stored)))).wait(120)
            assert got == len(stored), f"{path}: {got} of {len(stored)} blocks were read"
            side.labels = [label(number) for number in stored]
            side.check()
        side.close()
    record.close()
    return len(stored)

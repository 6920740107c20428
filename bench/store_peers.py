# SPDX-License-Identifier: Apache-2.0
"""What bench/22_store_peers.py measures."""

import itertools
import mmap
import os
import pathlib
import tempfile
import time
from importlib.metadata import version

import kvmem
import numpy as np
import store_ways
import vllm
from python_rows import machine, summary

KEY, KIB, MIB = 32, 1 << 10, 1 << 20
SIZES = (16 * KIB, 64 * KIB, 256 * KIB, 1 << 20)
TURN, LARGE_TURN = 64 * MIB, 128 * MIB  # bytes; the second for blocks of 1 MiB
KEPT = 6  # turns that a store has space for. As many turns are not counted: then each slot was written
IN_FLIGHT = 2  # batches of puts beside a get
RATES = {"without a pause": None, "up to 0.2 GB/s": 2e8}  # of puts beside gets
STRICT = "kvmem, strict"


def measure(foyer, directory, only, quick):
    """Rows of the points whose titles contain `only`."""
    run = Run(foyer, directory, quick)
    for block in SIZES:
        if only in f"put and get, {block // KIB} KiB":
            run.throughput(block)
    if only in "get beside puts":
        run.beside()
    return run.rows


def versions():
    lock = (pathlib.Path(__file__).parent / "reference" / "foyer" / "Cargo.lock").read_text()
    foyer = lock.split('name = "foyer"\nversion = "')[1].split('"')[0]
    return {"LMCache": version("lmcache"), "LMCache's raw_block": version("lmcache-rust-raw-block-io"), "vLLM": vllm.__version__, "foyer": foyer}


class Memory:
    """Blocks that are put, and as many that gets write to."""

    def __init__(self, block, count):
        self.map = mmap.mmap(-1, 2 * block * count)
        self.blocks = np.frombuffer(self.map, np.uint8).reshape(2 * count, block)
        self.count, self.block = count, block
        self.random = np.random.default_rng(22)
        self.given = self.blocks[:count]
        self.given.reshape(-1).view(np.uint64)[:] = self.random.integers(0, 1 << 63, block * count // 8, dtype=np.uint64)

    def keys(self, count):
        return self.random.integers(0, 256, (count, KEY), dtype=np.uint8)

    def scattered(self, side):
        return (self.random.permutation(self.count) + side * self.count).astype(np.uint32)

    def wipe(self):
        self.blocks[self.count :] = 0

    def check(self, name, sources, destinations):
        for start in range(0, len(sources), 256):
            if not np.array_equal(self.blocks[sources[start : start + 256]], self.blocks[destinations[start : start + 256]]):
                raise RuntimeError(f"{name} returned other bytes")


def seconds(calls):
    begin = time.perf_counter()
    calls()
    return time.perf_counter() - begin


def moved(way, start, batches):
    """Starts all batches, and waits for all."""
    started = [start(batch) for batch in batches]
    for each in started:
        way.wait(each)


def split(way, keys, ids, size):
    return [way.batch(keys[at : at + size], ids[at : at + size]) for at in range(0, len(ids), size)]


def turn(name, way, memory, size, kept):
    """GB/s of a put of new blocks, and of a get of the same."""
    keys, sources, destinations = memory.keys(memory.count), memory.scattered(0), memory.scattered(1)
    puts, gets = split(way, keys, sources, size), split(way, keys, destinations, size)
    bytes_of = memory.count * memory.block / 1e9
    put = bytes_of / seconds(lambda: moved(way, way.put, puts))
    kept.append(puts)
    memory.wipe()
    get = bytes_of / seconds(lambda: moved(way, way.get, gets))
    memory.check(name, sources, destinations)
    if len(kept) > KEPT - 2:
        way.forget(kept.pop(0))
    return {"put": put, "get": get}


class Beside:
    """Microseconds of gets of a few blocks while puts go on. One thread starts and ends both, as a scheduler does."""

    def __init__(self, name, way, memory, size):
        self.name, self.way, self.memory, self.size = name, way, memory, size
        self.pending, self.put = [], []

    def series(self, count, number, rate):
        """p50 and p99 of gets of so many blocks, and bytes that were put per second. `rate` is the limit of that, or None."""
        memory, way, taken = self.memory, self.way, []
        keys, sources = memory.keys(memory.count // 2), memory.scattered(0)[: memory.count // 2]
        stored = split(way, keys, sources, self.size)
        moved(way, way.put, stored)
        self.put, begin = [], time.perf_counter()
        for _ in range(number):
            picked, destinations = memory.random.permutation(len(keys))[:count], memory.scattered(1)[:count]
            batch = way.batch(keys[picked], destinations)
            memory.blocks[destinations] = 0
            self.keep_on(begin, rate)
            taken.append(1e6 * seconds(lambda: way.wait(way.get(batch))))
            memory.check(self.name, sources[picked], destinations)
        for each in self.pending:
            way.wait(each)
        self.pending = []
        put = len(self.put) * self.bytes_of / (time.perf_counter() - begin) / 1e9
        way.forget(stored + self.put)
        return {"p50": float(np.percentile(taken, 50)), "p99": float(np.percentile(taken, 99)), "GB/s": put}

    @property
    def bytes_of(self):
        return self.size * self.memory.block

    def keep_on(self, begin, rate):
        """Ends the puts that are done, and starts others."""
        for each in [each for each in self.pending if self.way.is_done(each)]:
            self.way.wait(each)
            self.pending.remove(each)
        while len(self.pending) < IN_FLIGHT and not (rate and len(self.put) * self.bytes_of > rate * (time.perf_counter() - begin)):
            batch = self.way.batch(self.memory.keys(self.size), self.memory.scattered(0)[: self.size])
            self.pending.append(self.way.put(batch))
            self.put.append(batch)


class Run:
    """Opens the stores, and gathers rows."""

    def __init__(self, foyer, directory, quick):
        self.directory, self.quick, self.rows = directory, quick, []
        self.machine, self.versions = machine(), versions()
        self.load = round(os.getloadavg()[0], 1)
        self.library = store_ways.Foyer.load(foyer)

    def ways(self, root, memory, capacity):
        """Name and store. The first one is kvmem's."""
        def folder(name):
            path = pathlib.Path(root) / name
            path.mkdir()
            return path

        large = max(capacity, 384 * MIB)  # foyer has 24 files of 16 MiB or more
        made = {"kvmem": lambda at: store_ways.Kvmem(at, memory.blocks, capacity),
                "foyer, io_uring": lambda at: store_ways.Foyer(at, memory.blocks, large, self.library, True),
                "foyer, pread and pwrite": lambda at: store_ways.Foyer(at, memory.blocks, large, self.library, False),
                "LMCache raw_block, io_uring": lambda at: store_ways.RawBlock(at, memory.blocks, capacity, "io_uring"),
                "LMCache raw_block, pread and pwrite": lambda at: store_ways.RawBlock(at, memory.blocks, capacity, "posix"),
                "vLLM's file tier": lambda at: store_ways.FileTier(at, memory.blocks, capacity),
                STRICT: lambda at: store_ways.Kvmem(at, memory.blocks, capacity, kvmem.Durability.STRICT)}
        opened = {}
        try:
            for number, (name, make) in enumerate(made.items()):
                opened[name] = make(folder(str(number)))
        except BaseException:
            self.close(opened)
            raise
        return opened

    @staticmethod
    def close(opened):
        for way in opened.values():
            way.close()

    def row(self, parameters, ours, reference, name, unit):
        ours, runs, reference = summary(ours), len(ours), summary(reference)
        better, worse = (ours, reference) if unit == "GB/s" else (reference, ours)
        ratio = better["median"] / worse["median"]
        self.rows.append({"name": "22-store", "parameters": parameters | {"versions": self.versions, "load": self.load}, "ours": ours, "reference": reference,
                          "reference_name": name, "ceiling": None, "ratio": ratio, "ceiling_ratio": None, "unit": unit, "runs": runs,
                          "machine": self.machine})
        words = ", ".join(f"{key} {value}" for key, value in parameters.items())
        print(f"22-store  {words}: {ours['median']:.4g} {unit}, {name} {reference['median']:.4g}: {ratio:.2f} x", flush=True)

    def throughput(self, block):
        quick = self.quick
        bytes_of = 8 * MIB if quick else LARGE_TURN if block >= MIB else TURN
        memory = Memory(block, bytes_of // block)
        size = max(min(256, memory.count // 4), min(64, memory.count))
        with tempfile.TemporaryDirectory(dir=self.directory) as root:
            opened = self.ways(root, memory, KEPT * bytes_of)
            try:
                taken = {name: {"put": [], "get": []} for name in opened}
                kept = {name: [] for name in opened}
                warm, rounds = (1, 2) if quick else (KEPT, 11)
                for number in range(warm + rounds):
                    for name in shuffled(opened, memory):
                        for step, value in turn(name, opened[name], memory, size, kept[name]).items():
                            if number >= warm:
                                taken[name][step].append(value)
            finally:
                self.close(opened)
        for step in ("put", "get"):
            parameters = {"way": step, "block": block, "blocks": memory.count, "batch": size}
            for name in opened:
                if name not in ("kvmem", STRICT):
                    self.row(parameters, taken["kvmem"][step], taken[name][step], name, "GB/s")
        self.row({"way": "put, strict", "block": block, "blocks": memory.count, "batch": size}, taken[STRICT]["put"], taken["kvmem"]["put"],
                 "kvmem without durability", "GB/s")

    def beside(self):
        """Blocks of 64 KiB, in batches of 32."""
        quick, block, size = self.quick, 64 * KIB, 32
        memory = Memory(block, 128 if quick else 1024)
        capacity = 64 * MIB if quick else 1280 * MIB
        rounds, number = (1, 5) if quick else (5, 100)
        with tempfile.TemporaryDirectory(dir=self.directory) as root:
            opened = self.ways(root, memory, capacity)
            try:
                opened.pop(STRICT).close()
                for way in opened.values():
                    fill(way, memory, size, 0 if quick else capacity)
                for count, (puts, rate) in itertools.product((1, 16), RATES.items()):
                    taken = {name: [] for name in opened}
                    for at in range(1 + rounds):
                        for name in shuffled(opened, memory):
                            found = Beside(name, opened[name], memory, size).series(count, number, rate)
                            taken[name].extend([found] * (at > 0))
                    self.rows_beside({"way": "get beside puts", "puts": puts, "block": block, "blocks": count, "batch": size}, taken)
            finally:
                self.close(opened)

    def rows_beside(self, parameters, taken):
        values = lambda name, key: [each[key] for each in taken[name]]
        rate = lambda name: round(float(np.median(values(name, "GB/s"))), 3)
        for statistic, name in itertools.product(("p50", "p99"), taken):
            if name != "kvmem":
                self.row(parameters | {"statistic": statistic, "GB/s": rate("kvmem"), "GB/s of the reference": rate(name)},
                         values("kvmem", statistic), values(name, statistic), name, "us")


def shuffled(names, memory):
    """In another order each round: what a store leaves to the disk delays whichever is next."""
    return memory.random.permutation(list(names)).tolist()


def fill(way, memory, size, capacity):
    """Writes to each slot once."""
    for _ in range(capacity // (memory.count * memory.block)):
        batches = split(way, memory.keys(memory.count), memory.scattered(0), size)
        moved(way, way.put, batches)
        way.forget(batches)

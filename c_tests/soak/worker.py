# SPDX-License-Identifier: Apache-2.0
"""worker.py FOLDER SLOT INCARNATION SEED AGENTS SECONDS SETTLE [FAULT]: one process of the soak. It makes random operations until the shared page
says that the soak ends, and compares every byte. After SECONDS it closes everything, and within SETTLE seconds it must have no more than before. A failure that nothing
explains ends it with status 1.

FAULT seeds a fault that must be found: leak, byte, lost, hang or late."""

import contextlib
import ctypes
import faulthandler
import glob
import os
import random
import signal
import sys
import time
import warnings

import control
import counts
import kvmem
import memory
import objects
import oracle
import peers
import scarcity
import stores
import waits
from lacking import RUN_SECONDS, Lacking

SIDES = 6
BY_CALLS = (kvmem.Method.CUDA_COPY, kvmem.Method.CUDA_BATCH, kvmem.Method.CUDA_2D)
MAX_CALLS = 20000
"""Elements whose order changes make up to 425,984 copies of 2 bytes. The stand-in takes seconds for them, and on a loaded machine minutes."""
KERNEL_SECONDS = 60
"""Within which the GPU finishes what it has, so that a kernel is loaded."""
PR_SET_PDEATHSIG = 1
TRACES = "SOAK_TRACE" in os.environ


class Worker(Lacking):
    def __init__(self, folder, slot, incarnation, seed, agents, settle, fault):
        self.root, self.slot, self.incarnation, self.num_agents, self.fault = folder, slot, incarnation, agents, fault
        self.has_agent = slot < agents
        self.settle, self.cuda_fails_until = settle, 0.0
        self.random = random.Random(f"{seed} {slot} {incarnation}")
        self.page = control.attach(self.place("page"))[0]
        self.own = self.page["workers"][slot]
        self.folder = self.place(f"worker-{slot}")
        self.sides, self.number, self.last_method = [], 0, None
        self.store = self.publisher = self.objects = None

    def place(self, name):
        return os.path.join(self.root, name)

    def next_number(self):
        self.number += 1
        return self.number

    def any_device(self):
        return self.random.randrange(max(memory.driver.num_devices, 1))

    def compared(self, size):
        self.own["compared"] += size

    # ---- failures ----

    @contextlib.contextmanager
    def tolerates(self, *errors):
        """These failures are right, and are counted."""
        try:
            yield
        except errors as error:
            self.own["refused"] += 1

    @contextlib.contextmanager
    def disk_may_be_full(self, tier_or_small):
        """Failures for lack of space are right for files of the small file system, if it was full meanwhile."""
        windows, full = int(self.page["full_windows"]), bool(self.page["full"])
        try:
            yield
        except scarcity.DISK:
            if tier_or_small not in ("small", True) or not (full or self.page["full"] or int(self.page["full_windows"]) != windows):
                raise
            self.own["refused"] += 1

    # ---- runs ----

    def pairs(self, source_blocks, destination_blocks):
        count = self.random.randint(1, min(source_blocks, destination_blocks))
        return list(zip(self.random.sample(range(source_blocks), count), self.random.sample(range(destination_blocks), count)))

    def run(self, source, destination, pairs, run_timeout=RUN_SECONDS, **options):
        """Moves blocks by a random one of the methods that can move them, and waits."""
        flags = self.random.choice((0, 0, kvmem.SubmitFlags.VERIFY, kvmem.SubmitFlags.CHECKSUM))
        with kvmem.Transfer(source, destination, **options) as transfer:
            transfer.prepare(pairs)
            possible = [each.method for each in transfer.methods() if each.choice != kvmem.Choice.IMPOSSIBLE]
            few = [each for each in possible if each not in BY_CALLS] if transfer.info.num_moves > MAX_CALLS else possible
            method = self.random.choice(few or possible[:1])  # the first is the fastest
            self.last_method = method
        with kvmem.Transfer(source, destination, method=method, **options) as transfer:
            self.submit(transfer, pairs, kvmem.SubmitFlags(flags), run_timeout).wait(run_timeout + 30)
            self.own["methods"][int(transfer.info.method)] += 1

    def submit(self, transfer, pairs, flags, run_timeout):
        """Again while the GPU computes for longer than a caller waits for the kernel of its method, as the stand-in does on a busy machine."""
        end = time.monotonic() + KERNEL_SECONDS
        while True:
            try:
                return transfer.submit(pairs, flags=flags, run_timeout=run_timeout)
            except kvmem.Busy as error:
                if "the driver loads no kernel meanwhile" not in str(error) or time.monotonic() > end:
                    raise
                self.own["refused"] += 1
                time.sleep(0.01)

    def fits(self, source, destination):
        """Blocks move between memory of any orders, and between a file and memory with the tokens of files; not between two files."""
        files = sum(side.path is not None for side in (source, destination))
        return files == 0 or files == 1 and all(side.order in memory.FILE_ORDERS for side in (source, destination))

    def two_sides(self, sides=None):
        sides = self.sides if sides is None else sides
        if len(sides) < 2:
            return None
        for _ in range(10):
            source, destination = self.random.sample(sides, 2)
            if self.fits(source, destination):
                return source, destination
        return None

    # ---- operations on own memory ----

    def create(self):
        if len(self.sides) >= SIDES:
            self.destroy()
        tiers = [tier for tier in (*memory.MEMORY_TIERS, *memory.FILE_TIERS) if memory.driver or tier not in memory.GPU_TIERS]
        tier = self.random.choice(tiers)
        orders = memory.FILE_ORDERS if tier in memory.FILE_TIERS else memory.ELASTIC_ORDERS if tier == "elastic" else memory.ORDERS
        folder = self.place("small") if tier == "small" else self.folder
        name = f"side-{self.slot}-{self.incarnation}-{self.next_number()}"
        with self.disk_may_be_full(tier):
            side = memory.Side(tier, self.random.choice(orders), self.random.randint(2, 14), folder, name, device=self.any_device())
            side.write_all([oracle.label_of(name, block) for block in range(side.usable)])
            self.sides.append(side)

    def destroy(self):
        if self.sides:
            side = self.sides.pop(self.random.randrange(len(self.sides)))
            self.compared(side.check())
            side.close()

    def moved(self, source, destination, pairs):
        for block_of_source, block in pairs:
            destination.labels[block] = source.labels[block_of_source]
        self.own["between_gpus"] += source.is_on_gpu and destination.is_on_gpu and source.device != destination.device

    def check(self, *sides):
        for side in sides:
            try:
                self.compared(side.check())
            except AssertionError as error:
                raise AssertionError(f"{error}; {', '.join(map(str, sides))}, the last method is {self.last_method!r}") from error

    def move(self):
        if chosen := self.two_sides():
            source, destination = chosen
            pairs = self.pairs(source.usable, destination.usable)
            with self.disk_may_be_full(destination.tier):
                destination_labels = list(destination.labels)
                destination.forget([block for _, block in pairs])
                self.run(source.layout, destination.layout, pairs)
                destination.labels = destination_labels
                self.moved(source, destination, pairs)
            self.check(source, destination)

    def burst(self):
        """Runs in flight at the same time, which report to one queue."""
        if not (chosen := self.two_sides()):
            return
        source, destination = chosen
        pairs = self.pairs(source.usable, destination.usable)
        kept = list(destination.labels)
        destination.forget([block for _, block in pairs])
        with contextlib.ExitStack() as open_objects:
            queue, left, failure = open_objects.enter_context(kvmem.Queue()), set(), None
            try:
                for part in filter(None, (pairs[at::3] for at in range(3))):
                    transfer = open_objects.enter_context(kvmem.Transfer(source.layout, destination.layout, queue=queue))
                    transfer.submit(part, run_timeout=RUN_SECONDS, user_data=tuple(part))
                    left.add(tuple(part))
            except kvmem.Error as error:
                failure = error
            while left:
                for completion in queue.wait(RUN_SECONDS + 30):
                    failure = failure or completion.error
                    left.remove(completion.user_data)
            if failure:
                raise failure
        destination.labels = kept
        self.moved(source, destination, pairs)
        self.check(source, destination)

    def cancel(self):
        """A run that is cancelled, or that has little time, moves any of its blocks, and no other byte."""
        if not (chosen := self.two_sides()):
            return
        source, destination = chosen
        pairs = self.pairs(source.usable, destination.usable)
        with kvmem.Queue() as queue, kvmem.Transfer(source.layout, destination.layout, queue=queue, flags=kvmem.TransferFlags.REPORT_RELEASE) as transfer:
            transfer.submit(pairs, run_timeout=self.random.choice((RUN_SECONDS, 0.0001)))
            if self.random.random() < 0.7:
                transfer.cancel()
            ended = None
            while True:
                completions = queue.wait(RUN_SECONDS + 30)
                ended = next((each for each in completions if each.kind == kvmem.CompletionKind.RUN_ENDED), ended)
                if any(each.kind == kvmem.CompletionKind.MEMORY_RELEASED or each.released for each in completions):
                    break
            if ended.status not in (kvmem.Status.OK, kvmem.Status.CANCELLED, kvmem.Status.TIMED_OUT):
                raise ended.error
        if ended.status == kvmem.Status.OK:
            self.moved(source, destination, pairs)
        else:
            destination.forget([block for _, block in pairs])
        self.check(source, destination)
        for _, block in pairs:
            if destination.labels[block] == oracle.UNKNOWN:
                destination.write(block, oracle.label_of("after", self.next_number()))

    def resize(self):
        elastic = [side for side in self.sides if side.tier == "elastic"]
        if elastic:
            side = self.random.choice(elastic)
            side.resize(self.random.randint(1, len(side.labels)))
            for block, label in enumerate(side.labels[: side.usable]):
                if label == oracle.UNKNOWN:
                    side.write(block, oracle.label_of("grown", self.next_number()))
            self.check(side)

    # ---- stores ----

    def some_keys(self):
        return self.random.sample(range(self.store.keys), self.random.randint(1, 8))

    def put(self):
        numbers = self.some_keys()
        source = memory.Side("adopted", self.random.choice(memory.FILE_ORDERS), len(numbers), None, "put")
        source.write_all([stores.label(number) for number in numbers])
        with self.store_may_be_full():
            self.store.put(source, numbers, list(range(len(numbers))))
        self.check(source)
        source.close()

    def get(self):
        numbers = self.some_keys()
        destination = memory.Side("adopted", self.random.choice(memory.FILE_ORDERS), len(numbers), None, "get")
        destination.write_all([oracle.label_of("before", block) for block in range(len(numbers))])
        found = self.store.get(destination, numbers, list(range(len(numbers))))
        destination.labels[:found] = [stores.label(number) for number in numbers[:found]]
        self.check(destination)
        destination.close()

    def remove(self):
        with self.store_may_be_full():
            self.store.remove(self.some_keys())
            self.store.flush()

    @contextlib.contextmanager
    def store_may_be_full(self):
        """A store whose index could not be written takes no changes until it is opened again. A relaxed one is written between operations, too."""
        refused = int(self.own["refused"])
        with self.tolerates(*([kvmem.InvalidState] if self.store.durability == kvmem.Durability.RELAXED else [])):
            with self.disk_may_be_full(self.store.path.startswith(self.place("small"))):
                yield
        if int(self.own["refused"]) != refused:
            self.reopen()

    def reopen(self):
        self.store.close()
        self.open_store()

    def open_store(self):
        """Until it is open: a full file system is not for ever, and a predecessor that was killed may not have ended."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.store.open()
            except (*scarcity.DISK, kvmem.Busy):
                if time.monotonic() > end:
                    raise
                self.own["refused"] += 1
                time.sleep(0.01)

    def read_by_others(self):
        """The store of another worker, which may be written meanwhile, and whose writer may be killed."""
        slot = self.random.choice([slot for slot in range(self.random.randint(2, self.num_agents + 2)) if slot != self.slot])
        path = self.store_path(slot)
        flags = kvmem.DiskFlags.OPEN_EXISTING | kvmem.DiskFlags.READ_ONLY
        with self.tolerates(kvmem.NotFound, kvmem.Busy, kvmem.TimedOut, *(scarcity.DISK if slot % 2 else ())):
            with kvmem.Store(path, stores.shape(), identity=stores.IDENTITY, flags=flags, timeout=10) as store:
                numbers = self.some_keys()
                side = memory.Side("adopted", "BLONHC", len(numbers), None, "others")
                try:
                    found = store.get(side.layout, [stores.key(number) for number in numbers], list(range(len(numbers))), run_timeout=40).wait(60)
                    side.labels[:found] = [stores.label(number) for number in numbers[:found]]
                    self.check(side)
                except kvmem.Corrupt as error:
                    # A reader detects that the writer has reused a slot meanwhile. Damage has another message.
                    if "were replaced by the writer" not in str(error):
                        raise
                    self.own["refused"] += 1
                finally:
                    side.close()

    def store_folder(self, slot):
        return self.place("small") if slot % 2 else self.root

    def store_path(self, slot):
        return os.path.join(self.store_folder(slot), f"store-{slot}")

    # ---- peers ----

    def publish(self):
        if self.has_agent and self.random.random() < 0.5:
            tier = self.random.choice([tier for tier in peers.AGENT_TIERS if memory.driver or tier != "pinned"])
            self.publisher.publish_layout(tier, self.random.choice(memory.ORDERS), self.random.random() < 0.5)
        elif len(self.publisher.shares) < 4:
            tier = self.random.choice([tier for tier in peers.SHARED_TIERS if memory.driver or tier not in memory.GPU_TIERS])
            orders = memory.ELASTIC_ORDERS if tier == "elastic" else memory.FILE_ORDERS
            self.publisher.publish_share(tier, self.random.choice(orders))
        self.compared(self.publisher.check())

    def fetch(self):
        peers.fetch(self)

    def pull(self):
        if self.has_agent:
            peers.pull(self, self.publisher)

    def notify(self):
        if self.has_agent:
            peers.notify(self, self.publisher)

    # ---- objects ----

    def write_objects(self):
        if self.objects is not None:
            self.objects.write()

    def read_objects(self):
        if self.objects is not None:
            self.objects.read()

    # ---- the life of a worker ----

    def open(self):
        self.store = stores.KeptStore(self.store_path(self.slot), self.place(f"record-{self.slot}"), self.slot, (self.slot + self.incarnation) % 3)
        self.open_store()
        self.publisher = peers.Publisher(self)
        if self.has_agent and os.path.exists(self.place("objects-port")):
            with open(self.place("objects-port")) as file:
                self.objects = objects.Objects(self, int(file.read()))

    def close(self):
        """Closes everything, in a random order."""
        for side in self.sides:
            self.compared(side.check())
        everything = [*self.sides, self.store, self.publisher, *([self.objects] if self.objects else [])]
        self.random.shuffle(everything)
        for each in everything:
            each.close()
        self.store.record.close()
        self.sides, self.store, self.publisher, self.objects = [], None, None, None

    def inventory(self, before):
        """Closes everything. Returns what the process then has, which is not more than before."""
        self.close()
        now = counts.check(before, self.folder, self.settle)
        self.own["done"][control.OPERATIONS.index("inventory")] += 1
        return now

    WEIGHTS = {
        "create": 12, "destroy": 3, "move": 30, "burst": 8, "cancel": 6, "resize": 6, "scarce files": 3, "scarce file size": 3,
        "scarce memory": 1, "driver fault": 6, "fork": 1, "put": 8, "get": 8, "remove": 3, "reopen": 2, "read by others": 4, "publish": 3,
        "fetch": 6, "pull": 8, "notify": 3, "write objects": 3, "read objects": 4,
    }  # fmt: skip

    def begin(self, name):
        """The coordinator sees which operation runs, and since which beat."""
        self.own["operation"] = control.OPERATIONS.index(name)
        self.own["beats"] += 1

    def work(self, end):
        names, weights = list(self.WEIGHTS), list(self.WEIGHTS.values())
        while time.monotonic() < end and not self.page["finish"]:
            (name,) = self.random.choices(names, weights)
            self.begin(name)
            if TRACES:
                print(int(self.own["beats"]), name, flush=True)
            with self.tolerates(*(scarcity.CUDA if time.monotonic() < self.cuda_fails_until else ())):
                getattr(self, name.replace(" ", "_"))()
            self.own["done"][control.OPERATIONS.index(name)] += 1

    def seed_fault(self):
        """Makes what the fault is in, seeds it, and does what meets it, unless closing everything does."""
        fault, self.fault = self.fault, None
        if fault == "leak":
            self.leaked = os.dup(2)
        elif fault == "byte":
            self.create()
            self.sides[0].spoil()
        elif fault == "lost":
            while stores.STORED not in bytes(self.store.record.states):
                self.put()
                self.store.flush()
            number = bytes(self.store.record.states).index(stores.STORED)
            self.store.store.remove([stores.key(number)], timeout=60)
            self.store.flush()
            self.reopen()
        elif fault == "hang":
            signal.pause()
        elif fault == "late":
            source, destination = (memory.Side(tier, "BLONHC", 1, self.folder, "late") for tier in ("adopted", "direct"))
            while True:
                kvmem.move(source.layout, destination.layout, [(0, 0)], run_timeout=1e-9)


def main():
    folder, (slot, incarnation, seed, agents), (seconds, settle) = sys.argv[1], map(int, sys.argv[2:6]), map(float, sys.argv[6:8])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it does not outlive the coordinator
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads are what is tested
    worker = Worker(folder, slot, incarnation, seed, agents, settle, sys.argv[8] if len(sys.argv) > 8 else None)
    os.makedirs(worker.folder, exist_ok=True)
    # Of predecessors that were killed. Those of a long run would fill the small file system.
    for left in (*glob.glob(f"{worker.folder}/*"), *glob.glob(f"{worker.place('small')}/side-{slot}-*")):
        os.unlink(left)
    # What a process keeps from its first use of a driver or of NIXL on belongs to the state before.
    worker.begin("inventory")
    worker.open()
    for _ in range(4):
        worker.create()
        worker.move()
    worker.close()
    before = counts.settled(worker.folder)
    while not worker.page["finish"]:
        worker.begin("publish")
        worker.open()
        try:
            if worker.fault:
                worker.seed_fault()
            else:
                worker.work(time.monotonic() + worker.random.uniform(0.5, 1) * seconds)
        except kvmem.TimedOut:
            # What the run has begun is still where it was.
            print(waits.of_process(os.getpid()), flush=True)
            raise
        worker.begin("inventory")
        before = worker.inventory(before)


if __name__ == "__main__":
    main()

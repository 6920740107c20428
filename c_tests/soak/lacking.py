# SPDX-License-Identifier: Apache-2.0
"""Operations of a worker that lacks something, and of its forked children."""

import contextlib
import os
import signal
import time

import kvmem
import memory
import oracle
import scarcity

RUN_SECONDS = 100
"""Deadline of a run: much longer than this process is ever stopped or waits for a processor, so that a run that is late has a fault."""


class Lacking:
    """What a worker has beside its other operations."""

    def lacking(self, lack, errors):
        """Creates, moves and destroys while the process lacks something: what succeeds is right, and what fails changes nothing else."""
        # A driver of NVIDIA that lacks something itself may fail from then on.
        with_gpu = memory.driver.is_stand_in
        chosen = self.two_sides(None if with_gpu else [side for side in self.sides if side.tier not in memory.GPU_TIERS])
        pairs = self.pairs(chosen[0].usable, chosen[1].usable) if chosen else []
        made = None
        name = f"lacking-{self.slot}-{self.incarnation}-{self.next_number()}"
        tier = self.random.choice(("system", "shareable", "buffered", *(("pinned", "device") if with_gpu else ())))
        with self.tolerates(*errors), lack:
            made = kvmem.Layout.allocate(
                memory.shape_of("BLONHC", 300, 4096), {"shareable": "system", "buffered": "disk"}.get(tier, tier),
                **({"path": os.path.join(self.folder, name)} if tier == "buffered" else {}),
                flags=int(kvmem.SystemFlags.SHAREABLE) if tier == "shareable" else int(kvmem.DiskFlags.BUFFERED) if tier == "buffered" else 0,
            )  # fmt: skip
        if made is not None:
            made.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, name))
        return chosen, pairs

    def lacking_run(self, chosen, pairs, lack, errors):
        if chosen is None:
            return
        source, destination = chosen
        kept = list(destination.labels)
        destination.forget([block for _, block in pairs])
        with self.disk_may_be_full(destination.tier), self.tolerates(*errors, kvmem.TimedOut), lack:
            with kvmem.Transfer(source.layout, destination.layout) as transfer:
                transfer.submit(pairs, run_timeout=RUN_SECONDS).wait(RUN_SECONDS + 30)
            destination.labels = kept
            self.moved(source, destination, pairs)
        self.check(source, destination)
        # Everything works again: what may have any bytes is written again.
        self.move_into(source, destination, pairs)

    def move_into(self, source, destination, pairs):
        unknown = [pair for pair in pairs if destination.labels[pair[1]] == oracle.UNKNOWN]
        if unknown:
            with self.disk_may_be_full(destination.tier):
                self.run(source.layout, destination.layout, unknown)
                self.moved(source, destination, unknown)
            self.check(source, destination)

    def scarce_files(self):
        if not self.has_agent:  # UCX ends the process if it cannot open a file
            spare = self.random.randint(0, 6)
            chosen, pairs = self.lacking(scarcity.few_files(spare), scarcity.MEMORY)
            self.lacking_run(chosen, pairs, scarcity.few_files(spare), scarcity.MEMORY)

    def scarce_file_size(self):
        size = self.random.choice((0, 1 << 16, 1 << 20))
        chosen, pairs = self.lacking(scarcity.small_files(size), scarcity.DISK)
        self.lacking_run(chosen, pairs, scarcity.small_files(size), scarcity.DISK)

    def scarce_memory(self):
        """Large allocations fail. Small ones must not: Rust's collections end the process then."""
        self.lacking(scarcity.little_memory(16 << 20), scarcity.MEMORY)

    def driver_fault(self):
        if memory.driver.is_stand_in:
            nth = self.random.randint(1, self.random.choice((10, 60)))
            result = self.random.choice((scarcity.CUDA_OUT_OF_MEMORY, scarcity.CUDA_UNKNOWN))
            with self.tolerates(*scarcity.CUDA):
                chosen, pairs = self.lacking(scarcity.failing_driver(nth, result), scarcity.CUDA)
                self.lacking_run(chosen, pairs, scarcity.failing_driver(nth, result), scarcity.CUDA)
            # The failure to load a kernel is returned again for a second.
            self.cuda_fails_until = time.monotonic() + 2

    def fork(self):
        """In the child, handles of the parent fail, and its own ones work. The parent is not disturbed."""
        inherited = self.random.choice(self.sides).layout if self.sides else None
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(60)
                if inherited is not None:
                    try:
                        inherited.checksums([0])
                    except kvmem.InvalidState:
                        pass
                    else:
                        os._exit(2)
                one, other = memory.Side("adopted", "BLONHC", 2, None, ""), memory.Side("system", "L/BONHC", 2, None, "")
                one.write_all([7, 8])
                kvmem.move(one.layout, other.layout, [(0, 1)], run_timeout=50)
                other.labels[1] = 7
                other.check()
                status = 0
            finally:
                os._exit(status)
        _, state = os.waitpid(child, 0)
        if state != 0:
            raise AssertionError(f"a forked child ended with the state {state}")
        self.check(*self.sides)

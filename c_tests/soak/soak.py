#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py --minutes M --seed S: workers that use all of kvmem at the same time, while this process kills, stops and restarts them and
fills their disk. README.md has what is done and compared.

It fails if a byte is wrong, a call takes longer than its deadline, a failure has no reason, an acknowledged block of a store is lost, or a
process has more than before after it has closed everything."""

import argparse
import ctypes
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import control
import waits
from object_server import ObjectServer

HERE = pathlib.Path(__file__).resolve().parent
SMALL_BYTES = 48 << 20
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 1 << 14, 1 << 18
PR_SET_PDEATHSIG = 1
OPERATION_SECONDS = 300
"""Deadline of an operation of a worker, without the time that it is stopped. It has up to two runs, each with 100 s."""

TAIL_LINES = 300
"""Lines of what a worker has said at last: a late run is followed by the stacks of all threads."""


class Found(Exception):
    """A fault."""


class Slot:
    """A worker: the process that has the slot, and what is done to it."""

    def __init__(self, soak, index):
        self.soak, self.index, self.incarnation = soak, index, 0
        self.process = self.log = None
        self.stopped_until = 0.0
        self.beats, self.beat_at = None, 0.0

    def start(self):
        self.incarnation += 1
        soak = self.soak
        path = soak.folder / f"log-{self.index}-{self.incarnation}"
        with open(path, "wb") as log:
            arguments = [soak.folder, self.index, self.incarnation, soak.seed, soak.agents, soak.cycle, soak.settle]
            if soak.fault and self.index == 0:
                arguments.append(soak.fault)
            self.process = subprocess.Popen(
                [sys.executable, HERE / "worker.py", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.log, self.beats, self.beat_at = path, None, time.monotonic()

    @property
    def is_stopped(self):
        return self.stopped_until > 0

    def stop(self, seconds):
        self.soak.page["workers"][self.index]["stops"] += 1
        self.process.send_signal(signal.SIGSTOP)
        self.stopped_until = time.monotonic() + seconds

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)
        self.stopped_until, self.beat_at = 0.0, time.monotonic()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.stopped_until = 0.0
        self.log.unlink()

    def watch(self):
        """Raises what the process has found, or that it does not go on."""
        now = time.monotonic()
        status = self.process.poll()
        if status is not None and (status != 0 or not self.soak.page["finish"]):
            raise Found(f"worker {self.index} ended with {status}:\n{self.tail()}")
        if self.is_stopped:
            if now >= self.stopped_until:
                self.go_on()
            return
        own = self.soak.page["workers"][self.index]
        if own["beats"] != self.beats:
            self.beats, self.beat_at = int(own["beats"]), now
        elif status is None and now - self.beat_at > self.soak.patience:
            operation = control.OPERATIONS[own["operation"]]
            raise Found(f"worker {self.index} is in '{operation}' for {now - self.beat_at:.0f} s:\n{self.stacks()}")

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def stacks(self):
        """What its threads wait for."""
        found = waits.of_process(self.process.pid)
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 5
        while "most recent call first" not in self.tail() and time.monotonic() < deadline:
            time.sleep(0.05)
        return f"{found}\n{self.tail()}"


def start_etcd(folder):
    """A server on loopback, whose URL workers find in a file. It ends with this process."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        url, peers = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in (first, second))
    log = folder / "etcd-log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [
                "etcd", "--name", "soak", "--data-dir", folder / "etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"soak={peers}",
                "--logger", "zap", "--log-outputs", "stderr", "--unsafe-no-fsync",
            ],
            stderr=output, preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )  # fmt: skip
    deadline = time.monotonic() + 60
    while b"serving client traffic" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise SystemExit(f"etcd does not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
    (folder / "etcd-url").write_text(url)
    return process


class Soak:
    def __init__(self, arguments, folder):
        self.folder, self.seed, self.agents, self.fault = folder, arguments.seed, arguments.agents, arguments.fault
        self.seconds, self.patience = 60 * arguments.minutes, arguments.patience
        self.calm = arguments.calm
        self.cycle, self.settle = arguments.cycle or min(30.0, max(3.0, self.seconds / 3)), arguments.settle
        self.random = random.Random(self.seed)
        for name in ("agents", "shares", "objects", "small"):
            (folder / name).mkdir()
        self.can_be_full = self.mount()
        self.page = control.create(folder / "page")[0]
        self.slots = [Slot(self, index) for index in range(arguments.workers)]
        self.etcd = start_etcd(folder) if arguments.etcd else None
        python = ObjectServer.interpreter() if self.agents else None
        self.objects = ObjectServer(python, self.page, folder) if python else None
        self.done = dict.fromkeys(("killed", "killed while stopped", "stopped", "disk filled"), 0)
        self.filled_until = 0.0

    def mount(self):
        """A small file system of its own, which ends with this process. Returns whether this process may do that."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) != 0:
            return False
        return libc.mount(b"soak", os.fsencode(self.folder / "small"), b"tmpfs", 0, f"size={SMALL_BYTES}".encode()) == 0

    # ---- what is done to workers ----

    def disturb(self):
        if not self.deck:
            self.deck = ["kill", "stop", "stop", "kill stopped", *(["fill", "fill"] if self.can_be_full else [])]
            if self.objects is not None:
                self.deck += ["stop server", "refuse objects", *(["kill server"] if self.seconds > 60 else [])]
            self.random.shuffle(self.deck)
        event = self.deck.pop()
        slot = self.random.choice(self.slots)
        if event in ("stop server", "refuse objects", "kill server"):
            self.disturb_objects(event)
        elif event == "fill":
            self.fill(self.random.uniform(0.05, 3))
        elif slot.is_stopped and event == "stop":
            self.deck.append(event)
        elif event == "stop":
            slot.stop(self.random.choice((0.05, 0.5, 3, 8)) * self.random.uniform(0.5, 1) if self.seconds > 60 else 0.5)
            self.done["stopped"] += 1
        else:
            if event == "kill stopped" and not slot.is_stopped:
                slot.process.send_signal(signal.SIGSTOP)
            slot.kill()
            slot.start()
            self.done["killed" if event == "kill" else "killed while stopped"] += 1

    def disturb_objects(self, event):
        if self.objects.is_disturbed:
            return
        if event == "kill server":
            self.objects.kill()
        else:
            disturb = self.objects.stop if event == "stop server" else self.objects.refuse
            disturb(self.random.uniform(0.05, 3))

    def fill(self, seconds):
        self.page["full"] = 1
        self.page["full_windows"] += 1
        try:
            with open(self.folder / "small/filler", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 20))
        except OSError:
            pass
        self.filled_until = time.monotonic() + seconds
        self.done["disk filled"] += 1

    def make_space(self):
        (self.folder / "small/filler").unlink()
        self.page["full_windows"] += 1
        self.page["full"] = 0
        self.filled_until = 0.0

    # ---- the course ----

    def run(self):
        self.deck = []
        for slot in self.slots:
            slot.start()
        while not self.page["workers"]["done"].any(axis=1)[: len(self.slots)].all():
            self.watch()
        begun = time.monotonic()
        next_event = begun + min(2.0, self.seconds / 5) if not self.calm else float("inf")
        while time.monotonic() - begun < self.seconds:
            self.watch()
            now = time.monotonic()
            if self.filled_until and now > self.filled_until:
                self.make_space()
            if now > next_event:
                self.disturb()
                next_event = now + self.random.uniform(0.3, 1.7) * min(3.0, self.seconds / 8)
        self.finish()

    def watch(self):
        """Looks at all workers, a few times in a second."""
        for slot in self.slots:
            slot.watch()
        if self.objects is not None:
            self.objects.watch()
        time.sleep(0.02)

    def finish(self):
        """All workers close what they have, and count."""
        if self.filled_until:
            self.make_space()
        if self.objects is not None:
            self.objects.restore()
        self.page["finish"] = 1
        for slot in self.slots:
            if slot.is_stopped:
                slot.go_on()
        while any(slot.process.poll() is None for slot in self.slots):
            self.watch()
        self.watch()

    def audit(self):
        """Looks at what is left of all, by a process that has taken no part."""
        small = self.folder / "small"
        code = (
            "import sys, stores\n"
            "print(sum(stores.audit(f'{root}/store-{slot}', f'{sys.argv[1]}/record-{slot}', slot % 2 == 1)\n"
            f"          for slot in range({len(self.slots)}) for root in [sys.argv[2] if slot % 2 else sys.argv[1]]))\n"
        )
        done = subprocess.run([sys.executable, "-c", code, self.folder, small], capture_output=True, text=True, cwd=HERE, timeout=600)
        if done.returncode != 0:
            raise Found(f"the stores are not as they were written:\n{done.stdout}{done.stderr}")
        blocks = int(done.stdout)
        left = [path.name for name in ("agents", "shares") for path in (self.folder / name).iterdir() if path.name.endswith("~")]
        left += [path.name for path in small.iterdir() if path.name.startswith("side-") and self.is_of_the_last(path.name)]
        if left:
            raise Found(f"files are left: {', '.join(left)}")
        return blocks

    def is_of_the_last(self, name):
        _, slot, incarnation, *_ = name.partition(".")[0].split("-")
        return self.slots[int(slot)].incarnation == int(incarnation)

    def report(self, blocks):
        workers = self.page["workers"]
        print("| operation | times |\n|---|---|")
        for index, name in enumerate(control.OPERATIONS):
            if count := int(workers["done"][:, index].sum()):
                print(f"| {name} | {count} |")
        print("\n| method | runs |\n|---|---|")
        for number, count in enumerate(workers["methods"].sum(axis=0)):
            if count:
                print(f"| {control.METHODS[number]} | {int(count)} |")
        compared = int(workers["compared"].sum()) / 1e9
        total = int(workers["done"].sum())
        events = ", ".join(f"{name} {count} times" for name, count in self.done.items())
        if self.objects is not None:
            events += "; server of objects " + ", ".join(f"{name} {count} times" for name, count in self.objects.done.items())
        if between := int(workers["between_gpus"].sum()):
            events += f"; {between} moves between two GPUs"
        lives = sum(slot.incarnation for slot in self.slots)
        print(f"\nsoak: {total} operations of {len(self.slots)} workers in {lives} lives, {compared:.1f} GB compared, {int(workers['refused'].sum())} failures "
              f"with a reason; {events}; {blocks} blocks in stores at the end; nothing found")  # fmt: skip

    def end_all(self):
        if self.etcd is not None:
            self.etcd.kill()
            self.etcd.wait()
        if self.objects is not None and self.objects.process is not None:
            self.objects.end()
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is None:
                slot.process.kill()
                slot.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--agents", type=int, default=3, help="workers that have an agent of NIXL, from the first on")
    parser.add_argument("--patience", type=float, default=OPERATION_SECONDS, help="seconds that an operation may take, without those that a process is stopped")
    parser.add_argument("--cycle", type=float, help="seconds after which a worker closes everything and counts; 30, or a third of the time")
    parser.add_argument("--settle", type=float, default=60, help="seconds that idle threads and deferred releases have until they have ended")
    parser.add_argument("--etcd", action="store_true", help="agents are found in etcd, of which a server is started, instead of in a folder")
    parser.add_argument("--calm", action="store_true", help="kills, stops and fills nothing: to repeat what a worker has found")
    parser.add_argument("--fault", choices=("leak", "byte", "lost", "hang", "late"), help="seeds a fault into the first worker, which must be found")
    arguments = parser.parse_args()
    print(f"soak: seed {arguments.seed}, {arguments.minutes:g} minutes", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    soak = Soak(arguments, folder)
    try:
        soak.run()
        soak.report(soak.audit())
    except Found as found:
        print(f"soak: seed {arguments.seed}: FOUND: {found}", flush=True)
        return 1
    finally:
        soak.end_all()
        if soak.can_be_full:
            ctypes.CDLL(None).umount2(os.fsencode(folder / "small"), 2)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

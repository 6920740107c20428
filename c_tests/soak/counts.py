# SPDX-License-Identifier: Apache-2.0
"""What a process has: files, mappings, threads, locked pages, objects of kvmem and of the driver."""

import collections
import gc
import os
import re
import time

import kvmem
from memory import driver

IDLE_THREADS_END = 20
"""Seconds after which idle threads have ended; they wait for 5 s."""
THREAD_OF_DEADLINES = "thread kvmem-serve"
"""It ends after the last deadline, also if all runs have ended."""
IDLE_THREAD = re.compile("thread kvmem-(copy|file|check|free|start|serve|load)")
EVENTS = ("excess_bytes", "num_peer_staging_waits", "num_gpu_waits", "num_elapsed_waits", "num_file_retries", "num_fallbacks")
"""Statistics of what has happened, not of what exists."""
MAPPED = ("memfd:", "(deleted)", "io_uring", "anon_inode", "/soak-")


def take(folder):
    """The multiset of what the process has."""
    found = collections.Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the one of the list itself
        found["file " + re.sub(r"\d+", "N", target)] += 1
    with open("/proc/self/maps") as maps:
        for line in maps:
            if any(part in line for part in MAPPED):
                found["mapping " + re.sub(r"\d+", "N", line.split(maxsplit=5)[5].strip())] += 1
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as comm:
                found["thread " + re.sub(r"\d+", "N", comm.read().strip())] += 1
        except OSError:
            continue  # it has ended
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("VmLck", "VmPin")):
                found["locked pages, kB"] += int(line.split()[1])
    statistics = kvmem.statistics()
    for name in statistics._fields[2:]:
        if not name.startswith("num_store_") and name not in EVENTS:
            found["kvmem " + name] = getattr(statistics, name)
    for index, value in enumerate(driver.live()):
        found[f"driver object {index}"] = value
    for name in os.listdir(folder):
        found[f"left file {name}"] += 1
    return found


def settled(folder):
    """What the process has when nothing has changed for a time. Threads of kvmem that end when they are idle do not belong to it."""
    gc.collect()
    now, unchanged = take(folder), 0
    while unchanged < 10:
        time.sleep(0.05)
        last, now = now, take(folder)
        unchanged = unchanged + 1 if last == now else 0
    return collections.Counter({name: count for name, count in now.items() if not IDLE_THREAD.match(name)})


def check(before, folder, seconds):
    """Waits up to so many seconds until the process has no more than before, and returns what it has. Otherwise fails with a list of what is
    left. Idle threads are left out if there is no time for them to end."""
    gc.collect()
    end = time.monotonic() + seconds
    while True:
        for device in range(driver.num_devices):
            # Device memory that an importer had open when it was freed is freed by the next allocation after the importer has closed it.
            kvmem.Region.device(4096, device=device).close()
        now = take(folder)
        left = now - before
        if left[THREAD_OF_DEADLINES] == 1:
            del left[THREAD_OF_DEADLINES]
        if seconds < IDLE_THREADS_END:
            left = collections.Counter({name: count for name, count in left.items() if not IDLE_THREAD.match(name)})
        if not left:
            return now & before
        if time.monotonic() > end:
            raise AssertionError("left after everything was closed: " + ", ".join(f"{name}: {count} more" for name, count in sorted(left.items())))
        time.sleep(0.05)

# SPDX-License-Identifier: Apache-2.0
"""What a process waits for in the kernel: its threads, among them those that the kernel has for io_uring, and its rings."""

import os
import pathlib

SHOWN = ("anon_inode:[io_uring]", "anon_inode:[eventfd]")
RING_WORDS = ("SqHead", "SqTail", "CachedSqHead", "CqHead", "CqTail", "CachedCqTail", "PollList", "CqOverflowList", "eventfd-count")
MAX_LINES = 12
"""Of a ring: one with many requests has a line for each."""


def text(path):
    """What a file of /proc says; empty if the thread or the file is gone, or this user may not know."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def of_threads(process):
    """For each thread its name, the function of the kernel that it waits in, its system call with its arguments, and the stack of the kernel."""
    lines = []
    for thread in sorted(process.glob("task/*")):
        name, where, call, stack = (text(thread / each) for each in ("comm", "wchan", "syscall", "stack"))
        if name:
            lines.append(f"  thread {name} ({thread.name}): {where}; call {call}")
            lines += [f"      {frame.removeprefix('[<0>] ')}" for frame in stack.splitlines()]
    return lines


def of_rings(process):
    """For each ring of io_uring what is submitted and completed, and what it polls; for each event fd its count."""
    lines = []
    for fd in sorted(process.glob("fd/*")):
        try:
            kind = os.readlink(fd)
        except OSError:
            continue
        if kind in SHOWN:
            known = text(process / "fdinfo" / fd.name).splitlines()
            # The requests that it polls are lines below the name of the list.
            kept = [" ".join(line.split()) for line in known if line.startswith((*RING_WORDS, "  op="))][:MAX_LINES]
            lines.append(f"  fd {fd.name} {kind}: {'; '.join(kept)}")
    return lines


def of_process(pid):
    process = pathlib.Path(f"/proc/{pid}")
    return "\n".join(["what it waits for:", *of_threads(process), *of_rings(process)])

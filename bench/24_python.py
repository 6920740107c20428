#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Row 24: what the Python package adds to calls of C, alternately with them in one process, on the same transfer.

    bench/24_python.py [--output FILE] [--quick] [--include FOLDER]

It needs the Python package of kvmem (`make wheel`), its headers (by default those of this tree), and a C compiler for the calls that it
compares with. Each submission has other pairs than the one before. Both wait for the end of the run outside of the time."""

import argparse
import ctypes
import os
import pathlib
import platform
import subprocess
import tempfile
import time

import kvmem
import numpy as np
from kvmem._arrays import block_pairs
from kvmem._handle import Options
from kvmem._library import ffi, lib
from python_rows import machine, summary, write

HERE = pathlib.Path(__file__).resolve().parent
BLOCKS, ARRAYS, POLLS = 512, 16, 1000
FAILED = 2**64 - 1


def compiled(include):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "24_python.so"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", f"-I{include}", HERE / "24_python.c", "-o", path], check=True)
        library = ctypes.CDLL(str(path))
    for function in (library.time_submit, library.time_polls):
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p if function is library.time_submit else ctypes.c_uint64]
    return library


def address(pointer):
    return int(ffi.cast("uintptr_t", pointer))


def function(name):
    return address(ffi.addressof(lib, name))


def succeeded(duration):
    if duration == FAILED:
        raise RuntimeError("a call of C failed")
    return duration


def arrays(count):
    """Scattered pairs of block ids, in arrays of NumPy."""
    random = np.random.default_rng(1)
    return [np.stack([random.permutation(BLOCKS)[:count], random.permutation(BLOCKS)[:count]], axis=1).astype(np.uint32) for _ in range(ARRAYS)]


def submissions(library, transfer, count, rounds):
    """Microseconds of single submissions by Python, and by C."""
    found = arrays(count)
    options = []
    for array in found:
        made = Options("submit_options")
        made.c.pairs, made.c.num_pairs = block_pairs(array)
        options.append(made)
    submit, handle = function("kvmem_transfer_submit"), address(transfer._handle)
    ours, reference = [], []
    for turn in range(rounds + ARRAYS):
        pairs = found[turn % ARRAYS]
        begin = time.perf_counter_ns()
        transfer.submit(pairs)
        end = time.perf_counter_ns()
        transfer.wait()
        duration = succeeded(library.time_submit(submit, handle, address(options[(turn + 1) % ARRAYS].c)))
        transfer.wait()
        if turn >= ARRAYS:  # the first turns warm up
            ours.append((end - begin) / 1e3)
            reference.append(duration / 1e3)
    return ours, reference


def polls(library, transfer, rounds):
    """Microseconds of a poll by Python, and by C."""
    function_of_c, handle, repeated = function("kvmem_transfer_poll"), address(transfer._handle), range(POLLS)
    ours, reference = [], []
    for turn in range(rounds + 1):
        begin = time.perf_counter_ns()
        for _ in repeated:
            transfer.poll()
        end = time.perf_counter_ns()
        duration = succeeded(library.time_polls(function_of_c, handle, POLLS))
        if turn:
            ours.append((end - begin) / 1e3 / POLLS)
            reference.append(duration / 1e3 / POLLS)
    return ours, reference


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--include", default=HERE.parent / "include")
    given = parser.parse_args()
    rounds = 100 if given.quick else 5000
    library = compiled(given.include)
    shape = kvmem.Shape(num_blocks=BLOCKS, num_layers=1, page_size=4, inner_dim=64, dtype="float16", order="BLONHC")
    rows = []
    load = os.getloadavg()[0]
    with kvmem.Layout.allocate(shape, "system") as source, kvmem.Layout.allocate(shape, "system") as destination:
        with kvmem.Transfer(source, destination) as transfer:
            measured = [(f"submit, {count} pairs", *submissions(library, transfer, count, rounds)) for count in (1, 64, 256)]
            measured.append(("poll", *polls(library, transfer, max(rounds // 50, 3))))
    for call, ours, reference in measured:
        ours, runs, reference = summary(ours), len(ours), summary(reference)
        rows.append({"name": "24-python", "parameters": {"call": call, "python": platform.python_version(), "load": round(load, 1)}, "ours": ours,
                     "reference": reference, "reference_name": "the call of C", "ceiling": None, "ratio": reference["median"] / ours["median"],
                     "ceiling_ratio": None, "unit": "us", "runs": runs, "machine": machine()})
        print(f"24-python  {call}: Python {ours['median']:.2f} us, C {reference['median']:.2f}: {ours['median'] - reference['median']:.2f} us above",
              flush=True)
    if given.output:
        write(given.output, rows)


main()

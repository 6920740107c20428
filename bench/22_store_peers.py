#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Row 22: put and get of blocks by kvmem's store, alternately with foyer, LMCache's raw_block adapter and vLLM's file tier, in one process,
between the same memory and one file system, by direct I/O; and the latency of gets beside puts.

    bench/22_store_peers.py [--output FILE] [--quick] [--directory FOLDER] [--only TEXT]

It needs what scripts/store-peers.sh installs, and its Python (`make bench-store`). Without them it says what is missing, and exits with 77."""

import argparse
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOYER = HERE.parent / "build" / "store-peers" / "foyer" / "release" / "libfoyer_reference.so"
NEEDED = {"kvmem": "kvmem's Python package", "numpy": "NumPy", "torch": "PyTorch", "lmcache": "LMCache",
          "lmcache_rust_raw_block_io": "LMCache's package for raw_block", "vllm": "vLLM"}
SKIPPED = 77


def missing():
    found = [words for name, words in NEEDED.items() if importlib.util.find_spec(name) is None]
    return found if FOYER.exists() else [*found, "foyer"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--directory", default=HERE.parent / "build", help="a folder of a file system with direct I/O (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="titles that contain the text: 'put and get, 64 KiB', 'get beside puts'")
    options = parser.parse_args()
    if lacking := missing():
        print(f"skipped  22_store_peers: {', '.join(lacking)} missing: make bench-store installs them")
        sys.exit(SKIPPED)
    import store_peers  # it imports all of them
    from python_rows import write

    rows = store_peers.measure(FOYER, options.directory, options.only, options.quick)
    if options.output:
        write(options.output, rows)


main()

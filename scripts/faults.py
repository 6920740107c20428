#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each public function has an operation whose calls below are made to fail.

An operation is in a program of c_tests/faults, which fails each system call and each allocation below it, or in one of c_tests/gpu/sim,
which fails each call of the GPU's driver. A function is in an operation if its file names it, or a function of the test harness that it
calls, or a macro that destroys what it has created. What has none is listed here with its reason.

    scripts/faults.py          check
"""

import re
import sys

from module_cycles import ROOT
from pages import committed

DECLARED = re.compile(r"^\| `(kvmem_\w+)` \|", re.MULTILINE)
CALLED = re.compile(r"\b([a-z]\w+)\(")
NAMED = re.compile(r"\bkvmem_\w+")
OWNED = re.compile(r"\b(?:OWNED|OWN|TRIED|MADE|DESTROYED)\((kvmem_\w+)")
DEFINED = re.compile(r"^(?:static )?(?:inline )?\w[\w \*]*?(\w+)\([^;{]*\) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
OPERATIONS = ["c_tests/faults/*_operations.c", "c_tests/gpu/sim/*operations.c"]

# Functions without an operation, and why.
WITHOUT = dict.fromkeys(["kvmem_agent_fetch_remote_metadata", "kvmem_agent_send_local_metadata", "kvmem_agent_send_partial_metadata",
                         "kvmem_agent_invalidate_local_metadata"], "sockets of NIXL, which its stand-in does not have: nixl.metadata")
WITHOUT |= dict.fromkeys(["kvmem_pool_set_current", "kvmem_pool_malloc", "kvmem_pool_free", "kvmem_pool_commit"],
                         "kvmem_region_commit and kvmem_region_decommit, which have one: gpu_sim.pool")
WITHOUT |= dict.fromkeys(["kvmem_cuda_get_info", "kvmem_cuda_get_copy_rates", "kvmem_cuda_set_copy_rates", "kvmem_cuda_use_default_rates",
                          "kvmem_cuda_describe_rates"], "measurements, which a failure replaces by default rates: gpu_sim.rates")


def named_in(text):
    return set(NAMED.findall(text)) | {f"{name}_destroy" for name in OWNED.findall(text)}


def helpers():
    """What each function of the harness and of the tests of GPU memory names."""
    found = {}
    for pattern in ["c_tests/harness/*.c", "c_tests/harness/*.h", "c_tests/gpu/*.c", "c_tests/gpu/sim/*.c"]:
        for path in committed(pattern):
            for name, body in DEFINED.findall(path.read_text()):
                found.setdefault(name, set()).update(named_in(body))
    return found


def main():
    functions = DECLARED.findall((ROOT / "docs/reference.md").read_text())
    known, shown = helpers(), set()
    for pattern in OPERATIONS:
        for path in committed(pattern):
            text = path.read_text()
            shown |= named_in(text).union(*(known.get(name, set()) for name in CALLED.findall(text)))
    problems = [f"{name} is in no operation of c_tests/faults: add one" for name in functions if name not in shown and name not in WITHOUT]
    problems += [f"{name} has an operation, or does not exist: remove it from scripts/faults.py" for name in WITHOUT
                 if name in shown or name not in functions]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()

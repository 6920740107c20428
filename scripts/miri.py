#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Rust tests in Miri, which finds undefined behaviour: accesses out of bounds and to freed memory, values that are misaligned or not
initialized, data races, and leaks.

    miri.py                      # the tests, then each with its seeded fault, which Miri must find
    miri.py --without-faults     # the tests
    miri.py --faults             # only the faults

The tests are those of MODULES without those of LEFT_OUT. A run without findings prints the rows of tests/records.md.
"""
import collections
import os
import re
import subprocess
import sys

import seeded
from seeded import ROOT

# What is checked before it is used: plans, and bytes of other processes and callers.
MODULES = ("base::wire", "ffi", "plan")

# Tests of these modules that do not run, because each takes more than a minute: properties of large plans, and lists of a million blocks.
LEFT_OUT = (
    "plan::tests::a_block_of_more_layers_than_memory_holds_is_met_all_the_same",
    "plan::tests::cuts::a_plan_cut_at_extents_is_the_plan",
    "plan::tests::extremes::the_moves_of_many_units_are_counted_at_once",
    "plan::tests::linear::a_side_without_a_number_of_heads_has_those_of_the_other",
    "plan::tests::linear::both_sides_count_the_bytes_alike",
    "plan::tests::parts::blocks_of_parts_move_like_those_of_each",
    "plan::tests::parts::layers_of_parts_are_all_of_the_plan",
    "plan::tests::parts::tokens_of_parts_move_like_those_of_each",
    "plan::tests::parts_of_the_bytes_are_the_same_moves_wherever_they_are_cut",
    "plan::tests::reshaped::tiles_have_the_bytes_of_a_copy_element_by_element",
    "plan::tests::reshaped::windows_have_the_bytes_of_a_copy_element_by_element",
    "plan::tests::tokens::a_block_that_is_named_a_million_times_is_planned_at_once",
    "plan::tests::tokens::plans_of_tokens_that_use_the_memory_of_another_are_as_new_ones",
    "plan::tests::what_is_written_is_written_in_order_as_far_as_the_layout_goes",
)

# For each: the test, the file, what is replaced, by what, and what Miri reports. The tests pass with these faults without Miri.
FAULTS = [
    ("ffi::common::options::tests::a_caller_gets_the_fields_that_it_has", "ffi/common/options.rs",
     "copy_nonoverlapping(from.add(first), to.add(first), size.min(known) - first)",
     "copy_nonoverlapping(from.add(first), to.add(first), size - first)", "Undefined Behavior"),
    ("ffi::common::handle::tests::the_error_for_an_array_has_the_index_of_the_wrong_handle", "ffi/common/handle.rs",
     "                kind.write_volatile(T::KIND.destroyed());\n                drop(Box::from_raw(pointer.cast::<Handle<T::Value>>()));\n",
     "                drop(Box::from_raw(pointer.cast::<Handle<T::Value>>()));\n                kind.write_volatile(T::KIND.destroyed());\n",
     "Undefined Behavior"),
    ("base::guarded::tests::a_panic_becomes_an_error_with_its_message", "base/guarded.rs",
     "downcast::<&str>().map(|text| text.to_string())", "downcast::<&str>().map(|text| Box::leak(text).to_string())", "memory leaked"),
]

# One case of each property. Tests read the clock and files; addresses are numbers in layouts and plans.
ENVIRONMENT = {**os.environ, "PROPTEST_CASES": "1",
               "MIRIFLAGS": "-Zmiri-disable-isolation -Zmiri-permissive-provenance"}
# Of all tests, in seconds.
LIMIT = 3600


def miri(folder, *arguments):
    """Runs the tests of a copy of src/ with these arguments. Returns the status and both outputs: Miri warns in the other one. Each copy has its
    own build, because Cargo takes two copies for one package."""
    environment = {**ENVIRONMENT, "CARGO_TARGET_DIR": str(folder / "build/miri/cargo")}
    command = ["cargo", "+nightly", "miri", "test", "--locked", "--lib", "--", "--test-threads=1", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=LIMIT)
    return done.returncode, done.stdout, done.stderr


def names():
    """The tests to run."""
    status, output, errors = miri(ROOT, "--list")
    if status:
        sys.exit(f"{errors}\nmiri.py: is it installed? rustup toolchain install nightly --component miri --component rust-src")
    found = [name for name in re.findall(r"^(\S+): test$", output, re.MULTILINE) if name.startswith(tuple(f"{of}::" for of in MODULES))]
    missing = [name for name in LEFT_OUT if name not in found]
    missing += [module for module in MODULES if not any(name.startswith(f"{module}::") for name in found)]
    if missing:
        sys.exit(f"miri.py: there is no test {missing}")
    return [name for name in found if name not in LEFT_OUT]


def check_all():
    tests = names()
    status, output, errors = miri(ROOT, "--exact", *tests)
    passed = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. ok$", output, re.MULTILINE)
    if status or sorted(passed) != sorted(tests):
        sys.exit(f"{output}\n{errors}\nmiri.py: these have not passed: {sorted(set(tests) - set(passed)) or 'a leak, see above'}")
    module_of = lambda name: next(module for module in MODULES if name.startswith(f"{module}::"))
    left_out = collections.Counter(map(module_of, LEFT_OUT))
    for module, count in collections.Counter(map(module_of, passed)).items():
        print(f"| {module} | {count} | {left_out[module]} |", flush=True)


def check_faults():
    """Runs tests in a copy of src/ with faults, and fails if Miri does not find one."""
    copy = ROOT / "build/miri/seeded"
    seeded.copy(copy, [fault[1:4] for fault in FAULTS])
    for name, path, old, _, report in FAULTS:
        status, output, errors = miri(copy, "--exact", name)
        if not status or report not in errors:
            sys.exit(f"{output}\n{errors}\nmiri.py: {name} does not find a fault in {path}, without:\n{old}")
        print(f"found by {name}: {report}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["--faults"]:
        check_all()
    if sys.argv[1:] != ["--without-faults"]:
        check_faults()

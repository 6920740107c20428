#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the models of threads: the modules `models` of src/, by loom.

    models.py                      # every model, then each with its seeded faults, which it must find
    models.py --without-faults     # every model
    models.py --faults             # only the faults

The faults are those of FAULTS: pieces of src/ and what replaces them in a copy. Faults of one build do not touch the same models. A run
without findings prints the rows of tests/records.md.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

import seeded
from seeded import ROOT

BUILD = ROOT / "build/models"
# Of one model. The longest takes half a minute on two busy processors.
LIMIT = 600

# For each build: the model that finds the fault, the file, what is replaced, and by what.
FAULTS = [
    [
        ("every_command_is_taken_once", "nixl/command_queue.rs", "            drop(self.state.lock());\n", ""),
        ("a_slot_has_one_user", "engine/peer/staged/slots.rs", "            state.replacing = Replacing::Now;\n", ""),
        ("a_run_that_is_not_stale", "region/epoch_table.rs", "    fence(Ordering::Acquire);\n", ""),
        ("a_deadline_ends_its_own_run", "run/completion/expiry.rs", "take_if(|known| *known == deadline)", "take()"),
        ("the_event_fd_is_readable", "run/queue.rs", "&& !entries.is_empty()", "&& entries.is_empty()"),
        ("a_queue_that_is_destroyed", "run/queue.rs", "std::mem::replace(&mut *self.lock(), State::new(None))",
         "State::new(self.lock().event.take())"),
        ("a_cancelled_run_begins_no_further_part", "run/mod.rs", "        if self.is_cancelled() {\n            drop(steps);",
         "        if false {\n            drop(steps);"),
        ("every_waiter_of_a_queue", "run/queue.rs", "        let mut state = self.lock();\n        state.push(entry, &self.has_some);\n        then();",
         "        self.arrival.notify_one();\n        let mut state = self.lock();\n        state.push(entry, &self.has_some);\n        then();\n"
         "        drop(state);\n        return;\n        #[allow(unreachable_code)]\n        let state = self.lock();"),
        ("all_work_is_served", "base/work_thread.rs", " || self.promises.load(Ordering::Acquire) > 0", ""),
    ],
    [
        ("every_command_is_taken_once", "nixl/command_queue.rs", "self.is_woken.swap(false, Ordering::AcqRel)",
         "self.is_woken.swap(false, Ordering::Relaxed)"),
        ("a_run_that_is_not_stale", "region/epoch_table.rs", "    fence(Ordering::SeqCst);\n", ""),
        ("who_sees_a_success", "run/state.rs", "self.0.store(phase as u32 | claim, Ordering::Release)",
         "self.0.store(phase as u32 | claim, Ordering::Relaxed)"),
        ("all_work_is_served", "base/work_thread.rs", "self.is_running = has_work || self.promises.load(Ordering::Acquire) > 0;\n        self.is_running",
         "has_work || self.promises.load(Ordering::Acquire) > 0"),
    ],
    [
        ("what_is_sent_while_the_receiver", "nixl/command_queue.rs", "        state.is_closed = true;\n", ""),
        ("a_run_that_is_not_stale", "run/mod.rs", "        let outcome = self.of_expected_epochs(outcome);\n", ""),
        ("a_run_that_begins_at_the_end", "run/completion.rs", "Some(queue) => queue.push_and(entry, enter),",
         "Some(queue) => {\n                enter();\n                queue.push(entry);\n            }"),
    ],
    [
        ("a_transfer_has_one_ticket", "run/state.rs", "self.0.fetch_and(!CLAIMED, Ordering::Release)",
         "self.0.fetch_and(!CLAIMED, Ordering::Relaxed)"),
        ("layers_are_reported_in_order", "run/completion.rs",
         "            last.reported.layers(&self.reports, user_data, self.layers, self.layers);\n", ""),
    ],
]


def built(folder):
    """Compiles the tests of the copy of src/ in a folder. Returns the program."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD / "cargo"), "RUSTFLAGS": "--cfg kvmem_model"}
    command = ["cargo", "test", "--locked", "--lib", "--no-run"]
    done = subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    program = re.search(r"Executable.*\((.*)\)", done.stdout)
    if done.returncode or not program:
        sys.exit(f"{done.stdout}\nmodels.py: the models cannot be compiled")
    path = pathlib.Path(program[1])
    return path if path.is_absolute() else folder / path


def names(program):
    listed = subprocess.run([program, "--list", "models::"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^(\S+::models::\S+): test$", listed, re.MULTILINE)


def run(program, name):
    """Runs one model in a process of its own, which a found fault may end. Returns the status and the output."""
    done = subprocess.run([program, "--exact", name, "--nocapture"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=LIMIT)
    return done.returncode, done.stdout


def check_all():
    program = built(ROOT)
    for name in names(program):
        began = time.monotonic()
        status, output = run(program, name)
        orders = re.search(r"model (\S+): (\d+) orders", output)
        if status or not orders:
            sys.exit(f"{output}\nmodels.py: {name} has failed")
        print(f"| {orders[1]} | {name.split('::')[-1].replace('_', ' ')} | {orders[2]} | {time.monotonic() - began:.1f} |", flush=True)


def check_faults():
    """Compiles copies of src/ with faults, and fails if a model does not find its own."""
    copy = BUILD / "seeded"
    for faults in FAULTS:
        seeded.copy(copy, [fault[1:] for fault in faults])
        program = built(copy)
        for model, path, old, _ in faults:
            name, = (name for name in names(program) if name.split("::")[-1].startswith(model))
            status, output = run(program, name)
            if not status or "panicked at" not in output:
                sys.exit(f"{output}\nmodels.py: {name} does not find a fault in {path}, without:\n{old}")
            print(f"found by {name}: {path}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] != ["--faults"]:
        check_all()
    if sys.argv[1:] != ["--without-faults"]:
        check_faults()

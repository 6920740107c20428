# SPDX-License-Identifier: Apache-2.0
"""What the tests of kvmem-doctor have in common: running it, and reading its report."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = os.environ["KVMEM_DOCTOR"]
NIXL = os.environ["KVMEM_NIXL_LIBRARY"]
# Directories of the stand-ins for the driver and for cuFile, and of a plugin that aborts and one that hangs.
SIM = os.environ.get("KVMEM_SIM_DIRECTORY", "")
STORAGE = os.environ.get("KVMEM_STORAGE_DIRECTORY", "")
FAULTY = os.environ.get("KVMEM_FAULTY_PLUGINS", "")
PATIENCE = 100
STATUSES = {"ok", "limited", "missing", "failed", "skipped"}


def run(*arguments, prepare=None, program=PROGRAM, **environment):
    """The doctor's exit status, output and messages. An environment variable of None is removed."""
    variables = {name: value for name, value in os.environ.items()
                 if name not in ("NO_COLOR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")}
    for name, value in environment.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    done = subprocess.run([program, *arguments], env=variables, preexec_fn=prepare, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


class Report:
    """A JSON report. Checks its form when it is read."""

    def __init__(self, *arguments, **settings):
        self.status, text, self.messages = run("--json", *arguments, **settings)
        self.all = json.loads(text.decode("utf-8", "strict"))
        assert self.all["format"] == 1, self.all
        assert isinstance(self.all["kvmem_version"], str)
        self.findings = {each["id"]: each for each in self.all["findings"]}
        assert len(self.findings) == len(self.all["findings"]), "an id occurs twice"
        self.paths = {(each["from"], each["to"]): each for each in self.all["paths"]}
        assert len(self.paths) == len(self.all["paths"]), "a pair of tiers occurs twice"
        for each in [*self.all["findings"], *self.all["paths"]]:
            assert each["status"] in STATUSES, each
            assert "\n" not in each["fix"], each
            assert each["status"] in ("ok", "skipped") or each["text"], f"no text: {each}"
        for each in self.all["findings"]:
            # Findings with a remedy have one line each.
            assert bool(each["fix"]) == (each["status"] in ("limited", "missing", "failed")), each
        for each in self.all["paths"]:
            assert each["status"] != "ok" or (each["method"] and each["bytes_per_second"] > 0), each

    def finding(self, name):
        assert name in self.findings, f"{name} is none of {sorted(self.findings)}: {self.messages}"
        return self.findings[name]

    def status_of(self, name):
        return self.finding(name)["status"]

    def data(self, name):
        return self.finding(name)["data"]


def skip(case, reason):
    """Ends a case as skipped, and writes it to the record of skips."""
    record = os.environ.get("KVMEM_TEST_SKIPS")
    if record:
        with open(record, "a", encoding="utf-8") as file:
            file.write(f"doctor\t{case.id().split('.')[-1]}\t{reason}\n")
    raise unittest.SkipTest(reason)


def main():
    result = unittest.main(verbosity=2, exit=False).result
    if not result.testsRun:
        sys.exit("no case ran")
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)


def name_of(path):
    return pathlib.Path(path).name

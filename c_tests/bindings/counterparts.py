#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""counterparts.py INCLUDE BINDING SUFFIX...: every function of the headers is used by a binding, or has a reason.

A function is used if a file of the binding that has one of the suffixes contains its name outside of comments. The reasons
are in without-counterpart.txt of the binding: a function, or a pattern as in a shell, and the reason."""

import fnmatch
import pathlib
import re
import sys

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# A constant or a field, which values.py checks.
VALUE = re.compile(r"KVMEM_|\w+[*]?\.")
FUNCTION = re.compile(r"\b(kvmem_[a-z0-9_]+) *\(")


def code(path):
    return COMMENT.sub(" ", path.read_text())


def main():
    include, binding, suffixes = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    declared = {name for header in include.rglob("*.h") for name in FUNCTION.findall(code(header))}
    if len(declared) < 150:
        sys.exit(f"{include} declares only {len(declared)} functions: are the headers there?")
    files = [path for suffix in suffixes for path in binding.rglob(f"*{suffix}")
             if "test" not in path.stem and "test" not in path.relative_to(binding).parts]
    used = {name for path in files for name in re.findall(r"\bkvmem_[a-z0-9_]+", code(path))}
    reasons = {}
    listed = binding / "without-counterpart.txt"
    for number, line in enumerate(listed.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            if not reason.strip():
                sys.exit(f"{listed}:{number}: {pattern} has no reason")
            if not VALUE.match(pattern):
                reasons[pattern] = number
    faults = []
    for name in sorted(declared - used):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in reasons):
            faults.append(f"{binding.name} has no counterpart of {name}: add a function that calls it, or add this line to "
                          f"{listed.name} of the binding:\n    {name} not bound yet")
    for pattern, number in reasons.items():
        matched = {name for name in declared if fnmatch.fnmatchcase(name, pattern)}
        if not matched:
            faults.append(f"{listed}:{number}: no function is called {pattern}; remove the line")
        elif matched <= used:
            faults.append(f"{listed}:{number}: the binding uses {pattern}; remove the line")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{binding.name}: {len(declared & used)} of {len(declared)} functions have a counterpart, the others a reason")


if __name__ == "__main__":
    main()

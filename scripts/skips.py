#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the skips of a test run with those that CI expects: skips.py [--allow] RECORD

RECORD has a line for each case, or part of a case, that was skipped: program, case and reason, separated by tabs. The
tests append to the file that KVMEM_TEST_SKIPS names. .ci/expected-skips has a line for each skip that the machine of CI
is expected to report: program, case, a part of the reason in quotes; the first two may be patterns, as in a shell.

Prints every skip. Fails if one is not expected, unless --allow is given.
"""

import fnmatch
import pathlib
import shlex
import sys

EXPECTED = pathlib.Path(__file__).resolve().parent.parent / ".ci" / "expected-skips"


def read_expected():
    """The expected skips: (program pattern, case pattern, part of the reason)."""
    expected = []
    for number, line in enumerate(EXPECTED.read_text().splitlines(), 1):
        fields = shlex.split(line, comments=True)
        if fields and len(fields) != 3:
            sys.exit(f"{EXPECTED}:{number}: expected PROGRAM CASE 'PART OF THE REASON', found {line!r}")
        if fields:
            expected.append(tuple(fields))
    return expected


def read_record(path):
    """The skips of the run, each once: (program, case, reason)."""
    skips = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 3:
            sys.exit(f"{path}:{number}: expected program, case and reason, separated by tabs; found {line!r}")
        skips.append(tuple(fields))
    return sorted(set(skips))


def is_match(skip, entry):
    program, case, reason = skip
    return (fnmatch.fnmatchcase(program, entry[0]) and fnmatch.fnmatchcase(case, entry[1])
            and entry[2] in reason)


def main():
    arguments = sys.argv[1:]
    is_allowed = "--allow" in arguments
    paths = [argument for argument in arguments if argument != "--allow"]
    if len(paths) != 1:
        sys.exit(__doc__)
    expected = read_expected()
    unexpected = 0
    for skip in read_record(paths[0]):
        is_known = any(is_match(skip, entry) for entry in expected)
        unexpected += not is_known
        print(f"skipped{'' if is_known else ' UNEXPECTEDLY'}: {skip[0]} {skip[1]}: {skip[2]}")
    if unexpected and not is_allowed:
        sys.exit(f"{unexpected} skips are not listed in .ci/expected-skips. Provide what this machine lacks, or run "
                 "make with SKIPS=allowed if this machine is not the one that runs CI.")


main()

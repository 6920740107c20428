#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a thread waits only in files that CONTRIBUTING.md lists, each with what ends the wait.

A wait is a call that blocks its thread: of a condition, a channel, another thread, a file descriptor, a lock of a file, a file system, or time.
A file below `src/ffi/` outside its tests that contains one and is not in the list fails here, and so does a file of the list that contains none.
docs/errors.md has the same by public function.

    scripts/waits.py          check
    scripts/waits.py --all    also print each wait
"""

import re
import sys

from module_cycles import COMMENT_OR_STRING, PAGE, ROOT, SOURCE, section, without_tests
from unsafe_modules import paths_in

HEADING = "Where threads wait"
WAITS = re.compile(r"""
    \.wait(_while|_until|_timeout)?\( | \.recv(_timeout)?\( | \.join\(\) | \bsleep\( | \b(yield_now|yields_soon)\b | \bpark\w*\(
    | \bthread::poll\( | \.take\((deadline|Some\() | \w*Synchronize\b | \b(submit_and_wait|to_socket_addrs|sigtimedwait|dlopen|dlclose)\b
    | \bnet::(connect|sendmsg) | \brecvmsg\b | \bretried:: | \bstd::fs::
""", re.VERBOSE)
DECLARATION = re.compile(r"^\s*(pub(\(\w+\))? )?(use|mod|const|unsafe fn|fn)\b")


def waits_of(path):
    """The lines of a file that wait, tests excepted."""
    code = without_tests(COMMENT_OR_STRING.sub(" ", path.read_text()))
    return [line.strip() for line in code.split("\n") if WAITS.search(line) and not DECLARATION.match(line)]


def main():
    listed, problems = list(paths_in(section(HEADING))), []
    problems += [f"{entry} is listed in {PAGE.name}, but does not exist" for entry in listed if not (ROOT / entry).exists()]
    for path in sorted(SOURCE.rglob("*.rs")):
        name = str(path.relative_to(ROOT))
        if path.name in ("tests.rs", "build.rs") or "tests" in path.parts or SOURCE / "ffi" in path.parents:
            continue
        waits = waits_of(path)
        if "--all" in sys.argv:
            print(*(f"{name}: {line}" for line in waits), sep="\n", end="\n" if waits else "")
        if waits and name not in listed:
            problems.append(f"{name} waits, and {PAGE.name} does not list what ends that: {waits[0]}")
        if not waits and name in listed:
            problems.append(f"{name} does not wait: remove it from the list in {PAGE.name}")
    problems += [f"{name} is listed twice in {PAGE.name}" for name in sorted(set(listed)) if listed.count(name) > 1]
    print(*problems, sep="\n", end="\n" if problems else "")
    if problems:
        sys.exit(f"see '{HEADING}' in {PAGE.name}, and docs/errors.md if a caller of the library waits")


if __name__ == "__main__":
    main()

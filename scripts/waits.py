#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a thread waits only in files that CONTRIBUTING.md lists, each with what ends the wait.

A wait is a call that blocks its thread: of a condition, a channel, another thread, a file descriptor, a lock of a file, a file system, or time.
A file below `src/ffi/` outside its tests that contains one and is not in the list fails here, and so does a file of the list that contains none.
docs/errors.md has the same by public function. Each function of its table is named by the test of its line: by a row of a program of
c_tests/held, which holds each call that it makes below the library, or by another C test. So a new function that waits has a test.

    scripts/waits.py          check
    scripts/waits.py --all    also print each wait
"""

import re
import sys

from module_cycles import COMMENT_OR_STRING, PAGE, ROOT, SOURCE, is_test, section, without_tests
from pages import committed, function_names
from unsafe_modules import paths_in

HEADING = "Where threads wait"
WAITS = re.compile(r"""
    \.wait(_while|_until|_while_until|_timeout)?\( | \.recv(_timeout)?\( | \.join\(\) | \bsleep\( | \b(yield_now|yields_soon)\b | \bpark\w*\(
    | \bthread::poll\( | \.take\((deadline|Some\() | \w*Synchronize\b | \b(submit_and_wait|to_socket_addrs|sigtimedwait|dlopen|dlclose)\b
    | \bnet::(connect|sendmsg) | \brecvmsg\b | \bretried:: | \bstd::fs::
""", re.VERBOSE)
HELD = ROOT / "c_tests/held"
ROW = re.compile(r'\.functions = ((?:"[^"]*"\s*|[A-Z_]+)+)')
DECLARATION = re.compile(r"^\s*(pub(\(\w+\))? )?(use|mod|const|unsafe fn|fn)\b")


def waits_of(path):
    """The lines of a file that wait, tests excepted."""
    code = without_tests(COMMENT_OR_STRING.sub(" ", path.read_text()))
    return [line.strip() for line in code.split("\n") if WAITS.search(line) and not DECLARATION.match(line)]


def held_functions(text):
    """The functions in the rows of a program of c_tests/held."""
    named = dict(re.findall(r'^#define (\w+) "([^"]*)"$', text, re.MULTILINE))
    return {name for row in ROW.findall(text) for string, macro in re.findall(r'"([^"]*)"|([A-Z_]+)', row)
            for name in (string or named.get(macro, "")).split()}


def test_functions():
    """The functions that the C tests name, by the stems of their files."""
    functions = {}
    for path in committed("c_tests/*.c"):
        functions.setdefault(path.stem.removesuffix("_test"), set()).update(re.findall(r"kvmem_\w+", path.read_text()))
    return functions


def held_faults(page, rows, tests):
    """Functions of the table of what calls wait for that no row of c_tests/held has, and no other test of their lines names, and rows of
    functions that are not in it. A line without functions continues the one before. A test without a program is one of the library's own."""
    table = page.partition("## What calls wait for")[2].partition("\n### ")[0]
    functions, shown, waiting = [], set(), set()
    for _, names, _, _, test, _ in (line.split("|") for line in table.splitlines() if line.count("|") == 5 and "`" in line):
        own = list(function_names(names))
        functions = own or functions
        waiting.update(own)
        kind, program = (re.findall(r"`(\w+)\.(\w+): ", test) or [("", "")])[0]
        named = rows.get(program, set()) if kind == "held" else tests.get(program, set()) if program else set(functions)
        shown |= named.intersection(functions)
        for name in own if kind == "held" else []:
            if name not in named:
                yield f"docs/errors.md: {name} is not held by c_tests/held/{program}_rows.c: add a row"
    for name in sorted(waiting - shown):
        yield f"docs/errors.md: no test of what {name} waits for names it: add a row to c_tests/held"
    for program, held in sorted(rows.items()):
        for name in sorted(held - waiting):
            yield f"c_tests/held/{program}_rows.c: {name} is not in the table of docs/errors.md of what calls wait for"


def main():
    listed, problems = list(paths_in(section(HEADING))), []
    problems += [f"{entry} is listed in {PAGE.name}, but does not exist" for entry in listed if not (ROOT / entry).exists()]
    for path in sorted(SOURCE.rglob("*.rs")):
        name = str(path.relative_to(ROOT))
        if is_test(path) or SOURCE / "ffi" in path.parents:
            continue
        waits = waits_of(path)
        if "--all" in sys.argv:
            print(*(f"{name}: {line}" for line in waits), sep="\n", end="\n" if waits else "")
        if waits and name not in listed:
            problems.append(f"{name} waits, and {PAGE.name} does not list what ends that: {waits[0]}")
        if not waits and name in listed:
            problems.append(f"{name} does not wait: remove it from the list in {PAGE.name}")
    problems += [f"this row of {PAGE.name} lacks what is waited for, until when, or what is locked: {row}" for row in section(HEADING).splitlines()
                 if row.startswith("| `") and (row.count("|") != 5 or not all(cell.strip() for cell in row.split("|")[1:5]))]
    problems += [f"{name} is listed twice in {PAGE.name}" for name in sorted(set(listed)) if listed.count(name) > 1]
    rows = {path.stem.removesuffix("_rows"): held_functions(path.read_text()) for path in HELD.glob("*_rows.c") if path.stem != "seeded_rows"}
    problems += held_faults((ROOT / "docs/errors.md").read_text(), rows, test_functions())
    print(*problems, sep="\n", end="\n" if problems else "")
    if problems:
        sys.exit(f"see '{HEADING}' in {PAGE.name}, and docs/errors.md if a caller of the library waits")


if __name__ == "__main__":
    main()

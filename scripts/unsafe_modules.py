#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `unsafe` is only where CONTRIBUTING.md allows it.

The crate denies `unsafe`, and the files that CONTRIBUTING.md lists allow it. Any other file that contains `unsafe` outside its tests, or that allows it
for all of its modules, fails here, and so does a listed file that contains no `unsafe`: the list becomes shorter when the code does.
"""

import re
import sys

from module_cycles import COMMENT_OR_STRING, PAGE, ROOT, SOURCE, is_test, section, without_tests

HEADING = "Where `unsafe` is allowed"
ALLOW = "#![allow(unsafe_code)]"
UNSAFE = re.compile(r"\bunsafe\b")


def paths_in(text):
    """The paths that a text names: files, and folders that end with a slash. `a/{b,c}.rs` stands for two files."""
    for pattern in re.findall(r"`(src/[^`]+)`", text):
        before, brace, rest = pattern.partition("{")
        names, _, after = rest.partition("}")
        yield from (before + name + after for name in names.split(",")) if brace else (pattern,)


def main():
    allowed = list(paths_in(section(HEADING)))
    problems = [f"{entry} is listed in {PAGE.name}, but does not exist"
                for entry in allowed if not (ROOT / entry).exists()]
    if "#![deny(unsafe_code)]" not in (SOURCE / "lib.rs").read_text():
        problems.append("src/lib.rs does not deny `unsafe`")
    for path in sorted(SOURCE.rglob("*.rs")):
        name = str(path.relative_to(ROOT))
        if is_test(path):
            continue
        text = path.read_text()
        uses = UNSAFE.search(without_tests(COMMENT_OR_STRING.sub(" ", text.replace("unsafe_code", ""))))
        if name in allowed and not uses:
            problems.append(f"{name} contains no `unsafe`: remove it from the list in {PAGE.name}, and do not allow it there")
        if not any(name == entry or entry.endswith("/") and name.startswith(entry) for entry in allowed):
            if uses:
                problems.append(f"{name} contains `unsafe`, and {PAGE.name} does not list it")
            if ALLOW in text:
                problems.append(f"{name} allows `unsafe`, and {PAGE.name} does not list it")
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"see '{HEADING}' in {PAGE.name}")


if __name__ == "__main__":
    main()

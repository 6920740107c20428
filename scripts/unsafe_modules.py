#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that `unsafe` is only where CONTRIBUTING.md allows it.

CONTRIBUTING.md lists the files that may contain `unsafe`. Every other file of src/ must have #![forbid(unsafe_code)], or
be a module of a file that has it. A file whose tests alone need `unsafe` has
#![cfg_attr(not(test), forbid(unsafe_code))]. A file with a listed module below it cannot have the attribute, because that
would hold for the module too; it is checked for `unsafe` all the same. The check also fails for a listed file that contains no `unsafe`, so that the
list becomes shorter when the code does.
"""

import re
import sys

from module_cycles import COMMENT_OR_STRING, PAGE, ROOT, SOURCE, section, without_tests

HEADING = "Where `unsafe` is allowed"
FORBID = re.compile(r"#!\[(?:cfg_attr\(not\(test\), )?forbid\(unsafe_code\)")
UNSAFE = re.compile(r"\bunsafe\b")


def listed():
    """The paths of the list: files, and folders that end with a slash. `a/{b,c}.rs` stands for two files."""
    for pattern in re.findall(r"`(src/[^`]+)`", section(HEADING)):
        before, brace, rest = pattern.partition("{")
        names, _, after = rest.partition("}")
        yield from (before + name + after for name in names.split(",")) if brace else (pattern,)


def is_forbidden(path):
    """Whether the file, or a module that it belongs to, forbids `unsafe`."""
    files = [path]
    for folder in path.relative_to(SOURCE).parents:
        if folder.parts:
            files += [SOURCE / folder / "mod.rs", (SOURCE / folder).with_suffix(".rs")]
    return any(file.exists() and FORBID.search(file.read_text()) for file in files)


def modules_below(path):
    """The folder of a file's own modules, as a prefix of paths."""
    folder = path.parent if path.name in ("mod.rs", "lib.rs") else path.with_suffix("")
    return f"{folder.relative_to(ROOT)}/"


def main():
    allowed = list(listed())
    problems = [f"{entry} is listed in {PAGE.name}, but does not exist"
                for entry in allowed if not (ROOT / entry).exists()]
    for path in sorted(SOURCE.rglob("*.rs")):
        name = str(path.relative_to(ROOT))
        if path.name == "tests.rs" or "tests" in path.parts or path == SOURCE / "build.rs":
            continue
        uses = UNSAFE.search(without_tests(COMMENT_OR_STRING.sub(" ", path.read_text().replace("unsafe_code", ""))))
        if name in allowed and not uses:
            problems.append(f"{name} contains no `unsafe`: remove it from the list in {PAGE.name}, and forbid it there")
        if not any(name == entry or entry.endswith("/") and name.startswith(entry) for entry in allowed):
            if uses:
                problems.append(f"{name} contains `unsafe`, and {PAGE.name} does not list it")
            is_parent = any(entry.startswith(modules_below(path)) for entry in allowed)
            if not is_parent and not is_forbidden(path):
                problems.append(f"{name} lacks #![forbid(unsafe_code)]")
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"see '{HEADING}' in {PAGE.name}")


if __name__ == "__main__":
    main()

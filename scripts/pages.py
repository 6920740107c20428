#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks all committed pages: links resolve, to files and to headings; files of the source tree that a page names in
`code` exist; names that begin with kvmem_ or KVMEM_ are declared in a header, or used by a build file or a test. Each function
is in the table of docs/errors.md of what calls wait for, with a test that exists, or in its list of those that wait for nothing. Each
promise of docs/reliability.md names a test that exists.

pages.py PREFIX checks the links of all pages that are installed there."""

import pathlib
import re
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
SOURCE = re.compile(r"`((?:src|c_tests|tests|bench|cmake|docs|examples|fuzz|include|scripts)/[\w./-]+)`")
NAME = re.compile(r"\b(?:kvmem|KVMEM)_\w*[A-Za-z0-9]\b")
NAMES = ["include", "Makefile", "CMakeLists.txt", "cmake", "scripts", "tests", "c_tests"]
FUNCTION = re.compile(r"((?:^///.*\n)*)^\w[\w ]*[ *](kvmem_\w+)\(([^;]*)\);", re.MULTILINE)
RUST_TEST = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn (\w+)\(")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:")


def main():
    if len(sys.argv) > 1:
        return check_installed(pathlib.Path(sys.argv[1]).resolve())
    pages = committed("*.md")
    names = declared_names()
    if not pages or not names:
        sys.exit("pages.py: git lists no pages, or no headers")
    found = [f"{page.relative_to(ROOT)}: {fault}" for page in pages for fault in faults(page.read_text(), page, names)]
    cases = test_cases()
    waiting = (ROOT / "docs/errors.md").read_text(), declared_functions(), cases
    found += [f"docs/errors.md: {fault}" for fault in waiting_faults(*waiting)]
    found += [f"docs/reliability.md: {fault}" for fault in promise_faults((ROOT / "docs/reliability.md").read_text(), cases)]
    if found:
        sys.exit("\n".join(found))
    print(f"pages.py: {len(pages)} pages have no broken link and no unknown name")


def check_installed(prefix):
    pages = sorted(prefix.rglob("*.md"))
    if not pages:
        sys.exit(f"pages.py: {prefix} has no pages")
    texts = [(page, FENCE.sub("", page.read_text())) for page in pages]
    found = [f"{page}: {fault}" for page, text in texts for fault in link_faults(text, page, prefix)]
    if found:
        sys.exit("\n".join(found))
    print(f"pages.py: {len(pages)} installed pages have no broken link")


def committed(*patterns):
    """The files that git knows, and new ones that it does not ignore."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def declared_names():
    files = [path for path in committed(*NAMES) if path.suffix != ".md"]
    return {name for path in files for name in NAME.findall(path.read_text(errors="replace"))}


def faults(text, page, names):
    for name in sorted(set(NAME.findall(text)) - names):
        yield f"{name}: no such name"
    text = FENCE.sub("", text)
    for path in SOURCE.findall(text):
        if not (ROOT / path).exists():
            yield f"{path}: no such file"
    yield from link_faults(text, page, ROOT)


def waiting_faults(page, functions, cases):
    """Each function is in the table of what calls wait for or in the list of those that wait for nothing, and each row of the table
    names a test that exists."""
    table, _, others = page.partition("## What calls wait for")[2].partition("\n## ")[0].partition("\n### ")
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| ") and not row.startswith("| **")][1:]
    waiting = {name for row in rows for name in function_names(row[1])}
    never = set(function_names(others))
    for name in sorted((waiting | never) - set(functions)):
        yield f"{name}: no such function in what calls wait for"
    for name in sorted(waiting & never):
        yield f"{name} waits for something and for nothing"
    for name in sorted(set(functions) - waiting - never):
        yield f"{name} is neither in the table of what calls wait for, nor in the list of functions that wait for nothing"
    for name, (comment, parameters) in functions.items():
        if "timeout_ns" in parameters and name in never:
            yield f"{name} has a timeout, and no row in the table of what calls wait for"
        if "Never waits" in comment and name in waiting:
            yield f"{name} never waits, and has a row in the table of what calls wait for"
    for row in rows:
        test = re.fullmatch(r" `(?:\w+\.(\w+): )?(\w+)` ", row[4]) if len(row) == 6 else None
        if not test:
            yield f"what calls wait for: this row names no test: {'|'.join(row)[:60]}"
        elif (test.group(1) or "", test.group(2)) not in cases:
            yield f"what calls wait for: {test.group(2)}: no such test"


def declared_functions():
    headers = [header.read_text() for header in committed("include/kvmem/*.h")]
    return {name: (comment, parameters) for text in headers for comment, name, parameters in FUNCTION.findall(text)}


def function_names(text):
    """The functions in a text, in which one after another of its noun may begin with _."""
    noun = ""
    for name in re.findall(r"`(\w+)`", text):
        if name.startswith("kvmem_"):
            noun = "_".join(name.split("_")[:2])
            yield name
        elif name.startswith("_"):
            yield noun + name


def test_cases():
    """The names of all cases of C tests with the name of their program, and of all functions of Rust tests with none."""
    cases = {(program_of(path), name) for path in committed("c_tests/*.c")
             for name in re.findall(r"^TEST\w*\((\w+)", path.read_text(), re.MULTILINE)}
    cases |= {("walk", name) for name in re.findall(r"TEST_CALL\((\w+)", (ROOT / "c_tests/gpu/sim/walk.h").read_text())}
    operations = [path.stem.removesuffix("_operations") for path in committed("c_tests/faults/*_operations.c")]
    cases |= {(program, "each_system_call_fails") for program in operations}
    cases |= {(f"allocations_{program}", "each_allocation_fails") for program in operations}
    cases |= {(path.stem.removesuffix("_rows"), "each_call_below_is_held") for path in committed("c_tests/held/*_rows.c")}
    cases |= {(path.stem.removesuffix("_rows"), "each_behaviour_is_survived") for path in committed("c_tests/hostile/*_rows.c")}
    rust = {("", name) for path in committed("src/*.rs") for name in RUST_TEST.findall(path.read_text())}
    return cases | rust


def program_of(path):
    """The program that has the cases of a file. Those of directories are in several files, and also run with etcd."""
    return "directory_folder" if re.fullmatch(r"directory\w*_cases", path.stem) else path.stem.removesuffix("_test")


def promise_faults(text, cases):
    """Each row of the tables of promises names a test, and each of these exists."""
    events = [row for row in text.splitlines() if row.count("|") == 7 and not re.match(r"\| (event|-)|\|-", row)]
    if not events:
        yield "it has no table of promises"
    for row in events:
        test = re.search(r"(?:`\w+\.(\w+): |Rust: `)(\w+)` \|$", row)
        if not test:
            yield f"this row names no test: {row[:60]}"
        elif (test.group(1) or "", test.group(2)) not in cases:
            yield f"{test.group(2)}: no such test"


def link_faults(text, page, root):
    prose = CODE.sub("", text)
    for link in LINK.findall(prose) + REFERENCE.findall(prose):
        if fault := link_fault(page, link, root):
            yield f"{link}: {fault}"


def link_fault(page, link, root):
    if EXTERNAL.match(link):
        return None
    path, _, anchor = link.partition("#")
    target = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
    if not target.exists():
        return "no such file"
    if not target.is_relative_to(root):
        return "outside the project"
    if anchor and anchor not in anchors(target):
        return "no such heading"
    return None


def anchors(page):
    """The anchors that GitHub makes of a page's headings; a repeated one gets a number."""
    seen = {}
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cpp_coverage.py: compares the headers of C with those of C++.

Every function, constant and field of options of the headers for C is used in include/kvmem/*.hpp, or has a line with a reason
in the table "Without a counterpart" of docs/cpp.md. No line of that table is obsolete."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "scripts"))
from bindings import headers  # noqa: E402

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
FUNCTION = re.compile(r"\b(kvmem_[a-z0-9_]+)\s*\(")
CONSTANT = re.compile(r"^#define (KVMEM_[A-Z0-9_]+) ", re.MULTILINE)
STRUCT = re.compile(r"typedef struct (kvmem_\w+) \{(.*?)\n\} ", re.DOTALL)
FIELD = re.compile(r"((?:\s*///[^\n]*\n)+)\s*[^;/]*?\b(\w+)(?:\[\d+\])?;")
ROW = re.compile(r"^\| `(\w+(?:\.\w+)?)` \| (\S.*?) \|$", re.MULTILINE)
# Fields that the function that makes the call sets, because they refer to its variables.
SET_BY_CALLERS = {"progress", "release", "user_data"}


def main():
    c = headers()
    cpp = {path.name: COMMENT.sub("", path.read_text()) for path in sorted((ROOT / "include/kvmem").glob("*.hpp"))}
    page = (ROOT / "docs/cpp.md").read_text()
    check_the_check(c, cpp, page)
    if found := list(faults(c, cpp, page)):
        sys.exit("\n".join(found))
    print(f"cpp_coverage.py: {len(functions(c))} functions and {len(constants(c))} constants are in the C++ headers, or "
          "have a reason in docs/cpp.md")


def functions(c):
    return set(FUNCTION.findall(COMMENT.sub("", c)))


def constants(c):
    return set(CONSTANT.findall(COMMENT.sub("", c)))


def option_fields(c):
    """The fields of structs that begin with struct_size, without those that must be 0."""
    for struct, body in STRUCT.findall(c):
        # A struct that no function reads is an output, which C++ returns as it is.
        if "size_t struct_size;" not in body or f"const {struct} *" not in c:
            continue
        for comment, field in FIELD.findall(body):
            if field != "struct_size" and "Must be 0." not in comment.replace("\n", " ").split("/// ")[1]:
                yield struct, field


def faults(c, cpp, page):
    table = page.partition("## Without a counterpart")[2].partition("\n## ")[0]
    reasons = dict(ROW.findall(table))
    text = "\n".join(cpp.values())
    used = set(re.findall(r"\w+", text))
    where = "or add the line | `{}` | reason | to the table 'Without a counterpart' of docs/cpp.md"
    for file in sorted(cpp):
        if f"`{file}`" not in page:
            yield f"{file}: docs/cpp.md does not name it; add it to the list of headers under \"Names\""
    for name in sorted(functions(c) - used - reasons.keys()):
        yield (f"{name}: no C++ function calls it. Add a method to the class of its noun in include/kvmem/ (pattern: "
               f"Region::sync in region.hpp), {where.format(name)}")
    for name in sorted(constants(c) - used - reasons.keys()):
        yield (f"{name}: no enum has it. Add it to the enum of its prefix in include/kvmem/, {where.format(name)}")
    for struct, field in option_fields(c):
        name = f"{struct}.{field}"
        files = [file for file, code in cpp.items() if f"<{struct}>" in code]
        if name not in reasons and not any(sets(cpp[file], struct, field) for file in files):
            place = f"include/kvmem/{files[0]}" if files else "a header of include/kvmem/"
            yield (f"{name}: the C++ options do not have it. Add the field to the struct for {struct} in {place} and the "
                   f"line `c.{field} = {field};` to its c(), {where.format(name)}")
    fields = {f"{struct}.{field}" for struct, field in option_fields(c)}
    for name in sorted(reasons):
        if name not in functions(c) | constants(c) | fields:
            yield f"{name}: docs/cpp.md has a line for it, but no header declares it. Remove the line"
        elif name in used:
            yield f"{name}: docs/cpp.md has a line for it, but include/kvmem/ uses it. Remove the line"


def sets(code, struct, field):
    assignment = rf"\bc\.{field} =|\bc\.{field},|::{field}\b|\boptions\.{field}\b"
    conversion = re.search(rf"auto c = detail::defaults<{struct}>\(\);(.*?)\breturn c;", code, re.DOTALL)
    if conversion and field not in SET_BY_CALLERS:
        return re.search(rf"\bc\.{field}\b", conversion[1])
    return re.search(assignment, code)


def check_the_check(c, cpp, page):
    """Each kind of fault has to be found before the check may report that there is none."""
    row = "\n## Without a counterpart\n| `{}` | reason |\n"
    samples = {
        "kvmem_region_paint: no C++": (c + "\nkvmem_status kvmem_region_paint(kvmem_region *region);", page),
        "KVMEM_COLOUR_RED: no enum": (c + "\n#define KVMEM_COLOUR_RED 1\n", page),
        "kvmem_disk_options.colour: the": (c.replace("} kvmem_disk_options;", "    /// Colour.\n    int colour;\n} "
                                                     "kvmem_disk_options;"), page),
        "kvmem_transfer_options.colour: the": (c.replace("} kvmem_transfer_options;", "    /// Colour.\n    int colour;"
                                                         "\n} kvmem_transfer_options;"), page),
        "kvmem_paint: docs/cpp.md has a line for it, but no": (c, row.format("kvmem_paint")),
        "kvmem_region_sync: docs/cpp.md has a line for it, but include": (c, row.format("kvmem_region_sync")),
    }
    for expected, (headers, text) in samples.items():
        if not any(fault.startswith(expected) for fault in faults(headers, cpp, text)):
            sys.exit(f"cpp_coverage.py does not find: {expected}")


if __name__ == "__main__":
    main()

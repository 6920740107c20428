#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the headers document of each function as C: statuses.py OUTPUT HEADER...

FUZZ_FUNCTIONS lists the functions, each with a bit for each status that its @return text names, or that the functions
named there document in turn; 0 for a function that cannot fail.
"""

import fnmatch
import re
import sys

# Statuses that the header describes in words. A run of a transfer may fail with each of these ("how the run failed").
RUN_FAILURES = {"IO", "OUT_OF_MEMORY", "CUDA", "NIXL", "PEER_LOST", "STALE", "CORRUPT", "CANCELLED", "INVALID_STATE"}
WORDS = {
    "how it failed": RUN_FAILURES,
    "how the run failed": RUN_FAILURES,
    "how reading a file or GPU memory failed": {"IO", "OUT_OF_MEMORY", "CUDA"},
}
# The introduction of the header says this once for all functions: invalid arguments and options fail.
EVERYWHERE = {"OK", "INVALID_ARGUMENT"}


def read_functions(header):
    """Maps each function to the text of its @return, or to None if it is not fallible."""
    functions = {}
    for block in re.finditer(r"((?:^///[^\n]*\n)+)((?:^[^/\n#][^\n]*\n)+)", header, re.M):
        comment, code = block.groups()
        found = re.match(r"\s*(?:const\s+)?(\w+)[\s*]+(kvmem_\w+)\(", code)
        if found is None:
            continue
        text = re.sub(r"\s+", " ", comment.replace("///", " "))
        returned = text.partition("@return")[2].partition(" Notes: ")[0]
        is_fallible = found.group(1) == "kvmem_status" and "kvmem_error **error" in code
        functions[found.group(2)] = returned if is_fallible else None
    return functions


def own_statuses(text, numbers):
    statuses = {name for name in re.findall(r"KVMEM_STATUS_(\w+)", text)}
    unknown = statuses - numbers.keys()
    if unknown:
        sys.exit(f"the header documents statuses that it does not define: {unknown}")
    for words, meant in WORDS.items():
        if words in text:
            statuses |= meant
    return statuses


def documented(function, functions, numbers, seen):
    """The statuses of a function and of those that its text names."""
    if function in seen or functions.get(function) is None:
        return set()
    seen.add(function)
    text = functions[function]
    statuses = own_statuses(text, numbers)
    for pattern in re.findall(r"kvmem_[a-z_]+\*?", text):
        for other in fnmatch.filter(functions, pattern):
            statuses |= documented(other, functions, numbers, seen)
    return statuses


def main():
    header = "\n".join(open(path).read() for path in sys.argv[2:])
    numbers = {name: int(value) for name, value in re.findall(r"#define KVMEM_STATUS_(\w+) \(?(-?\d+)", header)}
    functions = read_functions(header)
    declared = set(re.findall(r"\b(kvmem_[a-z0-9_]+)\(", re.sub(r"//[^\n]*", "", header)))
    if declared != functions.keys():
        sys.exit(f"these functions have no comment that could be read: {declared ^ functions.keys()}")
    with open(sys.argv[1], "w") as output:
        output.write("// Generated from the headers by statuses.py.\n#define FUZZ_FUNCTIONS(FUNCTION) \\\n")
        for function in functions:
            statuses = documented(function, functions, numbers, set()) | EVERYWHERE
            mask = 0
            for status in statuses:
                mask |= 1 << (31 if numbers[status] > 0 else -numbers[status])
            output.write(f"    FUNCTION({function}, 0x{mask if functions[function] is not None else 0:x}u) \\\n")
        output.write("\n")


main()

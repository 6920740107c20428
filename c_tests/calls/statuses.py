#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the headers document of each function as C: statuses.py OUTPUT HEADER...

FUZZ_FUNCTIONS lists the functions, each with a bit for each status that its @return text or the introduction names, or
that the functions named there document in turn; 0 for a function that cannot fail.
"""

import fnmatch
import pathlib
import re
import sys

# Statuses that the header describes in words. A run of a transfer may fail with each of these ("how the run failed").
RUN_FAILURES = {"IO", "OUT_OF_MEMORY", "CUDA", "NIXL", "PEER_LOST", "STALE", "CORRUPT", "CANCELLED", "INVALID_STATE"}
WORDS = {
    "how it failed": RUN_FAILURES,
    "how the run failed": RUN_FAILURES,
    "how reading a file or GPU memory failed": {"IO", "OUT_OF_MEMORY", "CUDA"},
}
# What the introduction in kvmem.h says once: of all functions, of those that use a GPU or an agent, and of those with a
# parameter. The headers whose functions use a GPU or an agent are named by their files.
EVERYWHERE = {"OK", "INVALID_ARGUMENT", "OUT_OF_MEMORY"}
OF_HEADERS = [
    ({"region", "layout", "transfer", "share", "cuda"}, {"CUDA", "UNAVAILABLE_CUDA"}),
    ({"region", "layout", "transfer", "share", "nixl", "nixl_raw", "directory"}, {"NIXL", "UNAVAILABLE_NIXL", "TIMED_OUT"}),
]
OF_PARAMETERS = [
    (r"int32_t (device|owner|peer)\b|kvmem_\w+_options \*|size_t index\b|_indices\b", {"OUT_OF_RANGE"}),
    (r"const void \*data\b|const kvmem_directory_entry \*", {"CORRUPT", "VERSION_MISMATCH"}),
    (r"uint64_t timeout_ns\b", {"TIMED_OUT"}),
    (r"kvmem_nixl_options \*|kvmem_prepared \*local\b",
     {"NOT_FOUND", "STALE", "PEER_LOST", "BUSY", "INVALID_STATE", "UNSUPPORTED"}),
    (r"const char \*address\b", {"INVALID_STATE", "NOT_FOUND", "TIMED_OUT", "IO", "PERMISSION_DENIED"}),
    (r"kvmem_transfer \*transfer\b", {"INVALID_STATE"}),
    (r"kvmem_directory \*", {"CORRUPT", "IO", "PERMISSION_DENIED"}),
]


def read_functions(name, header):
    """Maps each function to the text of its @return and the statuses of the introduction, or to None if it is not fallible."""
    functions = {}
    of_header = set().union(*(statuses for names, statuses in OF_HEADERS if name in names))
    for block in re.finditer(r"((?:^///[^\n]*\n)+)((?:^[^/\n#][^\n]*\n)+)", header, re.M):
        comment, code = block.groups()
        found = re.match(r"\s*(?:const\s+)?(\w+)[\s*]+(kvmem_\w+)\(", code)
        if found is None:
            continue
        text = re.sub(r"\s+", " ", comment.replace("///", " "))
        returned = text.partition("@return")[2].partition(" Notes: ")[0]
        is_fallible = found.group(1) == "kvmem_status" and "kvmem_error **error" in code
        of_parameters = set().union(*(statuses for pattern, statuses in OF_PARAMETERS if re.search(pattern, code)))
        functions[found.group(2)] = (returned, EVERYWHERE | of_header | of_parameters) if is_fallible else None
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
    text, common = functions[function]
    statuses = own_statuses(text, numbers) | common
    for pattern in re.findall(r"kvmem_[a-z_]+\*?", text):
        for other in fnmatch.filter(functions, pattern):
            statuses |= documented(other, functions, numbers, seen)
    return statuses


def main():
    headers = {pathlib.Path(path).stem: pathlib.Path(path).read_text() for path in sys.argv[2:]}
    header = "\n".join(headers.values())
    numbers = {name: int(value) for name, value in re.findall(r"#define KVMEM_STATUS_(\w+) \(?(-?\d+)", header)}
    functions = {function: text for name in headers for function, text in read_functions(name, headers[name]).items()}
    declared = set(re.findall(r"\b(kvmem_[a-z0-9_]+)\(", re.sub(r"//[^\n]*", "", header)))
    if declared != functions.keys():
        sys.exit(f"these functions have no comment that could be read: {declared ^ functions.keys()}")
    with open(sys.argv[1], "w") as output:
        output.write("// Generated from the headers by statuses.py.\n#define FUZZ_FUNCTIONS(FUNCTION) \\\n")
        for function in functions:
            statuses = documented(function, functions, numbers, set())
            mask = 0
            for status in statuses:
                mask |= 1 << (31 if numbers[status] > 0 else -numbers[status])
            output.write(f"    FUNCTION({function}, 0x{mask if functions[function] is not None else 0:x}u) \\\n")
        output.write("\n")


main()

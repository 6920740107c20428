# SPDX-License-Identifier: Apache-2.0
"""The binary interface as text: the constants, structs and functions of the headers, one a line. src/ffi/abi.txt has them as they
were when KVMEM_ABI_VERSION was raised. `make header` and `make lint` fail if a program that was compiled then would notice a change, and
`make header` writes the file when the number is raised. What was added since is not in it: remove the file before a release, so that it
is written again."""

import pathlib
import re
import sys

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
NUMBER = re.compile(r"^#define KVMEM_ABI_VERSION (\d+)$", re.MULTILINE)
CONSTANT = re.compile(r"^#define (KVMEM_\w+) (\S+)$", re.MULTILINE)
NUMBER_TYPE = re.compile(r"^typedef (\w+ kvmem_\w+);", re.MULTILINE)
STRUCT = re.compile(r"^typedef struct (kvmem_\w+) \{(.*?)^\} \w+;", re.MULTILINE | re.DOTALL)
CALLBACK = re.compile(r"^typedef (\w[^;{]*\(\*kvmem_\w+\)\([^;]*\));", re.MULTILINE)
FUNCTION = re.compile(r"^(\w[\w ]*[ *]kvmem_\w+\([^;{]*\));", re.MULTILINE)


def listing(headers):
    text = re.sub(r"[ \t]+$", "", COMMENT.sub("", headers), flags=re.MULTILINE)
    number = NUMBER.search(text)[1]
    lines = [f"{name} {value}" for name, value in CONSTANT.findall(text) if not name.startswith(("KVMEM_VERSION_", "KVMEM_ABI_"))]
    lines += [f"typedef {name}" for name in NUMBER_TYPE.findall(text)]
    lines += [" ".join(f"struct {name} {{ {body} }}".split()) for name, body in STRUCT.findall(text)]
    lines += [" ".join(one.split()) for one in [*CALLBACK.findall(text), *FUNCTION.findall(text)]]
    return "\n".join([f"KVMEM_ABI_VERSION {number}", *sorted(set(lines))]) + "\n"


def ensure_compatible(before, after):
    """Exits if a line of `before` is missing. Structs that begin with struct_size may get fields at their end."""
    (old, *old_lines), (new, *new_lines) = before.splitlines(), after.splitlines()
    if old != new:
        return

    def is_kept(line):
        grows = line.startswith("struct ") and "{ size_t struct_size;" in line
        return line in new_lines or grows and any(other.startswith(line.removesuffix(" }")) for other in new_lines)

    if lost := [line for line in old_lines if not is_kept(line)]:
        sys.exit("these lines of src/ffi/abi.txt have changed, which programs that were compiled before would notice; raise "
                 "KVMEM_ABI_VERSION in src/ffi/common/version.rs:\n  " + "\n  ".join(lost))


def update(file, headers, checks):
    check_the_check()
    now = listing(headers)
    before = file.read_text() if file.exists() else ""
    if before:
        ensure_compatible(before, now)
    if before.partition("\n")[0] != now.partition("\n")[0]:
        if checks:
            sys.exit(f"{file} is not that of this KVMEM_ABI_VERSION; run `make header`")
        file.write_text(now)


def code(text):
    """C that defines what a listing has, for a tool that reads what compilers make of it."""
    lines = text.splitlines()[1:]
    numbers = [line for line in lines if line.startswith("typedef ")]
    structs = {line.split()[1]: line for line in lines if line.startswith("struct ")}
    callbacks = [line for line in lines if "(*kvmem_" in line]
    functions = [line for line in lines if FUNCTION.match(line + ";")]
    defined = {line.split()[-1] for line in numbers} | set(re.findall(r"\(\*(kvmem_\w+)\)", " ".join(callbacks)))
    named = set(re.findall(r"\b(kvmem_\w+)\b(?! ?\()", " ".join([*structs.values(), *callbacks, *functions])))
    ordered = []

    def add(name):
        """Adds a struct behind those that it contains."""
        line = structs.pop(name)
        for contained in re.findall(r"\b(kvmem_\w+) \w+[;\[]", line):
            if contained in structs:
                add(contained)
        ordered.append(line)

    while structs:
        add(next(iter(structs)))
    return "\n".join([
        "#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>", "#include <stdlib.h>", "struct CUstream_st;",
        *(f"{line};" for line in numbers),
        *(f"typedef struct {name} {name};" for name in sorted(named - defined)), *(f"typedef {line};" for line in callbacks),
        *(f"{line};" for line in ordered), *(f"{line} {{ abort(); }}" for line in functions), "",
    ])  # fmt: skip


def growing(text):
    """The structs of a listing that may get fields at their end, as abidiff's suppressions."""
    names = re.findall(r"^struct (\w+) \{ size_t struct_size;", text, re.MULTILINE)
    return "".join(f"[suppress_type]\n  type_kind = struct\n  name = {name}\n  has_data_member_inserted_at = end\n" for name in names)


def check_the_check():
    """Each kind of change has to be found before the check may report that there is none."""
    number = "#define KVMEM_ABI_VERSION 7\n"
    plain = "typedef struct kvmem_a {\n    uint64_t x;  ///< X.\n} kvmem_a;\n"
    sized = "typedef struct kvmem_b {\n    size_t struct_size;\n    uint64_t x;\n} kvmem_b;\n"
    function = "/// F.\nkvmem_status kvmem_f(const kvmem_a *a,\n    uint64_t n);\n"
    whole = number + "#define KVMEM_C 3  ///< C.\n" + plain + sized + function
    grown = whole + "#define KVMEM_D 4\nvoid kvmem_g(void);\n"
    changes = [whole.replace("KVMEM_C 3", "KVMEM_C 4"), whole.replace(function, ""), whole.replace("    uint64_t n", "    uint32_t n"),
               whole.replace("x;  ///< X.\n", "x;\n    uint64_t y;\n"), whole.replace("size_t struct_size;\n", "size_t struct_size;\n    uint32_t w;\n")]
    for changed in [*changes, *(change.replace("VERSION 7", "VERSION 8") for change in changes)]:
        try:
            ensure_compatible(listing(whole), listing(changed))
            is_found = False
        except SystemExit:
            is_found = True
        if is_found != ("VERSION 7" in changed):
            sys.exit(f"abi.py does not judge this change: {changed}")
    ensure_compatible(listing(whole), listing(grown.replace("    uint64_t x;\n} kvmem_b", "    uint64_t x;\n    uint32_t y;\n} kvmem_b")))


if __name__ == "__main__":
    # abi.py code FILE OUTPUT SUPPRESSIONS, abi.py code HEADER... OUTPUT SUPPRESSIONS
    *inputs, output, suppressions = map(pathlib.Path, sys.argv[2:])
    text = "\n".join(path.read_text() for path in inputs)
    text = text if inputs[0].suffix == ".txt" else listing(text)
    output.write_text(code(text))
    suppressions.write_text(growing(text))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""values.py INCLUDE BINDING: the constants and the fields of structs of the headers are in a binding for Go, Zig or Python.

Every constant has a counterpart of the same name and, if the binding repeats it, of the same value. Every field of a struct
is used, or declared, where the binding converts that struct. What has none is listed in without-counterpart.txt of the
binding, as KVMEM_NAME or kvmem_struct.field, with the reason."""

import collections
import copy
import fnmatch
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from bindings import comments_before  # noqa: E402

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CONSTANT = re.compile(r"^#define (KVMEM_[A-Z0-9_]+) (\(?-?\w+\)?)$", re.MULTILINE)
STRUCT = re.compile(r"typedef struct (kvmem_\w+) \{(.*?)\n\} ", re.DOTALL)
FIELD = re.compile(r"((?:\s*///[^\n]*\n)*)\s*[^;/]*?(?:\(\*(\w+)\)\([^;]*\)|\b(\w+))(?:\[\w+\])*;")
# Prefixes of names that differ between a binding and C.
RENAMED = {"operation": "request", "err": "", "status": ""}
# Fields that another function of the binding sets: they belong to a callback or an array.
SET_BY_CALLERS = {"release", "progress", "user_data", "address", "num_pairs", "notification_size"}
LISTED = re.compile(r"^(KVMEM_[A-Z0-9_*]+|kvmem_[a-z0-9_*]+\.[a-z0-9_*]+) ", re.MULTILINE)


def code(path):
    return COMMENT.sub(" ", path.read_text())


def constants(headers):
    """The constants with their values, without the guards of headers."""
    return {name: number(value) for name, value in CONSTANT.findall(re.sub(r"[ \t]+\n", "\n", COMMENT.sub("", headers)))}


def number(text):
    return 2**64 - 1 if text == "UINT64_MAX" else int(text.strip("()").rstrip("UuLl"), 0)


def fields(headers):
    """Pairs of struct and field, without the size of the struct and what must be 0."""
    for struct, body in STRUCT.findall(headers):
        for comment, callback, field in FIELD.findall(body):
            if (callback or field) not in ("struct_size", "reserved") and "Must be 0." not in comment:
                yield struct, callback or field


def plain(name):
    """A name as both languages spell it: without prefix, case and underscores."""
    name = name.lower().replace("_", "").removeprefix("kvmem")
    for prefix, other in RENAMED.items():
        if name.startswith(prefix):
            return other + name.removeprefix(prefix)
    return name


class Go:
    def __init__(self, folder):
        self.files = [code(path) for path in sorted(folder.glob("*.[gch]*")) if "_test" not in path.stem]
        self.text = "\n".join(self.files)
        self.parts = re.split(r"^(?=func |type |var |const )", self.text, flags=re.MULTILINE)

    def constants(self, _):
        """Each with its value in C, because the package takes it from there, unless its name is another one."""
        for constant in set(re.findall(r"\bC\.(KVMEM_\w+)", self.text)):
            yield constant, None
        for name, constant in re.findall(r"^\t(\w+)[ \w]* = C\.(KVMEM_\w+)$", self.text, re.MULTILINE):
            if plain(name) != plain(constant):
                yield constant, f"is called {name}"

    def converts(self, part, struct):
        declared = re.match(r"type (\w+) struct", part)
        return bool(re.search(rf"\bC\.{struct}\b", part)) or bool(declared) and plain(declared[1]) == plain(struct)

    def has(self, part, field):
        """A struct with the name of that in C is one in memory, too: its fields have the names of the language."""
        if part.startswith("type "):
            return plain(field) in map(plain, re.findall(r"\w+", part))
        return bool(re.search(rf"(\.|->){field}\b|\b{field}:", part))


class Zig:
    def __init__(self, folder):
        self.files = [code(path) for path in sorted((folder / "src").glob("*.zig")) if path.stem != "test"]
        self.text = "\n".join(self.files)
        self.parts = re.split(r"^(?=(?:pub )?(?:const|fn) )", self.text, flags=re.MULTILINE)
        tests = (folder / "src/test/types.zig").read_text()
        self.prefixes = dict(re.findall(r'\.\{ "(\w+)", "(\w*)" \}', tests))

    def constants(self, expected):
        for constant in set(re.findall(r"\bc\.(KVMEM_\w+)", self.text)):
            yield constant, None
        for part in self.parts:
            declared = re.match(r"pub const (\w+) = (enum|packed struct)\(u\d+\) \{(.*?)\n\};", part, re.DOTALL)
            if not declared or declared[1] not in self.prefixes:
                continue
            prefix = "KVMEM_" + self.prefixes[declared[1]]
            if declared[2] == "enum":
                values = re.findall(r'^    @?"?(\w+)"? = (\d+),', declared[3], re.MULTILINE)
                found = {name: int(value) for name, value in values}
            else:
                found = {name: 1 << bit for bit, name in enumerate(re.findall(r"^    (\w+): bool", declared[3], re.MULTILINE))}
            for name, value in found.items():
                constant = prefix + name.upper()
                if name == "default" and constant not in expected:
                    continue
                yield constant, None if expected.get(constant) == value else f"is {value} in {declared[1]}"

    def converts(self, part, struct):
        name = re.match(r"pub const (\w+) = (?:extern )?struct", part)
        nouns = ("", "region", "layout", "transfer")
        return bool(re.search(rf"\b{struct}\b", part)) or bool(name) and plain(struct) in [
            noun + plain(name[1]) for noun in nouns]

    def has(self, part, field):
        return bool(re.search(rf"\.{field}\b|\b{field}:", part))


class Python:
    """The constants are generated. Fields are set and read by their names, often as text, so the whole package is searched for one. Sizes and
    offsets are compared by test_imports.py."""

    def __init__(self, folder):
        self.files = [path.read_text() for path in sorted((folder / "src/kvmem").glob("*.py")) if path.stem not in ("_constants", "_versions")]
        self.parts = ["\n".join(self.files)]
        self.generated = "".join((folder / f"src/kvmem/{stem}.py").read_text() for stem in ("_constants", "_versions"))

    def constants(self, expected):
        if re.search(r"^FOREVER = 2\*\*64 - 1$", self.parts[0], re.MULTILINE):
            yield "KVMEM_TIMEOUT_FOREVER", None
        for name, value in re.findall(r"^(\w+) = (\d+)$", self.generated, re.MULTILINE):
            yield f"KVMEM_{name}", None if expected.get(f"KVMEM_{name}") == int(value) else f"is {value}"
        for kind, body in re.findall(r"^class (\w+)\(.*?\):\n(.*?)(?=^class |\Z)", self.generated, re.MULTILINE | re.DOTALL):
            words = {word.lstrip("_"): int(value) for word, value in re.findall(r"^    (\w+) = (-?\d+)$", body, re.MULTILINE)}
            # The prefix of the type is the one that most of its words have as constants of these values.
            prefixes = collections.Counter(name.removesuffix(word) for name in expected for word, value in words.items()
                                           if name.endswith(f"_{word}") and expected[name] == value)
            prefix = max(prefixes, default="",
                         key=lambda prefix: (prefixes[prefix], plain(kind).startswith(plain(prefix)), -len(prefix)))
            for word, value in words.items():
                yield prefix + word, None if expected.get(prefix + word) == value else f"is {value} in {kind}"

    def converts(self, part, struct):
        return True

    def has(self, part, field):
        return bool(re.search(rf"\b{field}\b", part))


def faults(headers, binding, listed):
    expected = constants(headers)
    found = {}
    for name, fault in binding.constants(expected):
        found[name] = found.get(name) or fault
    lacking = {name for name in expected if name not in found}
    for name, fault in sorted(found.items()):
        if fault:
            yield f"{name} {fault}, and {expected.get(name, 'nothing')} in the headers"
    converting = {}
    for struct, field in fields(headers):
        if struct not in converting:
            converting[struct] = [part for part in binding.parts if binding.converts(part, struct)]
        parts = binding.files if field in SET_BY_CALLERS else converting[struct]
        if not any(binding.has(part, field) for part in parts):
            lacking.add(f"{struct}.{field}")
    for name in sorted(lacking):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in listed):
            yield f"{name} has no counterpart: add it, or the line to without-counterpart.txt:\n    {name} not bound yet"
    for pattern in listed:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in lacking):
            yield f"without-counterpart.txt lists {pattern}, which has a counterpart or does not exist; remove the line"


def check_the_check(headers, binding, listed):
    """Each kind of fault has to be found before the check may report that there is none."""
    samples = {
        "KVMEM_COLOUR_RED has no": (headers + "\n#define KVMEM_COLOUR_RED 1\n", listed),
        "kvmem_disk_options.colour has no": (headers.replace("} kvmem_disk_options;", "    int colour;\n} kvmem_disk_options;"), listed),
        "without-counterpart.txt lists KVMEM_TIER_DISK": (headers, [*listed, "KVMEM_TIER_DISK"]),
    }
    if isinstance(binding, (Zig, Python)):
        samples["KVMEM_TIER_DISK is 2 in Tier, and 9"] = (re.sub(r"(#define KVMEM_TIER_DISK) 2", r"\1 9", headers), listed)
    else:
        samples["KVMEM_TIER_DISK is called TierSystem"] = (headers, listed)
        binding = copy.copy(binding)
        binding.text = binding.text.replace("TierSystem Tier = C.KVMEM_TIER_SYSTEM", "TierSystem Tier = C.KVMEM_TIER_DISK")
    for expected, (text, lines) in samples.items():
        if not any(fault.startswith(expected) for fault in faults(text, binding, lines)):
            sys.exit(f"values.py does not find: {expected}")


def main():
    include, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    headers = "\n".join(comments_before(path.read_text()) for path in sorted(include.rglob("*.h")))
    binding = Zig(folder) if (folder / "build.zig").exists() else Python(folder) if (folder / "pyproject.toml").exists() else Go(folder)
    listed = LISTED.findall((folder / "without-counterpart.txt").read_text())
    check_the_check(headers, binding, listed)
    if found := list(faults(headers, binding, listed)):
        sys.exit("\n".join(found))
    print(f"{folder.name}: {len(constants(headers))} constants and {len(list(fields(headers)))} fields have a counterpart, or a reason")


if __name__ == "__main__":
    main()

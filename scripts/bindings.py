#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from the headers for C alone.

bindings.py                       the constants for C++, Go, Zig, Python and the conformance tables, and the listing of the binary interface (abi.py), which are committed
bindings.py --check               fails if a committed file differs, or the binary interface has changed under the same number
bindings.py cffi OUT               writes the declarations for cffi as a module of Python, for a build
bindings.py calls KIND OUT FILE... writes the simple calls that no FILE makes, as C or C++, for a build: KIND is contract,
                                  fuzz, conformance-c or conformance-cpp

GROUPS names the type of each group of constants; a new group needs a line there, a new constant needs nothing. A call is simple if it has an object, then at most one array of ids,
then numbers, then at most one output that is a number, a struct of numbers or an array of numbers. Other calls are written by hand, and a build fails if a function has neither."""

import pathlib
import re
import sys
import textwrap

import abi

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTICE = "Generated from the headers by scripts/bindings.py; do not edit."

# The first constant of a group: its prefix, the type of the bindings, and its meaning. Types in Flags have bits. `zero` is
# the name of 0 in C++ if it is the default and no constant.
GROUPS = {
    "STATUS_OK": None,
    "VERSION_MAJOR": None,
    "ABI_VERSION": None,
    "TIMEOUT_FOREVER": None,
    "VMM_ANY_DEVICE": None,
    "LOG_OFF": ("LOG_", "LogLevel", "Importance of a log message."),
    "DOMAIN_NONE": ("DOMAIN_", "Domain", "Library or system that the native cause of an error is from."),
    "TIER_SYSTEM": ("TIER_", "Tier", "Kind of memory of a region."),
    "SYSTEM_TRANSPARENT_HUGE_PAGES": ("SYSTEM_", "SystemFlags", "Flags of SystemOptions."),
    "PINNED_NO_HUGE_PAGES": ("PINNED_", "PinnedFlags", "Flags of PinnedOptions."),
    "ELASTIC_FABRIC": ("ELASTIC_", "ElasticFlags", "Flags of ElasticOptions."),
    "DISK_BUFFERED": ("DISK_", "DiskFlags", "Flags of DiskOptions."),
    "ADOPT_READ_ONLY": ("ADOPT_", "AdoptFlags", "Flags of adopted memory."),
    "ORIGIN_ALLOCATED": ("ORIGIN_", "Origin", "Source of the memory of a region."),
    "REGION_DIRECT_IO": ("REGION_", "RegionFlags", "Properties of a region."),
    "MEMORY_DRAM": ("MEMORY_", "MemoryType", "Type of memory of NIXL."),
    "LAYOUT_ALLOCATE": None,
    "ACCESSOR_RUN": ("ACCESSOR_", "Accessor", "Who accesses a block."),
    "LEASE_WRITES": ("LEASE_", "LeaseFlags", "Flags of LeaseOptions."),
    "LOCALITY_LOCAL": ("LOCALITY_", "Locality", "Processes that can access a layout."),
    "SUBMIT_VERIFY": ("SUBMIT_", "SubmitFlags", "Flags of SubmitOptions."),
    "TRANSFER_ZERO_COPY": ("TRANSFER_", "TransferFlags", "Flags of TransferOptions."),
    "COMPLETION_RUN_ENDED": ("COMPLETION_", "CompletionKind", "What a completion reports."),
    "COMPUTE_MAY_RUN": ("COMPUTE_", "Compute", "Whether kernels of the caller run during a transfer."),
    "METHOD_MEMCPY": ("METHOD_", "Method", "How a transfer moves bytes.", "fastest"),
    "CHOICE_USED": ("CHOICE_", "Choice", "What was decided about a method that was compared."),
    "SERVE_WRITE": ("SERVE_", "ServeFlags", "Flags of ServeOptions."),
    "SHARE_AUTO": ("SHARE_", "Transport", "How a share carries memory."),
    "SHARE_READ_ONLY": ("SHARE_", "ShareFlags", "Flags of ShareOptions."),
    "OPEN_READ_ONLY": ("OPEN_", "OpenFlags", "Flags of OpenOptions."),
    "SHARED_REGION": ("SHARED_", "SharedObject", "Kind of object that is shared."),
    "PUBLISH_READ_ONLY": ("PUBLISH_", "PublishFlags", "Flags of PublishOptions."),
    "FETCH_READ_ONLY": ("FETCH_", "FetchFlags", "Flags of FetchOptions."),
    "DURABILITY_STRICT": ("DURABILITY_", "Durability", "When the blocks of a store survive a loss of power."),
    "EVICTION_STORE": ("EVICTION_", "Eviction", "Who evicts blocks of a store."),
    "STORE_UNRELATED": ("STORE_", "StoreFlags", "Flags of StoreBlocks."),
    "DIRECTION_HOST_TO_HOST": ("DIRECTION_", "Direction", "Between which kinds of memory a run moves bytes."),
    "AGENT_NO_PROGRESS_THREAD": ("AGENT_", "AgentFlags", "Flags of AgentOptions."),
    "NIXL_NOTIFY": ("NIXL_", "NixlFlags", "Flags of NixlOptions."),
    "DIRECTORY_PUBLISHED": ("DIRECTORY_", "DirectoryChange", "What an event of a directory is about."),
    "REQUEST_READ": ("REQUEST_", "Operation", "Direction of a request."),
    "SYNC_DEFAULT": ("SYNC_", "SyncMode", "Lock that NIXL uses for an agent."),
    "POOL_BLOCKS": None,
    "CUDA_VMM": ("CUDA_", "CudaCapabilities", "Capabilities of a GPU and its driver."),
    "RATES_DEFAULT": ("RATES_", "RatesSource", "Source of copy rates."),
    "IPC_FOR_DEVICE": ("IPC_", "IpcFlags", "Flags of IpcOptions."),
    "VMM_DEVICE": ("VMM_", "VmmLocation", "Where VMM memory is located."),
    "VMM_POSIX_FD": ("VMM_", "VmmFlags", "Flags of VmmOptions."),
    "GRANULARITY_MINIMUM": ("GRANULARITY_", "Granularity", "Granularity of VMM memory."),
    "ACCESS_NONE": ("ACCESS_", "Access", "Access of a GPU to a mapping."),
}
# Names of C++ that are not the ones of the table.
CPP_TYPES = {"CudaCapabilities": "DeviceCapability", "SharedObject": "Shared"}
CPP_VALUES = {"default": "standard", "auto": "automatic", "register": "register_memory", "errno": "system"}
ZIG_KEYWORDS = {"error"}
# Words that Go writes in capitals.
GO_WORDS = {word.lower(): word for word in "NUMA NIXL CUDA VMM FD IPC URING DRAM VRAM POSIX RDMA DMA IO ID".split()}
GO_PREFIXES = {"Operation": "Operation"}

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
BLOCK = re.compile(r"((?:^///[^\n]*\n)+)#define KVMEM_(\w+) ([^\s\"]+)\n", re.MULTILINE)
TEXT = re.compile(r"((?:^///[^\n]*\n)+)#define KVMEM_ORDER_(\w+) \"(\S+)\"\n", re.MULTILINE)
STRUCT = re.compile(r"typedef struct (kvmem_\w+) \{(.*?)\n\} ", re.DOTALL)
FIELD = re.compile(r"^ {4}(\w+) (\w+);", re.MULTILINE)
FUNCTION = re.compile(r"^((?:///[^\n]*\n)+)kvmem_status (kvmem_\w+)\(([^)]*)\);", re.MULTILINE)


class Group:
    def __init__(self, row, constants):
        self.prefix, self.type, self.meaning = row[:3]
        self.zero = row[3] if len(row) > 3 else None
        self.constants = constants  # triples: comment, name without KVMEM_, value
        self.has_bits = self.type.endswith("Flags") or self.type == "CudaCapabilities"

    def words(self):
        """Triples: comment, name in lower case without the prefix, the constant."""
        return [(comment, name.removeprefix(self.prefix).lower(), f"KVMEM_{name}", value)
                for comment, name, value in self.constants]


def headers():
    paths = sorted([*(ROOT / "include").glob("*.h"), *(ROOT / "include/kvmem").glob("*.h")])
    return "\n".join(comments_before(path.read_text()) for path in paths)


def comments_before(text):
    """A header with each comment that is behind a constant or field in a line of its own before it."""
    return re.sub(r"^( *)(\S.*?)  ///< (.*)$", r"\1/// \3\n\1\2", text, flags=re.MULTILINE)


def groups(text):
    found = []
    for match in BLOCK.finditer(text):
        comment = " ".join(line.removeprefix("///").strip() for line in match[1].splitlines())
        name, value = match[2], 2**64 - 1 if match[3] == "UINT64_MAX" else int(match[3].strip("()"), 0)
        row = GROUPS[found[-1][0][1]] if found else None
        if name in GROUPS:
            found.append([])
        elif GROUPS[found[-1][0][1]] and not (name.startswith(row[0]) and value > found[-1][-1][2]):
            sys.exit(f"GROUPS of scripts/bindings.py has no line for KVMEM_{name}, which begins a group of constants")
        found[-1].append((comment, name, value))
    rows = {constants[0][1]: constants for constants in found}
    if obsolete := GROUPS.keys() - rows.keys():
        sys.exit(f"no header has {', '.join(sorted(obsolete))}; remove the lines of GROUPS in scripts/bindings.py")
    return [Group(row, rows[name]) for name, row in GROUPS.items() if row]


def orders(text):
    """Triples: comment, name without KVMEM_ORDER_ in lower case, the text."""
    return [(" ".join(line.removeprefix("///").strip() for line in comment.splitlines()), name.lower(), order)
            for comment, name, order in TEXT.findall(text)]


def wrapped(comment, indent, mark):
    return textwrap.indent(textwrap.fill(comment, 100, break_long_words=False, break_on_hyphens=False), f"{indent}{mark} ") + "\n"


def camel(words, go):
    parts = [word for word in re.split(r"_", words) if word]
    return "".join(GO_WORDS.get(part.lower(), part.capitalize()) if go else part.capitalize() for part in parts)


def go_type(group):
    return "".join(GO_WORDS.get(word.lower(), word) for word in re.findall(r"[A-Z][a-z]*", group.type))


def go_name(group, name):
    return camel(f"{group.prefix if group.type != 'Operation' else 'OPERATION_'}{name.removeprefix(group.prefix)}", True)


def renamed(comment, constants, struct):
    """The text of a comment with the names of a language."""
    comment = re.sub(r"KVMEM_(\w+\b)(?!\*)", lambda match: constants.get(match[1], match[0]), comment)
    return re.sub(r"\bkvmem_(\w+)_options\b", lambda match: struct(f"{match[1]}_options"), comment)


def cpp(all_groups):
    text = f"// SPDX-License-Identifier: Apache-2.0\n// {NOTICE}\n/// @file\n/// The constants of C as types. Their comments are in the headers for C.\n"
    text += "#ifndef KVMEM_CONSTANTS_HPP\n#define KVMEM_CONSTANTS_HPP\n\n#include \"../kvmem.h\"\n#include \"cuda.h\"\n#include \"directory.h\"\n#include \"mode.hpp\"\n#include \"nixl_raw.h\"\n#include \"statistics.h\"\n#include \"store.h\"\n\n#include <cstdint>\n\nKVMEM_HPP_BEGIN\n"
    for group in all_groups:
        name = CPP_TYPES.get(group.type, re.sub("Flags$", "Flag", group.type))
        text += f"\n/// {group.meaning}\nenum class {name} : std::uint{64 if group.has_bits else 32}_t {{\n"
        if group.zero:
            text += f"    {group.zero} = 0,\n"
        for _, word, constant, _ in group.words():
            text += f"    {CPP_VALUES.get(word, word)} = {constant},\n"
        text += "};\n"
    return text + "\nKVMEM_HPP_END\n\n#endif\n"


def go(all_groups):
    names = {name: go_name(group, name) for group in all_groups for _, name, _ in group.constants}
    text = f"// SPDX-License-Identifier: Apache-2.0\n// Code {NOTICE[0].lower()}{NOTICE[1:].replace('; do not edit', '. DO NOT EDIT')}\n"
    text += "\npackage kvmem\n\n// #include \"shim.h\"\nimport \"C\"\n"
    for group in all_groups:
        name = go_type(group)
        text += f"\n// {name}: {renamed(group.meaning, {}, str)[0].lower()}{group.meaning[1:]}\n".replace(": nIXL", ": NIXL")
        text += f"type {name} uint{64 if group.has_bits else 32}\n\nconst (\n"
        for comment, constant, _ in group.constants:
            text += wrapped(renamed(comment, names, lambda struct: camel(struct, True)), "\t", "//")
            text += f"\t{names[constant]} {name} = C.KVMEM_{constant}\n"
        text += ")\n"
    text += "\n// Orders of the layouts of NVIDIA Dynamo's KVBM, for LayoutConfig.\nconst (\n"
    for comment, name, _ in orders(headers()):
        text += wrapped(comment, "\t", "//") + f"\tOrder{camel(name, True)} = C.KVMEM_ORDER_{name.upper()}\n"
    return text + ")\n"


def zig(all_groups):
    text = f"// SPDX-License-Identifier: Apache-2.0\n//! {NOTICE}\n"
    text += "//! Constants of the headers: flags are packed structs, other constants are enumerations that may get more values.\n"
    others = {name: f"`{group.type}.{name.removeprefix(group.prefix).lower()}`" for group in all_groups for _, name, _ in group.constants}
    for group in all_groups:
        names = others | {name: f"`{name.removeprefix(group.prefix).lower()}`" for _, name, _ in group.constants}
        text += f"\n/// {group.meaning}\npub const {group.type} = "
        comments = {word: wrapped(renamed(comment, names, lambda struct: camel(struct, False)), "    ", "///")
                    for comment, word, _, _ in group.words()}
        if group.has_bits:
            text += "packed struct(u64) {\n"
            for bit, (_, word, constant, value) in enumerate(group.words()):
                if value != 1 << bit:
                    sys.exit(f"{constant} is not bit {bit} of its group")
                text += f"{comments[word]}    {word}: bool = false,\n"
            text += f"    _: u{64 - len(group.constants)} = 0,\n}};\n"
        else:
            text += "enum(u32) {\n"
            if all(value != 0 for _, _, value in group.constants):
                text += "    /// The default of the library.\n    default = 0,\n"
            for _, word, _, value in group.words():
                shown = f'@"{word}"' if word in ZIG_KEYWORDS or word[0].isdigit() else word
                text += f"{comments[word]}    {shown} = {value},\n"
            text += "    _,\n};\n"
    text += "\n/// Orders of the layouts of NVIDIA Dynamo's KVBM.\npub const order = struct {\n"
    for comment, name, order in orders(headers()):
        text += wrapped(comment, "    ", "///") + f'    pub const {name} = "{order}";\n'
    return text + "};\n"


def zig_test(all_groups):
    """The prefixes, for the test that compares the values with those of C."""
    rows = "".join(f'    .{{ "{group.type}", "{group.prefix}" }},\n' for group in all_groups)
    return f"// SPDX-License-Identifier: Apache-2.0\n//! {NOTICE}\n\n/// The types of `constants`, and the prefix of their constants in the headers.\npub const types = .{{\n{rows}}};\n"


def list_name(group):
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", group.type).lower()
    if group.has_bits:
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def words_c(all_groups):
    text = f"/* SPDX-License-Identifier: Apache-2.0 */\n/* {NOTICE}\n * For the runners in C and C++: the words of the tables, from the constants of the headers. */\n"
    text += "#ifndef WORDS_H\n#define WORDS_H\n\n#include <kvmem.h>\n#include <kvmem/cuda.h>\n#include <kvmem/directory.h>\n#include <kvmem/nixl_raw.h>\n#include <kvmem/statistics.h>\n#include <kvmem/store.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
    text += "/* A word and the constant that it stands for. Lists end with {NULL, 0}. */\nstruct word {\n    const char *text;\n    uint64_t value;\n};\n"
    for group in all_groups:
        rows = "".join(f'    {{"{word}", {constant}}},\n' for _, word, constant, _ in group.words())
        text += f"\nstatic const struct word {list_name(group)}[] = {{\n{rows}    {{NULL, 0}},\n}};\n"
    return text + "\n#endif\n"


def words_go(all_groups):
    text = f"// SPDX-License-Identifier: Apache-2.0\n// Code {NOTICE[0].lower()}{NOTICE[1:].replace('; do not edit', '. DO NOT EDIT')}\n\npackage main\n\nimport kvmem \"kvmem/bindings/go\"\n\ntype words = map[string]uint64\n"
    for group in all_groups:
        name = list_name(group)
        name = name[0] + "".join(part.capitalize() for part in name.split("_"))[1:]
        keys = [f'"{word}":' for _, word, _, _ in group.words()]
        width = max(map(len, keys))
        rows = "".join(f'\t{key:<{width}} uint64(kvmem.{go_name(group, constant.removeprefix("KVMEM_"))}),\n'
                       for key, (_, _, constant, _) in zip(keys, group.words()))
        text += f"\nvar {name} = words{{\n{rows}}}\n"
    return text


class Call:
    """A function whose arguments are an object, at most one array of ids, numbers, and at most one output. `listed` is the word
    of the tables for an output that is an array: of as many numbers as ids, or else with its capacity and count."""

    def __init__(self, name, noun, ids, numbers, output, fields, listed, may_be_null):
        self.name, self.noun, self.ids, self.numbers, self.output, self.fields = name, noun, ids, numbers, output, fields
        self.listed, self.may_be_null = listed, may_be_null
        self.key = name.removeprefix("kvmem_")
        self.method = self.key.removeprefix(f"{noun}_").removeprefix("get_")


def simple_calls(text):
    structs = {name: FIELD.findall(body) for name, body in STRUCT.findall(text)
               if not re.sub(r"^ {4}(u?int\d+_t|size_t) \w+;", "", COMMENT.sub("", body), flags=re.MULTILINE).strip()}
    numbers = {"uint64_t", "uint32_t", "int32_t", "size_t"}
    for comment, name, parameters in FUNCTION.findall(text):
        words = [re.match(r"(const )?(\w+) (\**)(\w+)$", " ".join(part.split())) for part in parameters.split(",")]
        if not all(words) or words[-1][2] != "kvmem_error" or words[0][3] != "*":
            continue
        rest, output, noun, ids, listed = words[1:-1], None, words[0][2].removeprefix("kvmem_"), None, None
        if len(rest) > 2 and rest[0][0].startswith("const uint32_t *") and rest[1][4] == f"num_{rest[0][4]}":
            ids, listed, rest = rest[0][4], name.rpartition("_")[2], rest[2:]
        elif len(rest) == 3 and [word[4] for word in rest[1:]] == ["capacity", "count"] and rest[0][2] in numbers:
            listed, rest = name.rpartition("_")[2], rest[:1]
        if rest and rest[-1][3] == "*" and not rest[-1][1] and rest[-1][2] in numbers | structs.keys():
            output = rest.pop()
        if name.startswith(f"kvmem_{noun}_") and all(not word[3] and word[2] in numbers for word in rest):
            fields = [field for _, field in structs[output[2]]] if output and output[2] in structs else None
            yield Call(name, noun, ids, [(word[2], word[4]) for word in rest], output and output[2], fields, listed if output else None,
                       output and re.search(rf"@param {output[4]} [^@]*may be NULL", comment) is not None)


def contract(calls):
    """NULL for each pointer, and handles of a parent in a forked child, with the objects of the world of contract.h."""
    objects = {"region": "region", "layout": "local.layout", "transfer": "copy", "queue": "queue", "agent": "agent",
               "registration": "registration", "lease": "lease"}
    nulls, forked = "", ""
    for call in calls:
        if call.noun not in objects:
            continue
        yield call
        zeros, this = ", 0" * len(call.numbers), f"w.{objects[call.noun]}"
        if call.ids:
            declared = f"        const uint32_t id = 0;\n        {call.output} output;\n"
            nulls += f"    {{\n{declared}        INVALID_KEEPS(output, {call.name}, NULL, &id, 1{zeros}, &output);\n"
            nulls += f"        INVALID_KEEPS(output, {call.name}, {this}, NULL, 1{zeros}, &output);\n"
            nulls += "    }\n" if call.may_be_null else f"        INVALID({call.name}, {this}, &id, 1{zeros}, NULL);\n    }}\n"
            forked += f"    {{\n{declared}        FORKED_KEEPS(output, {call.name}, {this}, &id, 1{zeros}, &output);\n    }}\n"
        elif call.listed:
            declared = f"        {call.output} output[2];\n        size_t count;\n"
            nulls += f"    {{\n{declared}        INVALID_KEEPS(output, {call.name}, NULL, output, 2, &count);\n"
            nulls += f"        INVALID_KEEPS(count, {call.name}, {this}, NULL, 2, &count);\n"
            nulls += f"        INVALID({call.name}, {this}, output, 2, NULL);\n    }}\n"
            forked += f"    {{\n{declared}        FORKED_KEEPS(output, {call.name}, {this}, output, 2, &count);\n    }}\n"
        elif call.output:
            declared = f"        {call.output} output;\n"
            nulls += f"    {{\n{declared}        INVALID_KEEPS(output, {call.name}, NULL{zeros}, &output);\n"
            nulls += "    }\n" if call.may_be_null else f"        INVALID({call.name}, {this}{zeros}, NULL);\n    }}\n"
            forked += f"    {{\n{declared}        FORKED_KEEPS(output, {call.name}, {this}{zeros}, &output);\n    }}\n"
        else:
            nulls += f"    INVALID({call.name}, NULL{zeros});\n"
            forked += f"    FORKED({call.name}, {this}{zeros});\n"
    return f"#ifdef WITH_NULL\nstatic void simple_calls(void) {{\n{nulls}}}\n#else\nstatic void simple_calls(void) {{\n{forked}}}\n#endif\n"


def fuzz(calls):
    text, rows = '#include "options.h"\n#include "table.h"\n\n', ""
    for call in calls:
        if call.noun not in {"region", "layout", "transfer", "queue", "share", "broker", "agent", "registration", "request", "lease"}:
            continue
        yield call
        kind = f"{call.noun.upper()}S"
        numbers = "".join(", " + ("random_timeout(fuzz)" if "timeout" in name else "random_device(fuzz)" if type == "int32_t" else
                                  f"({type})random_index(fuzz, 4)") for type, name in call.numbers)
        text += f"static void {call.key}(fuzz *fuzz) {{\n"
        if call.output:
            text += f"    {call.output} output{'[6]' if call.listed else ''};\n"
        if call.ids:
            text += "    uint32_t ids[COUNT_OF(output)];\n"
            text += "    for (size_t i = 0; i < COUNT_OF(ids); i++) ids[i] = (uint32_t)random_index(fuzz, 6);\n"
            numbers = f", or_null(fuzz, ids), random_below(fuzz, COUNT_OF(ids) + 1){numbers}, or_null(fuzz, output)"
        elif call.listed:
            text += "    size_t count;\n"
            numbers += ", or_null(fuzz, output), random_below(fuzz, COUNT_OF(output) + 1), or_null(fuzz, &count)"
        elif call.output:
            numbers += ", or_null(fuzz, &output)"
        text += f"    void *handle = table_pick(fuzz, {kind});\n"
        text += f"    TRY(fuzz, {call.name}, handle{numbers});\n}}\n\n"
        rows += f"    OPERATION_WITH(2, {call.key}, BIT({kind}), 0),\n"
    return f"{text}const operation simple_operations[] = {{\n{rows}    {{0}},\n}};\n"


def conformance_c(calls):
    text, rows = '#include "calls.h"\n\n', ""
    for call in calls:
        yield call
        arguments = f"object(step_name(step), {call.noun.upper()})" + (", ids, count" if call.ids else "")
        arguments += "".join(f", ({type})number_of(step, \"{name}\")" for type, name in call.numbers)
        text += f"static kvmem_status {call.key}(struct step *step, kvmem_error **error)\n{{\n"
        if call.listed:
            text += f"    {call.output} output[MAX_LIST];\n"
            text += f"    uint32_t ids[MAX_LIST];\n    const size_t count = ids_of(step, \"{call.ids}\", ids);\n" if call.ids else "    size_t count = 0;\n"
            arguments += ", output" if call.ids else ", output, MAX_LIST, &count"
            text += f"    const kvmem_status status = {call.name}({arguments}, error);\n    if (status < 0) return status;\n"
            text += f"    add_text(step, \"{call.listed}\", \"\");\n"
            text += "    for (size_t i = 0; i < count; i++) append_number(step, output[i]);\n    return status;\n}\n\n"
        elif call.output:
            text += f"    {call.output} output;\n    const kvmem_status status = {call.name}({arguments}, &output, error);\n"
            shown = "".join(f"    NUMBER(output, {field});\n" for field in call.fields)
            text += f"    if (status < 0) return status;\n{shown}    return status;\n}}\n\n"
        else:
            text += f"    return {call.name}({arguments}, error);\n}}\n\n"
        rows += f'    {{"{call.key}", .run = {call.key}}},\n'
    return f"{text}const struct call simple_calls[] = {{\n{rows}    {{.name = NULL}},\n}};\n"


def conformance_cpp(calls):
    rows = ""
    for call in calls:
        yield call
        numbers = [f"static_cast<std::{type}>(step.number(\"{name}\"))" for type, name in call.numbers]
        numbers = ", ".join([f"ids(step, \"{call.ids}\")", *numbers] if call.ids else numbers)
        called = f"world.get<kvmem::{camel(call.noun, False)}>(step.name()).{call.method}({numbers})"
        rows += f'        {{"{call.key}", []([[maybe_unused]] const Step &step, World &world) -> Results {{\n'
        if call.listed:
            rows += f'             return {{{{"{call.listed}", joined({called})}}}};\n         }}}},\n'
        elif call.output:
            shown = ", ".join(f"NUMBER(output, {field})" for field in call.fields)
            rows += f"             const auto output = {called};\n             return {{{shown}}};\n         }}}},\n"
        else:
            rows += f"             {called};\n             return {{}};\n         }}}},\n"
    return f'#include "calls.hpp"\n\nCalls simple_calls() {{\n    return {{\n{rows}    }};\n}}\n'


def write_calls(kind, output, files):
    """Writes the simple calls of functions that no file names, or all of them for the contract; fails if a function is
    neither simple nor named."""
    text = headers()
    named = set(re.findall(r"\bkvmem_\w+|(?<=\")[a-z_]+(?=\",)", "\n".join(COMMENT.sub("", pathlib.Path(file).read_text()) for file in files)))
    tables = " ".join(path.read_text() for path in (ROOT / "c_tests/conformance/tables").glob("*.table"))
    missing = [call for call in simple_calls(text) if kind == "contract" or not {call.name, call.key} & named]
    if kind.startswith("conformance"):  # of the calls of the tables, those whose results the other languages can name, too
        missing = [call for call in missing if re.search(rf"^{call.key}\b", tables, re.MULTILINE) and (call.fields or call.listed or not call.output)]
    made, generator = set(), {"contract": contract, "fuzz": fuzz, "conformance-c": conformance_c, "conformance-cpp": conformance_cpp}[kind](missing)
    try:
        while True:
            made.add(next(generator).name)
    except StopIteration as stop:
        pathlib.Path(output).write_text(f"// {NOTICE}\n{stop.value}")
    declared = set(re.findall(r"\b(kvmem_[a-z0-9_]+) *\(", COMMENT.sub("", text)))
    if kind in ("contract", "fuzz") and (forgotten := declared - named - made):
        sys.exit(f"no file of {pathlib.Path(files[0]).parent} calls {', '.join(sorted(forgotten))}, and their arguments are more than "
                 "an object, an array of ids and numbers: add a call")


def python(all_groups):
    text = f'# SPDX-License-Identifier: Apache-2.0\n"""Constants of the headers. {NOTICE}"""\n\n'
    text += "from __future__ import annotations\n\nimport enum\n\n\nclass _Open(enum.IntEnum):\n"
    text += '    """An enumeration that may get more values in later versions of the library."""\n\n'
    text += "    @classmethod\n    def _missing_(cls, value: object) -> _Open | None:\n        if not isinstance(value, int):\n            return None\n"
    text += '        member = int.__new__(cls, value)\n        member._name_, member._value_ = f"UNKNOWN_{value}", value\n        return member\n'
    plain, statuses = [], []
    for match in BLOCK.finditer(headers()):
        comment = " ".join(line.removeprefix("///").strip() for line in match[1].splitlines())
        if match[2].startswith("STATUS_"):
            statuses.append((comment, match[2], match[3].strip("()")))
        elif match[2].startswith(("LAYOUT_", "POOL_")):
            plain.append(f"{match[2]} = {match[3]}\n")
    names = {name: f"{group.type}.{python_word(group, name)}" for group in all_groups for _, name, _ in group.constants}
    names |= {name: f"Status.{name.removeprefix('STATUS_')}" for _, name, _ in statuses}
    shown = lambda comment: renamed(comment, names, lambda struct: camel(struct, False))
    rows = [("Status", "_Open", "Result of a call or a run.", [(c, name.removeprefix("STATUS_"), value) for c, name, value in statuses])]
    rows += [(group.type, "enum.IntFlag" if group.has_bits else "_Open", group.meaning,
              [(comment, python_word(group, name), value) for comment, name, value in group.constants]) for group in all_groups]
    for name, base, meaning, members in rows:
        text += f'\n\nclass {name}({base}):\n    """{shown(meaning)}"""\n\n'
        for comment, word, value in members:
            text += f"    {word} = {value}\n"
            text += textwrap.indent(textwrap.fill(f'"""{shown(comment)}"""', 115, break_long_words=False, break_on_hyphens=False), "    ") + "\n"
    text += '\n\nclass Order:\n    """Orders of the layouts of NVIDIA Dynamo\'s KVBM."""\n\n'
    for comment, name, order in orders(headers()):
        text += f'    {name.upper()} = "{order}"\n' + textwrap.indent(textwrap.fill(f'"""{comment}"""', 115), "    ") + "\n"
    return text + "\n\n" + "".join(plain)


def python_versions(_):
    """Apart from the other constants, so that the import of the package need not create their types."""
    found = dict(re.findall(r"^#define KVMEM_((?:ABI_)?VERSION\w*|VERSION_\w+) (\d+)$", headers(), re.MULTILINE))
    text = f'# SPDX-License-Identifier: Apache-2.0\n"""Versions of the headers. {NOTICE}"""\n\n'
    return text + f'ABI_VERSION = {found["ABI_VERSION"]}\n'


def python_word(group, name):
    word = name.removeprefix(group.prefix)
    return f"_{word}" if word[0].isdigit() else word


def declarations():
    """The headers for cffi, each after those that it includes, without comments and what is for the preprocessor."""
    found = {}

    def add(path):
        if path not in found:
            text = path.read_text()
            for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
                add((path.parent / included).resolve())
            found[path] = re.sub(r'^#ifdef __cplusplus\n.*?^#endif', "", COMMENT.sub("", text), flags=re.MULTILINE | re.DOTALL)

    for path in [ROOT / "include/kvmem.h", *sorted((ROOT / "include/kvmem").glob("*.h"))]:
        add(path)
    return "\n".join(line for text in found.values() for line in text.splitlines() if line.strip() and not line.startswith("#"))


OUTPUTS = {
    "bindings/python/src/kvmem/_constants.py": python,
    "bindings/python/src/kvmem/_versions.py": python_versions,
    "include/kvmem/constants.hpp": cpp,
    "bindings/go/constants.go": go,
    "bindings/zig/src/constants.zig": zig,
    "bindings/zig/src/test/types.zig": zig_test,
    "c_tests/conformance/words.h": words_c,
    "c_tests/conformance/go/words.go": words_go,
}


def write_files(checks):
    all_groups = groups(headers())
    abi.update(ROOT / "src/ffi/abi.txt", headers(), checks)
    for path, make in OUTPUTS.items():
        text, file = make(all_groups), ROOT / path
        if checks and (not file.exists() or file.read_text() != text):
            sys.exit(f"{path} differs from the headers; run `make header`")
        if not checks:
            file.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["calls"]:
        write_calls(sys.argv[2], sys.argv[3], sys.argv[4:])
    elif sys.argv[1:2] == ["cffi"]:
        import cffi

        builder = cffi.FFI()
        builder.cdef(declarations())
        builder.cdef("int sem_init(void *, int, unsigned); int sem_post(void *); int sem_trywait(void *);")
        builder.set_source("kvmem._ffi", None)
        builder.emit_python_code(sys.argv[2])
    else:
        write_files("--check" in sys.argv[1:])

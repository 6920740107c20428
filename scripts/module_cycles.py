#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds import cycles between the files of src/, and dependencies between its folders that point up.

A file depends on another if its code, tests excepted, names something that the other defines: in a `use` declaration or
in a path that begins with `crate::`, `super::`, `self::` or a child module. A name that a module re-exports counts as a
dependency on the file that defines it, and on the module if it contains code of its own. So a folder's mod.rs may
re-export what its files define, but its files use each other by their own names.

Files that depend on each other, directly or through others, are a cycle. CONTRIBUTING.md lists the cycles that remain
and their reasons; the check fails for any other. An entry of the list names the files of a cycle, or folders of files.
CONTRIBUTING.md also has the order of the folders, and lists the dependencies against it that remain: `src/a.rs` on `src/b.rs`.

    scripts/module_cycles.py             check
    scripts/module_cycles.py --edges     also print, for each cycle, the dependencies that make it
    scripts/module_cycles.py --folders   also print the lines of each folder, and the number of dependencies between folders
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = ROOT / "CONTRIBUTING.md"
HEADING = "Import cycles that remain"
UPWARDS = "Dependencies upwards that remain"
ORDER = "**Dependencies point down only**"

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL
)
USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
INLINE = re.compile(r"\bmod (\w+)\s*\{")
# What a module may contain that only re-exports.
DECLARATION = re.compile(r"#!?\[[^\]]*\]|\b(?:pub(?:\([^)]*\))?\s+)?mod \w+;")
PATH = re.compile(r"(?<![\w:])((?:crate|super|self|[a-z_][a-z0-9_]*)(?:::\w+)+)")


def block_end(code, start):
    """The index behind the brace that closes the first one at or after `start`."""
    depth = 0
    for index in range(code.index("{", start), len(code)):
        if code[index] == "{":
            depth += 1
        elif code[index] == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    raise ValueError("unbalanced braces")


def without_tests(code):
    """Removes every item marked #[cfg(test)]."""
    while (found := code.find("#[cfg(test)]")) >= 0:
        semicolon, brace = (position if position >= 0 else len(code)
                            for position in (code.find(";", found), code.find("{", found)))
        end = semicolon + 1 if semicolon < brace else block_end(code, found)
        code = code[:found] + code[end:]
    return code


def leaves(tree):
    """The paths of a use tree, each with the name that it gets."""
    tree = " ".join(tree.split())
    brace = tree.find("{")
    if brace < 0:
        path, _, name = tree.partition(" as ")
        parts = path.strip().split("::")
        if parts[-1] == "self" and len(parts) > 1:
            parts.pop()
        yield parts, name.strip() or parts[-1]
        return
    prefix = [part for part in tree[:brace].strip().split("::") if part]
    depth, item = 0, ""
    for character in tree[brace + 1:tree.rindex("}")] + ",":
        if character == "," and depth == 0:
            if item.strip():
                for parts, name in leaves(item):
                    path = prefix + (parts if parts != ["self"] else [])
                    yield path, path[-1] if name == "self" else name
            item = ""
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        item += character


class Module:
    """A file of src/, named by its path of modules."""

    def __init__(self, path):
        relative = path.relative_to(SOURCE).with_suffix("").parts
        self.file = str(path.relative_to(ROOT))
        self.name = () if relative in (("lib",), ("build",)) else relative
        self.name = self.name[:-1] if self.name and self.name[-1] == "mod" else self.name
        code = COMMENT_OR_STRING.sub(" ", path.read_text())
        self.code = without_tests(code)
        self.lines = len(path.read_text().splitlines())
        self.only_exports = not DECLARATION.sub(" ", USE.sub(" ", self.code)).strip()
        self.exports = {}
        # Paths, each with the inline modules that it is in.
        self.uses = []
        inline = [(found[1], found.start(), block_end(self.code, found.start())) for found in INLINE.finditer(self.code)]

        def within(position):
            return tuple(name for name, start, end in inline if start < position < end)

        for found in USE.finditer(self.code):
            for parts, name in leaves(found[2]):
                if found[1] and not within(found.start()):
                    self.exports[name] = parts
                else:
                    self.uses.append((within(found.start()), parts))
        code = USE.sub(lambda found: " " * len(found[0]), self.code)
        self.uses += [(within(found.start()), found[1].split("::")) for found in PATH.finditer(code)]


def is_test(path):
    return path.name in ("tests.rs", "models.rs", "modelled.rs") or "tests" in path.parts or path == SOURCE / "build.rs"


class Graph:
    def __init__(self):
        modules = [Module(path) for path in sorted(SOURCE.rglob("*.rs")) if not is_test(path)]
        self.modules = {module.name: module for module in modules}
        self.edges = {module.name: {} for module in modules}
        for module in modules:
            for inline, parts in module.uses:
                for target in self.resolve(module.name, parts, inline):
                    if target != module.name:
                        self.edges[module.name].setdefault(target, set()).add("::".join(parts))

    def resolve(self, base, parts, inline=(), seen=frozenset()):
        """The module that defines what a path in the file of `base` names, and those with code that re-export it; none for
        other crates."""
        parts = list(parts)
        name = base + inline
        if parts[0] == "crate":
            name, parts = (), parts[1:]
        elif parts[0] in ("super", "self"):
            while parts and parts[0] in ("super", "self"):
                name = name[:-1] if parts.pop(0) == "super" else name
            if len(name) > len(base):
                return []
        elif base + (parts[0],) not in self.modules:
            return []
        while parts and name + (parts[0],) in self.modules:
            name, parts = name + (parts[0],), parts[1:]
        exported = parts and self.modules[name].exports.get(parts[0])
        if exported and (name, parts[0]) not in seen:
            seen = seen | {(name, parts[0])}
            defining = self.resolve(name, exported + parts[1:], (), seen)
            return [target for target in [name] if name and not self.modules[name].only_exports] + defining
        return [name] if name else []

    def cycles(self):
        """Tarjan's strongly connected components of more than one module."""
        index, low, stack, found = {}, {}, [], []

        def visit(module):
            index[module] = low[module] = len(index)
            stack.append(module)
            for target in self.edges[module]:
                if target not in index:
                    visit(target)
                    low[module] = min(low[module], low[target])
                elif target in stack:
                    low[module] = min(low[module], index[target])
            if low[module] == index[module]:
                component = stack[stack.index(module):]
                del stack[stack.index(module):]
                if len(component) > 1:
                    found.append(tuple(sorted(self.modules[member].file for member in component)))

        sys.setrecursionlimit(10_000)
        for module in self.edges:
            if module not in index:
                visit(module)
        return sorted(found)

    def print_edges(self, cycle):
        for name, targets in self.edges.items():
            for target, paths in targets.items():
                files = self.modules[name].file, self.modules[target].file
                if all(file in cycle for file in files):
                    print(f"    {files[0]} -> {files[1]}: {', '.join(sorted(paths))}")


    def between_folders(self):
        """The dependencies between the folders of src/: for each pair, those of its files."""
        found = {}
        for name, targets in self.edges.items():
            for target in targets:
                if name and name[0] != target[0]:
                    found.setdefault((name[0], target[0]), []).append((self.modules[name].file, self.modules[target].file))
        return found

    def print_folders(self, order):
        for folder in order:
            lines = sum(len(path.read_text().splitlines()) for path in (SOURCE / folder).rglob("*.rs"))
            uses = {to: len(files) for (of, to), files in sorted(self.between_folders().items()) if of == folder}
            print(f"{folder}: {lines} lines, uses {', '.join(f'{to} ({count})' for to, count in uses.items()) or 'nothing'}")


def upwards(graph, order):
    """Dependencies that are against the order, or of a folder that the order does not name."""
    for (of, to), files in sorted(graph.between_folders().items()):
        for folder in (of, to):
            if folder not in order:
                sys.exit(f"src/{folder} is not in the order of folders in {PAGE.name}")
        if order.index(of) > order.index(to):
            yield from files


def order_of_folders():
    """The folders in the order of CONTRIBUTING.md, the highest first."""
    paragraph = PAGE.read_text().split(ORDER, 1)[1].split(". ", 1)[0]
    return re.findall(r"`(\w+)`", paragraph)


def section(heading):
    """The text of CONTRIBUTING.md under a heading, up to the next heading of any level; empty if there is none."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def listed(heading):
    """The entries of CONTRIBUTING.md: each begins with its files and folders, up to a colon."""
    items = re.split(r"^- ", section(heading), flags=re.MULTILINE)[1:]
    return [tuple(re.findall(r"`(src/[^`]+)`", item.split(":", 1)[0])) for item in items]


def is_in(cycle, entry):
    """Whether the entry names all files of the cycle."""
    return all(any(file == path or path.endswith("/") and file.startswith(path) for path in entry) for file in cycle)


def main():
    graph = Graph()
    order = order_of_folders()
    if "--folders" in sys.argv:
        graph.print_folders(order)
    reasons = listed(UPWARDS)
    against = list(upwards(graph, order))
    up = [files for files in against if files not in reasons]
    for files in up:
        print(f"{files[0]} depends on {files[1]}, which is above it")
    for entry in reasons:
        if entry not in against:
            print(f"note: {PAGE.name} explains a dependency upwards that no longer exists: {' on '.join(entry)}")
    cycles, entries = graph.cycles(), listed(HEADING)
    new = [cycle for cycle in cycles if not any(is_in(cycle, entry) for entry in entries)]
    for cycle in cycles if "--edges" in sys.argv else new:
        print(f"cycle of {len(cycle)} files: {', '.join(cycle)}")
        graph.print_edges(cycle)
    for entry in entries:
        if not any(is_in(cycle, entry) for cycle in cycles):
            print(f"note: {PAGE.name} explains a cycle that no longer exists: {', '.join(entry)}")
    if up:
        sys.exit(f"turn these dependencies round, or give their reason under '{UPWARDS}' in {PAGE.name}")
    if new:
        sys.exit(f"break these cycles, or give their reason under '{HEADING}' in {PAGE.name}")


if __name__ == "__main__":
    main()

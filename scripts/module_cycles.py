#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds import cycles between the files of src/.

A file depends on another if its code, tests excepted, names something that the other defines: in a `use` declaration or
in a path that begins with `crate::`, `super::`, `self::` or a child module. A name that a module only re-exports counts
as a dependency on the file that defines it, so a folder's mod.rs may re-export what its files define.

Files that depend on each other, directly or through others, are a cycle. CONTRIBUTING.md lists the cycles that remain
and their reasons; the check fails for any other. An entry of the list names the files of a cycle, or folders of files.

    scripts/module_cycles.py             check
    scripts/module_cycles.py --edges     also print, for each cycle, the dependencies that make it
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = ROOT / "CONTRIBUTING.md"
HEADING = "## Import cycles that remain"

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL
)
USE = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
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
        self.exports = {}
        self.uses = []
        for public, tree in USE.findall(self.code):
            for parts, name in leaves(tree):
                if public:
                    self.exports[name] = parts
                else:
                    self.uses.append(parts)
        self.uses += [path.split("::") for path in PATH.findall(USE.sub(" ", self.code))]


def is_test(path):
    return path.name == "tests.rs" or "tests" in path.parts or path == SOURCE / "build.rs"


class Graph:
    def __init__(self):
        modules = [Module(path) for path in sorted(SOURCE.rglob("*.rs")) if not is_test(path)]
        self.modules = {module.name: module for module in modules}
        self.edges = {module.name: {} for module in modules}
        for module in modules:
            for parts in module.uses:
                target = self.resolve(module.name, parts)
                if target and target != module.name:
                    self.edges[module.name].setdefault(target, set()).add("::".join(parts))

    def resolve(self, base, parts, seen=frozenset()):
        """The module that defines what a path in the file of `base` names; None for other crates."""
        parts = list(parts)
        name = base
        if parts[0] == "crate":
            name, parts = (), parts[1:]
        elif parts[0] in ("super", "self"):
            while parts and parts[0] in ("super", "self"):
                name = name[:-1] if parts.pop(0) == "super" else name
        elif base + (parts[0],) not in self.modules:
            return None
        while parts and name + (parts[0],) in self.modules:
            name, parts = name + (parts[0],), parts[1:]
        exported = parts and self.modules[name].exports.get(parts[0])
        if exported and (name, parts[0]) not in seen:
            seen = seen | {(name, parts[0])}
            return self.resolve(name, exported + parts[1:], seen) or name
        return name if name else None

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


def listed():
    """The entries of CONTRIBUTING.md: each begins with its files and folders, up to a colon."""
    page = PAGE.read_text()
    if HEADING not in page:
        return []
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    items = re.split(r"^- ", section, flags=re.MULTILINE)[1:]
    return [tuple(re.findall(r"`(src/[^`]+)`", item.split(":", 1)[0])) for item in items]


def is_in(cycle, entry):
    """Whether the entry names all files of the cycle."""
    return all(any(file == path or path.endswith("/") and file.startswith(path) for path in entry) for file in cycle)


def main():
    graph = Graph()
    cycles, entries = graph.cycles(), listed()
    new = [cycle for cycle in cycles if not any(is_in(cycle, entry) for entry in entries)]
    for cycle in cycles if "--edges" in sys.argv else new:
        print(f"cycle of {len(cycle)} files: {', '.join(cycle)}")
        graph.print_edges(cycle)
    for entry in entries:
        if not any(is_in(cycle, entry) for cycle in cycles):
            print(f"note: {PAGE.name} explains a cycle that no longer exists: {', '.join(entry)}")
    if new:
        sys.exit(f"break these cycles, or give their reason under '{HEADING}' in {PAGE.name}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the licences of everything that is linked into libkvmem.so and libkvmem_etcd.so.

    licences.py OUTPUT

A crate is listed if it is a normal dependency for this platform. Procedural macros and their own dependencies run in the
compiler, so they are not in the libraries. Fails if a crate has no licence, or one that ALLOWED does not contain.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Each permits redistributing binaries together with the licence text.
ALLOWED = {"Apache-2.0", "MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "BlueOak-1.0.0", "Unicode-3.0", "Zlib"}
TEXT_FILES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
RULE = "=" * 100
LIBRARIES = {"libkvmem.so": ROOT, "libkvmem_etcd.so, the client of etcd": ROOT / "etcd"}


def run(*command, folder=ROOT):
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked_crates(folder):
    """Returns the packages that end up in the library of a folder, by name."""
    host = re.search(r"^host: (.*)$", run("rustc", "--version", "--verbose"), re.MULTILINE).group(1)
    metadata = json.loads(run(os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1",
                              "--filter-platform", host, folder=folder))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, left = set(), [metadata["resolve"]["root"]]
    while left:
        current = left.pop()
        if current in found or is_macro(packages[current]):
            continue
        found.add(current)
        left += [dependency["pkg"] for dependency in nodes[current]["deps"]
                 if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
    found.remove(metadata["resolve"]["root"])
    return sorted((packages[each] for each in found), key=lambda package: (package["name"], package["version"]))


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def check_licence(package):
    """Returns the licence's expression. Each part that is joined by AND must offer an allowed licence."""
    expression = package["license"]
    if not expression:
        sys.exit(f"{package['name']} {package['version']} names no licence in its Cargo.toml")
    for part in expression.replace("(", "").replace(")", "").split(" AND "):
        offered = {choice.strip() for choice in re.split(r" OR |/", part)}
        if not offered & ALLOWED:
            sys.exit(f"{package['name']} {package['version']} is under {expression}; read that licence, and allow it "
                     f"in scripts/licences.py if it lets binaries be passed on")
    return expression


def texts(package):
    """Returns the licence files of a crate, or the copyright lines of its sources, or its authors, if it has none."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and TEXT_FILES.match(path.name))
    if files:
        return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]
    notices = set()
    for path in folder.rglob("*"):
        if path.suffix in {".rs", ".c", ".cpp", ".h"}:
            notices.update(re.findall(r"SPDX-FileCopyrightText: *(.*)", path.read_text(errors="replace")))
    if not notices and package["authors"]:
        notices = {f"Authors: {', '.join(package['authors'])}"}
    if not notices:
        sys.exit(f"{package['name']} {package['version']} has neither a licence file nor a copyright notice")
    return ["\n".join(sorted(notices)) + "\nIts package has no licence file; the texts of its licences are below."]


def main():
    output = pathlib.Path(sys.argv[1])
    users = {}  # text -> crates, so that each text is printed once
    listing = []
    for library, folder in LIBRARIES.items():
        listing.append(f"{library}:")
        for package in linked_crates(folder):
            name = f"{package['name']} {package['version']}"
            listing.append(f"  {name:32} {check_licence(package)}")
            for text in texts(package):
                names = users.setdefault(" ".join(text.split()), (text, []))[1]
                names += [name] if name not in names else []
    parts = ["Each library contains the Rust standard library (MIT OR Apache-2.0, the Rust project developers) and its "
             "crates\nbelow. Where a crate offers a choice, kvmem uses it under the first of these that it offers: "
             "Apache-2.0, MIT.\nThe text of Apache-2.0 is also in LICENSE.\n", "\n".join(listing), ""]
    for text, names in users.values():
        parts += [RULE, ", ".join(names), RULE, text, ""]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()

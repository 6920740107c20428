#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_stubs.py SITE_PACKAGES: compiles stand-ins for the NVIDIA libraries that PyTorch's wheel links and that are not installed.

PyTorch's wheel for Linux is built for CUDA, and its loader wants 1.8 GB of NVIDIA's libraries. Without a GPU nothing calls
them, so libraries of the same names, symbols and versions are enough. Each call returns the error for a missing GPU."""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# What the functions of the CUDA driver and runtime return without a GPU: CUDA_ERROR_NO_DEVICE.
SOURCE = "int kvmem_stand_in(void) { return 100; }\n"


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True).stdout


class Library:
    def __init__(self, path):
        self.needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", readelf("--dynamic", path))
        self.undefined, self.defined = set(), set()
        for line in readelf("--dyn-syms", path).splitlines():
            fields = line.split()
            if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
                continue
            name, _, version = fields[7].partition("@")
            if fields[6] == "UND":
                if fields[4] != "WEAK":
                    self.undefined.add((name, version.lstrip("@")))
            else:
                self.defined.add(name)
        # Which library has which version: "File: libcublas.so.13" is followed by its "Name: libcublas.so.13".
        self.library_of_version, current = {}, ""
        for kind, name in re.findall(r"(File|Name): (\S+)", readelf("--version-info", path)):
            if kind == "File":
                current = name
            else:
                self.library_of_version[name] = current


def compile_library(folder, name, versions, plain):
    """A library that has `plain` without a version, and the symbols of each version."""
    symbols = sorted(plain.union(*versions.values()) if versions else plain)
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stand_in.c"), pathlib.Path(scratch, "versions")
        aliases = "".join(f'int {symbol}(void) __attribute__((alias("kvmem_stand_in")));\n' for symbol in symbols)
        source.write_text(SOURCE + aliases)
        script.write_text("".join(f"{version} {{ global: {' '.join(f'{s};' for s in sorted(found))} }};\n" for version, found in versions.items()))
        options = [f"-Wl,--version-script={script}"] if versions else []
        subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", "-w", f"-Wl,-soname,{name}", *options, "-o", folder / name, source], check=True)


def main():
    site = pathlib.Path(sys.argv[1])
    folder = site / "torch/lib"
    stand_ins = {path.name for path in folder.glob("*.so*") if "kvmem_stand_in" in readelf("--dyn-syms", path)}
    libraries = {path.name: Library(path) for path in folder.glob("*.so*") if path.name not in stand_ins}
    installed = {path.name for path in site.glob("nvidia/**/*.so*")} | set(libraries)
    system = {line.split()[0] for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines()[1:] if line.split()}
    missing = {name for library in libraries.values() for name in library.needed} - installed - system
    missing = {name for name in missing if re.match(r"lib(cu|nv|nccl)", name)}
    defined = set().union(*(library.defined for library in libraries.values()))

    versions = collections.defaultdict(lambda: collections.defaultdict(set))
    plain = collections.defaultdict(set)
    for library in libraries.values():
        mine = missing.intersection(library.needed)
        for name, version in library.undefined:
            if version:
                owner = library.library_of_version.get(version)
                if owner in missing:
                    versions[owner][version].add(name)
            elif name not in defined and re.match(r"(cu|nccl|nv|lib)", name):
                # Without a version, any of these libraries will do.
                for each in mine:
                    plain[each].add(name)
    for name in sorted(missing):
        compile_library(folder, name, versions[name], plain[name])
    print(f"{len(missing)} stand-ins in {folder}: {' '.join(sorted(missing))}")


if __name__ == "__main__":
    main()

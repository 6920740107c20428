#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel.py PREFIX FOLDER: makes the Python wheel from kvmem as it is installed in PREFIX, and writes it to FOLDER.

Its tag has the version of glibc that the libraries need. Run it with a Python that has cffi and setuptools."""

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bindings/python"


def needed_glibc(libraries):
    """The newest version of glibc that a symbol of the libraries has."""
    versions = set()
    for library in libraries:
        symbols = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
        versions |= {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", symbols)}
    return max(versions)


def main():
    prefix, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    libraries = sorted(prefix.glob("lib*/libkvmem.so.*")) + sorted(prefix.glob("lib*/libkvmem_etcd.so.*"))
    libraries = [path for path in libraries if re.fullmatch(r"libkvmem\.so\.\d+|libkvmem_etcd\.so\.\d+\.\d+", path.name)]
    if not any(path.name.startswith("libkvmem.so") for path in libraries):
        sys.exit(f"{prefix} has no libkvmem.so: install kvmem there, or run `make wheel`")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch)
        shutil.copytree(PACKAGE, tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "without-counterpart.txt"))
        inside = tree / "src/kvmem"
        subprocess.run([sys.executable, ROOT / "scripts/bindings.py", "cffi", inside / "_ffi.py"], check=True, stdout=subprocess.DEVNULL)
        (inside / "lib").mkdir()
        for library in libraries:
            shutil.copy(library, inside / "lib" / library.name)
        for name in ("LICENSE", "THIRD-PARTY-LICENSES"):
            shutil.copy(prefix / "share/doc/kvmem" / name, tree / name)
        major, minor = needed_glibc(libraries)
        tag = f"manylinux_{major}_{minor}_{platform.machine()}"
        (tree / "setup.cfg").write_text(f"[bdist_wheel]\nplat_name = {tag}\n")
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
                        "--no-build-isolation", "--wheel-dir", folder, tree], check=True)
    print(max(folder.glob("kvmem-*.whl"), key=lambda path: path.stat().st_mtime))


if __name__ == "__main__":
    main()

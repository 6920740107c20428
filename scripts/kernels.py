#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels to PTX, which is part of the library, so that no machine that runs it needs a compiler.

scripts/kernels.py               writes src/cuda/kernels/*.packed
scripts/kernels.py --check       fails if a committed file differs from the output of its source
scripts/kernels.py --print FILE  prints the PTX of a packed file

The compiler is a fixed version of NVRTC, from the wheel that scripts/setup.sh installs in build/nvrtc: the same source
compiles to the same bytes on every machine, and to PTX that drivers since 525 accept.

PTX repeats itself, and would be 7% of the library. A packed file is a third of it: the number of pairs, the pairs, and a text whose
bytes from 128 on each stand for a pair of bytes, which may stand for pairs. src/cuda/ptx.rs unpacks it.
"""
import collections
import ctypes
import glob
import os
import platform
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KERNELS = os.path.join(ROOT, "src", "cuda", "kernels")
# In a separate virtual environment.
LIBRARY = os.path.join("build", "nvrtc", "lib", "python3*", "site-packages", "nvidia", "cuda_nvrtc", "lib",
                       "libnvrtc.so.12")
# EXIT_SKIPPED of c_tests/harness/skip.h.
SKIPPED = 77
OPTIONS = [b"--gpu-architecture=compute_75", b"--std=c++03"]


def load():
    found = glob.glob(os.path.join(ROOT, LIBRARY))
    if not found and platform.machine() != "x86_64":
        print(f"skipped: NVIDIA has this version of NVRTC for x86-64 only, and this machine is {platform.machine()}")
        sys.exit(SKIPPED)
    if not found:
        sys.exit(f"{LIBRARY} is missing; run scripts/setup.sh, which installs it")
    # Loaded explicitly, because NVRTC does not search its own folder for the builtins.
    for builtins in glob.glob(os.path.join(os.path.dirname(found[0]), "libnvrtc-builtins.so*")):
        ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(found[0])


def text_of(nvrtc, program, what):
    """Returns a text of a program from NVRTC, by two calls: size and contents."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


def strip(ptx):
    """Removes what the driver's compiler skips: comments, indentation, empty lines, and spaces behind commas."""
    assert "/*" not in ptx
    assert all(re.fullmatch(r"\w+", string) for string in re.findall(r'"([^"]*)"', ptx)), "strings have nothing to skip"
    lines = (re.sub(r"\s+", " ", line.partition("//")[0]).strip().replace(", ", ",") for line in ptx.splitlines())
    return "".join(line + "\n" for line in lines if line)


def replaced(text, pair, code):
    """A text with a code in place of each occurrence of a pair."""
    packed = []
    at = 0
    while at < len(text):
        is_pair = tuple(text[at : at + 2]) == pair
        packed.append(code if is_pair else text[at])
        at += 2 if is_pair else 1
    return packed


def pack(ptx):
    """The packed form: the most frequent pair of bytes becomes one byte, 128 times."""
    text, pairs = list(ptx.encode("ascii")), []
    for code in range(128, 256):
        pair, count = max(collections.Counter(zip(text, text[1:])).items(), key=lambda item: (item[1], item[0]))
        if count < 8:
            break
        pairs.append(pair)
        text = replaced(text, pair, code)
    return bytes([len(pairs)] + [byte for pair in pairs for byte in pair] + text)


def unpack(packed):
    def expand(byte):
        return bytes([byte]) if byte < 128 else b"".join(map(expand, packed[2 * (byte - 128) + 1 :][:2]))

    return b"".join(map(expand, packed[2 * packed[0] + 1 :])).decode("ascii")


def compile_kernel(nvrtc, path):
    with open(path, "rb") as file:
        source = file.read()
    headers = sorted(glob.glob(os.path.join(KERNELS, "*.h")))
    texts = [open(header, "rb").read() for header in headers]
    names = [os.path.basename(header).encode() for header in headers]
    array = ctypes.c_char_p * len(headers)
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, os.path.basename(path).encode(), len(headers),
                             array(*texts), array(*names))
    result = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), (ctypes.c_char_p * len(OPTIONS))(*OPTIONS))
    if result != 0:
        sys.exit(text_of(nvrtc, program, "ProgramLog"))
    note = f"// SPDX-License-Identifier: Apache-2.0\n// Made of {os.path.basename(path)} by `make kernels`.\n"
    return note + strip(text_of(nvrtc, program, "PTX"))


def main():
    if sys.argv[1:2] == ["--print"]:
        with open(sys.argv[2], "rb") as file:
            sys.stdout.write(unpack(file.read()))
        return
    check = sys.argv[1:] == ["--check"]
    nvrtc = load()
    for path in sorted(glob.glob(os.path.join(KERNELS, "*.cu"))):
        compiled = pack(compile_kernel(nvrtc, path))
        target = path[: -len("cu")] + "packed"
        if not check:
            with open(target, "wb") as file:
                file.write(compiled)
        elif not os.path.exists(target) or open(target, "rb").read() != compiled:
            sys.exit(f"{os.path.relpath(target, ROOT)} differs from the output of its source; run `make kernels`")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds words that names, comments, messages and pages of kvmem do not use, because a standard term says the same.

Checks the comments, strings and declared names of Rust sources, the comments and strings of C headers and kernels, and the
whole text of other files. The list is short: only words and phrases that have no other use here. Some names are searched in
the code of all files. A line that needs one of them, for example in a quotation, is listed in ALLOWED.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What to find, and what to write instead.
WORDS = [
    (r"nobody|no one", "no process, no thread, nothing"),
    (r"somebody|someone", "another process, thread or caller"),
    (r"whoever|whomever", "the process, thread, caller or peer that"),
    (r"lets? go of|letting go of|was let go|is let go|are let go|be let go|let go\b", "release, free, close"),
    (r"answers?|answered|answering", "return, reply, respond; result, reply"),
    (r"tells? (?:of|whether|that|how|which|what|it|them|apart|when|where|who|only|no)|telling|told", "report, return, contain"),
    (r"(?:what|where|which|that|it|they|and) lies?|lies (?:in|on|at|behind|within|there|outside|beside|across)"
     r"|lie (?:in|on|at|behind|within|there|outside)|lay (?:in|on|at|behind)", "is located, is stored, starts at"),
    (r"stands? (?:behind|beside|on its)", "is located, follows"),
    (r"by turns|taken along|goes along|come along|comes along|came along", "in order; is passed with"),
    (r"to be had|be had|can be had|are had|is had", "is available"),
    (r"amid", "within, during"),
    (r"anew", "again, new"),
    (r"take(?:s|n)? (?:it |them |that |this )?back|took back|taking back", "release, cancel, deregister, decommit"),
    (r"for good", "until the process ends, intentionally leaked"),
    (r"rooms?", "space, capacity, memory, module"),
    (r"way by", "path, method, engine"),
    (r"comes? to stand|hears? of|is heard|are heard", "is queued; receives"),
    (r"under way", "in flight, in progress"),
    (r"believed|believe|beyond belief", "plausible, accepted"),
    (r"looks? after|looked after|looking after|sees to|(?:was|were) seen to", "watches, serves, handles"),
    (r"weigh(?:ed|ing|s)?", "compare"),
    (r"stretch(?:es)?", "span, contiguous range"),
]
# Names in code of any language, and what to name them instead.
NAMES = [
    (r"(?:MOST|LEAST)_\w+|(?:most|least)_(?!likely\b)\w+", "MAX_, MIN_"),
    (r"fn of(?=[(<])", "new, from_ or with_ for a constructor; what it finds for a look-up"),
]
NAME = re.compile(r"\b(?:" + "|".join(f"(?P<n{index}>{name})" for index, (name, _) in enumerate(NAMES)) + ")")
PATTERN = re.compile(r"\b(?:" + "|".join(f"(?P<w{index}>{word})" for index, (word, _) in enumerate(WORDS)) + r")\b",
                     re.IGNORECASE)

FILES = ["src/**/*.rs", "src/cuda/kernels/*.cu", "src/cuda/kernels/*.h", "etcd/src/**/*.rs", "tests/**/*.rs", "include/**/*.h",
         "include/**/*.hpp", "bindings/**/*", "examples/**/*", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md",
         "fuzz/*.md", "fuzz/fuzz_targets/*.rs", "bench/**/*.md", "bench/**/*.?pp", "bench/*.py", "bench/run", "bench/record",
         "bench/**/CMakeLists.txt", "Makefile", "CMakeLists.txt", "cmake/*", "scripts/*.sh", "scripts/*.py", "doctor/**/*.?pp",
         "c_tests/*.txt", "c_tests/*.supp"]
# Of the tests in C also the code: names of cases, functions and variables.
FILES += [f"c_tests/**/*.{kind}"
          for kind in ("c", "h", "cpp", "hpp", "go", "zig", "py", "sh", "txt", "cmake", "md", "table")]
# Lines that may have such a word, by a part of the line.
ALLOWED = ["idle, as kvmem is told"]  # a value in recorded results

TOKEN = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>b?r(?P<h>#*)".*?"(?P=h)|b?"(?:\\.|[^"\\])*")'
                   r"|'(?:\\[^']*|[^'\\])'", re.DOTALL)
# A declared name, and the words in it.
DECLARED = re.compile(r"\b(?:fn|struct|enum|trait|const|static|type|mod) +(\w+)")
WORDS_OF_NAME = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def texts(path):
    """The parts of a file that are read by people, each with its first line."""
    text = path.read_text()
    if path.suffix not in (".rs", ".h", ".cu"):
        yield 1, text
        return
    if path.suffix == ".rs":
        for name in DECLARED.finditer(text):
            yield text.count("\n", 0, name.start()) + 1, " ".join(WORDS_OF_NAME.findall(name[1]))
    for token in TOKEN.finditer(text):
        if token["comment"] or token["string"]:
            yield text.count("\n", 0, token.start()) + 1, token[0]


def findings(path):
    """Each finding: the position in the file, what was found, and what to write instead."""
    for first, text in texts(path):
        for match in PATTERN.finditer(text):
            yield first, text, match, WORDS[int(match.lastgroup[1:])][1]
    text = path.read_text()
    for match in NAME.finditer(text):
        yield 1, text, match, NAMES[int(match.lastgroup[1:])][1]


def main():
    found = 0
    for pattern in FILES:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if not path.is_file() or "tests" in path.stem or path.name == "words.py":
                continue
            for first, text, match, instead in findings(path):
                start = text.rfind("\n", 0, match.start()) + 1
                line = text[start:].split("\n", 1)[0].strip()
                if any(part in line for part in ALLOWED):
                    continue
                number = first + text.count("\n", 0, match.start())
                print(f"{name}:{number}: '{match[0]}', use: {instead}\n    {line}")
                found += 1
    if found:
        sys.exit(f"{found} words that names, comments, messages and pages do not use")


if __name__ == "__main__":
    main()

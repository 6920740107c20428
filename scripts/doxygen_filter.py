#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doxygen_filter.py HEADER: prints a header as Doxygen reads it best. The introduction becomes the text of the file, the lines of its sections
become groups, and the statuses after @return a list."""

import re
import sys

INTRODUCTION = re.compile(r"^/\* (kvmem.*?)\*/\n", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^/\* ---- (.*) ---- \*/$", re.MULTILINE)
COMMENT = re.compile(r"(?:^ *///(?!<).*\n)+", re.MULTILINE)
STATUS = re.compile(r"^( *///) +(?:@return )?(KVMEM_STATUS_\w+(?:, KVMEM_STATUS_\w+)*:.*)$")


def main():
    text = open(sys.argv[1]).read()
    text = INTRODUCTION.sub(introduction, text, count=1)
    text = COMMENT.sub(lambda comment: statuses(comment[0]), text)
    sys.stdout.write(sections(text))


def introduction(found):
    lines = [re.sub(r"^ \* ?", "", line) for line in found[1].rstrip().split("\n")]
    title, body = lines[0], "\n".join(lines[1:]).strip("\n")
    return f"/** @file\n * @brief {title}\n *\n@verbatim\n{body}\n@endverbatim\n */\n"


def sections(text):
    """Groups end where the next one begins, and before what ends the header."""
    found = list(SECTION.finditer(text))
    if not found:
        return text
    end = text.rfind("\n#ifdef __cplusplus", found[-1].end())
    if end < 0:
        end = text.rfind("\n}", found[-1].end()) if text.rfind("\n}", found[-1].end()) >= 0 else text.rfind("\n#endif")
    text = text[:end] + "\n/** @} */\n" + text[end:]
    is_first = True

    def group(section):
        nonlocal is_first
        before, is_first = ("" if is_first else "/** @} */\n"), False
        return f"{before}/** @name {section[1]} */\n/** @{{ */"

    return SECTION.sub(group, text)


def statuses(comment):
    """What a function returns: a list, one status or more for each condition."""
    if "@return" not in comment:
        return comment
    lines, is_return, indent = [], False, 0
    for line in comment.splitlines():
        slashes, _, rest = line.partition("///")
        if rest.strip().startswith("@"):
            is_return = rest.strip().startswith("@return")
        if not is_return:
            lines.append(line)
            continue
        words = rest.strip()
        if words.startswith("@return"):
            words = words.removeprefix("@return").strip()
            lines.append(f"{slashes}/// @return")
        if re.match(r"(KVMEM_STATUS_|any status )", words):
            lines.append(f"{slashes}/// - {words}")
            indent = 2
        else:
            lines.append(f"{slashes}///{' ' * (1 + indent)}{words}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

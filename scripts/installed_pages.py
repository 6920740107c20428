#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""installed_pages.py DESTINATION INCLUDE: copies the pages and pictures that are installed to DESTINATION, with links that resolve
there. INCLUDE is the path of the installed headers, relative to that of the pages. A link to a file that is not
installed becomes its path in the source tree."""

import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CHANGELOG.md", "docs/*.md", "examples/README.md"]
PICTURES = "docs/pictures"
ALSO_INSTALLED = ["LICENSE", "examples/c/", "examples/cpp/", "examples/go/", "examples/zig/", PICTURES]
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:")


def main():
    destination, include = pathlib.Path(sys.argv[1]), sys.argv[2]
    pages = pages_of(PAGES)
    copied = tuple(str(page) for page in pages) + tuple(ALSO_INSTALLED)

    def header_link(page, text, path):
        headers = os.path.join(os.path.relpath(".", page.parent), include, path.removeprefix("include/"))
        return f"[{text}]({os.path.normpath(headers)})"

    shutil.rmtree(destination, ignore_errors=True)
    for page in pages:
        (destination / page).parent.mkdir(parents=True, exist_ok=True)
        (destination / page).write_text(with_links(page, copied, header_link))
    shutil.copytree(ROOT / PICTURES, destination / PICTURES)


def pages_of(patterns):
    return [page.relative_to(ROOT) for pattern in patterns for page in sorted(ROOT.glob(pattern))]


def with_links(page, copied, header_link):
    """The text of a page. Links to files that are copied, or in a folder that is, stay as they are; `header_link` makes those to headers."""
    # Every other part is a fence.
    parts = FENCE.split((ROOT / page).read_text())
    parts[::2] = [LINK.sub(lambda link: _link(page, link, copied, header_link), part) for part in parts[::2]]
    return "".join(parts)


def _link(page, link, copied, header_link):
    text, target = link.groups()
    path = target.partition("#")[0]
    if not path or EXTERNAL.match(path):
        return link[0]
    path = os.path.normpath(page.parent / path)
    if path.startswith("include/"):
        return header_link(page, text, path)
    if f"{path}/".startswith(tuple(f"{name.rstrip('/')}/" for name in copied)):
        return link[0]
    return f"{text} (in the source tree)" if text == path else f"{text} (`{path}` in the source tree)"


if __name__ == "__main__":
    main()

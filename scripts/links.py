#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the links of all committed pages: every relative path exists, and every anchor is a heading of its page. Files of
the source tree that a page names in `code` exist, too."""

import pathlib
import re
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
SOURCE = re.compile(r"`((?:src|c_tests|tests|bench|cmake|docs|examples|fuzz|include|scripts)/[\w./-]+)`")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:")


def main():
    pages = committed_pages()
    if not pages:
        sys.exit("links.py: git lists no pages")
    broken = [f"{page.relative_to(ROOT)}: {reason}" for page in pages for reason in broken_links(page)]
    if broken:
        sys.exit("\n".join(broken))
    print(f"links.py: the links of {len(pages)} pages resolve")


def committed_pages():
    """All pages that git knows, and new ones that it does not ignore."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.md"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).exists()]


def broken_links(page):
    text = FENCE.sub("", page.read_text())
    for path in SOURCE.findall(text):
        if not (ROOT / path).exists():
            yield f"{path}: no such file"
    prose = CODE.sub("", text)
    for link in LINK.findall(prose) + REFERENCE.findall(prose):
        if EXTERNAL.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif not target.is_relative_to(ROOT):
            yield f"{link}: outside the project"
        elif anchor and anchor not in anchors(target):
            yield f"{link}: no such heading"


def anchors(page):
    """The anchors that GitHub makes of a page's headings; a repeated one gets a number."""
    seen = {}
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug


if __name__ == "__main__":
    main()

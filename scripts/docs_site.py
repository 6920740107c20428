#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs_site.py FOLDER: makes the documentation as a site in FOLDER/html, which works from the file system: the pages with search, and
the references of C, C++, Go, Zig and Python. A warning is an error; so is
a link to a file that is missing, and anything that a browser would load from a host."""

import base64
import html.parser
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.parse

from installed_pages import EXTERNAL, ROOT, pages_of, with_links

PAGES = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "examples/README.md", "bench/*.md", "bench/notes/*.md",
    "c_tests/README.md", "c_tests/*/*.md", "fuzz/*.md",
]  # fmt: skip
COPIED_FOLDERS = ["docs/pictures", "bench/results"]
HEADERS = {"c": "kvmem.h, kvmem/*.h", "cpp": "kvmem.hpp, kvmem/*.hpp"}
LANGUAGE_SETTINGS = {
    "c": "OPTIMIZE_OUTPUT_FOR_C = YES",
    "cpp": 'PREDEFINED += __cplusplus=202302L "KVMEM_HPP_BEGIN=namespace kvmem {" KVMEM_HPP_END=}',
}
MAIN_PAGE = {
    "c": "# The reference of C {#mainpage}\nkvmem.h is the introduction. It says what is true for all functions, and names the other headers.\n\n"
    '<a href="../../index.html">All pages of kvmem</a>\n',
    "cpp": "# The reference of C++ {#mainpage}\nkvmem.hpp includes all others. What a function of C++ does is said by that of C which it calls.\n\n"
    '<a href="../../index.html">All pages of kvmem</a>\n',
}
LANGUAGES = [("C", "c/index.html"), ("C++", "cpp/index.html"), ("Go", "go.html"), ("Zig", "zig/index.html"), ("Python", "python/kvmem.html")]
FAULTS_OF_GENERATORS = {"nested-classes", "Lease.close", "VmmMapping.close"}
"""Places that Doxygen and pdoc link to and leave out: classes of a class that are private, and inherited methods."""
TOOLS = ROOT / "build/docs-tools/bin"


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    source, html = folder / "source", folder / "html"
    copy_pages(source)
    (source / "reference/go.md").write_text(go_reference())
    sphinx(source, html, folder / "doctrees")
    for language in ("c", "cpp"):
        doxygen(language, html / "reference" / language, folder)
    zig_reference(html / "reference/zig", folder)
    python_reference(html / "reference/python")
    check(html)
    pages = sum(1 for _ in html.rglob("*.html"))
    print(f"docs_site.py: {html}/index.html and {pages - 1} more pages; no warning, no broken link, and nothing from a host")


# ---- pages -----------------------------------------------------------------------------------------------------------


def copy_pages(source):
    pages = pages_of(PAGES)
    copied = tuple(str(page) for page in pages) + tuple(COPIED_FOLDERS)
    for page in pages:
        text = with_links(page, copied, header_link)
        if page.name == "README.md" and page.parent == pathlib.Path():
            page, text = pathlib.Path("index.md"), text + contents(pages)
        else:
            text = re.sub(r"\]\((\.\./)+README\.md", lambda link: link[0].replace("README.md", "index.md") if is_root(page, link[0]) else link[0], text)
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        (source / page).write_text(text)
    for name in COPIED_FOLDERS:
        shutil.copytree(ROOT / name, source / name)
    shutil.copytree(ROOT / "docs/site/static", source / "static")
    shutil.copy(ROOT / "docs/site/conf.py", source)
    (source / "reference").mkdir()
    (source / "reference/index.md").write_text(reference_page())


def is_root(page, link):
    return len(page.parents) - 1 == link.count("../")


def header_link(page, text, path):
    """A header is shown by Doxygen, whose pages Sphinx does not know."""
    language = "cpp" if path.endswith(".hpp") else "c"
    name = path.rpartition("/")[2].replace("_", "__").replace(".", "_8") if "." in path else "files"  # of a folder
    to = os.path.relpath(f"reference/{language}/{name}.html", page.parent)
    shown = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    return f'<a href="{to}">{shown}</a>'


def contents(pages):
    """The lists of pages beside the text, in the order of docs/README.md."""
    table, _, specifications = (ROOT / "docs/README.md").read_text().partition("Specifications")
    guides, formats = (unique(re.findall(r"^\| \[[^\]]*\]\(([\w-]+)\.md", part, re.MULTILINE)) for part in (table, specifications))
    of_docs = [f"docs/{name}" for name in guides], [f"docs/{name}" for name in formats if name not in guides]
    listed = {*of_docs[0], *of_docs[1], "README"}
    others = [str(page.with_suffix("")) for page in pages if str(page.with_suffix("")) not in listed]
    references = ["reference/index", "reference/go"]
    lists = {"Guides": ["docs/README", *of_docs[0]], "References": references, "Formats": of_docs[1], "Project": [name for name in others if name != "docs/README"]}
    return "".join(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n" for caption, names in lists.items())


def unique(names):
    return list(dict.fromkeys(names))


def reference_page():
    rows = "\n".join(f'| <a href="{path}">{language}</a> |' for language, path in LANGUAGES)
    return f"# References by language\n[All functions of C in one table](../docs/reference.md), and everything of each language:\n\n| language |\n|---|\n{rows}\n"


def sphinx(source, html, doctrees):
    run(TOOLS / "python", "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-j", "auto", "-b", "html", "-d", doctrees, source, html, KVMEM_VERSION=version())
    (html / "objects.inv").unlink()
    (html / ".buildinfo").unlink(missing_ok=True)


def version():
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


# ---- references ------------------------------------------------------------------------------------------------------


def doxygen(language, to, folder):
    theme = run(TOOLS / "python", "-c", "import doxygen_awesome_css as a; print(a.__path__[0])").strip()
    settings = (ROOT / "docs/site/Doxyfile").read_text()
    patterns = [str(path) for pattern in HEADERS[language].split(", ") for path in sorted((ROOT / "include").glob(pattern))]
    main = folder / f"main-{language}.md"
    main.write_text(MAIN_PAGE[language])
    settings += f"""
PROJECT_NAME = "kvmem for {'C' if language == 'c' else 'C++'}"
PROJECT_NUMBER = {version()}
INPUT = {main} {' '.join(patterns)}
STRIP_FROM_PATH = {ROOT / 'include'}
STRIP_FROM_INC_PATH = {ROOT / 'include'}
INPUT_FILTER = "{sys.executable} {ROOT / 'scripts/doxygen_filter.py'}"
{LANGUAGE_SETTINGS[language]}
HTML_EXTRA_STYLESHEET = {theme}/doxygen-awesome.css {ROOT / 'docs/site/static/reference.css'}
HTML_OUTPUT = {to}
"""
    to.parent.mkdir(parents=True, exist_ok=True)
    (folder / f"Doxyfile.{language}").write_text(settings)
    run("doxygen", folder / f"Doxyfile.{language}")


def go_reference():
    """The page of `go doc -all`, whose declarations become fences."""
    go = shutil.which("go") or ROOT / "build/go/bin/go"
    package, _, rest = run(go, "doc", "-all", cwd=ROOT / "bindings/go", CGO_ENABLED="1").partition("\nCONSTANTS\n")
    lines = ["# The Go package", *(re.sub(r"^\\#", "##", escaped(line)) for line in package.splitlines()[1:]), "", "## Constants", ""]
    is_code = False
    for line in rest.splitlines():
        heading, is_text = re.fullmatch(r"VARIABLES|FUNCTIONS|TYPES", line), line.startswith("    ")
        is_named = re.match(r"(?:func (?:\([^)]*\) )?|type )\w+", line)
        # The text of a declaration is indented, and so are its lines, by tabs.
        if is_code and (heading or is_named or is_text):
            lines.append("```\n")
            is_code = False
        if heading:
            lines += f"## {heading[0].capitalize()}", ""
            continue
        if is_named:
            lines += f"### {line_name(line)}", ""
        if line and not is_text and not is_code:
            lines.append("```go")
            is_code = True
        lines.append(line if is_code else escaped(line.removeprefix("    ")))
    return "\n".join([*lines, "```" if is_code else "", ""])


def line_name(line):
    method = re.match(r"func \(\w+ \*?(\w+)\) (\w+)", line)
    return f"{method[1]}.{method[2]}" if method else re.match(r"(?:func|type) (\w+)", line)[1]


def escaped(text):
    """Plain text as Markdown."""
    return re.sub(r"([*_<>\[\]`#|])", r"\\\1", text) if not text.startswith("    ") else text


def zig_reference(to, folder):
    """What `zig -femit-docs` writes, with its data in its script: a browser reads no other file for a page of the file system."""
    zig = next((ROOT / "build/zig").glob("ziglang/zig"))
    # Zig compiles its translator of C first, which takes a fifth of the time without optimization. The cache is kept.
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build/docs-zig"), "ZIG_LOCAL_CACHE_DIR": str(ROOT / "build/docs-zig"), "ZIG_DEBUG_CMD": "1"}
    sources = ROOT / "bindings/zig/src"
    (folder / "c.zig").write_text(run(zig, "translate-c", "-I", ROOT / "include", "-lc", sources / "c.h", **caches))
    run(zig, "build-obj", "-fno-emit-bin", f"-femit-docs={to}", "-lc", "--dep", "c", f"-Mkvmem={sources / 'kvmem.zig'}", f"-Mc={folder / 'c.zig'}", **caches)
    packed = io.BytesIO()
    with tarfile.open(to / "sources.tar") as whole, tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as kept:
        for member in whole:
            if member.name.startswith("kvmem/"):
                kept.addfile(member, whole.extractfile(member))
    script = (to / "main.js").read_text()
    for name, kind, data in (("main.wasm", "application/wasm", (to / "main.wasm").read_bytes()), ("sources.tar", "application/x-tar", packed.getvalue())):
        if (read := f'fetch("{name}")') not in script:
            sys.exit(f"docs_site.py: Zig's script does not read {name} as expected")
        script = script.replace(read, f'fetch("data:{kind};base64,{base64.b64encode(data).decode()}")')
        (to / name).unlink()
    (to / "main.js").write_text(script)
    page = (to / "index.html").read_text()
    (to / "index.html").write_text(re.sub(r'<link rel="preload"[^>]*>\s*', "", page))


PYTHON_REFERENCE = """
import collections, importlib, pathlib, sys, types, typing
import kvmem, pdoc
# Annotations have names of the module that defines a class, or that it imports for types only: all modules get all names.
public = {name: getattr(kvmem, name) for name in kvmem.__all__}
typing_names = {name: getattr(typing, name) for name in typing.__all__} | vars(collections.abc)
private = [importlib.import_module(f"kvmem.{name}") for name in sorted(set(kvmem._module_of.values()))]
names = [{name: value for name, value in vars(module).items() if not name.startswith("__")} for module in private]
for module in (kvmem, *private, kvmem.cuda, kvmem.nixl, kvmem.vmm):
    for more in (public, *names, {"types": types}, typing_names):
        for name, value in more.items():
            vars(module).setdefault(name, value)
shown = [*public.values(), *vars(kvmem.cuda).values(), *vars(kvmem.nixl).values(), *vars(kvmem.vmm).values()]
for value in shown:
    if isinstance(value, type) and hasattr(value, "_fields"):  # a tuple with names, whose constructor belongs to no module
        value.__new__.__annotations__ = value.__annotations__ = typing.get_type_hints(value, vars(kvmem))
pdoc.render.configure(docformat="markdown", show_source=False, template_directory=pathlib.Path(sys.argv[2]))
pdoc.pdoc("kvmem", output_directory=pathlib.Path(sys.argv[1]))
"""


def python_reference(to):
    """The warning that is no error is about fields of __slots__, whose source pdoc does not find."""
    run(TOOLS / "python", "-W", "error", "-W", "ignore:Cannot determine where", "-c", PYTHON_REFERENCE, to, ROOT / "docs/site/pdoc",
        PYTHONPATH=str(ROOT / "build/docs-python"))


# ---- the result ------------------------------------------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """The files that a page links to, and the names that it can be linked by."""

    LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}

    def __init__(self):
        super().__init__()
        self.links, self.loaded, self.names = [], [], set()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in self.LOADED and found.get(self.LOADED[tag]) and found.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(found[self.LOADED[tag]])


def check(html):
    pages = {}
    for path in html.rglob("*.html"):
        pages[path] = Links()
        pages[path].feed(path.read_text(errors="replace"))
    faults = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            name, _, anchor = link.partition("#")
            if EXTERNAL.match(link) or link.startswith("//"):
                if link in page.loaded and re.match("(https?:)?//", link):
                    faults.append(f"{path.relative_to(html)} loads {link} from a host")
                continue
            target = (path.parent / urllib.parse.unquote(name.partition("?")[0])).resolve() if name else path
            if target.is_dir() or not target.exists():
                faults.append(f"{path.relative_to(html)} links to {link}: no such file")
            elif anchor and anchor not in FAULTS_OF_GENERATORS and target in pages and urllib.parse.unquote(anchor) not in pages[target].names:
                faults.append(f"{path.relative_to(html)} links to {link}: no such place")
    for sheet in html.rglob("*.css"):
        faults += [f"{sheet.relative_to(html)} loads {url} from a host" for url in re.findall(r"url\(['\"]?(https?:[^)]*)\)", sheet.read_text())]
    if faults:
        sys.exit("\n".join(sorted(set(faults))[:50]))


def run(*command, cwd=None, **environment):
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:4]))} … failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()

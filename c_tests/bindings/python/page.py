# SPDX-License-Identifier: Apache-2.0
"""page.py FOLDER [--without=NAME.py] PAGE...: runs the programs of the pages, but one. Blocks that begin with a line `# NAME.py` are programs. Each
runs in FOLDER, in a process of its own. FOLDER is emptied before."""

import pathlib
import re
import shutil
import subprocess
import sys


def programs_of(page):
    """The names and texts of the programs of a page."""
    found = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"{page} has no programs: were they renamed?")
    return found


def main():
    without = [name.removeprefix("--without=") for name in sys.argv if name.startswith("--without=")]
    folder, *pages = (pathlib.Path(name) for name in sys.argv[1:] if not name.startswith("--"))
    # What an earlier run has left may be of another build.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    programs = [program for page in pages for program in programs_of(page) if program[0] not in without]
    for name, text in programs:
        (folder / name).write_text(text)
    for name, _ in programs:
        print(name, flush=True)
        done = subprocess.run([sys.executable, name], cwd=folder, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode or done.stderr:
            sys.exit(f"{name} ended with status {done.returncode}, and wrote:\n{done.stderr}")


if __name__ == "__main__":
    main()

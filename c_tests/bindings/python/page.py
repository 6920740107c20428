# SPDX-License-Identifier: Apache-2.0
"""page.py FOLDER PAGE...: runs the programs of the pages. Blocks that begin with a line `# NAME.py` are programs; those of one name are
one program. Each runs in FOLDER, in a process of its own. FOLDER is emptied before."""

import pathlib
import re
import shutil
import subprocess
import sys


def main():
    folder, pages = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    # What an earlier run has left may be of another build.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    programs = []
    for page in pages:
        found = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        if not found:
            sys.exit(f"{page} has no programs: were they renamed?")
        programs += found
    for name, text in programs:
        (folder / name).write_text(text)
    for name, _ in programs:
        print(name, flush=True)
        done = subprocess.run([sys.executable, name], cwd=folder, stderr=subprocess.PIPE, text=True, timeout=60)
        if done.returncode or done.stderr:
            sys.exit(f"{name} ended with status {done.returncode}, and wrote:\n{done.stderr}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""notebook.py FILE: runs a notebook in the percent format, as a kernel of Jupyter does, and as a program. Its outputs must have drawings
and tables."""

import pathlib
import re
import subprocess
import sys

import nbclient
import nbformat


def cells(text):
    for kind, body in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", text, re.MULTILINE | re.DOTALL):
        if kind:
            yield nbformat.v4.new_markdown_cell(re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip())
        else:
            yield nbformat.v4.new_code_cell(body.strip())


def main():
    path = pathlib.Path(sys.argv[1])
    subprocess.run([sys.executable, path], check=True, timeout=60)
    notebook = nbformat.v4.new_notebook(cells=list(cells(path.read_text())))
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    if kinds.count("image/svg+xml") != 2 or kinds.count("text/html") != 1:
        sys.exit(f"{path}: expected two drawings and one table, found {kinds}")
    if faults := [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]:
        sys.exit(f"{path}: {faults}")
    print(f"{path.name}: {len(notebook.cells)} cells, {len(outputs)} outputs")


if __name__ == "__main__":
    main()

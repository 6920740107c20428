# SPDX-License-Identifier: Apache-2.0
"""Copies of the tree with seeded faults, which a check must find."""
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def copy(folder, faults):
    """Copies the tree to a folder, with faults: for each the file of src/, what is replaced, and by what."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder, ignore=lambda at, _: {".git", ".over", "build"} if pathlib.Path(at) == ROOT else ())
    for path, old, new in faults:
        file = folder / "src" / path
        text = file.read_text()
        if text.count(old) != 1:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {path} has {text.count(old)} times, not once:\n{old}")
        file.write_text(text.replace(old, new))

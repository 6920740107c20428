# SPDX-License-Identifier: Apache-2.0
"""bare.py FOLDER PAGE: moves a block with the package in FOLDER, where nothing else but cffi's backend is, and runs the programs of the page that
need no other package."""

import pathlib
import sys

sys.path += [sys.argv[1], str(pathlib.Path(__file__).parent)]

import kvmem  # noqa: E402
from page import programs_of  # noqa: E402

shape = kvmem.Shape(num_blocks=8, num_layers=2, page_size=4, inner_dim=8, dtype="uint16", order="BLONHC")
with kvmem.Layout.allocate(shape, "system") as source, kvmem.Layout.allocate(shape, "system") as destination:
    (region,) = source.regions
    region.memory[:] = bytes(range(256)) * (len(region) // 256)
    region.close()
    assert kvmem.move(source, destination, [(3, 5)]) == 2 * 2 * 4 * 8 * 2
    assert source.checksums([3]) == destination.checksums([5]) != destination.checksums([0])

alone = {name: text for name, text in programs_of(pathlib.Path(sys.argv[2])) if "import numpy" not in text}
assert "runs.py" in alone and "awaits.py" in alone, "the page has no program without other packages"
for name, text in alone.items():
    exec(compile(text, name, "exec"), {"__name__": "__main__"})

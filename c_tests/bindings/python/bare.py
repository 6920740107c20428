# SPDX-License-Identifier: Apache-2.0
"""bare.py FOLDER: moves a block with the package in FOLDER, where nothing else but cffi's backend is."""

import sys

sys.path.append(sys.argv[1])

import kvmem  # noqa: E402

shape = kvmem.Shape(num_blocks=8, num_layers=2, page_size=4, inner_dim=8, dtype="uint16", order="BLONHC")
with kvmem.Layout.allocate(shape, "system") as source, kvmem.Layout.allocate(shape, "system") as destination:
    (region,) = source.regions
    region.memory[:] = bytes(range(256)) * (len(region) // 256)
    region.close()
    assert kvmem.move(source, destination, [(3, 5)]) == 2 * 2 * 4 * 8 * 2
    assert source.checksums([3]) == destination.checksums([5]) != destination.checksums([0])

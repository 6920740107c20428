# SPDX-License-Identifier: Apache-2.0
"""Plots of checksums on the host and on a GPU."""

import matplotlib.pyplot as plt

from plot_parts import CEILING, OURS, REFERENCE, line

STYLES = ("-", ":")
CEILINGS = {"checksums": "memory read, or one large copy within the GPU"}


def draw(rows):
    """Bandwidth against block size: checksums alone, then each kind of transfer, verified and not."""
    rows = [row for row in rows if row["unit"] == "GB/s"]
    panels = list(dict.fromkeys(row["parameters"]["what"] for row in rows))
    figure, axes = plt.subplots(1, len(panels), figsize=(1 + 3.6 * len(panels), 4.4), squeeze=False)
    for part, what in zip(axes[0], panels):
        chosen = [row for row in rows if row["parameters"]["what"] == what]
        ways = list(dict.fromkeys(row["parameters"]["way"] for row in chosen))
        for way, style in zip(ways, STYLES):
            line(part, [row for row in chosen if row["parameters"]["way"] == way], "ours", OURS, style, way)
        first = [row for row in chosen if row["parameters"]["way"] == ways[0]]
        line(part, first, "reference", REFERENCE, "-", first[0]["reference_name"])
        if first[0]["ceiling"]:
            line(part, first, "ceiling", CEILING, "--", CEILINGS.get(what, "one large copy"))
        part.set_title(what, fontsize=9)
        part.set_xscale("log", base=2)
        part.set_xticks([4 << 10, 16 << 10, 256 << 10, 1 << 20], ["4K", "16K", "256K", "1M"])
        part.minorticks_off()
        part.set_yscale("log")
        part.set_xlabel("block size in bytes")
        part.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.15))
    axes[0][0].set_ylabel("GB/s")
    return figure


GROUPS = {
    "14-checksum": ("14-checksum", draw),
    "14-gpu-checksum": ("14-gpu-checksum", draw),
}

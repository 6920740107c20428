# SPDX-License-Identifier: Apache-2.0
"""Plots of GPU benches: scattered copies, changes of layout, pulls, growth, and transfers beside compute."""

import math

import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm, Normalize

from plot_parts import CEILING, OURS, REFERENCE, SECOND, bars, line, merged

BATCH, LOOP, POINTERS = "cuMemcpyBatchAsync", "cuMemcpyAsync, a loop", "pointers uploaded, one kernel"
NIXL = "NIXL, UCX, prepared lists"
COLOURS = {POINTERS: "#edae49", POINTERS + ", 16 CTAs": "#b5651d", BATCH: REFERENCE, LOOP: SECOND, NIXL: "#6a4c93"}


def draw_grid(rows):
    """Block size by number of blocks: kvmem to the best reference above, kvmem to one large copy below."""
    panels = panels_of(seen(rows), ["direction", "host"])
    figure, axes = plt.subplots(2, len(panels), figsize=(1 + 3.1 * len(panels), 6.2), squeeze=False)
    for column, (title, chosen) in enumerate(panels.items()):
        best = best_references(chosen)
        heat(axes[0][column], best, "ratio", f"{title}\n× the better reference", "RdBu", LogNorm(1 / 20, 20))
        heat(axes[1][column], best, "ceiling_ratio", "fraction of one large copy", "YlGn", Normalize(0, 1))
    for part in axes[:, 0]:
        part.set_ylabel("blocks")
    for part in axes[1]:
        part.set_xlabel("block size in bytes")
    return figure


def draw_curves(rows):
    """Bandwidth against block size, with the most blocks that were measured at each size."""
    panels = panels_of(most(seen(rows), "blocks", "block_bytes"), ["direction", "host"])
    return curves(panels, "block_bytes", "block size in bytes")


def draw_layout_change(rows):
    """Bandwidth against chunk size above, the duration of the submitting call below."""
    rows = most([row for row in rows if row["parameters"]["blocks"] == "scattered"], "chunks", "chunk_bytes")
    above = panels_of(seen(rows), ["direction", "change"])
    below = panels_of([row for row in rows if row["parameters"]["timed"] == "submitting call"], ["direction", "change"])
    figure, axes = plt.subplots(2, len(above), figsize=(1 + 2.6 * len(above), 7), squeeze=False)
    for column, title in enumerate(above):
        curve(axes[0][column], title.replace(", ", "\n").replace(" to ", "\n→ "), above[title], "chunk_bytes")
        each = [row for row in below[title] if row["parameters"]["way"] == "created each time"]
        again = [row for row in below[title] if row["parameters"]["way"] == "prepared"]
        line(axes[1][column], one_reference(again), "ours", OURS, "-", "kvmem, prepared", "chunk_bytes")
        line(axes[1][column], one_reference(each), "ours", OURS, ":", "kvmem, created each time", "chunk_bytes")
        lines_of_references(axes[1][column], again, "chunk_bytes")
        sizes_on(axes[1][column], again, "chunk_bytes", "chunk size in bytes")
        axes[1][column].set_yscale("log")
    axes[0][0].set_ylabel("GB/s, from submission until the end is seen")
    axes[1][0].set_ylabel("µs, the submitting call")
    return with_legend(figure, axes)


def draw_completion(rows):
    """The latency that a user sees above, and without the time on the GPU below."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 10), sharey=True)
    for parts, timed in zip(axes, ("submit to seen", "seen after the end")):
        for part, statistic in zip(parts, ("p50", "p99")):
            chosen = [row for row in rows if row["parameters"]["timed"] == timed
                      and row["parameters"]["statistic"] == statistic]
            bars(part, merged(chosen, ["direction", "bytes", "way"]), f"{timed}, {statistic}, µs (less is better)",
                 ceiling="the event queried without pause")
            part.set_xscale("log")
    return figure


def draw_peer_pull(rows):
    """Bandwidth against block size, for each location and kind of memory of the other process."""
    panels = panels_of(seen(rows), ["peer", "memory"])
    figure, axes = plt.subplots(1, len(panels), figsize=(3 + 2.6 * len(panels), 4.2), sharey=True, squeeze=False)
    for part, (title, chosen) in zip(axes[0], panels.items()):
        # If NIXL is slow, its rows have fewer blocks ("bounded"): those rows show NIXL, the others kvmem.
        whole = [row for row in chosen if "bounded" not in row["parameters"]]
        part.set_title(title, fontsize=8)
        line(part, one_reference(whole), "ceiling", CEILING, "--", "one large copy", "block_bytes")
        lines_of_references(part, chosen, "block_bytes")
        line(part, one_reference(whole), "ours", OURS, "-", "kvmem", "block_bytes")
        sizes_on(part, whole, "block_bytes", "block size in bytes")
        part.set_yscale("log")
    axes[0][0].set_ylabel("GB/s, from submission until the end is seen")
    return with_legend(figure, axes)


def draw_growth(rows):
    figure, axes = plt.subplots(figsize=(7, 4))
    for row in rows:
        parameters = row["parameters"]
        peer = ", open for a peer" if "peer" in parameters.get("opened for", "") else ""
        parameters["to"] = f"to {parameters['MiB'] >> 10} GiB{peer}"
    bars(axes, merged(rows, ["timed", "to"]), "ms per GiB in steps of 1 GiB (less is better)", "one handle per step")
    return figure


def draw_regret(rows):
    """The share of points within a regret on the left, and the sizes of the points on the right."""
    rows = [row for row in rows if "best_path" in row["parameters"]]
    kinds = list(dict.fromkeys(row["parameters"]["compute"] for row in rows))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
    for kind, colour in zip(kinds, (OURS, "#edae49", "#6a4c93")):
        chosen = [row for row in rows if row["parameters"]["compute"] == kind]
        regrets = sorted(1 / row["ratio"] for row in chosen)
        shares = [(index + 1) / len(regrets) for index in range(len(regrets))]
        left.step(regrets, shares, where="post", color=colour, label=f"{kind}, {len(regrets)} points")
        right.scatter([row["parameters"]["piece_bytes"] for row in chosen], [row["parameters"]["bytes"] for row in chosen],
                      s=[6 + 160 * max(0, min(1, 1 / row["ratio"] - 1)) for row in chosen], color=colour, alpha=0.6)
    for bound in (1.02, 1.10):
        left.axvline(bound, color=CEILING, linewidth=0.7, linestyle="--")
    left.set_xlabel("time of the chosen path, relative to the best forced path")
    left.set_ylabel("share of points")
    left.legend(fontsize=7, loc="lower right")
    right.set_xscale("log", base=2)
    right.set_yscale("log", base=2)
    right.set_xlabel("piece size in bytes")
    right.set_ylabel("total bytes; larger marks: more regret")
    return figure


def draw_beside(rows):
    """The slowdown of a GEMM and the throughput, per method: the target is the corner at the upper left."""
    rows = [row for row in rows if row["parameters"]["way"] == "prepared" and row["ceiling"]]
    works = list(dict.fromkeys(row["parameters"]["work"] for row in rows))
    directions = list(dict.fromkeys(row["parameters"]["direction"] for row in rows))
    figure, axes = plt.subplots(len(directions), len(works), figsize=(1 + 3.6 * len(works), 1 + 3 * len(directions)),
                                sharex=True, sharey=True, squeeze=False)
    for across, work in enumerate(works):
        for down, direction in enumerate(directions):
            chosen = [row for row in rows if (row["parameters"]["work"], row["parameters"]["direction"])
                      == (work, direction)]
            costs(axes[down][across], chosen)
            axes[down][across].set_title(f"{work.replace(', ', chr(10))}, {direction}", fontsize=8)
    for part in axes[-1]:
        part.set_xlabel("GEMM duration, relative to alone")
    for part in axes[:, 0]:
        part.set_ylabel("fraction of one large copy")
    return with_legend(figure, axes)


def costs(axes, rows):
    axes.axvspan(0.95, 1.05, ymin=0.85 / 1.1, color="#e6f2ee", zorder=0)
    links = [row for row in rows if row["unit"] == "GB/s"]
    gemms = {(size_of(row), row["reference_name"].removeprefix("beside ")): row for row in rows if row["unit"] == "us"}
    for row in links:
        gemm = gemms[size_of(row), row["reference_name"]]
        point(axes, gemm, row, "ours", "kvmem", OURS)
        point(axes, gemm, row, "reference", row["reference_name"], COLOURS[row["reference_name"]])
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 1.5, 2, 4], ["1", "1.5", "2", "4"])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1)


def point(axes, gemm, link, field, name, colour):
    """Draws a point, labelled with the size of a piece."""
    across = gemm[field]["median"] / gemm["ceiling"]["median"]
    up = link[field]["median"] / link["ceiling"]["median"]
    axes.plot([across], [up], "o", color=colour, label=name, markersize=5)
    axes.annotate(short(size_of(link)), (across, up), textcoords="offset points", xytext=(4, 3), fontsize=6)


def draw_share(rows):
    figure, axes = plt.subplots(figsize=(7, 3.5))
    bars(axes, merged(rows, ["extents", "timed"]), "ms to share an elastic region, by number of extents (less is better)")
    return figure


# ---- selection of rows ---------------------------------------------------------------------------------------------


def seen(rows):
    """The default choice of kvmem, on the caller's clock."""
    return [row for row in rows
            if row["parameters"]["timed"] == "submit to seen" and row["parameters"]["way"] == "prepared"]


def panels_of(rows, keys):
    panels = {}
    for row in rows:
        values = [row["parameters"][key] for key in keys if key in row["parameters"]]
        if "host" in row["parameters"]:
            values[-1] = f"host {values[-1]}"
        panels.setdefault(", ".join(values), []).append(row)
    return panels


def most(rows, count, size):
    """Returns the rows with the highest count of each size."""
    highest = {}
    for row in rows:
        given = row["parameters"]
        highest[given[size]] = max(highest.get(given[size], 0), given[count])
    return [row for row in rows if row["parameters"][count] == highest[row["parameters"][size]]]


def best_references(rows):
    """Per point the row whose reference is the best."""
    best = {}
    for row in rows:
        point = (row["parameters"]["block_bytes"], row["parameters"]["blocks"])
        if point not in best or row["ratio"] < best[point]["ratio"]:
            best[point] = row
    return best


def size_of(row):
    return row["parameters"]["piece_bytes"]


def one_reference(rows):
    """Returns one row per size, because kvmem's figures are the same in the rows of all references."""
    return list({row["parameters"]["chunk_bytes"] if "chunk_bytes" in row["parameters"]
                 else row["parameters"]["block_bytes"]: row for row in rows}.values())


# ---- drawing ---------------------------------------------------------------------------------------------------


def heat(axes, points, field, title, colours, scale):
    sizes = sorted({size for size, _ in points})
    counts = sorted({count for _, count in points})
    cells = [[points[size, count][field] if (size, count) in points else math.nan for size in sizes]
             for count in counts]
    axes.pcolormesh(cells, cmap=colours, norm=scale, edgecolors="white")
    for down, line_of_cells in enumerate(cells):
        for across, value in enumerate(line_of_cells):
            if not math.isnan(value):
                axes.text(across + 0.5, down + 0.5, f"{value:.3g}", ha="center", va="center", fontsize=7,
                          color="white" if is_dark(colours, scale, value) else "black")
    axes.set_xticks([place + 0.5 for place in range(len(sizes))], [short(size) for size in sizes], fontsize=7)
    axes.set_yticks([place + 0.5 for place in range(len(counts))], [f"{count:,}" for count in counts], fontsize=7)
    axes.set_title(title, fontsize=9)


def is_dark(colours, scale, value):
    red, green, blue, _ = plt.get_cmap(colours)(scale(value))
    return 0.3 * red + 0.6 * green + 0.1 * blue < 0.5


def curves(panels, across, label):
    figure, axes = plt.subplots(1, len(panels), figsize=(3 + 3 * len(panels), 4), sharey=True, squeeze=False)
    for part, (title, rows) in zip(axes[0], panels.items()):
        curve(part, title, rows, across)
        sizes_on(part, rows, across, label)
    axes[0][0].set_ylabel("GB/s, from submission until the end is seen")
    return with_legend(figure, axes)


def curve(axes, title, rows, across):
    axes.set_title(title, fontsize=8)
    line(axes, one_reference(rows), "ceiling", CEILING, "--", "one large copy", across)
    lines_of_references(axes, rows, across)
    line(axes, one_reference(rows), "ours", OURS, "-", "kvmem", across)
    sizes_on(axes, rows, across, None)
    axes.set_ylim(bottom=0)


def lines_of_references(axes, rows, across):
    for name, colour in COLOURS.items():
        chosen = [row for row in rows if row["reference_name"] == name]
        if chosen:
            line(axes, chosen, "reference", colour, "-", name, across)


def sizes_on(axes, rows, across, label):
    sizes = sorted({row["parameters"][across] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [short(size) for size in sizes], fontsize=7)
    axes.minorticks_off()
    if label:
        axes.set_xlabel(label)


def short(size):
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K"


def with_legend(figure, axes):
    named = {}
    for part in axes.flat:
        named.update(dict(zip(*reversed(part.get_legend_handles_labels()))))
    columns = max(1, int(figure.get_figwidth() / 2))
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=columns, fontsize=8)
    return figure


# File: the prefix of its rows' names, and the function that draws them.
GROUPS = {
    "01-scattered-host": ("01-scattered-host", draw_grid),
    "01-scattered-host-curves": ("01-scattered-host", draw_curves),
    "02-scattered-device": ("02-scattered-device", draw_grid),
    "02-scattered-device-curves": ("02-scattered-device", draw_curves),
    "03-layout-change": ("03-layout-change", draw_layout_change),
    "04-peer-pull": ("04-peer-pull", draw_peer_pull),
    "06-elastic-growth": ("06-elastic-growth", draw_growth),
    "07-beside-compute": ("07-beside-compute", draw_beside),
    "09-gpu-completion": ("09-gpu-completion", draw_completion),
    "13-share": ("13-share", draw_share),
    "19-regret": ("19-regret", draw_regret),
}

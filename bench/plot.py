#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws an SVG per group of rows: plot.py RESULTS... DIRECTORY. RESULTS are results.json, or records of bench/results/."""

import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.hashsalt": "kvmem",  # the same rows give the same file
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
})
import matplotlib.pyplot as plt

import plot_checksum
import plot_engine
import plot_gpu
import records
from plot_parts import CEILING, OURS, REFERENCE, SECOND, bars, line, merged


def main():
    *results, directory = map(pathlib.Path, sys.argv[1:])
    rows = [row for path in results for row in records.rows_of(path)]
    for name, (group, draw) in (GROUPS | plot_gpu.GROUPS | plot_checksum.GROUPS | plot_engine.GROUPS).items():
        chosen = [row for row in rows if row["name"].startswith(group)]
        if chosen:
            figure = draw(chosen)
            figure.supxlabel(machine_of(chosen[0]), fontsize=7, color="#666666")
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


def machine_of(row):
    gpu = row["parameters"].get("gpu")
    return f"{gpu}; {row['machine']}" if gpu else row["machine"]


def draw_submit(rows):
    """The duration of the calls on the left, the throughput on the right."""
    rows = [row for row in rows if row["parameters"]["progress_thread"] == "off"]
    calls = [row for row in rows if row["unit"] == "us"]
    moves = [row for row in rows if row["unit"] == "GB/s" and row["parameters"]["block_bytes"] == 4096]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.5))
    for axes, chosen, title in (
        (left, calls, "the calls for 10,000 blocks, µs (less is better)"),
        (right, moves, "4 KiB blocks moved, GB/s (more is better)"),
    ):
        bars(axes, merged(chosen, ["pattern", "step"]), title)
    left.set_xscale("log")
    return figure


def draw_completion(rows):
    figure, axes = plt.subplots(1, 2, figsize=(11, 7), sharey=True)
    for part, statistic in zip(axes, ("p50", "p99")):
        chosen = [row for row in rows if row["parameters"]["statistic"] == statistic]
        title = f"from submission until its end is seen, {statistic}, µs (less is better)"
        bars(part, merged(chosen, ["transport", "way", "bytes"]), title, ceiling="raw NIXL, polled without pause")
        part.set_xscale("log")
    return figure


def draw_host_copy(rows):
    kinds = sorted({kind_of(row) for row in rows})
    figure, axes = plt.subplots(1, len(kinds), figsize=(2.6 * len(kinds), 3.8), sharey=True)
    for part, kind in zip(axes, kinds):
        part.set_title("\n→ ".join(kind), fontsize=8)
        for timed, style in (("submit, wait", "-"), ("create, submit, wait", ":")):
            chosen = [row for row in rows if kind_of(row) == kind and row["parameters"]["timed"] == timed]
            one, two = (
                [row for row in chosen if row["reference_name"].endswith(f"{count} thread{ending}")]
                for count, ending in ((1, ""), (2, "s"))
            )
            line(part, one, "ours", OURS, style, f"kvmem: {timed}")
        line(part, one, "reference", REFERENCE, "-", "memcpy of the pieces, 1 thread")
        line(part, two, "reference", SECOND, "-", "memcpy of the pieces, 2 threads")
        line(part, one, "ceiling", CEILING, "--", "one large memcpy")
        part.set_xscale("log", base=2)
        part.set_xticks([4096 << shift for shift in (0, 4, 8)], ["4K", "64K", "1M"])
        part.set_xlabel("block size in bytes")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("GB/s")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8)
    return figure


def draw_disk(rows):
    """Throughput above, CPU time below; a column per direction and order, direct I/O first."""
    keys = ("io", "direction", "file")
    columns = list(dict.fromkeys(tuple(row["parameters"][key] for key in keys) for row in rows))
    figure, axes = plt.subplots(2, len(columns), figsize=(2.4 * len(columns), 6), sharex=True, squeeze=False)
    shades = (REFERENCE, SECOND, "#b08968", "#ddb892")
    for column, wanted in enumerate(columns):
        chosen = [row for row in rows if tuple(row["parameters"][key] for key in keys) == wanted]
        axes[0][column].set_title(f"{wanted[0]}, {wanted[1]},\nfile {wanted[2]}", fontsize=8)
        for part, unit in zip((axes[0][column], axes[1][column]), ("GB/s", "CPU s/GB")):
            measured = [row for row in chosen if row["unit"] == unit]
            names = list(dict.fromkeys(row["reference_name"] for row in measured))
            for name, shade in zip(names, shades):
                line(part, [row for row in measured if row["reference_name"] == name], "reference", shade, "-", name)
            first = [row for row in measured if row["reference_name"] == names[0]]
            line(part, first, "ours", OURS, "-", "kvmem")
            if unit == "GB/s":
                line(part, first, "ceiling", CEILING, "--", "1 MiB after 1 MiB, 8 threads")
            part.set_xscale("log", base=2)
            part.set_xticks([1 << 14, 1 << 18, 1 << 22], ["16K", "256K", "4M"])
            part.set_ylim(bottom=0)
        axes[1][column].set_xlabel("block size in bytes")
    axes[0][0].set_ylabel("GB/s")
    axes[1][0].set_ylabel("CPU seconds per GB (less is better)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)
    return figure


def draw_block_address(rows):
    figure, axes = plt.subplots(figsize=(7, 4))
    bars(axes, merged(rows, ["kind", "way"]), "ns per address (less is better)")
    return figure


def draw_footprint(rows):
    figure, axes = plt.subplots(figsize=(7, 3.2))
    entries = merged(rows, ["name"])
    for entry, row in zip(entries.values(), rows):
        for value in (entry["ours"], *entry["references"].values()):
            value.update({key: value[key] / row["parameters"]["limit"] for key in value})
    bars(axes, entries, "cost of kvmem while idle, 1 = its limit (less is better)")
    return figure


def kind_of(row):
    return row["parameters"]["from"], row["parameters"]["to"]


GROUPS = {
    "08-submit": ("08-submit", draw_submit),
    "09-completion": ("09-completion", draw_completion),
    "10-host-copy": ("10-host-copy", draw_host_copy),
    "11-disk": ("11-disk", draw_disk),
    "12-block-address": ("12-block-address", draw_block_address),
    "footprint": ("footprint", draw_footprint),
}

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one SVG per group of rows, from a results.json and nothing else: plot.py RESULTS DIRECTORY"""

import json
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

OURS, REFERENCE, SECOND, CEILING = "#0b6e4f", "#8d99ae", "#cbd3df", "#d1495b"


def main():
    results, directory = map(pathlib.Path, sys.argv[1:3])
    rows = json.loads(results.read_text())
    for group, draw in GROUPS.items():
        chosen = [row for row in rows if row["name"].startswith(group)]
        if chosen:
            figure = draw(chosen)
            figure.supxlabel(chosen[0]["machine"], fontsize=7, color="#666666")
            figure.savefig(directory / f"{group}.svg", metadata={"Date": None})
            plt.close(figure)


def draw_submit(rows):
    """The cost of the calls on the left, what then arrives on the right."""
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
        title = f"from submission to its end seen, {statistic}, µs (less is better)"
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
            line(part, one, "ours", OURS, style, f"ours: {timed}")
        line(part, one, "reference", REFERENCE, "-", "memcpy of the pieces, 1 thread")
        line(part, two, "reference", SECOND, "-", "memcpy of the pieces, 2 threads")
        line(part, one, "ceiling", CEILING, "--", "one large memcpy")
        part.set_xscale("log", base=2)
        part.set_xticks([4096 << shift for shift in (0, 4, 8)], ["4K", "64K", "1M"])
        part.set_xlabel("bytes of a block")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("GB/s")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8)
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
    bars(axes, entries, "what kvmem costs while nothing moves, 1 = its limit (less is better)")
    return figure


# ---- what the drawings are made of -----------------------------------------------------------------------------------


def kind_of(row):
    return row["parameters"]["from"], row["parameters"]["to"]


def merged(rows, keys):
    """Per label: ours, its references by name, its ceiling. Rows that differ in the reference only share a label."""
    found = {}
    for row in rows:
        label = "\n".join((", ".join(shown(row, key) for key in keys[:-1]), shown(row, keys[-1]))).strip()
        entry = found.setdefault(label, {"ours": row["ours"], "references": {}, "ceiling": row["ceiling"]})
        entry["references"][row["reference_name"]] = row["reference"]
    return found


def shown(row, key):
    value = row[key] if key in row else row["parameters"][key]
    return f"{value // 1024} KiB" if key.endswith("bytes") else str(value)


def bars(axes, entries, title, ceiling="one large transfer"):
    """Horizontal bars, ours on top of its references, whiskers from minimum to maximum."""
    names = list(dict.fromkeys(name for entry in entries.values() for name in entry["references"]))
    shades = {name: (REFERENCE, SECOND, "#e9ecf2")[index % 3] for index, name in enumerate(names)}
    thickness = 0.8 / (1 + max(len(entry["references"]) for entry in entries.values()))
    for place, entry in enumerate(entries.values()):
        drawn = [("ours", entry["ours"], OURS)]
        drawn += [(name, value, shades[name]) for name, value in entry["references"].items()]
        for index, (name, value, shade) in enumerate(drawn):
            height = place - 0.4 + (index + 0.5) * thickness
            spread = [[value["median"] - value["min"]], [value["max"] - value["median"]]]
            axes.barh(height, value["median"], thickness * 0.9, color=shade, label=name, xerr=spread,
                      error_kw={"elinewidth": 0.7, "ecolor": "#444444"})
        if entry["ceiling"]:
            axes.plot([entry["ceiling"]["median"]] * 2, [place - 0.4, place + 0.4], color=CEILING, label=ceiling)
    axes.set_yticks(range(len(entries)), list(entries), fontsize=7)
    axes.set_ylim(len(entries) - 0.5, -0.5)
    axes.set_title(title, fontsize=9)
    labelled = dict(zip(*reversed(axes.get_legend_handles_labels())))
    axes.legend(labelled.values(), labelled.keys(), fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.05))


def line(axes, rows, field, colour, style, label):
    rows = sorted(rows, key=lambda row: row["parameters"]["block_bytes"])
    axes.plot([row["parameters"]["block_bytes"] for row in rows], [row[field]["median"] for row in rows],
              style, color=colour, label=label, marker="o", markersize=2.5)


GROUPS = {
    "08-submit": draw_submit,
    "09-completion": draw_completion,
    "10-host-copy": draw_host_copy,
    "12-block-address": draw_block_address,
    "footprint": draw_footprint,
}

if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Parts of the plots: bars, lines, and their rows."""

OURS, REFERENCE, SECOND, CEILING = "#0b6e4f", "#8d99ae", "#cbd3df", "#d1495b"


def merged(rows, keys):
    """Returns kvmem, its references by name and its ceiling per label. Rows that differ only in the reference share one."""
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
    """Draws horizontal bars, kvmem above its references, with whiskers from minimum to maximum."""
    names = list(dict.fromkeys(name for entry in entries.values() for name in entry["references"]))
    shades = {name: (REFERENCE, SECOND, "#e9ecf2")[index % 3] for index, name in enumerate(names)}
    thickness = 0.8 / (1 + max(len(entry["references"]) for entry in entries.values()))
    for place, entry in enumerate(entries.values()):
        drawn = [("kvmem", entry["ours"], OURS)]
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


def line(axes, rows, field, colour, style, label, across="block_bytes"):
    rows = sorted(rows, key=lambda row: row["parameters"][across])
    axes.plot([row["parameters"][across] for row in rows], [row[field]["median"] for row in rows],
              style, color=colour, label=label, marker="o", markersize=2.5)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of bench/README.md, and that of README.md, from the records in bench/results/. With --check it fails if they differ.

`figure_groups.py` has the groups. A query selects rows of a record by their parameters, and shows the lowest and the highest of one
measure."""

import json
import sys

import records
from figure_groups import GROUPS, HEADLINES

BEGIN, END = "<!-- bench/figures.py writes from here -->\n", "<!-- to here -->\n"


def main():
    replace(records.HERE / "README.md", "".join(map(table, GROUPS)))
    head = "| measured | kvmem | reference | record |\n|---|---|---|---|\n"
    replace(records.HERE.parent / "README.md", head + "".join(map(headline, HEADLINES)))


def replace(path, text):
    page = path.read_text()
    before, rest = page.split(BEGIN)
    written = before + BEGIN + text + END + rest.split(END)[1]
    if "--check" not in sys.argv:
        path.write_text(written)
    elif written != page:
        sys.exit(f"{path} has other figures than the records: run bench/figures.py")


def headline(line):
    """A line of the table in README.md. The two texts have a place for each query."""
    measured, text, ours, reference_text, references, row = line
    cells = (measured, text.format(*map(shown, ours)), reference_text.format(*map(shown, references)))
    return "| " + " | ".join(cells) + f" | [row {row}](bench/results/{ours[0][0]}.json) |\n"


# The notes of rows that share a page with another row.
NOTES = {"03": "02-scattered-device", "06": "19-regret", "13": "04-peer-pull", "16": "15-reshape"}


def notes(title):
    number = title.split(".")[0].zfill(2)
    found = sorted((records.HERE / "notes").glob(f"{NOTES.get(number, number + '-')}*.md"))
    return f"- [notes](notes/{found[0].name})\n" if found else ""


def table(group):
    title, note, sources, columns, lines = group
    text = f"\n### {title}\n{note}\n\n" if note else f"\n### {title}\n"
    text += "| " + " | ".join(("measured", "target", *columns)) + " |\n|" + "---|" * (2 + len(columns)) + "\n"
    for measured, target, *queries in lines:
        text += "| " + " | ".join((measured, target, *map(shown, queries))) + " |\n"
    return text + "\n" + "".join(map(source, sources)) + notes(title)


def source(name):
    record = json.loads((records.RESULTS / f"{name}.json").read_text())
    return f"- [{name}](results/{name}.json): {record['host']}, commit {record['commit']}, {record['date']}\n"


def shown(query):
    if query is None:
        return "–"
    name, measure, where = query
    found = [MEASURES[measure][0](row) for row in records.rows_of(records.RESULTS / f"{name}.json") if fits(row, where)]
    if not found:
        sys.exit(f"no row of {name} has {where}")
    _, form, unit = MEASURES[measure]
    lowest, highest = (form(value).replace("-", "−") for value in (min(found), max(found)))
    return (lowest if lowest == highest else f"{lowest} to {highest}") + unit


def fits(row, where):
    has = {**row["parameters"], "name": row["name"], "reference": row["reference_name"], "unit": row["unit"]}
    return all(wanted(has) if key == "row" else wanted(has.get(key)) if callable(wanted) else has.get(key) == wanted
               for key, wanted in where.items())


def ours(row):
    return row["ours"]["median"]


def over(row, other):
    return ours(row) - row[other]["median"]


def digits(number):
    """Formats with so many digits after the point. The sum makes 0 of −0."""
    return lambda value: f"{round(value, number) + 0.0:.{number}f}"


def short(value):
    return digits(0 if value >= 9.95 else 1 if value >= 2 else 2)(value)


# How a measure is computed, formatted, and its unit.
MEASURES = {
    "fraction": (lambda row: row["ceiling_ratio"], digits(2), ""),
    "of plain": (lambda row: row["ratio"], digits(2), ""),
    "ratio": (lambda row: row["ratio"], short, "×"),
    "regret": (ours, digits(2), ""),
    "us": (ours, short, " µs"),
    "ns": (ours, short, " ns"),
    "ms": (ours, short, " ms"),
    "ms of ns": (lambda row: ours(row) / 1e6, short, " ms"),
    "GB/s": (ours, short, " GB/s"),
    "reference GB/s": (lambda row: row["reference"]["median"], short, " GB/s"),
    "reference ms": (lambda row: row["reference"]["median"], short, " ms"),
    "MB": (ours, digits(1), " MB"),
    "percent": (ours, digits(1), "%"),
    "slower": (lambda row: 100 * over(row, "reference") / row["reference"]["median"], digits(1), "%"),
    "us above": (lambda row: over(row, "reference"), digits(1), " µs"),
    "ns above": (lambda row: over(row, "reference"), digits(0), " ns"),
    "us above ceiling": (lambda row: over(row, "ceiling"), digits(0), " µs"),
    "times the bare calls": (lambda row: 1 / row["ratio"], digits(2), "×"),
}


if __name__ == "__main__":
    main()

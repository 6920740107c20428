# SPDX-License-Identifier: Apache-2.0
"""Rows of benches in Python."""

import json
import os
import pathlib
import platform
import statistics


def summary(values):
    return {"median": round(statistics.median(values), 4), "min": round(min(values), 4), "max": round(max(values), 4)}


def machine():
    model = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, Linux {platform.release()}"


def write(path, rows):
    pathlib.Path(path).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")

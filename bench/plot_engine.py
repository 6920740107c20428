# SPDX-License-Identifier: Apache-2.0
"""Plots of the paged engine: the first token after a handover, and decode beside transfers."""

import matplotlib.pyplot as plt

from plot_parts import bars, merged


def draw_first_token(rows):
    figure, axes = plt.subplots(1, 2, figsize=(12, 6), sharey=True)
    for part, way in zip(axes, ("whole", "by layer")):
        chosen = [row for row in rows if row["parameters"]["way"] == way]
        bars(part, merged(chosen, ["case"]), f"from the start of the handover to the token, {way}, ms (less is better)", ceiling="decode alone")
        part.set_xscale("log")
    return figure


def draw_beside_decode(rows):
    figure, axes = plt.subplots(1, 2, figsize=(12, 6), sharey=True)
    moving = [row for row in rows if row["reference_name"] != "decode alone"]
    for part, statistic in zip(axes, ("p50", "p99")):
        chosen = [row for row in moving if row["parameters"]["statistic"] == statistic]
        bars(part, merged(chosen, ["case", "way", "path"]), f"a step of decode, {statistic}, ms (less is better)", ceiling="decode alone")
        part.set_xscale("log")
    return figure


GROUPS = {
    "21-first-token": ("21-first-token", draw_first_token),
    "22-beside-decode": ("22-beside-decode", draw_beside_decode),
}

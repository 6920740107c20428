# SPDX-License-Identifier: Apache-2.0
"""Drawings of layouts, for notebooks."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

_WIDTH, _BAR, _STEP, _LEFT = 640, 26, 58, 8
_NAMES = {"B": "blocks", "L": "layers", "O": "outer slots", "N": "tokens", "H": "heads", "C": "elements"}
_COLOURS = {"B": "#8ecae6", "L": "#ffb703", "O": "#fb8500", "N": "#95d5b2", "H": "#cdb4db", "C": "#e9ecef"}
_SHOWN = 8


class Axis(NamedTuple):
    """An axis of the memory, from the outermost on."""

    letter: str
    length: int
    stride: int
    """Bytes from one index to the next; 0 for an axis with separate regions."""
    size: int
    """Bytes of one index, without the gap to the next."""


def svg(title: str, axes: list[Axis]) -> str:
    """One bar per axis, divided into its indices. Each bar is one index of the bar above, enlarged."""
    height = 24 + _STEP * len(axes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _LEFT}" height="{height}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<text x="{_LEFT}" y="14" font-weight="bold">{escape(title)}</text>',
    ]
    top = 24.0
    for number, axis in enumerate(axes):
        parts += _bar(axis, top)
        if number + 1 < len(axes):
            end = _LEFT + _WIDTH / min(axis.length, _SHOWN)
            bottom, below = top + _BAR, top + _STEP
            lines = f"M{_LEFT} {bottom}V{below}M{end:.1f} {bottom}L{_LEFT + _WIDTH} {below}"
            parts.append(f'<path d="{lines}" stroke="#888" stroke-dasharray="3" fill="none"/>')
        top += _STEP
    return "".join(parts) + "</svg>"


def _bar(axis: Axis, top: float) -> list[str]:
    count = min(axis.length, _SHOWN)
    width = _WIDTH / count
    # What is between two indices, such as padding, stays white.
    filled = width * axis.size / axis.stride if axis.stride > axis.size else width
    drawn = []
    for index in range(count):
        x = _LEFT + index * width
        drawn.append(
            f'<rect x="{x:.1f}" y="{top}" width="{filled:.1f}" height="{_BAR}" fill="{_COLOURS[axis.letter]}" stroke="white"/>'
        )
        is_cut = count < axis.length and index == count - 2
        label = "…" if is_cut else str(axis.length - 1 if index == count - 1 else index)
        drawn.append(f'<text x="{x + filled / 2:.1f}" y="{top + 17}" text-anchor="middle">{label}</text>')
    step = f"every {axis.stride:,} bytes" if axis.stride else "a region each"
    drawn.append(f'<text x="{_LEFT + 4}" y="{top + _BAR + 14}">{axis.letter}: {axis.length:,} {_NAMES[axis.letter]}, {step}</text>')
    return drawn

# SPDX-License-Identifier: Apache-2.0
"""Why a transfer takes its method."""

from __future__ import annotations

from typing import NamedTuple

from kvmem import _constants as k
from kvmem._library import lib, text


class ComparedMethod(NamedTuple):
    """A method that was compared with others for a transfer."""

    method: k.Method
    choice: k.Choice
    bytes_per_second: int
    """Estimated; 0 if unknown."""
    assumed: bool
    """The throughput is a typical value: nothing was measured yet."""
    reason: str


class Explanation:
    """Why a transfer takes its method. `print` shows the text; notebooks show a table."""

    __slots__ = ("methods", "text")

    text: str
    methods: list[ComparedMethod]
    """The first is used."""

    def __init__(self, explained: str, methods: list[ComparedMethod]) -> None:
        self.text, self.methods = explained, methods

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<kvmem.Explanation {text(lib.kvmem_method_name(self.methods[0].method)) if self.methods else ''}>"

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><td>{html.escape(text(lib.kvmem_method_name(each.method)))}</td><td>{each.choice.name.lower().replace('_', ' ')}</td>"
            f"<td style='text-align:right'>{each.bytes_per_second / 1e9:.1f}{' (assumed)' if each.assumed else ''}</td>"
            f"<td style='text-align:left'>{html.escape(each.reason)}</td></tr>"
            for each in self.methods
        )
        return f"<table><tr><th>method</th><th>choice</th><th>GB/s</th><th>reason</th></tr>{rows}</table>"

# SPDX-License-Identifier: Apache-2.0
"""The shape that both sides of a put or get have."""

from __future__ import annotations

import kvmem


def shape_of(num_blocks: int, num_pieces: int, piece: int, order: str, block_stride: int = 0) -> kvmem.Shape:
    """Blocks of so many pieces of so many bytes each. Their content is not looked at, so a piece is one token of bytes."""
    return kvmem.Shape(
        num_blocks=num_blocks,
        num_layers=num_pieces,
        page_size=1,
        inner_dim=piece,
        dtype="uint8",
        outer_dim=1,
        order=order,
        block_stride=block_stride,
    )

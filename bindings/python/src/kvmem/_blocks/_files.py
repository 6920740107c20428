# SPDX-License-Identifier: Apache-2.0
"""The memory or file with the slots of a store, and the identity that both sides of a copy have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import kvmem


def shape_of(num_blocks: int, num_pieces: int, piece: int, order: str, identity: bytes, block_stride: int = 0) -> kvmem.Shape:
    """Blocks of so many pieces of so many bytes each. Their content is not looked at, so a piece is one token of bytes."""
    return kvmem.Shape(
        num_blocks=num_blocks,
        num_layers=num_pieces,
        page_size=1,
        inner_dim=piece,
        dtype="uint8",
        outer_dim=1,
        order=order,
        identity=identity,
        block_stride=block_stride,
    )


def store_layout(
    capacity: int, num_pieces: int, piece: int, identity: bytes, path: str | None, pinned: bool, reads_only: bool = False
) -> kvmem.Layout:
    """The slots of a store: in a file, which is opened if it exists, or in host memory."""
    shape = shape_of(capacity, num_pieces, piece, "BLC", identity)
    try:
        if path is not None:
            flags = kvmem.DiskFlags.OPEN_EXISTING | kvmem.DiskFlags.READ_ONLY if reads_only else kvmem.DiskFlags.OPEN_OR_CREATE
            flags |= kvmem.DiskFlags.BUFFERED
            return kvmem.Layout.allocate(shape, "disk", path=path, flags=flags)
        return kvmem.Layout.allocate(shape, "pinned" if pinned else "system")
    except kvmem.Error as error:
        where = f"the file {path} cannot be used" if path else "host memory for capacity_gib cannot be allocated"
        raise ValueError(f"kvmem: {where}: {error}") from error


def digest(identity: Mapping[str, str], rank: int) -> bytes:
    """The identity of the layouts of a worker."""
    text = json.dumps([dict(identity), rank], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32].encode()

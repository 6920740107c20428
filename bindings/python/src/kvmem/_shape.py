# SPDX-License-Identifier: Apache-2.0
"""The shape of a KV cache, and what a layout says of itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvmem import _constants as k
from kvmem import _errors
from kvmem._handle import Options, read
from kvmem._library import lib
from kvmem._tensor import width_of


class Shape(NamedTuple):
    """Shape of a KV cache. All sizes are those of this memory: with tensor parallelism, `num_heads` and `inner_dim` count the heads
    of this rank. Strides are in bytes; 0 is tight."""

    num_blocks: int
    """Blocks."""
    num_layers: int
    """Layers of the model."""
    page_size: int
    """Tokens per block."""
    inner_dim: int
    """Elements per token in one layer and outer slot, such as KV heads × head size."""
    order: str
    """Axes from the outermost to the innermost, such as "L/BONHC"; those before '/' have separate regions. See docs/layouts.md."""
    dtype: str = ""
    """Type of the elements, such as "bfloat16": of tensors, and the default of `dtype_width`."""
    dtype_width: int = 0
    """Bytes per element."""
    outer_dim: int = 2
    """2 if keys and values are separate, 1 if they are combined (MLA)."""
    num_heads: int = 0
    """KV heads; 0 if unknown."""
    alignment: int = 0
    """Bytes; 0 for 1."""
    identity: bytes = b""
    """What the blocks contain: the model, its revision, the data type. It is the same on all ranks. A file can be opened only with
    the identity that it was created with, and blocks move only between layouts of one identity."""
    block_stride: int = 0
    layer_stride: int = 0
    outer_stride: int = 0
    token_stride: int = 0
    head_stride: int = 0
    element_stride: int = 0

    def _config(self) -> Options:
        fields = self._asdict()
        dtype = fields.pop("dtype")
        if dtype:
            width = width_of(dtype)
            if self.dtype_width not in (0, width):
                raise _errors.InvalidArgument(f"dtype_width is {self.dtype_width}, and {dtype} has {width} bytes")
            fields["dtype_width"] = width
        identity = fields.pop("identity")
        return Options("layout_config", **fields, identity=identity or None, identity_size=len(identity))

    @property
    def requirements(self) -> Requirements:
        """The memory that the shape needs."""
        config = self._config()
        c = read(lib.kvmem_layout_get_requirements, "layout_requirements", config.c)
        return Requirements(c.num_regions, c.region_size, c.total_size, c.allocation_size)


def config_of(shape: Shape) -> Options:
    """The configuration of an argument, which must be a shape."""
    _errors.ensure_kind(shape, Shape, "shape", "kvmem.Shape")
    return shape._config()


class Requirements(NamedTuple):
    """Memory that a shape needs."""

    num_regions: int
    region_size: int
    """Bytes of each region."""
    total_size: int
    """Bytes of all regions."""
    allocation_size: int
    """Bytes of one allocation that contains all regions."""


class BlockAccess(NamedTuple):
    """An access to a block that may be in progress."""

    block: int
    accessor: k.Accessor
    reads: bool
    writes: bool
    user_data: Any
    """The object that was given for a run with a queue, until its last completion is taken; otherwise None."""
    remaining: float | None
    """Seconds until a lease ends, infinite if it ends when it is closed. None for others, whose end is not known."""
    pid: int
    """The process of a peer or of the holder of a lease, as it says; 0 for a run of this process."""
    agent: str
    """The agent of a peer; otherwise empty."""


class LayoutInfo(NamedTuple):
    """Properties of a layout. If it was combined from parts, fields of one shape are 0."""

    num_blocks: int
    num_layers: int
    outer_dim: int
    page_size: int
    inner_dim: int
    dtype_width: int
    alignment: int
    num_heads: int
    device_id: int
    """Device id of the first region in NIXL."""
    num_regions: int
    tier: k.Tier
    locality: k.Locality
    memory_type: k.MemoryType
    num_parts: int
    order: str
    block_stride: int
    layer_stride: int
    outer_stride: int
    token_stride: int
    head_stride: int
    element_stride: int
    identity: bytes
    layer_step: int
    """Regions from one layer to the next; 0 if layers share regions. The next three likewise."""
    outer_step: int
    token_step: int
    head_step: int
    piece_size: int
    """Bytes of a block in one layer and outer slot, if they are contiguous; else 0."""
    row_size: int
    """Contiguous bytes of one head of one token."""
    agent: str
    """Name of the agent; "" for none."""
    part_names: tuple[str, ...]
    """Names of the parts of a layout that was combined."""


class Strides(NamedTuple):
    """How the address of each row follows from its indices, for a kernel or a loop of the caller: `bases[layer * layer_step +
    outer * outer_step + token * token_step + head * head_step]`, plus each index times its stride, in bytes."""

    bases: tuple[int, ...]
    """Start of each region."""
    block_stride: int
    layer_stride: int
    outer_stride: int
    token_stride: int
    head_stride: int
    element_stride: int
    layer_step: int
    outer_step: int
    token_step: int
    head_step: int
    size: int
    """Bytes of a block in one layer and outer slot, if they are contiguous; else 0."""
    row_size: int
    """Contiguous bytes of one head of one token: all of its elements, or of one if others are in between."""

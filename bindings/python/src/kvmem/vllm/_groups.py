# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, unused-ignore"
# pyright: reportMissingImports=false
"""vLLM's cache groups as kvmem's layouts: a group's layers have pages of one size, and share block ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import kvmem
from kvmem._blocks._shape import shape_of


@dataclass(frozen=True)
class Group:
    """A cache group: layers that share block ids."""

    number: int
    layers: tuple[str, ...]
    page: int
    """Bytes of a block in one layer."""
    block_size: int
    """Tokens."""
    kind: str
    """Which blocks of a prefix a load needs: of "full" attention all, of a "window" or a "chunk" those that it covers, of a "state"
    the last."""
    window: int
    """Tokens of the window or chunk."""
    capacity: int = 0
    """Blocks in the store."""
    per_block: int = 1
    """Keys of a block: its units, if it is stored in units of tokens."""
    slots: int = 0
    """Units in the store of each head."""
    form: str = ""
    """What the bytes of a state mean: its tensors, and the kind of layer."""

    def key(self, block_hash: bytes) -> bytes:
        """The key of a block, as vLLM makes it."""
        return bytes(block_hash) + self.number.to_bytes(4, "big")

    def keys(self, hashes: Sequence[bytes], block: int) -> list[bytes]:
        """The keys of a block of a request, from the hashes of the request."""
        return [self.key(each) for each in hashes[block * self.per_block : (block + 1) * self.per_block]]

    def first_token(self, num_tokens: int) -> int:
        """The first token that the token after the first `num_tokens` needs."""
        if self.kind == "window":
            return max(0, num_tokens - self.window + 1)
        if self.kind == "chunk":
            return num_tokens // self.window * self.window
        if self.kind == "state":
            return max(0, num_tokens // self.block_size - 1) * self.block_size
        return 0

    def first_block(self, num_tokens: int) -> int:
        """The first block that the token after the first `num_tokens` needs."""
        return self.first_token(num_tokens) // self.block_size


def groups_of(cache: Any) -> list[Group]:
    """The groups of a KVCacheConfig."""
    found = []
    for number, group in enumerate(cache.kv_cache_groups):
        spec, specs = group.kv_cache_spec, _specs(group)
        pages = {each.page_size_bytes for each in specs}
        if len(pages) > 1:
            raise ValueError(f"kvmem: the layers of cache group {number} have pages of {sorted(pages)} bytes, and one size is supported: start without the connector")
        kind, window = _kind(specs[0])
        forms = sorted({f"{each.shapes} {each.dtypes} {each.mamba_type}" for each in specs}) if kind == "state" else []
        found.append(Group(number, tuple(group.layer_names), pages.pop(), spec.block_size, kind, window, form="; ".join(forms)))
    return found


def _specs(group: Any) -> list[Any]:
    """Those of the layers of a group."""
    inner = getattr(group.kv_cache_spec, "kv_cache_specs", None)
    return list(inner.values()) if inner else [group.kv_cache_spec]


def attention_of(cache: Any) -> Any | None:
    """The first specification of a KVCacheConfig that has keys and values. None if all have states."""
    return next((group.kv_cache_spec for group in cache.kv_cache_groups if _kind(_specs(group)[0])[0] != "state"), None)


def ensure_hashed(groups: Sequence[Group], hash_block_size: int) -> None:
    """Raises ValueError if a block has no hash of its own."""
    for group in groups:
        if group.block_size != hash_block_size:
            raise ValueError(
                f"kvmem: cache group {group.number} has blocks of {group.block_size} tokens, and vLLM hashes blocks of {hash_block_size}: "
                f"set --block-size so that both are equal, or start without the connector"
            )


def stored_groups(groups: Sequence[Group], capacity_bytes: int) -> list[Group]:
    """The groups with the blocks that each may store: they share `capacity_bytes` of a worker."""
    found = []
    for group in groups:
        size = group.page * len(group.layers)
        capacity = capacity_bytes // len(groups) // size
        if capacity < 1:
            raise ValueError(f"kvmem: capacity_gib has {capacity_bytes:,} bytes, and a block of group {group.number} needs {size:,}: set more")
        found.append(replace(group, capacity=capacity))
    return found


def _kind(spec: Any) -> tuple[str, int]:
    name = type(spec).__name__
    if name.startswith("SlidingWindow"):
        return "window", int(spec.sliding_window)
    if name == "ChunkedLocalAttentionSpec":
        return "chunk", int(spec.attention_chunk_size)
    if name == "MambaSpec":
        return "state", 0
    return "full", 0


def cache_layout(group: Group, caches: dict[str, Any], num_blocks: int) -> kvmem.Layout:
    """The blocks of a group in vLLM's memory, as bytes, from the strides of its tensors."""
    tensors = [_first(caches[name]) for name in group.layers]
    strides = {block_stride(tensor, num_blocks) for tensor in tensors}
    if len(strides) > 1:
        raise ValueError(f"kvmem: the layers of cache group {group.number} have block strides of {sorted(strides)} bytes, and one is supported")
    shape = shape_of(num_blocks, len(group.layers), group.page, "L/BC", strides.pop())
    regions: list[kvmem.Region] = []
    try:
        for tensor in tensors:
            regions.append(region_of(tensor, (num_blocks - 1) * shape.block_stride + group.page))
        return kvmem.Layout.of_regions(shape, regions)
    finally:
        for region in regions:
            region.close()


def _first(cache: Any) -> Any:
    """A layer's tensor; of a state's tensors the first, because they share its page."""
    return cache[0] if isinstance(cache, (list, tuple)) else cache


def block_stride(tensor: Any, num_blocks: int) -> int:
    """Bytes between two blocks, of which the kernels may see each as several."""
    size, width = tensor.shape[0], tensor.element_size()
    if size % num_blocks:
        raise ValueError(f"kvmem: a layer's cache has the shape {tuple(tensor.shape)}, which is not that of {num_blocks} blocks")
    inner = sorted((stride, length) for stride, length in zip(tensor.stride()[1:], tensor.shape[1:]) if length > 1)
    expected = 1
    for stride, length in inner:
        if stride != expected:
            raise ValueError(
                f"kvmem: the bytes of a block are not contiguous in a layer's cache of shape {tuple(tensor.shape)} and strides {tensor.stride()}: "
                "set VLLM_KV_CACHE_LAYOUT to a layout in which blocks are outside of heads, such as LBNHC"
            )
        expected *= length
    return int(tensor.stride(0) * width * (size // num_blocks))


def region_of(tensor: Any, size: int) -> kvmem.Region:
    """A range of bytes of a tensor's memory from its first element on."""
    import torch

    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    offset = tensor.data_ptr() - storage.data_ptr()
    return kvmem.Region.adopt(flat[offset : offset + size])

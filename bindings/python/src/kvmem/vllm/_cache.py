# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, unused-ignore"
# pyright: reportMissingImports=false
"""vLLM's cache as layouts that other engines read: whole blocks for equal engines, and tokens and heads for others. A state has no tokens."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kvmem
from kvmem._blocks._shape import shape_of
from kvmem.vllm._groups import Group, block_stride

RegionOf = Callable[[int, int], kvmem.Region]
"""The region of an address and a size in bytes, the same for the same range: an agent registers it once. It is closed with its CacheMemory."""


@dataclass
class GroupLayouts:
    """The blocks of a cache group, described twice."""

    blocks: kvmem.Layout | None
    """Whole blocks, as bytes per head if the heads of a block are apart. None if the bytes of a block are not adjacent."""
    tokens: kvmem.Layout | None
    """With tokens, heads and elements. None if the packing of a block cannot be described."""
    page_size: int
    """Tokens of a block of `tokens`."""
    pages: int = 1
    """Blocks of `tokens` that a block has."""
    obstacle: str = ""
    """Why there are no tokens."""
    is_state: bool = False
    """A block has a state: one block stands for all tokens before it."""

    @property
    def whole(self) -> kvmem.Layout:
        """The layout for checksums of blocks."""
        found = self.blocks or self.tokens
        assert found is not None
        return found

    def create_epochs(self) -> None:
        """Gives blocks epochs, before they are published, by which decode finds that a block was reused."""
        for layout in self._layouts:
            layout.create_epochs()

    def epochs(self, ids: Sequence[int]) -> list[int]:
        """Those of blocks. Both layouts are raised together, so each page of a block has the epoch of the block."""
        return self.blocks.epochs(ids) if self.blocks is not None else self.whole.epochs([block * self.pages for block in ids])

    def raise_epochs(self, ids: Sequence[int]) -> None:
        """Ends the use of blocks: a read that expects the epochs before it is stale."""
        if self.blocks is not None:
            self.blocks.raise_epochs(ids)
        if self.tokens is not None:
            self.tokens.raise_epochs([block * self.pages + at for block in ids for at in range(self.pages)])

    def published(self, number: int) -> dict[str, kvmem.Layout]:
        """The layouts by the names that they have in the directory."""
        named = {f"blocks-{number}": self.blocks, f"tokens-{number}": self.tokens}
        return {name: layout for name, layout in named.items() if layout is not None}

    def close(self) -> None:
        """Closes both."""
        for layout in self._layouts:
            layout.close()

    @property
    def _layouts(self) -> list[kvmem.Layout]:
        return [layout for layout in (self.blocks, self.tokens) if layout is not None]


def layouts_of(
    group: Group, caches: Mapping[str, Any], num_blocks: int, model: Mapping[str, str], packing: str, region_of: RegionOf, agent: kvmem.Agent | None
) -> GroupLayouts:
    """The layouts of a group, from vLLM's tensors, which have the axes block, head, token, element."""
    common = {**model, "layers": ", ".join(group.layers), "kind": f"{group.kind} {group.window}"}
    if group.kind == "state":
        return _states(group, caches, num_blocks, common, region_of, agent)
    tensors = _tensors(group, caches)
    tokens, obstacle = _tokens(tensors, packing, region_of, _digest(common), agent)
    form = {**common, "packing": packing, "block size": str(group.block_size), "order": _order(tensors[0])}
    try:
        blocks = _blocks(group, tensors, num_blocks, region_of, _digest(form), agent)
    except ValueError:
        if tokens is None:
            raise
        blocks = None
    page_size = int(tensors[0].shape[2])
    return GroupLayouts(blocks, tokens, page_size, group.block_size // page_size, obstacle)


def token_layout(group: Group, caches: Mapping[str, Any], packing: str, region_of: RegionOf) -> kvmem.Layout:
    """The blocks of a group with tokens and heads, in this process. Raises ValueError if they cannot be described."""
    tensors = _tensors(group, caches)
    layout, obstacle = _tokens(tensors, packing, region_of, b"", None)
    if layout is None:
        raise ValueError(f"kvmem: the tokens of cache group {group.number} are not found, because {obstacle}: start without the connector")
    return layout


def _tensors(group: Group, caches: Mapping[str, Any]) -> list[Any]:
    tensors = [caches[name] for name in group.layers]
    if any(isinstance(tensor, (list, tuple)) or tensor.dim() != 4 for tensor in tensors):
        raise ValueError(f"kvmem: the layers of cache group {group.number} have no keys and values per token: start without the connector")
    return tensors


def _states(
    group: Group, caches: Mapping[str, Any], num_blocks: int, common: Mapping[str, str], region_of: RegionOf, agent: kvmem.Agent | None
) -> GroupLayouts:
    """The states of a group, as bytes. Those of a layer are several tensors in one page, which may end with bytes that no tensor has."""
    layers = [tensors_of(caches[name]) for name in group.layers]
    starts = [min(int(tensor.data_ptr()) for tensor in tensors) for tensors in layers]
    forms = {_form_of_state(tensors, start) for tensors, start in zip(layers, starts)}
    strides = {block_stride(tensor, num_blocks) for tensors in layers for tensor in tensors}
    if len(forms) > 1 or len(strides) > 1:
        raise ValueError(f"kvmem: the states of cache group {group.number} differ in form between its layers: start without the connector")
    form, size = forms.pop()
    identity = _digest({**common, "state": form, "form": group.form})
    shape = shape_of(num_blocks, len(layers), size, "BC", strides.pop())._replace(identity=identity)
    blocks = _built(shape, starts, (num_blocks - 1) * shape.block_stride + size, {"B": shape.block_stride, "C": 1}, region_of, agent)
    return GroupLayouts(blocks, None, group.block_size, obstacle="a state is read as a whole, by ranks that have the same part of it", is_state=True)


def _form_of_state(tensors: Sequence[Any], start: int) -> tuple[str, int]:
    """What the bytes of a state mean, and their number."""
    parts = [(int(tensor.data_ptr()) - start, tuple(tensor.shape[1:]), tuple(tensor.stride()[1:]), tensor.element_size(), str(tensor.dtype)) for tensor in tensors]
    size = max(begin + math.prod(shape) * width for begin, shape, _, width, _ in parts)
    return "; ".join(f"{shape} {strides} {dtype} at {begin}" for begin, shape, strides, _, dtype in parts), size


def tensors_of(cache: Any) -> list[Any]:
    """The tensors of a layer: one of keys and values, or those of its state."""
    return list(cache) if isinstance(cache, (list, tuple)) else [cache]


def _digest(properties: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()[:32].encode()


def _order(tensor: Any) -> str:
    """The axes of a tensor from the outermost to the innermost."""
    return "".join(axis for _, _, axis in sorted((-tensor.stride(at), at, axis) for at, axis in enumerate("BHNC")))


def _blocks(group: Group, tensors: Sequence[Any], num_blocks: int, region_of: RegionOf, identity: bytes, agent: Any) -> kvmem.Layout:
    first = tensors[0]
    strides = {block_stride(tensor, num_blocks) for tensor in tensors}
    if len(strides) > 1:
        raise ValueError(f"kvmem: the layers of cache group {group.number} have block strides of {sorted(strides)} bytes, and one is supported")
    # The heads of a block are apart if nothing but blocks is outside of them, and the kernels see a block as one page.
    apart = _order(first) in ("BHNC", "BHCN") and first.shape[0] == num_blocks
    heads = int(first.shape[1]) if apart else 0
    shape = kvmem.Shape(
        num_blocks=num_blocks, num_layers=len(tensors), page_size=1, inner_dim=group.page, dtype="uint8", outer_dim=1, block_stride=strides.pop(),
        order="BHC" if apart else "BC", num_heads=heads, identity=identity,
    )  # fmt: skip
    size = (num_blocks - 1) * shape.block_stride + group.page
    inside = {"B": shape.block_stride, "H": group.page // max(heads, 1), "C": 1}
    return _built(shape, [tensor.data_ptr() for tensor in tensors], size, inside, region_of, agent)


def _built(shape: kvmem.Shape, starts: Sequence[int], size: int, strides: Mapping[str, int], region_of: RegionOf, agent: Any) -> kvmem.Layout:
    """A layout whose layers begin at `starts`, and have `size` bytes from the first element to the last: with a region per layer, or with one
    for all if the layers are interleaved. `strides` are those of the axes of the shape's order, which has no layers."""
    steps = {after - before for before, after in zip(starts, starts[1:])}
    if all(abs(step) >= size for step in steps):
        apart = shape._replace(order="L/" + shape.order)
        return kvmem.Layout.of_regions(apart, [region_of(start, size) for start in starts], agent=agent)
    step = steps.pop()
    if steps or step <= 0:
        raise ValueError("kvmem: layers that are interleaved are not at equal distances: set VLLM_KV_CACHE_LAYOUT to LBNHC or LBHNC")
    at = next((at for at, axis in enumerate(shape.order) if strides[axis] < step), len(shape.order))
    mixed = shape._replace(order=f"{shape.order[:at]}L{shape.order[at:]}", layer_stride=step)
    return kvmem.Layout.of_regions(mixed, [region_of(starts[0], size + (len(starts) - 1) * step)], agent=agent)


def _tokens(tensors: Sequence[Any], packing: str, region_of: RegionOf, identity: bytes, agent: Any) -> tuple[kvmem.Layout | None, str]:
    if packing == "none":
        return _from_strides(tensors, region_of, identity, agent), ""
    if packing in ("vec", "vec16"):
        return _keys_and_values(tensors, region_of, identity, agent), ""
    return None, f"the CPU packs them for {packing}"


def _from_strides(tensors: Sequence[Any], region_of: RegionOf, identity: bytes, agent: Any) -> kvmem.Layout:
    first = tensors[0]
    width = first.element_size()
    blocks, heads, tokens, elements = (int(length) for length in first.shape)
    strides: dict[str, Any] = {f"{name}_stride": int(first.stride(at)) * width if first.shape[at] > 1 else 0 for at, name in enumerate(("block", "head", "token", "element"))}
    shape = kvmem.Shape(
        num_blocks=blocks, num_layers=len(tensors), page_size=tokens, inner_dim=heads * elements, dtype_width=width, outer_dim=1, num_heads=heads,
        order=_order(first), identity=identity, **strides,
    )  # fmt: skip
    size = sum((length - 1) * stride for length, stride in zip(first.shape, first.stride())) * width + width
    inside = {axis: int(first.stride(at)) * width for at, axis in enumerate("BHNC")}
    return _built(shape, [tensor.data_ptr() for tensor in tensors], size, inside, region_of, agent)


def _keys_and_values(tensors: Sequence[Any], region_of: RegionOf, identity: bytes, agent: Any) -> kvmem.Layout:
    """The CPU backend's packing for vector instructions: per block and head the keys as elements × tokens, then the values as tokens ×
    elements."""
    first = tensors[0]
    width = first.element_size()
    blocks, heads, tokens, both = (int(length) for length in first.shape)
    elements = both // 2
    half = tokens * elements * width
    common: dict[str, Any] = dict(
        num_blocks=blocks, num_layers=len(tensors), page_size=tokens, inner_dim=heads * elements, dtype_width=width, outer_dim=1, num_heads=heads,
        block_stride=int(first.stride(0)) * width, head_stride=2 * half, identity=identity,
    )  # fmt: skip
    size = (blocks - 1) * common["block_stride"] + (heads - 1) * 2 * half + half
    parts = {}
    try:
        for name, order, begin in (("keys", "BHCN", 0), ("values", "BHNC", half)):
            regions = [region_of(tensor.data_ptr() + begin, size) for tensor in tensors]
            parts[name] = kvmem.Layout.of_regions(kvmem.Shape(order="L/" + order, **common), regions, agent=agent)
        return kvmem.Layout.combine(parts)
    finally:
        for part in parts.values():
            part.close()


class CacheMemory:
    """The memory of a cache as regions."""

    def __init__(self, regions: Sequence[kvmem.Region]) -> None:
        """Owns the regions."""
        self._regions = [(region.info.address, len(region), region) for region in regions]
        self._parts: dict[tuple[int, int], kvmem.Region] = {}

    @classmethod
    def of_tensors(cls, caches: Mapping[str, Any], shared: bool) -> CacheMemory:
        """The memory of vLLM's tensors. With `shared`, host memory is moved to a file in memory, which other processes can map; all tensors
        follow."""
        regions: dict[int, kvmem.Region] = {}
        for tensor in (tensor for cache in caches.values() for tensor in tensors_of(cache)):
            storage = tensor.untyped_storage()
            if storage.data_ptr() in regions:
                continue
            region = _shared(storage) if shared and not tensor.is_cuda else _adopted(storage, tensor.device)
            regions[storage.data_ptr()] = region
        return cls(list(regions.values()))

    def region_of(self, address: int, size: int) -> kvmem.Region:
        """The region of a part of the memory."""
        key = (address, size)
        if key not in self._parts:
            found = [(start, region) for start, length, region in self._regions if start <= address and address + size <= start + length]
            if not found:
                raise ValueError(f"kvmem: {size} bytes at {address:#x} are in no tensor of the cache: start without the connector")
            self._parts[key] = found[0][1].view(address - found[0][0], size)
        return self._parts[key]

    def close(self) -> None:
        """Closes the handles. Layouts keep what they use."""
        for region in (*self._parts.values(), *(region for _, _, region in self._regions)):
            region.close()


def _adopted(storage: Any, device: Any) -> kvmem.Region:
    import torch

    return kvmem.Region.adopt(torch.empty(0, dtype=torch.uint8, device=device).set_(storage))


def _shared(storage: Any) -> kvmem.Region:
    """PyTorch's file for memory that processes share is on /dev/shm; the process ends with SIGBUS if it has no space there."""
    free = os.statvfs("/dev/shm")
    if free.f_bavail * free.f_frsize < storage.nbytes():
        raise ValueError(
            f"kvmem: /dev/shm has {free.f_bavail * free.f_frsize:,} bytes, and the cache needs {storage.nbytes():,} there to be mapped by decode: "
            "enlarge it, such as by docker --shm-size, or set access to nixl"
        )
    fd, size = storage._share_fd_cpu_()
    return kvmem.Region.adopt_memfd(fd, size, address=storage.data_ptr(), owner=storage)

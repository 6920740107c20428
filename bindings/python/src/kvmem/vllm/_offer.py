# SPDX-License-Identifier: Apache-2.0
"""What prefill and decode tell each other: `kv_transfer_params`, which pass through a router, messages between agents, and what the
scheduler of an engine tells its workers."""

from __future__ import annotations

import array
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MAX_ID = 2**32 - 1
_MAX_RANKS = 4096


@dataclass(frozen=True)
class Offer:
    """The blocks of a request that prefill has computed."""

    engine: str
    request: str
    """Its id at prefill."""
    num_tokens: int
    ranks: int
    """Tensor parallelism of prefill."""
    block_sizes: tuple[int, ...]
    """Per cache group."""
    blocks: tuple[tuple[int, ...], ...]
    """Block ids per cache group; 0 for those that are out of a window."""
    prompt: str
    """A hash of the tokens; "" if there are none, as with embeddings."""

    def params(self) -> dict[str, Any]:
        """The `kv_transfer_params` of decode. The names are those that vLLM's routers know."""
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.engine,
            "remote_request_id": self.request,
            "remote_num_tokens": self.num_tokens,
            "remote_block_ids": [list(ids) for ids in self.blocks],
            "remote_block_sizes": list(self.block_sizes),
            "remote_prompt": self.prompt,
            "tp_size": self.ranks,
        }

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Offer:
        """Reads `kv_transfer_params`, which anything may have changed on the way."""
        blocks = params.get("remote_block_ids")
        if not isinstance(blocks, list) or not all(isinstance(ids, list) for ids in blocks):
            raise ValueError(f"remote_block_ids is {_short(blocks)}, and must be a list per cache group")
        sizes = _numbers(params, "remote_block_sizes", params.get("remote_block_sizes"), 1)
        if len(sizes) != len(blocks):
            raise ValueError(f"remote_block_sizes has {len(sizes)} groups, and remote_block_ids {len(blocks)}")
        (num_tokens, ranks) = _numbers(params, "remote_num_tokens and tp_size", [params.get("remote_num_tokens"), params.get("tp_size")], 1)
        if ranks > _MAX_RANKS:  # the thread that serves all requests goes through them
            raise ValueError(f"tp_size is {ranks}, and must be at most {_MAX_RANKS}")
        return cls(
            _text(params, "remote_engine_id"), _text(params, "remote_request_id"), num_tokens, ranks, sizes,
            tuple(_numbers(params, "remote_block_ids", ids, 0) for ids in blocks), str(params.get("remote_prompt") or ""),
        )  # fmt: skip


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {_short(value)}, and must be a text")
    return value


def _numbers(params: Mapping[str, Any], name: str, values: Any, least: int) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and least <= value <= _MAX_ID for value in values):
        raise ValueError(f"{name} is {_short(values)}, and must be numbers from {least} on")
    return tuple(values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def prompt_hash(tokens: Sequence[int] | None) -> str:
    """A hash of tokens, by which decode finds that its prompt is another one."""
    return hashlib.sha256(array.array("q", tokens).tobytes()).hexdigest()[:32] if tokens else ""


def agent_name(engine: str, rank: int) -> str:
    """The name of a worker's agent in the directory."""
    return f"vllm-{engine}-{rank}"


# ---- messages between agents ----


def message(what: str, **fields: Any) -> bytes:
    """A message to another agent: "ask", "done" of decode; "grant", "kept", "gone" of prefill."""
    return json.dumps({"kvmem.vllm": what, **fields}).encode()


def read_message(data: bytes) -> dict[str, Any] | None:
    """The fields of a message; None if it is none of these."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("kvmem.vllm"), str) else None


# ---- from the scheduler to the workers, pickled ----


@dataclass
class Hold:
    """A request of prefill whose blocks are kept."""

    request: str
    blocks: tuple[tuple[int, ...], ...]


@dataclass
class Ask:
    """A request of decode that runs when prefill has confirmed that it keeps the blocks."""

    request: str
    offer: Offer


@dataclass
class Pull(Ask):
    """A request of decode that waits for blocks of prefill."""

    blocks: tuple[tuple[int, ...], ...]
    """Block ids of decode per cache group; 0 for those that are out of a window."""
    first_token: int
    """The first token that decode does not have."""
    num_tokens: int
    """Tokens that it has after the pull."""
    by_layer: bool = False
    """The request runs in this step, which waits for each layer. It was asked for before."""


@dataclass
class HandoverStep:
    """What the workers begin in a step."""

    holds: list[Hold] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    drops: list[Offer] = field(default_factory=list)
    """Offers that decode does not need: prefill frees their blocks."""

    def __bool__(self) -> bool:
        return bool(self.holds or self.asks or self.pulls or self.drops)


@dataclass
class Replies:
    """From the workers of decode to the scheduler: what ranks of prefill have replied. Those of several ranks are merged."""

    granted: dict[str, set[int]] = field(default_factory=dict)
    """Request: the ranks of decode for which prefill keeps its blocks."""
    refused: set[str] = field(default_factory=set)
    """Requests whose blocks a rank cannot get."""

    def merge(self, other: Replies) -> None:
        """Adds those of another rank."""
        for request, ranks in other.granted.items():
            self.granted.setdefault(request, set()).update(ranks)
        self.refused |= other.refused

    def __bool__(self) -> bool:
        return bool(self.granted or self.refused)

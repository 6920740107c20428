# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side of the handover: which requests prefill keeps, and which blocks decode pulls. It moves no bytes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kvmem.vllm._groups import Group
from kvmem.vllm._offer import Ask, HandoverStep, Hold, Offer, Pull, Replies, prompt_hash

logger = logging.getLogger("vllm.kvmem")


class HandoverScheduler:
    """Offers requests that prefill has computed, and plans pulls of those that decode gets. A request says by its `kv_transfer_params`
    which of the two it is, as in vLLM's own connectors: `do_remote_decode` at prefill, `do_remote_prefill` at decode."""

    def __init__(self, groups: Sequence[Group], engine: str, ranks: int, produces: bool, consumes: bool, by_layer: bool = False) -> None:
        self._groups, self._engine, self._ranks = groups, engine, ranks
        self._produces, self._consumes, self._by_layer = produces, consumes, by_layer
        self._computed: dict[str, int] = {}
        self._granted: dict[str, set[int]] = {}
        """Requests that are pulled by layer, and wait for a reply of prefill: the ranks that have one."""
        self._denied: set[str] = set()
        """Those whose blocks a rank cannot get."""
        self._offers: dict[str, Offer] = {}
        self._step = HandoverStep()

    # ---- prefill ----

    def arrived(self, request: Any) -> None:
        """A request has arrived. With windows or states, prefill leaves the last token to decode, which computes it in any case: otherwise the
        first token of its window may be freed before it is pulled, and no state is that before it."""
        params = request.kv_transfer_params or {}
        if not (self._produces and params.get("do_remote_decode")) or all(group.kind == "full" for group in self._groups):
            return
        if params.get("_last_token_left") or request.num_prompt_tokens < 2 or request.prompt_token_ids is None:
            return
        del request.prompt_token_ids[-1:], request._all_token_ids[-1:]
        request.num_prompt_tokens -= 1
        request.max_tokens = 1
        params["_last_token_left"] = True

    def _offered(self, request: Any, blocks: Sequence[Sequence[int]]) -> dict[str, Any] | None:
        if not any(blocks):
            return None
        count = min(request.num_computed_tokens, request.num_prompt_tokens)
        ids = tuple(_state_after(count, group.block_size, table) if group.kind == "state" else tuple(table) for group, table in zip(self._groups, blocks))
        for group, table in zip(self._groups, ids):
            if group.kind == "state" and (request.num_computed_tokens > count or not any(table)):
                logger.warning("kvmem: request %s is not offered, because the states of cache group %d are not those of its prompt", request.request_id, group.number)
                return None
        self._step.holds.append(Hold(request.request_id, ids))
        sizes = tuple(group.block_size for group in self._groups)
        prompt = prompt_hash((request.prompt_token_ids or ())[:count])
        return Offer(self._engine, request.request_id, count, self._ranks, sizes, ids, prompt).params()

    # ---- decode ----

    def matched(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        """How many tokens after the first `num_computed` prefill has, and whether the request waits until they have arrived. Otherwise it
        runs, and its step waits for each layer. None: prefill has not replied yet."""
        count = self._offered_to(request, num_computed)
        offer = self._offers.get(request.request_id)
        if not count or offer is None or not self._pulls_by_layer(offer):
            return count, count > 0
        # The last token is computed in this step, and written to its block before the step waits for a layer: only the blocks before it
        # may be pulled.
        size = self._groups[0].block_size
        whole = min(num_computed + count, request.num_prompt_tokens - 1) // size * size - num_computed
        if whole <= 0 or request.request_id in self._denied:
            return 0, False
        if request.request_id not in self._granted:
            self._granted[request.request_id] = set()
            self._step.asks.append(Ask(request.request_id, offer))
        return (whole if len(self._granted[request.request_id]) == self._ranks else None), False

    def _pulls_by_layer(self, offer: Offer) -> bool:
        """Other blocks are compared with their source as a whole, and vLLM can compute a request with several cache groups again only before
        it runs."""
        return self._by_layer and offer.block_sizes == (self._groups[0].block_size,) and offer.ranks == self._ranks

    def replied(self, replies: Replies) -> None:
        """What prefill has replied to the workers."""
        for request, ranks in replies.granted.items():
            if request in self._granted:
                self._granted[request] |= ranks
        self._denied |= replies.refused & self._granted.keys()

    def _offered_to(self, request: Any, num_computed: int) -> int:
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return 0
        if not self._consumes:
            return self._refused(request, "kv_role of this engine is kv_producer: set kv_consumer or kv_both")
        try:
            offer = Offer.of(params)
        except ValueError as error:
            return self._refused(request, f"its kv_transfer_params are not those of a prefill engine: {error}")
        self._computed[request.request_id], self._offers[request.request_id] = num_computed, offer
        reason = self._obstacle(request, offer)
        if reason:
            return self._refused(request, reason)
        return max(min(offer.num_tokens, int(request.num_prompt_tokens)) - num_computed, 0)

    def _refused(self, request: Any, reason: str) -> int:
        logger.warning("kvmem: request %s is computed again, because %s", request.request_id, reason)
        return 0

    def _obstacle(self, request: Any, offer: Offer) -> str:
        """Why the blocks of an offer are of no use."""
        count = min(offer.num_tokens, request.num_prompt_tokens)
        if len(offer.blocks) != len(self._groups):
            return f"prefill has {len(offer.blocks)} cache groups, and this engine {len(self._groups)}: start both with the same model and settings"
        tokens = request.prompt_token_ids
        if offer.prompt and (not tokens or offer.num_tokens > len(tokens) or prompt_hash(tokens[: offer.num_tokens]) != offer.prompt):
            return "prefill has computed another prompt: send the same tokens to both"
        for group, size, blocks in zip(self._groups, offer.block_sizes, offer.blocks):
            if len(blocks) * size < count:
                return f"prefill has {len(blocks) * size} tokens of cache group {group.number}, and offers {count}"
            if group.kind == "full":
                continue
            if group.kind == "state":
                # A state cannot be shortened, and the last token is computed from the one before it.
                if offer.num_tokens >= request.num_prompt_tokens:
                    return f"prefill has computed {offer.num_tokens} tokens, and the states of cache group {group.number} are those after them: send decode at least one more token"
                if not offer.prompt or not blocks[-1] or any(blocks[:-1]):
                    return f"prefill offers no state of cache group {group.number} after {offer.num_tokens} tokens"
                continue
            if size % group.block_size:
                return (
                    f"cache group {group.number} has a window, with blocks of {size} tokens at prefill and of {group.block_size} here: "
                    "set --block-size of decode so that it divides that of prefill"
                )
            if num_missing(blocks) * size > group.first_token(count):
                return f"prefill has freed blocks of cache group {group.number} that are within its window"
        return ""

    def allocated(self, request: Any, blocks: Sequence[Sequence[int]], num_loaded: int) -> None:
        """vLLM has given blocks to the tokens that are pulled."""
        offer = self._offers.pop(request.request_id, None)
        first = self._computed.pop(request.request_id, 0)
        by_layer = self._forget(request.request_id)
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return
        params["do_remote_prefill"] = False  # once per request: after a failure or a preemption its blocks are computed
        if offer is None:
            return
        if not num_loaded:
            self._step.drops.append(offer)
            return
        ids = tuple(tuple(group) for group in blocks)
        self._step.pulls.append(Pull(request.request_id, offer, ids, first, first + num_loaded, by_layer))

    def _forget(self, request: str) -> bool:
        """Ends the wait for a reply. Returns whether there was one."""
        self._denied.discard(request)
        return self._granted.pop(request, None) is not None

    # ---- both ----

    def finished(self, request: Any, blocks: Sequence[Sequence[int]], computed: bool) -> tuple[bool, dict[str, Any] | None]:
        """A request has ended, `computed` unless it was aborted. Returns whether its blocks are kept, and what decode needs to pull them."""
        params = request.kv_transfer_params or {}
        self._computed.pop(request.request_id, None)
        self._offers.pop(request.request_id, None)
        self._forget(request.request_id)
        if params.get("do_remote_prefill") and self._consumes:
            params["do_remote_prefill"] = False
            try:  # aborted before blocks were allocated: prefill need not keep its own
                self._step.drops.append(Offer.of(params))
            except ValueError:
                pass  # no offer of a prefill engine
            return False, None
        if not params.get("do_remote_decode") or not computed:
            return False, None
        if not self._produces:
            logger.warning("kvmem: request %s is not offered, because kv_role is kv_consumer: set kv_producer or kv_both", request.request_id)
            return False, None
        offered = self._offered(request, blocks)
        return offered is not None, offered

    def step(self) -> HandoverStep:
        """What the workers begin in this step."""
        made, self._step = self._step, HandoverStep()
        return made

    @property
    def has_work(self) -> bool:
        """Whether the workers do not know of something yet."""
        return bool(self._step)

    def close(self) -> None:
        """Nothing is open."""


def state_place(num_tokens: int, block_size: int) -> int:
    """The index of the block that has the state after so many tokens."""
    return (num_tokens - 1) // block_size


def _state_after(num_tokens: int, block_size: int, table: Sequence[int]) -> tuple[int, ...]:
    """The blocks of a table of states without those that have the state of fewer tokens, or are for tokens to come."""
    at = state_place(num_tokens, block_size)
    return (0,) * at + tuple(table[at : at + 1])


def num_missing(blocks: Sequence[int]) -> int:
    """How many blocks at the start of a table are out of a window."""
    return next((at for at, block in enumerate(blocks) if block), len(blocks))

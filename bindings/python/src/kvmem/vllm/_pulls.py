# SPDX-License-Identifier: Apache-2.0
"""Pulls of decode: the blocks of a request are read from each rank of prefill that has some of them."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import kvmem
from kvmem._blocks._counters import add
from kvmem.vllm._cache import GroupLayouts
from kvmem.vllm._handover_scheduler import num_missing, state_place
from kvmem.vllm._offer import Ask, Offer, Pull, agent_name, message
from kvmem.vllm._peers import Peers
from kvmem.vllm._pull_state import LegState, PullState, Run, of_pages, page_size_of, stale_blocks, table
from kvmem.vllm._ranks import Leg

logger = logging.getLogger("vllm.kvmem")


_ALL = 1 << 30
"""Layers of a run that has ended."""


class Pulls:
    """The requests that a rank of decode waits for. One thread uses it."""

    def __init__(
        self, groups: Sequence[GroupLayouts], block_sizes: Sequence[int], legs: Callable[[int], Sequence[Leg]], peers: Peers,
        queue: kvmem.Queue, *, verify: bool, timeout: float,
    ) -> None:  # fmt: skip
        """`legs` returns the legs to an engine with so many ranks."""
        self._groups, self._block_sizes, self._legs, self._peers, self._queue = groups, block_sizes, legs, peers, queue
        self._verify, self._timeout, self._has_states = verify, timeout, any(group.is_state for group in groups)
        self._pulls: dict[int, PullState] = {}
        self._tags = itertools.count(1)
        self.received: dict[str, set[int] | None] = {}
        """Requests that wait no longer: with the blocks of the first group that must be computed; None if all have arrived."""
        self.promised: set[str] = set()
        """Requests that were asked for, and that prefill keeps."""
        self.refused: set[str] = set()
        """Requests that were asked for, and whose blocks cannot be read."""
        self.counters: dict[str, Any] = {}

    # ---- begin ----

    def ask(self, asked: Ask, now: float) -> None:
        """Asks each rank of prefill that has blocks of the request, which then waits for `begin`."""
        self._ask(PullState(asked, next(self._tags), now))

    def begin(self, pull: Pull, now: float) -> None:
        """Pulls a request, which may have been asked for."""
        state = next((state for state in self._pulls.values() if state.pull is None and state.asked.request == pull.request), None)
        if state is None:
            self._ask(PullState(pull, next(self._tags), now, pull))
            return
        state.pull, state.begun = pull, now
        for each in state.legs.values():
            if each.sums is not None:
                self._read(state, each)

    def _ask(self, state: PullState) -> None:
        offer = state.asked.offer
        # First of all: from now on it ends, whatever fails.
        self._pulls[state.tag] = state
        try:
            legs = self._legs(offer.ranks)
        except Exception as error:  # the offer has passed through a router: other requests go on
            legs = []
            self._fail(state, f"its blocks cannot be divided: {error!r}")
        for leg in legs:
            name = agent_name(offer.engine, leg.rank)
            state.legs[name] = LegState(name, leg)
        for each in state.legs.values():
            if each.leg.reads:
                self._send(state, each, message("ask", request=offer.request, tag=state.tag))
            else:
                self._confirm(state, each, False)
        self._end_if_done(state)

    def drop(self, offer: Offer) -> None:
        """Tells prefill that its blocks are not needed."""
        for tag in [tag for tag, state in self._pulls.items() if state.pull is None and state.asked.offer == offer]:
            del self._pulls[tag]
        try:
            legs = self._legs(offer.ranks)
        except Exception as error:  # as in `_ask`
            logger.info("kvmem: request %s is kept by prefill until its lease ends: its blocks cannot be divided: %r", offer.request, error)
            return
        for leg in legs:
            self._tell(agent_name(offer.engine, leg.rank), offer, leg)

    def _send(self, state: PullState, each: LegState, data: bytes) -> None:
        self._peers.send(each.name, data, partial(self._not_reached, state, each))

    def _not_reached(self, state: PullState, each: LegState, error: Exception) -> None:
        self._fail(state, f"{each.name} is not reached: {error}")
        self._end_if_done(state)

    def _confirm(self, state: PullState, each: LegState, compare: bool) -> None:
        self._send(
            state, each, message("done", request=state.asked.offer.request, tag=state.tag, takers=each.leg.takers, compare=compare)
        )

    # ---- messages of prefill ----

    def granted(self, name: str, tag: int, sums: list[list[int]], epochs: list[list[int]]) -> None:
        """Prefill keeps the blocks: they move, if decode has blocks for them."""
        state, each = self._find(name, tag)
        if state is None or each is None or state.reason or each.sums is not None:
            return
        each.sums, each.epochs = (found if isinstance(found, list) else [] for found in (sums, epochs))
        if state.pull is not None:
            self._read(state, each)
        elif state.waits_for_blocks:
            self.promised.add(state.asked.request)

    def _read(self, state: PullState, each: LegState) -> None:
        try:
            for number in range(len(self._groups)):
                sums, epochs = (found[number] if found and number < len(found) else None for found in (each.sums, each.epochs))
                self._start(state, each, number, sums, epochs)
        except Exception as error:  # also of another type: a part of the groups moves, and this request fails, and no other one
            self._fail(state, f"blocks of {each.name} cannot be read: {error!s} ({type(error).__name__})")
        if not each.runs and not state.reason:
            self._confirm(state, each, False)
        self._end_if_done(state)

    def gone(self, name: str, tag: int) -> None:
        """Prefill does not keep the blocks any longer: what was read may be of another request."""
        state, each = self._find(name, tag)
        if state is not None and each is not None:
            each.ended = True
            self._fail(state, f"{name} does not keep it any longer: set lease_seconds of prefill to more, if decode is too late")
            self._end_if_done(state)

    def kept(self, name: str, tag: int, changed: Sequence[Sequence[int]]) -> None:
        """Prefill has kept the blocks until now, except those that have changed."""
        state, each = self._find(name, tag)
        if state is None or each is None:
            return
        count = len(changed)  # not a list of another program: nothing has changed here yet
        each.ended = True
        if count:
            self._damaged(state, count, None)
        self._end_if_done(state)

    def _find(self, name: str, tag: int) -> tuple[PullState | None, LegState | None]:
        state = self._pulls.get(tag)
        return state, state.legs.get(name) if state is not None else None

    # ---- runs ----

    def _start(self, state: PullState, each: LegState, number: int, sums: Sequence[int] | None, epochs: Sequence[int] | None) -> None:
        """Starts to move the blocks of a group."""
        pull = state.pull
        assert pull is not None
        size, remote_size = self._block_sizes[number], pull.offer.block_sizes[number]
        source, destination, is_state = pull.offer.blocks[number], pull.blocks[number], self._groups[number].is_state
        first = pull.first_token if is_state else max(pull.first_token, num_missing(source) * remote_size, num_missing(destination) * size)
        if first >= pull.num_tokens:
            return
        peer = self._peers.get(each.name)
        if peer is None:
            raise kvmem.NotFound(f"{each.name} has ended")
        remote, local, whole = peer.pair(number)
        heads = each.leg.heads
        if self._has_states and not (whole and heads is None):
            # vLLM clears new blocks, because bytes of states may be no numbers, but not those that are loaded: they are overwritten as a whole.
            raise kvmem.Unsupported(
                "a model with states is handed over in whole blocks: set the same --tensor-parallel-size, --block-size and VLLM_KV_CACHE_LAYOUT for both engines"
            )
        if whole and remote_size != size and not is_state:
            raise kvmem.InvalidArgument(f"prefill offers blocks of {remote_size} tokens of cache group {number}, and has published blocks of {size}")
        checked = self._verify and whole and heads is None and sums is not None and len(sums) >= len(source)
        # A run by layer cannot compare blocks: it computes their checksums, or other layers wait for all of it.
        by_layer = pull.by_layer and whole and (checked or not self._verify)
        if epochs is not None and len(epochs) < len(source):
            epochs = None
        key = (number, whole, heads, by_layer)
        idle = peer.idle.setdefault(key, [])
        transfer = idle.pop() if idle else kvmem.Transfer(
            remote, local, heads=heads, queue=self._queue, layers_per_completion=int(by_layer),
            flags=kvmem.TransferFlags.REPORT_RELEASE | (kvmem.TransferFlags.BY_LAYER if by_layer else 0),
        )  # fmt: skip
        run = Run(transfer, peer, key, number, None, remote.info.locality != kvmem.Locality.REMOTE)
        each.compared &= checked
        # What was compared with the source only is confirmed: prefill compares the source with what it had.
        each.fenced &= epochs is not None and (checked or not self._verify)
        try:
            if whole:
                places = [_state_place(pull, source, destination, size)] if is_state else [(at, at) for at in range(first // size, -(-pull.num_tokens // size))]
                self._submit_blocks(state, each, run, places, sums if checked else None, epochs)
            else:
                page_size = remote.info.page_size or page_size_of(remote)
                run.pages = max(remote_size // page_size, 1)  # `table` refuses other sizes
                run.skipped = first // page_size % run.pages
                transfer.submit(
                    source_table=table(source, remote_size, page_size, first),
                    epochs=None if epochs is None else of_pages(epochs[: len(source)], remote_size, page_size, first),
                    destination_table=table(destination, size, self._groups[number].page_size, first), num_tokens=pull.num_tokens - first,
                    flags=self._verification, user_data=(state, each, run),
                )  # fmt: skip
        except BaseException:
            transfer.close()
            raise
        each.runs.append(run)

    @property
    def _verification(self) -> kvmem.SubmitFlags:
        return kvmem.SubmitFlags.VERIFY if self._verify else kvmem.SubmitFlags(0)

    def _submit_blocks(
        self, state: PullState, each: LegState, run: Run, places: Sequence[tuple[int, int]], sums: Sequence[int] | None, epochs: Sequence[int] | None
    ) -> None:
        """Starts to move blocks, by their indices in the tables of prefill and decode."""
        assert state.pull is not None
        source, destination = state.pull.offer.blocks[run.group], state.pull.blocks[run.group]
        run.pairs = [(source[at], destination[to]) for at, to in places]
        expected = None if sums is None else [sums[at] for at, _ in places]
        by_layer = run.key[-1]
        flags = self._verification if sums is None else kvmem.SubmitFlags(0)
        if by_layer and expected is not None:
            run.sums, expected, flags = expected, None, kvmem.SubmitFlags.CHECKSUM
        uses = None if epochs is None else [epochs[at] for at, _ in places]
        run.transfer.submit(run.pairs, checksums=expected, epochs=uses, flags=flags, user_data=(state, each, run))

    def completed(self, completion: kvmem.Completion) -> None:
        """Layers of a run have moved, it has ended, or its memory is released."""
        state, each, run = completion.user_data
        if completion.kind == kvmem.CompletionKind.LAYERS_MOVED:
            state.layers = completion.num_layers
            return
        if completion.kind == kvmem.CompletionKind.RUN_ENDED:
            run.error = completion.error
            if not completion.released:
                return  # it may still write to the blocks
        elif completion.status < 0:
            logger.error("kvmem: request %s waits for ever, because NIXL may still write to its blocks: restart this engine", state.asked.request)
            return
        each.runs.remove(run)
        self._moved(state, each, run)
        if not each.runs and not state.reason and not each.ended:
            if each.fenced:
                each.ended = True
                self._tell(each.name, state.asked.offer, each.leg)
            else:
                self._confirm(state, each, self._verify and not each.compared)
        self._end_if_done(state)

    def _moved(self, state: PullState, each: LegState, run: Run) -> None:
        if run.error is None and run.sums is None:
            self._count(run, 0)
            state.layers = _ALL
            self._keep(each.name, run)
        elif (run.error is None or isinstance(run.error, kvmem.Corrupt)) and run.pairs is not None:
            found = run.differing()
            self._count(run, len(found) or len(run.pairs) * (run.error is not None))
            state.layers = _ALL
            if found or run.error is not None:
                self._damaged(state, len(found), {run.pairs[at][1] for at in found} if found and run.group == 0 else None)
            self._keep(each.name, run)
        elif isinstance(run.error, kvmem.Corrupt):
            self._damaged(state, 1, None)
            run.transfer.close()
        else:
            stale = stale_blocks(run)
            if stale:
                add(self.counters, {"stale_blocks": stale})
                self._fail(state, f"{each.name} has freed blocks before they were read: set its lease_seconds to more: {run.error}", count_them=False)
            else:
                self._fail(state, f"blocks of {each.name} were not read: {run.error}")
            run.transfer.close()

    def _count(self, run: Run, num_lost: int) -> None:
        """Counts the bytes of the blocks that have arrived."""
        size = run.transfer.info.bytes
        if run.pairs is not None:
            size = size // len(run.pairs) * (len(run.pairs) - num_lost)
        add(self.counters, {"loaded_bytes": size, "mapped_bytes" if run.mapped else "nixl_bytes": size})

    def _keep(self, name: str, run: Run) -> None:
        peer = self._peers.get(name)
        if peer is not None and peer is run.peer:
            peer.idle.setdefault(run.key, []).append(run.transfer)
        else:  # it has ended, also if another one has its name
            run.transfer.close()

    # ---- end ----

    def _damaged(self, state: PullState, count: int, blocks: set[int] | None) -> None:
        """Blocks have other bytes than prefill had. None: it is not known which."""
        add(self.counters, {"damaged_blocks": count})
        if blocks is None or len(self._groups) > 1:
            self._fail(state, "blocks are damaged", count_them=False)
        else:
            state.failed |= blocks

    def _fail(self, state: PullState, reason: str, count_them: bool = True) -> None:
        """All blocks of the request must be computed. Runs that have begun end first."""
        if state.reason or state.tag not in self._pulls:
            return
        state.reason = reason
        if count_them:
            lost = self._num_blocks(state.pull) if state.pull is not None else len(state.asked.offer.blocks[0])
            add(self.counters, {"failed_loads": lost})
        logger.warning("kvmem: request %s is computed again, because %s", state.asked.request, reason)
        for run in [run for each in state.legs.values() for run in each.runs]:
            try:
                run.transfer.cancel()
            except kvmem.Error as error:  # it ends by itself
                logger.info("kvmem: a run of request %s is not cancelled: %s", state.asked.request, error)

    def _destinations(self, pull: Pull, group: int = 0) -> set[int]:
        size = self._block_sizes[group]
        return set(pull.blocks[group][pull.first_token // size : -(-pull.num_tokens // size)]) - {0}

    def _num_blocks(self, pull: Pull) -> int:
        return sum(len(self._destinations(pull, group)) for group in range(len(self._groups)))

    def _end_if_done(self, state: PullState) -> None:
        if state.tag not in self._pulls or any(each.runs for each in state.legs.values()):
            return
        if not state.reason and not all(each.ended for each in state.legs.values()):
            return
        del self._pulls[state.tag]
        if state.reason:
            self._release(state)
        if state.pull is None:
            self.refused.add(state.asked.request)
            return
        lost = self._destinations(state.pull) if state.reason else state.failed
        loaded = 0 if state.reason else self._num_blocks(state.pull) - len(lost)
        add(self.counters, {"load_seconds": time.monotonic() - state.begun, "loaded_blocks": loaded})
        self.received[state.asked.request] = set(lost) if lost or state.reason else None

    def _release(self, state: PullState) -> None:
        """Tells the ranks of prefill that keep blocks of a request that has failed."""
        for each in state.legs.values():
            if not each.ended:
                self._tell(each.name, state.asked.offer, each.leg)

    def _tell(self, name: str, offer: Offer, leg: Leg) -> None:
        def failed(error: Exception) -> None:
            logger.info("kvmem: request %s is kept by %s until its lease ends: %s", offer.request, name, error)

        self._peers.send(name, message("done", request=offer.request, tag=0, takers=leg.takers, compare=False), failed)

    def lost(self, name: str) -> None:
        """A worker of prefill has ended."""
        for state in [state for state in self._pulls.values() if name in state.legs and not state.legs[name].ended]:
            self._fail(state, f"{name} has ended")
            self._end_if_done(state)

    def late(self, now: float) -> list[int]:
        """The numbers of the pulls that take too long."""
        return [tag for tag, state in self._pulls.items() if now - state.begun >= self._timeout and not state.reason and not state.waits_for_blocks]

    def all(self) -> list[int]:
        """The numbers of all pulls."""
        return list(self._pulls)

    def fail(self, tag: int, reason: str, sender: str = "") -> None:
        """Ends a pull, if it waits for the sender of a message, or if there is none."""
        state = self._pulls.get(tag)
        if state is not None and (not sender or sender in state.legs):
            self._fail(state, reason)
            self._end_if_done(state)

    def fail_late(self, tag: int) -> None:
        """Ends a pull that takes too long."""
        self.fail(tag, f"prefill has not given its blocks within {self._timeout} s")

    def fail_request(self, asked: Ask, reason: str) -> None:
        """Ends a request whose begin has failed."""
        found = [tag for tag, state in self._pulls.items() if state.asked.request == asked.request]
        for tag in found:
            self.fail(tag, reason)
        if found:
            return
        if isinstance(asked, Pull):
            self.received[asked.request] = self._destinations(asked)
        else:
            self.refused.add(asked.request)

    def fail_run(self, completion: kvmem.Completion, reason: str) -> None:
        """Ends the request of a run whose end could not be handled."""
        state, each, run = completion.user_data
        has_ended = completion.released if completion.kind == kvmem.CompletionKind.RUN_ENDED else completion.status >= 0
        if has_ended and completion.kind != kvmem.CompletionKind.LAYERS_MOVED and run in each.runs:
            each.runs.remove(run)
            run.transfer.close()
        self.fail(state.tag, reason)

    @property
    def next_deadline(self) -> float | None:
        """When the next pull takes too long."""
        waiting = (state for state in self._pulls.values() if not state.reason and not state.waits_for_blocks)
        return min((state.begun + self._timeout for state in waiting), default=None)

    def layers(self) -> dict[str, int]:
        """How many layers of each request have moved, from the first on."""
        return {state.asked.request: state.layers for state in self._pulls.values()}

    @property
    def is_idle(self) -> bool:
        """Whether nothing moves."""
        return not any(each.runs for state in self._pulls.values() for each in state.legs.values())


def _state_place(pull: Pull, source: Sequence[int], destination: Sequence[int], block_size: int) -> tuple[int, int]:
    """The indices of the blocks of a state in both tables. Decode continues from it, so it must be that after exactly the tokens that it has then."""
    if pull.num_tokens != pull.offer.num_tokens:
        raise kvmem.InvalidArgument(f"prefill offers the states after {pull.offer.num_tokens} tokens, and decode needs those after {pull.num_tokens}")
    to = state_place(pull.num_tokens, block_size)
    if not destination[to]:
        raise kvmem.InvalidArgument(f"vLLM has given no block to the state after {pull.num_tokens} tokens")
    return len(source) - 1, to

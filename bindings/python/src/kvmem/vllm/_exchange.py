# SPDX-License-Identifier: Apache-2.0
"""A worker's part of the handover. A thread has the agent, and exchanges messages and blocks with other engines; the thread of vLLM's
steps only gives it work and takes what has ended, so it waits for no peer."""

from __future__ import annotations

import collections
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kvmem
from kvmem._blocks._counters import add
from kvmem.vllm._cache import GroupLayouts
from kvmem.vllm._held import HeldRequests
from kvmem.vllm._offer import HandoverStep, message, read_message
from kvmem.vllm._peers import Peers
from kvmem.vllm._pulls import Pulls
from kvmem.vllm._ranks import Leg

logger = logging.getLogger("vllm.kvmem")

_RETRY = 1.0
"""Seconds after a failure until the thread goes on, or until there is new work."""
_MAX_EARLY = 4096
"""Questions that are kept because they came before their request."""


@dataclass
class Settings:
    """What the exchange needs to know of the configuration."""

    lease: float
    timeout: float
    verify: bool
    access: str


@dataclass
class _Early:
    """A question for a request that this worker does not have yet: the scheduler tells decode earlier than this worker."""

    sender: str
    fields: Mapping[str, Any]
    deadline: float


class Exchange:
    """Keeps blocks for other engines, and pulls theirs."""

    def __init__(
        self, agent: kvmem.Agent, directory: kvmem.Directory, groups: Sequence[GroupLayouts], block_sizes: Sequence[int],
        legs: Callable[[int], Sequence[Leg]], settings: Settings, opened: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """Starts the thread. `opened` is closed at the end, in this order, after the agent's layouts."""
        self._agent, self._directory, self._groups, self._settings, self._opened = agent, directory, groups, settings, opened
        self._queue = kvmem.Queue()
        self._peers = Peers(directory, agent)
        self._held = HeldRequests(groups, settings.lease, settings.timeout)
        self._pulls = Pulls(
            groups, block_sizes, legs, self._peers, agent, self._queue, verify=settings.verify, access=settings.access, timeout=settings.timeout
        )
        self._early: list[_Early] = []
        self._lock = threading.Lock()
        self._given: collections.deque[HandoverStep] = collections.deque()
        self._sent: set[str] = set()
        self._received: set[str] = set()
        self.failed_blocks: set[int] = set()
        """Blocks of vLLM's cache that were not loaded."""
        self.failed_requests: set[str] = set()
        """Requests that wait for them."""
        self.counters: dict[str, Any] = {}
        self._ended: dict[str, set[int] | None] = {}
        self._counted: dict[str, Any] = {}
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False
        agent.report_notifications(self._queue)
        directory.report_events(self._queue)
        self._thread = threading.Thread(target=self._serve, name="kvmem-exchange", daemon=True)
        self._thread.start()

    # ---- vLLM's thread ----

    def give(self, step: HandoverStep) -> None:
        """Begins what the scheduler asks for."""
        if step.holds or step.pulls or step.drops:
            self._given.append(step)
            os.eventfd_write(self._wake, 1)

    def poll(self) -> tuple[set[str], set[str]]:
        """The requests whose blocks need not be kept any longer, and those that wait no longer, also if their blocks have not arrived."""
        with self._lock:
            sent, self._sent = self._sent, set()
            ended, self._ended = self._ended, {}
            counted, self._counted = self._counted, {}
        add(self.counters, counted)
        for request, failed in ended.items():
            if failed is not None:
                self.failed_requests.add(request)
                self.failed_blocks |= failed
        return sent, set(ended)

    def close(self) -> None:
        """Ends the thread, and what is in flight."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(self._settings.timeout + 10)
        if self._thread.is_alive():
            logger.error("kvmem: a call of the directory or of NIXL has not returned; its memory is kept until the process ends")
            return
        self._peers.close()
        for each in self._groups:
            each.close()
        self._directory.close()
        self._queue.close()
        for opened in self._opened:
            opened.close()
        self._agent.close()
        os.close(self._wake)

    # ---- the thread ----

    def _serve(self) -> None:
        while not self._closing:
            try:
                self._round()
            except Exception:
                # What this engine keeps ends with its leases, and what it waits for is computed: neither waits for ever.
                logger.exception("kvmem: the handover has failed")
                self._pulls.fail_all("the handover has failed")
                self._wait_for(_RETRY, self._wake)
            self._publish()
        self._finish()

    def _round(self) -> None:
        self._wait()
        now = time.monotonic()
        while self._given:
            step = self._given.popleft()
            for hold in step.holds:
                self._held.hold(hold, now)
            for pull in step.pulls:
                self._pulls.begin(pull, now)
            for offer in step.drops:
                self._pulls.drop(offer)
            self._reply_early(now)
        for completion in self._queue.poll():
            if completion.kind in (kvmem.CompletionKind.RUN_ENDED, kvmem.CompletionKind.MEMORY_RELEASED):
                self._pulls.completed(completion)
        for each in self._agent.take_notifications():
            fields = read_message(each.data)
            if fields is not None:
                self._read(each.agent, fields, now)
        for name in self._peers.lost():
            self._pulls.lost(name)
        self._held.expire(now)
        self._pulls.expire(now)
        self._early = [early for early in self._early if early.deadline > now]

    def _wait(self) -> None:
        deadlines = [each for each in (self._held.next_deadline, self._pulls.next_deadline) if each is not None]
        self._wait_for(max(min(deadlines) - time.monotonic(), 0) if deadlines else None, self._wake, self._queue.fileno())

    def _wait_for(self, limit: float | None, *fds: int) -> None:
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        poll.poll(None if limit is None else limit * 1000 + 1)
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass

    def _read(self, sender: str, fields: Mapping[str, Any], now: float) -> None:
        """Handles a message. Fields that are missing or of another type are those of another program: the message is ignored."""
        what, tag = fields["kvmem.vllm"], fields.get("tag")
        if type(tag) is not int:
            return
        try:
            if what == "grant":
                self._pulls.granted(sender, tag, fields["sums"])
            elif what == "kept":
                self._pulls.kept(sender, tag, fields["changed"])
            elif what == "gone":
                self._pulls.gone(sender, tag)
            elif what in ("ask", "done") and self._held.is_known(str(fields["request"])):
                self._reply(sender, fields, now)
            elif what in ("ask", "done") and len(self._early) < _MAX_EARLY:
                self._early.append(_Early(sender, fields, now + self._settings.lease))
        except (KeyError, TypeError, ValueError) as error:
            logger.warning("kvmem: a message of %s cannot be read: %r", sender, error)

    def _reply_early(self, now: float) -> None:
        early, self._early = self._early, []
        for each in early:
            if self._held.is_known(str(each.fields["request"])):
                self._reply(each.sender, each.fields, now)
            else:
                self._early.append(each)

    def _reply(self, sender: str, fields: Mapping[str, Any], now: float) -> None:
        request, tag = str(fields["request"]), fields["tag"]
        if fields["kvmem.vllm"] == "ask":
            sums = self._held.asked(request, sender, now)
            reply = message("gone", tag=tag) if sums is None else message("grant", tag=tag, sums=sums)
        else:
            changed = self._held.done(request, sender, int(fields["takers"]), bool(fields["compare"]))
            reply = message("gone", tag=tag) if changed is None else message("kept", tag=tag, changed=changed)
        if tag:  # without it, decode does not wait
            try:
                self._peers.send(sender, reply)
            except kvmem.Error as error:
                logger.info("kvmem: %s is not reached: %s", sender, error)

    def _publish(self) -> None:
        """Gives what has ended to vLLM's thread."""
        with self._lock:
            self._sent |= self._held.sent
            self._ended |= self._pulls.received
            add(self._counted, self._held.counters)
            add(self._counted, self._pulls.counters)
        self._held.sent, self._pulls.received = set(), {}
        self._held.counters, self._pulls.counters = {}, {}

    def _finish(self) -> None:
        """Ends the runs in flight before their memory is freed."""
        self._pulls.fail_all("the engine ends")
        end = time.monotonic() + self._settings.timeout
        while not self._pulls.is_idle and time.monotonic() < end:
            try:
                for completion in self._queue.wait(1):
                    if completion.kind in (kvmem.CompletionKind.RUN_ENDED, kvmem.CompletionKind.MEMORY_RELEASED):
                        self._pulls.completed(completion)
            except kvmem.TimedOut:
                pass

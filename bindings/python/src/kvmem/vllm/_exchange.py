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
from functools import partial
from typing import Any, NamedTuple

import kvmem
from kvmem._blocks._counters import add
from kvmem.vllm._cache import GroupLayouts
from kvmem.vllm._held import HeldRequests
from kvmem.vllm._offer import HandoverStep, Hold, Offer, message, read_message
from kvmem.vllm._peers import Peers, Work
from kvmem.vllm._pulls import Pulls
from kvmem.vllm._ranks import Leg

logger = logging.getLogger("vllm.kvmem")

_RETRY = 1.0
"""Seconds after a failure that belongs to no request until the thread goes on, or until there is new work."""
_GRACE = 2.0
"""Seconds after the limit of a pull in which its runs end. NIXL may not end those from an engine that is frozen."""
_CLOSING = 10.0
"""Seconds in which the thread ends, besides the limit of a pull."""
_OF_RUNS = (kvmem.CompletionKind.LAYERS_MOVED, kvmem.CompletionKind.RUN_ENDED, kvmem.CompletionKind.MEMORY_RELEASED)
_MAX_EARLY = 4096
"""Questions that are kept because they came before their request."""
_MAX_EARLY_OF_PEER = 512
"""Those of one peer, so that it does not take the place of all others."""


@dataclass
class Settings:
    """What the exchange needs to know of the configuration."""

    lease: float
    timeout: float
    verify: bool
    access: str
    counts: bool = True
    """Whether this rank counts requests of prefill."""


@dataclass
class _Question:
    """A message of decode that gets a reply. Its request may be unknown here, because the scheduler tells decode earlier than this worker:
    then it is kept until its deadline."""

    sender: str
    tag: int
    request: str
    takers: int
    """0 if decode asks for the blocks; otherwise it has them."""
    compare: bool
    deadline: float

    @classmethod
    def read(cls, sender: str, fields: Mapping[str, Any], deadline: float) -> _Question:
        takers = max(int(fields["takers"]), 1) if fields["kvmem.vllm"] == "done" else 0
        return cls(sender, fields["tag"], str(fields["request"]), takers, bool(takers and fields["compare"]), deadline)


class _Job(NamedTuple):
    """A part of the thread's work. A failure that was not expected ends what it belongs to, and nothing else."""

    do: Work
    """Gets the present time."""
    lost: Callable[[str], None] = lambda _reason: None
    """Ends what the job belongs to. Gets the reason."""


class Exchange:
    """Keeps blocks for other engines, and pulls theirs."""

    def __init__(
        self, agent: kvmem.Agent, directory: kvmem.Directory, groups: Sequence[GroupLayouts], block_sizes: Sequence[int],
        legs: Callable[[int], Sequence[Leg]], settings: Settings, opened: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """Starts the thread. `opened` is closed at the end, in this order, after the agent's layouts."""
        self._agent, self._directory, self._groups, self._settings, self._opened = agent, directory, groups, settings, opened
        self._queue = kvmem.Queue()
        self._peers = Peers(directory, agent, groups, settings.access, self._post)
        self._held = HeldRequests(groups, settings.lease, settings.timeout, settings.counts)
        self._pulls = Pulls(groups, block_sizes, legs, self._peers, self._queue, verify=settings.verify, timeout=settings.timeout)
        self._early: list[_Question] = []
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._work: collections.deque[_Job] = collections.deque()
        """What the thread does next."""
        self._sent: set[str] = set()
        self._layers: dict[str, int] = {}
        """The requests of this step that are pulled by layer, and how many of their layers have moved."""
        self._by_layer: set[str] = set()
        """Those, until vLLM's thread has taken their end."""
        self._granted: set[str] = set()
        self._refused: set[str] = set()
        self.failed_blocks: set[int] = set()
        """Blocks of vLLM's cache that were not loaded."""
        self.failed_requests: set[str] = set()
        """Requests that wait for them."""
        self.counters: dict[str, Any] = {}
        self._ended: dict[str, set[int] | None] = {}
        self._counted: dict[str, Any] = {}
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = self._is_closed = False
        agent.report_notifications(self._queue)
        directory.report_events(self._queue)
        self._thread = threading.Thread(target=self._serve, name="kvmem-exchange", daemon=True)
        self._thread.start()

    # ---- vLLM's thread ----

    def give(self, step: HandoverStep) -> None:
        """Begins what the scheduler asks for."""
        if step:
            begun = {pull.request: 0 for pull in step.pulls if pull.by_layer}
            self._by_layer |= begun.keys()
            with self._lock:
                self._layers.update(begun)
            self._work.extend(_Job(partial(self._held.hold, hold), partial(self._refuse, hold)) for hold in step.holds)
            self._work.extend(_Job(partial(self._pulls.ask, asked), partial(self._pulls.fail_request, asked)) for asked in step.asks)
            self._work.extend(_Job(partial(self._pulls.begin, pull), partial(self._pulls.fail_request, pull)) for pull in step.pulls)
            self._work.extend(_Job(partial(self._drop, offer)) for offer in step.drops)
            self._post(self._reply_early)

    def _post(self, work: Work) -> None:
        """Has the thread do something. Any thread may call it."""
        self._work.append(_Job(work))
        with self._lock:
            if not self._is_closed:
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
        by_layer = self._by_layer & ended.keys()
        self._by_layer -= by_layer  # these have not waited
        return sent, ended.keys() - by_layer

    def wait_for_layers(self, count: int) -> None:
        """Waits until the first `count` layers of the requests of this step have moved, or will not. The computation then begins."""
        self._wait_until(lambda: all(moved >= count for moved in self._layers.values()))

    def wait_for_requests(self) -> None:
        """Waits until nothing moves to blocks of this step."""
        self._wait_until(lambda: not self._layers)

    def _wait_until(self, done: Callable[[], bool]) -> None:
        if not self._layers:
            return
        with self._moved:
            if not self._moved.wait_for(done, self._settings.timeout + _GRACE):
                raise RuntimeError("kvmem: NIXL may still write to blocks of a request: restart this engine")

    def take_replies(self) -> tuple[set[str], set[str]]:
        """The requests that prefill keeps, of those that were asked for, and those whose blocks cannot be read."""
        with self._lock:
            found = self._granted, self._refused
            self._granted, self._refused = set(), set()
        return found

    def close(self) -> None:
        """Ends the thread, and what is in flight."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(self._settings.timeout + _CLOSING)
        if self._thread.is_alive():
            logger.error("kvmem: a call of the directory or of NIXL has not returned; its memory is kept until the process ends")
            return
        for each in self._groups:
            each.close()
        self._directory.close()
        self._queue.close()
        for opened in self._opened:
            opened.close()
        self._agent.close()
        with self._lock:
            self._is_closed = True
        os.close(self._wake)

    # ---- the thread ----

    def _serve(self) -> None:
        while not self._closing:
            self._wait()
            self._collect("completions", lambda: [_Job(partial(self._completed, each), partial(self._lost_end, each)) for each in self._queue.poll()])
            self._collect("messages", lambda: [_Job(partial(self._read, each.agent, each.data), partial(self._lost_message, each)) for each in self._agent.take_notifications()])
            self._collect("peers that have ended", lambda: [_Job(partial(self._lost, name)) for name in self._peers.lost()])
            now = time.monotonic()
            self._work.append(_Job(self._held.expire))
            self._work.extend(_Job(partial(self._late, tag)) for tag in self._pulls.late(now))
            self._do(now)
            self._early = [early for early in self._early if early.deadline > now]
            self._publish()
        self._finish()

    def _collect(self, what: str, find: Callable[[], list[_Job]]) -> None:
        """Takes work from the agent, the directory or the queue. A failure of these belongs to no request: what waits ends by its own limit."""
        try:
            self._work.extend(find())
        except Exception:
            logger.exception("kvmem: the exchange with other engines gets no %s for %s s", what, _RETRY)
            self._wait_for(_RETRY, self._wake)

    def _do(self, now: float) -> None:
        while self._work:
            job = self._work.popleft()
            try:
                job.do(now)
            except Exception as error:
                logger.exception("kvmem: a part of the exchange with other engines has failed")
                self._end_lost(job, repr(error))

    def _end_lost(self, job: _Job, reason: str) -> None:
        try:
            job.lost(f"of a failure here: {reason}")
        except Exception:
            logger.exception("kvmem: what has failed cannot be ended")

    def _completed(self, completion: kvmem.Completion, _now: float) -> None:
        if completion.kind in _OF_RUNS:
            self._pulls.completed(completion)

    def _lost_end(self, completion: kvmem.Completion, reason: str) -> None:
        if completion.kind in _OF_RUNS:
            self._pulls.fail_run(completion, reason)

    def _lost_message(self, received: kvmem.Notification, reason: str) -> None:
        fields = read_message(received.data) or {}
        if fields.get("kvmem.vllm") in ("grant", "kept", "gone") and type(fields.get("tag")) is int:
            self._pulls.fail(fields["tag"], reason, received.agent)

    def _refuse(self, hold: Hold, _reason: str) -> None:
        self._held.refuse(hold)

    def _late(self, tag: int, _now: float) -> None:
        self._pulls.fail_late(tag)

    def _lost(self, name: str, _now: float) -> None:
        self._pulls.lost(name)
        self._held.lost(name)

    def _drop(self, offer: Offer, _now: float) -> None:
        self._pulls.drop(offer)

    def _wait(self) -> None:
        if self._work:  # left by a failure
            return
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

    def _read(self, sender: str, data: bytes, now: float) -> None:
        """Handles a message. Fields that are missing or of another type are those of another program: the message is ignored."""
        fields = read_message(data)
        if fields is None or type(fields.get("tag")) is not int:
            return
        what, tag = fields["kvmem.vllm"], fields["tag"]
        try:
            if what == "grant":
                self._pulls.granted(sender, tag, fields["sums"], fields.get("epochs", []))
            elif what == "kept":
                self._pulls.kept(sender, tag, fields["changed"])
            elif what == "gone":
                self._pulls.gone(sender, tag)
            elif what in ("ask", "done"):
                self._asked(_Question.read(sender, fields, now + self._settings.lease), now)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            logger.warning("kvmem: a message of %s cannot be read: %r", sender, error)

    def _asked(self, question: _Question, now: float) -> None:
        if self._held.is_known(question.request):
            self._reply(question, now)
        elif len(self._early) < _MAX_EARLY and sum(each.sender == question.sender for each in self._early) < _MAX_EARLY_OF_PEER:
            self._early.append(question)
        else:
            logger.warning("kvmem: a question of %s is not kept, because too many others wait for their requests", question.sender)

    def _reply_early(self, now: float) -> None:
        known = [each for each in self._early if self._held.is_known(each.request)]
        self._early = [each for each in self._early if not self._held.is_known(each.request)]
        self._work.extend(_Job(partial(self._reply, each)) for each in known)

    def _reply(self, question: _Question, now: float) -> None:
        tag, reply = question.tag, message("gone", tag=question.tag)
        if question.takers:
            changed = self._held.done(question.request, question.sender, question.takers, question.compare)
            if changed is not None:
                reply = message("kept", tag=tag, changed=changed)
        else:
            found = self._held.asked(question.request, question.sender, now)
            if found is not None:
                reply = message("grant", tag=tag, sums=found[0], epochs=found[1])
        if tag:  # without it, decode does not wait
            self._peers.send(question.sender, reply, partial(self._not_reached, question.sender))

    def _not_reached(self, name: str, error: Exception) -> None:
        logger.info("kvmem: %s is not reached: %s", name, error)
        if isinstance(error, kvmem.NotFound):
            self._held.lost(name)

    def _publish(self) -> None:
        """Gives what has ended to vLLM's thread."""
        with self._lock:
            self._sent |= self._held.sent
            self._ended |= self._pulls.received
            self._granted |= self._pulls.promised
            self._refused |= self._pulls.refused
            self._layers.update({request: moved for request, moved in self._pulls.layers().items() if request in self._layers})
            for request in self._pulls.received.keys() & self._layers.keys():
                del self._layers[request]
            self._moved.notify_all()
            add(self._counted, self._held.counters)
            add(self._counted, self._pulls.counters)
        self._held.sent, self._pulls.received = set(), {}
        self._pulls.promised, self._pulls.refused = set(), set()
        self._held.counters, self._pulls.counters = {}, {}

    def _finish(self) -> None:
        """Ends the runs in flight before their memory is freed."""
        for tag in self._pulls.all():
            self._pulls.fail(tag, "the engine ends")
        end = time.monotonic() + self._settings.timeout
        while not self._pulls.is_idle and time.monotonic() < end:
            try:
                for completion in self._queue.wait(1):
                    if completion.kind in _OF_RUNS:
                        self._pulls.completed(completion)
            except kvmem.TimedOut:
                pass
        self._peers.close()

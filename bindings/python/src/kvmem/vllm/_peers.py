# SPDX-License-Identifier: Apache-2.0
"""Workers of other engines: found in the directory, known to this worker's agent, with the layouts of their caches."""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import kvmem
from kvmem.vllm._cache import GroupLayouts
from kvmem.vllm._config import Config

Work = Callable[[float], None]
"""What the exchange's thread does next, with the present time."""
Failed = Callable[[Exception], None]
"""Gets the reason why a message was not sent."""

logger = logging.getLogger("vllm.kvmem")

_MAX_WAIT = 5.0
"""Seconds for each call of the directory, or of the process that offers mapped memory. Only requests of that worker wait meanwhile."""
_MAX_SEARCHES = 16
"""Workers that are looked up at the same time, each by a thread."""
_MAX_MESSAGES = 4096
"""Messages that are kept for a worker while it is looked up."""


def join(config: Config, name: str) -> tuple[kvmem.Directory, kvmem.Agent]:
    """The directory, and the agent of this worker. Raises ValueError with what to set."""
    directory = config.open_directory()
    try:
        _check_free(directory, str(config.directory), name)
        return directory, kvmem.Agent(name, call_timeout=config.timeout_seconds)
    except kvmem.NixlUnavailable as error:
        directory.close()
        raise ValueError(f"kvmem: engines reach each other by NIXL, which is not usable: install nixl-cu12 or nixl-cu13: {error}") from error
    except BaseException:
        directory.close()
        raise


def _check_free(directory: kvmem.Directory, place: str, name: str) -> None:
    """An agent would replace another one of its name, of an engine that lives."""
    try:
        directory.look_up(name, _MAX_WAIT).close()
    except kvmem.NotFound:
        return
    raise ValueError(f"kvmem: another engine has published {name} in {place}: set another engine_id in --kv-transfer-config, or end that engine")


class Pair(NamedTuple):
    """The layouts of a cache group on both sides."""

    remote: kvmem.Layout
    local: kvmem.Layout
    whole: bool
    """They are of whole blocks: those are used if both sides have the same blocks."""


class Peer:
    """A worker of another engine. Its layouts are opened by the thread that looks it up."""

    def __init__(self, entry: kvmem.Entry, groups: Sequence[GroupLayouts], agent: kvmem.Agent, access: str) -> None:
        self.entry, self._agent = entry, agent
        self.name, self.incarnation = entry.agent, entry.incarnation
        self._flags = {"mapped": kvmem.OpenFlags.MAPPED_ONLY | kvmem.OpenFlags.TRUST_OWNER, "nixl": kvmem.OpenFlags.REMOTE}.get(
            access, kvmem.OpenFlags.TRUST_OWNER
        )
        self._opened: list[kvmem.Layout] = []
        self._pairs = [self._pair(number, group) for number, group in enumerate(groups)] if entry.layouts else []
        self.idle: dict[Any, list[kvmem.Transfer]] = {}
        """Transfers that can be used again, by what they move."""

    def _pair(self, number: int, group: GroupLayouts) -> Pair | kvmem.Error:
        try:
            whole = self._open(f"blocks-{number}")
            if whole is not None and group.blocks is not None and whole.info.identity == group.blocks.info.identity:
                return Pair(whole, group.blocks, True)
            tokens = self._open(f"tokens-{number}")
            if tokens is not None and group.tokens is not None:
                return Pair(tokens, group.tokens, False)
        except kvmem.Error as error:
            return error.with_traceback(None)
        obstacle = group.obstacle or "prefill has them in another packing"
        return kvmem.Unsupported(f"its blocks differ, and cannot be divided: {obstacle}; set the same --block-size and type")

    def _open(self, name: str) -> kvmem.Layout | None:
        if name not in self.entry.layouts:
            return None
        self._opened.append(self.entry.open_layout(name, agent=self._agent, flags=self._flags, timeout=_MAX_WAIT))
        return self._opened[-1]

    def pair(self, number: int) -> Pair:
        """The layouts of a cache group. Raises why there are none."""
        found = self._pairs[number] if number < len(self._pairs) else kvmem.NotFound(f"{self.name} has published no cache: set its kv_role to kv_producer or kv_both")
        if isinstance(found, kvmem.Error):
            raise found
        return found

    def close(self) -> None:
        """Closes what is open. Runs in flight keep what they use."""
        for transfers in self.idle.values():
            for transfer in transfers:
                transfer.close()
        for layout in self._opened:
            layout.close()
        self.entry.close()
        self.idle, self._opened = {}, []


class _Search:
    """A worker that is being looked up, and what is to be sent to it then."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, Failed]] = []
        self.events: list[kvmem.Event] = []
        """Those of the directory that came before the worker was known."""


class Peers:
    """The workers that this one exchanges messages or blocks with. One thread uses it. It waits for no directory and for no peer: other
    threads look workers up, one for each at a time, and give `post` what the thread does with what they have found."""

    def __init__(
        self, directory: kvmem.Directory, agent: kvmem.Agent, groups: Sequence[GroupLayouts], access: str, post: Callable[[Work], None]
    ) -> None:
        self._directory, self._agent, self._groups, self._access, self._post = directory, agent, groups, access, post
        self._peers: dict[str, Peer] = {}
        self._searches: dict[str, _Search] = {}
        self._jobs: dict[str, collections.deque[Callable[[], Work]]] = {}
        """What threads do for a worker after what one does now: a worker has one thread at a time."""
        self._made: set[Peer] = set()
        """Those that a thread has found, and that are not known yet."""
        self._missed: list[kvmem.Event] = []
        """Events of the directory that came before their worker was known."""
        self._ended: list[str] = []
        """Those of which the directory had no event, because they have ended before that of their entry was taken."""
        self._pool = ThreadPoolExecutor(_MAX_SEARCHES, "kvmem-peers")
        self._pool.submit(int).result()  # so that it has a thread also when the system has no more of them

    def get(self, name: str) -> Peer | None:
        """A worker by the name of its agent, if it is known."""
        return self._peers.get(name)

    def send(self, name: str, data: bytes, failed: Failed) -> None:
        """Sends a message, after the worker was found in the directory, which is asked once and then reports what changes. `failed` is called
        later if it cannot be sent. A worker that was restarted, which the directory has not reported yet, is looked up again."""
        if name in self._peers:
            try:
                self._agent.notify(name, data)
                return
            except kvmem.Error:
                self._forget(name)
        search = self._searches.get(name)
        if search is None:
            search = self._searches[name] = _Search()
            self._start(name, partial(self._look_up, name))
        if len(search.messages) < _MAX_MESSAGES:
            search.messages.append((data, failed))
        else:
            error = kvmem.Busy(f"{len(search.messages)} other messages wait until the directory has replied")
            self._post(lambda _now: failed(error))

    # ---- threads that look workers up ----

    def _start(self, name: str, job: Callable[[], Work]) -> None:
        if name in self._jobs:
            self._jobs[name].append(job)
            return
        self._jobs[name] = collections.deque()
        with contextlib.suppress(RuntimeError):  # no further thread: those that run do the job later
            self._pool.submit(self._run, name, job)

    def _run(self, name: str, job: Callable[[], Work]) -> None:
        done = job()
        self._post(partial(self._done, name, done))

    def _done(self, name: str, done: Work, now: float) -> None:
        waiting = self._jobs.pop(name)
        if waiting:
            self._start(name, waiting.popleft())
            self._jobs[name].extend(waiting)
        done(now)

    def _look_up(self, name: str) -> Work:
        try:
            self._directory.watch(name, _MAX_WAIT)  # first, so that no change is missed
            try:
                return partial(self._found, self._connected(name))
            except BaseException:
                self._unwatch(name)
                raise
        except Exception as error:
            return partial(self._not_found, name, error.with_traceback(None))

    def _connected(self, name: str) -> Peer:
        entry = self._directory.look_up(name, _MAX_WAIT)
        try:
            entry.load(self._agent)
            made = Peer(entry, self._groups, self._agent, self._access)
        except BaseException:
            entry.close()
            raise
        self._made.add(made)
        return made

    def _unwatch(self, name: str) -> Work:
        try:
            self._directory.unwatch(name, _MAX_WAIT)
        except kvmem.Error as error:  # the pulls of all that have ended fail nevertheless
            logger.info("kvmem: %r is watched further: %s", name, error)
        return lambda _now: None

    def _check(self, peer: Peer) -> Work:
        """An entry that goes before the event of it was taken is no event. So it is looked at after that."""
        try:
            self._directory.check(peer.entry, _MAX_WAIT)
        except (kvmem.NotFound, kvmem.Stale):
            return partial(self._has_ended, peer)
        except kvmem.Error as error:  # it ends nothing: its pulls have limits of their own
            logger.info("kvmem: it is not known whether %r has ended while it was looked up: %s", peer.name, error)
        return lambda _now: None

    # ---- the exchange's thread ----

    def _found(self, peer: Peer, _now: float) -> None:
        search = self._searches.pop(peer.name)
        self._peers[peer.name] = peer
        self._made.discard(peer)
        for data, failed in search.messages:
            try:
                self._agent.notify(peer.name, data)
            except kvmem.Error as error:
                failed(error)
        self._missed += [*search.events, *self._directory.take_events(0)]
        if self._missed:
            self._post(lambda _now: None)  # the thread takes events in each round
        self._start(peer.name, partial(self._check, peer))

    def _has_ended(self, peer: Peer, _now: float) -> None:
        if self._peers.get(peer.name) is peer:
            self._ended.append(peer.name)
            self._forget(peer.name)
            self._post(lambda _now: None)

    def _not_found(self, name: str, error: Exception, _now: float) -> None:
        for _, failed in self._searches.pop(name).messages:
            failed(error)

    def _forget(self, name: str) -> None:
        self._peers.pop(name).close()
        self._start(name, partial(self._unwatch, name))

    def lost(self) -> list[str]:
        """Takes the events of the directory. Returns the workers that have ended or were restarted since."""
        gone = (kvmem.DirectoryChange.WITHDRAWN, kvmem.DirectoryChange.RESTARTED, kvmem.DirectoryChange.INVALID)
        events, self._missed = [*self._missed, *self._directory.take_events(0)], []
        found, self._ended = self._ended, []
        for event in events:
            if event.agent in self._searches:
                self._searches[event.agent].events.append(event)
                continue
            known = self._peers.get(event.agent)
            if known is None or event.kind not in gone or (event.kind == gone[1] and event.incarnation == known.incarnation):
                continue
            found.append(event.agent)
            self._forget(event.agent)
        return found

    def close(self) -> None:
        """Waits for the threads, each of whose calls has a limit, and forgets all."""
        self._pool.shutdown(cancel_futures=True)
        for peer in (*self._peers.values(), *self._made):
            peer.close()
        self._peers, self._made = {}, set()

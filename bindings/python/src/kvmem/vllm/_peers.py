# SPDX-License-Identifier: Apache-2.0
"""Workers of other engines: found in the directory, known to this worker's agent, with the layouts of their caches."""

from __future__ import annotations

import logging
from typing import Any

import kvmem
from kvmem.vllm._config import Config

logger = logging.getLogger("vllm.kvmem")

_MAX_WAIT = 5.0
"""Seconds for the directory, or for the process that offers mapped memory. Other requests wait meanwhile."""


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


class Peer:
    """A worker of another engine."""

    def __init__(self, entry: kvmem.Entry) -> None:
        self.entry = entry
        self.name, self.incarnation = entry.agent, entry.incarnation
        self._layouts: dict[str, kvmem.Layout] = {}
        self.idle: dict[Any, list[kvmem.Transfer]] = {}
        """Transfers that can be used again, by what they move."""

    def layout(self, name: str, agent: kvmem.Agent, access: str) -> kvmem.Layout | None:
        """A layout that it has published, mapped or by NIXL as `access` says; None if it has published none of the name."""
        if name not in self._layouts:
            if name not in self.entry.layouts:
                return None
            flags = {"mapped": kvmem.OpenFlags.MAPPED_ONLY | kvmem.OpenFlags.TRUST_OWNER, "nixl": kvmem.OpenFlags.REMOTE}.get(
                access, kvmem.OpenFlags.TRUST_OWNER
            )
            self._layouts[name] = self.entry.open_layout(name, agent=agent, flags=flags, timeout=_MAX_WAIT)
        return self._layouts[name]

    def close(self) -> None:
        """Closes what is open. Runs in flight keep what they use."""
        for transfers in self.idle.values():
            for transfer in transfers:
                transfer.close()
        for layout in self._layouts.values():
            layout.close()
        self.entry.close()
        self.idle, self._layouts = {}, {}


class Peers:
    """The workers that this one exchanges messages or blocks with."""

    def __init__(self, directory: kvmem.Directory, agent: kvmem.Agent) -> None:
        self._directory, self._agent = directory, agent
        self._peers: dict[str, Peer] = {}

    def get(self, name: str) -> Peer:
        """A worker by the name of its agent. Raises NotFound if there is none. The directory is asked once, and then reports what changes."""
        known = self._peers.get(name)
        if known is not None:
            return known
        self._directory.watch(name, _MAX_WAIT)  # first, so that no change is missed
        try:
            entry = self._directory.look_up(name, _MAX_WAIT)
            try:
                entry.load(self._agent)
            except BaseException:
                entry.close()
                raise
        except BaseException:
            self._unwatch(name)
            raise
        made = self._peers[name] = Peer(entry)
        return made

    def send(self, name: str, data: bytes) -> None:
        """Sends a message. A worker that was restarted, which the directory has not reported yet, is looked up again."""
        known = self._peers.get(name)
        self.get(name)
        try:
            self._agent.notify(name, data)
        except kvmem.Error:
            if known is None:
                raise
            self._forget(name)
            self.get(name)
            self._agent.notify(name, data)

    def _forget(self, name: str) -> None:
        self._peers.pop(name).close()
        self._unwatch(name)

    def _unwatch(self, name: str) -> None:
        try:
            self._directory.unwatch(name, _MAX_WAIT)
        except kvmem.Error as error:  # the pulls of all that have ended fail nevertheless
            logger.info("kvmem: %s is watched further: %s", name, error)

    def lost(self) -> list[str]:
        """Takes the events of the directory. Returns the workers that have ended or were restarted since."""
        gone = (kvmem.DirectoryChange.WITHDRAWN, kvmem.DirectoryChange.RESTARTED, kvmem.DirectoryChange.INVALID)
        found = []
        for event in self._directory.take_events(0):
            known = self._peers.get(event.agent)
            if known is None or event.kind not in gone or (event.kind == gone[1] and event.incarnation == known.incarnation):
                continue
            found.append(event.agent)
            self._forget(event.agent)
        return found

    def close(self) -> None:
        """Forgets all."""
        for peer in self._peers.values():
            peer.close()
        self._peers = {}

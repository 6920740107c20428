# SPDX-License-Identifier: Apache-2.0
"""The settings of the connector, from `kv_connector_extra_config`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import kvmem
from kvmem._blocks import _settings
from kvmem._blocks._settings import GIB as GIB
from kvmem._blocks._settings import Settings

MAX_LEASE_SECONDS = 3600
LOCALITIES = ("LOCAL", "REMOTE")
_OF_ETCD = ("ca_file", "certificate_file", "key_file", "user", "password_file")


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of the connector."""

    unit_tokens: int = 0
    """Tokens of a stored unit of a head, which engines with another block size and tensor parallelism find. 0: a rank stores its blocks as
    they are."""
    verify: bool = True
    """Compare the bytes that arrive from prefill with those that it had. A store always compares."""
    directory: str | None = None
    """Folder, or URLs of etcd separated by commas, in which engines that hand requests over find each other. None: blocks are stored."""
    lease_seconds: float = 60.0
    """After this time without a message of decode, prefill frees the blocks of a request."""
    ca_file: str = ""
    """Certificates of the authority of etcd's servers."""
    certificate_file: str = ""
    """Certificate of this engine, for etcd."""
    key_file: str = ""
    """Its key."""
    user: str = ""
    """User of etcd."""
    password_file: str = ""
    """A file with its password: settings are shown by the list of processes."""
    access: str = "auto"
    """How decode reads the blocks: "mapped", "nixl", or "auto" for mapped memory if possible."""
    by_layer: bool = False
    """Decode computes the first layers of a request while the others are pulled. All requests of that step wait with it."""

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises if settings do not fit together."""
        if self.directory is not None:
            self._check_handover(given)
            return
        for name in ("lease_seconds", "access", "verify", "by_layer", *_OF_ETCD):
            if name in given:
                raise ValueError(f"kvmem: {name} is for engines that hand requests over: set directory, too, or remove {name}")
        if self.path is None and self.capacity_gib <= 0 and not given:
            raise ValueError("kvmem: nothing is set: set path and capacity_gib, to keep blocks, or set directory, to hand requests over to another engine")
        if self.unit_tokens < 0:
            raise ValueError(f"kvmem: unit_tokens is {self.unit_tokens}: set a divisor of the block sizes of all engines, or 0")
        super().check(given)

    @property
    def urls(self) -> list[str]:
        """Those of etcd; empty if the directory is a folder."""
        return self.directory.split(",") if self.directory and self.directory.startswith(("http://", "https://")) else []

    def open_directory(self) -> kvmem.Directory:
        """The directory. Raises ValueError with what to set."""
        try:
            if not self.urls:
                return kvmem.Directory(self.directory)
            password = pathlib.Path(self.password_file).read_text().rstrip("\n") if self.password_file else None
            return kvmem.Directory(
                endpoints=self.urls, ca_file=self.ca_file or None, certificate_file=self.certificate_file or None, key_file=self.key_file or None,
                user=self.user or None, password=password,
            )  # fmt: skip
        except (kvmem.Error, OSError) as error:
            raise ValueError(f"kvmem: directory {self.directory} cannot be used: {error}") from error

    def _check_handover(self, given: Mapping[str, Any]) -> None:
        for name in ("path", "capacity_gib", "unit_tokens"):
            if name in given:
                raise ValueError(f"kvmem: directory and {name} are set, and a connector hands requests over or stores blocks: remove one of them")
        if not 1 <= self.lease_seconds <= MAX_LEASE_SECONDS:
            raise ValueError(f"kvmem: lease_seconds is {self.lease_seconds}: set 1 to {MAX_LEASE_SECONDS} seconds")
        for name in _OF_ETCD:
            if name in given and not self.urls:
                raise ValueError(f"kvmem: {name} is for etcd, and directory is a folder: set directory to the URLs of etcd, or remove {name}")
        for one, other in (("certificate_file", "key_file"), ("key_file", "certificate_file"), ("user", "password_file"), ("password_file", "user")):
            if getattr(self, one) and not getattr(self, other):
                raise ValueError(f"kvmem: {one} is set, and {other} is not: set both, or none")
        if self.access not in ("auto", "mapped", "nixl"):
            raise ValueError(f"kvmem: access is {self.access!r}: set auto, mapped or nixl")


@dataclasses.dataclass(frozen=True)
class TierConfig(Settings):
    """Settings of the secondary tier."""

    SHARE: ClassVar[str] = "per engine"
    read_only: bool = False
    """Only load: another engine writes the store at path."""
    locality: str | None = None
    """Whether the folder is on this machine, for requests that name the tiers that they load from: "LOCAL", "REMOTE", or None."""

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises if settings do not fit together."""
        if self.locality not in (None, *LOCALITIES):
            raise ValueError(f"kvmem: locality is {self.locality!r}: set {' or '.join(LOCALITIES)}, or remove it")
        if self.read_only and "capacity_gib" in given:
            raise ValueError("kvmem: read_only and capacity_gib are set, and the engine that writes the store has set its capacity: remove one of them")
        if not self.read_only or self.path is None:
            super().check(given)


def parse_tier(given: Mapping[str, Any]) -> TierConfig:
    """Checks an entry of `secondary_tiers`."""
    return _settings.parse(TierConfig, given, "an entry of secondary_tiers")


def parse(extra: Mapping[str, Any]) -> Config:
    """Checks `kv_connector_extra_config`."""
    return _settings.parse(Config, extra, "kv_connector_extra_config")

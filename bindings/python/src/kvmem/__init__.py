# SPDX-License-Identifier: Apache-2.0
"""KV-cache memory for LLM inference engines: allocate it on every tier, describe KV blocks in it, share it between processes, and
move blocks between any two layouts.

    import kvmem

    shape = kvmem.Shape(num_blocks=1024, num_layers=32, page_size=16, inner_dim=1024, dtype="bfloat16", order="L/BONHC")
    gpu = kvmem.Layout.from_tensors(caches, order="L/BONHC")           # one tensor per layer, without a copy
    host = kvmem.Layout.allocate(shape, "pinned")
    kvmem.move(gpu, host, [(7, 42), (8, 43)])                          # blocks 7 and 8 to blocks 42 and 43

Timeouts are in seconds, None is no limit; sizes are in bytes. Errors are `kvmem.Error`, with a class per status. Objects belong to
their process: after a fork, calls in the child raise InvalidState."""

from kvmem import cuda
from kvmem._constants import (
    AdoptFlags,
    AgentFlags,
    Choice,
    CompletionKind,
    Compute,
    CudaCapabilities,
    DirectoryChange,
    DiskFlags,
    Domain,
    ElasticFlags,
    FetchFlags,
    Locality,
    LogLevel,
    MemoryType,
    Method,
    OpenFlags,
    Origin,
    PinnedFlags,
    PublishFlags,
    RegionFlags,
    ServeFlags,
    SharedObject,
    ShareFlags,
    Status,
    SubmitFlags,
    SyncMode,
    SystemFlags,
    Tier,
    TransferFlags,
    Transport,
)
from kvmem._constants import Order as Order
from kvmem._directory import Directory, Entry, Event
from kvmem._errors import (
    AlreadyExists,
    Busy,
    Cancelled,
    Cause,
    Corrupt,
    CudaError,
    CudaUnavailable,
    Error,
    InvalidArgument,
    InvalidState,
    IoError,
    NixlError,
    NixlUnavailable,
    NotFound,
    OutOfMemory,
    OutOfRange,
    Panic,
    PeerLost,
    PermissionDenied,
    Stale,
    TimedOut,
    Unsupported,
    VersionMismatch,
)
from kvmem._layout import Layout, LayoutInfo, Requirements, Shape
from kvmem._library import lib as _lib
from kvmem._library import path as library_path
from kvmem._library import text as _text
from kvmem._log import log_to
from kvmem._nixl import Agent, Notification, Registration, RegistrationInfo, load_nixl
from kvmem._queue import Completion, Queue
from kvmem._region import ElasticInfo, Holders, Region, RegionInfo, Residency
from kvmem._share import Broker, BrokerInfo, Share, ShareInfo
from kvmem._tensor import Tensor
from kvmem._transfer import ComparedMethod, Explanation, Range, Table, Transfer, TransferInfo, move

__version__ = _text(_lib.kvmem_version_string())

__all__ = [
    "AdoptFlags", "Agent", "AgentFlags", "AlreadyExists", "Broker", "BrokerInfo", "Busy", "Cancelled", "Cause", "Choice",
    "ComparedMethod", "Completion", "CompletionKind", "Compute", "Corrupt", "CudaCapabilities", "CudaError", "CudaUnavailable", "Directory",
    "DirectoryChange", "DiskFlags", "Domain", "ElasticFlags", "ElasticInfo", "Entry", "Error", "Event", "Explanation", "FetchFlags",
    "Holders", "InvalidArgument", "InvalidState", "IoError", "Layout", "LayoutInfo", "Locality", "LogLevel", "MemoryType", "Method",
    "NixlError", "NixlUnavailable", "NotFound", "Notification", "OpenFlags", "Order", "Origin", "OutOfMemory", "OutOfRange", "Panic",
    "PeerLost", "PermissionDenied", "PinnedFlags", "PublishFlags", "Queue", "Range", "Region", "RegionFlags", "RegionInfo",
    "Registration", "RegistrationInfo", "Requirements", "Residency", "ServeFlags", "Shape", "Share", "ShareFlags", "ShareInfo",
    "SharedObject", "Stale", "Status", "SubmitFlags", "SyncMode", "SystemFlags", "Table", "Tensor", "Tier", "TimedOut", "Transfer", "TransferFlags",
    "TransferInfo", "Transport", "Unsupported", "VersionMismatch", "cuda", "library_path", "load_nixl", "log_to", "move",
]  # fmt: skip

for _name in __all__:
    _object = globals()[_name]
    if isinstance(_object, type):
        _object.__module__ = "kvmem"
del _name, _object

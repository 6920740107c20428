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

from kvmem._library import lib as _lib
from kvmem._library import path as library_path
from kvmem._library import text as _text

__version__ = _text(_lib.kvmem_version_string())

# A module of the package is imported when one of its names is used first: `import kvmem` loads the library only. Tools that check types
# read __init__.pyi.
_MODULES = {
    "_constants": (
        "Access Accessor AdoptFlags AgentFlags Choice CompletionKind Compute CudaCapabilities Direction DirectoryChange DiskFlags Domain "
        "Durability ElasticFlags Eviction FetchFlags Granularity LeaseFlags Locality LogLevel MemoryType Method OpenFlags Origin PinnedFlags "
        "PublishFlags RegionFlags ServeFlags SharedObject ShareFlags Status StoreFlags SubmitFlags SyncMode SystemFlags Tier "
        "TransferFlags Transport VmmFlags VmmLocation Order"
    ),
    "_directory": "Directory Entry Event",
    "_errors": (
        "AlreadyExists Busy Cancelled Cause Corrupt CudaError CudaUnavailable Error InvalidArgument InvalidState IoError "
        "NixlError NixlUnavailable NotFound OutOfMemory OutOfRange Panic PeerLost PermissionDenied Stale TimedOut "
        "Unsupported VersionMismatch"
    ),
    "_explanation": "ComparedMethod Explanation",
    "_layout": "Layout Lease",
    "_log": "log_to",
    "_nixl": "Agent Notification Registration RegistrationInfo load_nixl",
    "_queue": "Completion Queue",
    "_region": "ElasticInfo Holders Region RegionInfo Residency",
    "_share": "Broker BrokerInfo Share ShareInfo",
    "_shape": "BlockAccess LayoutInfo Requirements Shape Strides",
    "_statistics": "Latencies MethodStatistics Statistics export_trace serve_statistics statistics statistics_text",
    "_store": "Store StoreEntry StoreInfo StoreRun",
    "_tensor": "Tensor",
    "_transfer": "Range Table Transfer TransferInfo move",
}
_module_of = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted([*_module_of, "cuda", "library_path", "nixl", "vmm"])  # pyright: ignore[reportUnsupportedDunderAll]


def _serve_if_asked() -> None:
    import os

    if os.environ.get("KVMEM_SERVE_STATISTICS") != "1":
        return
    from kvmem import _errors, _statistics

    try:
        _statistics.serve_statistics()
    except _errors.Error as error:
        import warnings

        # An engine must not fail because it cannot be watched.
        warnings.warn(f"kvmem: KVMEM_SERVE_STATISTICS=1 has no effect: {error}", RuntimeWarning, stacklevel=2)


_serve_if_asked()


def __getattr__(name: str) -> object:
    import importlib

    if name in ("cuda", "nixl", "vmm"):
        return importlib.import_module(f"kvmem.{name}")
    if name not in _module_of:
        raise AttributeError(f"module 'kvmem' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"kvmem.{_module_of[name]}"), name)
    if isinstance(found, type):
        found.__module__ = "kvmem"
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

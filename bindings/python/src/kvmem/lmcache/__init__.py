# SPDX-License-Identifier: Apache-2.0
"""kvmem for an unmodified LMCache: an L2 adapter that keeps objects in stores, which the next server reads.

The server loads the class by its module path:

    lmcache server --l2-adapter '{"type": "plugin", "module_path": "kvmem.lmcache", "class_name": "KvmemL2Adapter",
        "adapter_params": {"path": "/var/cache/kvmem", "capacity_gib": 100}}'

docs/lmcache.md has all settings."""


def __getattr__(name: str) -> object:
    # LMCache is imported with the adapter only. Only LMCache uses the class, so no type checker sees it.
    if name == "KvmemL2Adapter":
        from kvmem.lmcache._adapter import KvmemL2Adapter

        return KvmemL2Adapter
    raise AttributeError(f"module 'kvmem.lmcache' has no attribute {name!r}")

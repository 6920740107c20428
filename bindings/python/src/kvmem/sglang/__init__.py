# SPDX-License-Identifier: Apache-2.0
"""kvmem for an unmodified SGLang: a storage backend of HiCache that keeps pages in stores, which the next engine reads.

SGLang loads the class by its module path:

    python -m sglang.launch_server --model MODEL --enable-hierarchical-cache --hicache-storage-backend dynamic
        --hicache-storage-backend-extra-config '{"backend_name": "kvmem", "module_path": "kvmem.sglang", "class_name": "KvmemStorage",
        "interface_v1": 1, "kvmem": {"path": "/var/cache/kvmem", "capacity_gib": 100}}'

docs/sglang.md has all settings."""


def __getattr__(name: str) -> object:
    # SGLang is imported with the backend only. Only SGLang uses the class, so no type checker sees it.
    if name == "KvmemStorage":
        from kvmem.sglang._storage import KvmemStorage

        return KvmemStorage
    raise AttributeError(f"module 'kvmem.sglang' has no attribute {name!r}")

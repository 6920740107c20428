# SPDX-License-Identifier: Apache-2.0
"""kvmem for an unmodified vLLM: blocks of the KV cache stay in a store, or an engine hands requests over to another one.

vLLM loads the connector by its module path:

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KvmemConnector", "kv_connector_module_path": "kvmem.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"path": "/var/cache/kvmem", "capacity_gib": 100}}'

docs/vllm.md has all settings."""

def __getattr__(name: str) -> object:
    # vLLM is imported with the connector only: the other modules do not need it. Only vLLM uses the class, so no type checker sees it.
    if name == "KvmemConnector":
        from kvmem.vllm._connector import KvmemConnector

        return KvmemConnector
    if name == "KvmemOffloadingSpec":
        from kvmem.vllm._offloading_spec import KvmemOffloadingSpec

        return KvmemOffloadingSpec
    if name == "KvmemSecondaryTierManager":
        from kvmem.vllm._tier import KvmemSecondaryTierManager

        return KvmemSecondaryTierManager
    raise AttributeError(f"module 'kvmem.vllm' has no attribute {name!r}")

# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found, unused-ignore"
# pyright: reportMissingImports=false
"""What the bytes of a block depend on. Only engines with an equal identity may use a store."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

from kvmem.vllm._groups import Group, attention_of


def identity_of(config: Any, cache: Any, groups: Sequence[Group], extra: str) -> dict[str, str]:
    """The properties of an engine by name, from vLLM's configuration."""
    model, parallel = config.model_config, config.parallel_config
    forms = sorted({group.form for group in groups if group.form})
    return {
        **({"states": "; ".join(forms)} if forms else {}),
        "model": str(model.model),
        "revision": str(model.revision),
        "configuration": configuration_of(model),
        "dtype": str(model.dtype),
        "cache dtype": str(config.cache_config.cache_dtype),
        "tensor parallelism": str(parallel.tensor_parallel_size),
        "pipeline parallelism": str(parallel.pipeline_parallel_size),
        "block size": ", ".join(str(group.block_size) for group in groups),
        "pages": ", ".join(f"{len(group.layers)}x{group.page} {group.kind}" for group in groups),
        "layout": str(cache.kv_cache_layout),
        "packing": packing_of(config, cache),
        "hashes": _hashes(config),
        "identity": extra or "none",
    }


def model_identity(config: Any, cache: Any, extra: str) -> dict[str, str]:
    """What engines that hand requests over have in common: all that their keys and values depend on, and not where they are located."""
    model = config.model_config
    text = model.hf_text_config
    return {
        "model": str(model.model),
        "revision": str(model.revision),
        "configuration": configuration_of(model),
        "sizes": f"{model.get_head_size()} x {model.get_total_num_kv_heads()} x {text.num_hidden_layers}",
        "dtype": str(model.dtype),
        "cache dtype": str(config.cache_config.cache_dtype),
        "identity": extra or "none",
    }


def unit_identity(config: Any, cache: Any, group: Group, unit: int, extra: str) -> dict[str, str]:
    """What engines have in common that share blocks of a group in units of tokens, by head."""
    return {
        **model_identity(config, cache, extra),
        "hashes": _hashes(config),
        "unit": f"{unit} tokens",
        "group": f"{len(group.layers)} layers, {group.kind} {group.window}",
    }


def configuration_of(model: Any) -> str:
    """A hash of what the model computes. vLLM's own hash has settings of the engine, too, on which no block depends."""
    config = {name: value for name, value in model.hf_config.to_dict().items() if name not in ("transformers_version", "_name_or_path")}
    rope = getattr(model.hf_text_config, "rope_parameters", None) or {}
    # Longrope has other frequencies if the engine permits more tokens than the model was first trained with.
    first = rope.get("original_max_position_embeddings") if isinstance(rope, dict) and rope.get("rope_type") == "longrope" else None
    properties = [config, str(model.quantization), first is not None and model.max_model_len > first]
    return hashlib.sha256(json.dumps(properties, sort_keys=True, default=str).encode()).hexdigest()[:16]


def packing_of(config: Any, cache: Any) -> str:
    """How the CPU backend packs blocks, which depends on the instruction set. Packing and layout are the same on all GPUs."""
    from vllm.platforms import current_platform

    spec = attention_of(cache)
    if not current_platform.is_cpu() or spec is None:
        return "none"
    from vllm.v1.attention.backends import cpu_attn

    return str(cpu_attn._get_attn_isa(config.model_config.dtype, spec.block_size, getattr(spec, "head_size", None)))


def permit_amx() -> None:
    """Asks the kernel for AMX, if the CPU has it. vLLM does so by its first product of many tokens, and ends with an illegal instruction if its
    first step has few, as when all others have been loaded."""
    import torch
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()


def _hashes(config: Any) -> str:
    """The function of block hashes, and their seed."""
    name = config.cache_config.prefix_caching_hash_algo
    seed = os.environ.get("PYTHONHASHSEED")
    if not str(name).startswith("sha256") and seed is None:
        raise ValueError(f"kvmem: hashes of {name} differ in each process: set PYTHONHASHSEED to a number, or --prefix-caching-hash-algo=sha256")
    return f"{name}, seed {seed}"

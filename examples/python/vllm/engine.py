# SPDX-License-Identifier: Apache-2.0
"""engine.py RUN: one engine of the demo. It generates tokens, and prints what it did as JSON.

RUN is an object: model (folder), extra (settings of kvmem, or null to run without it), prompts (lists of token ids), kind (of the model, see
make_model), and optionally make (write the model first), engine (arguments of LLM), rounds, extend (the result has the prompts with the first token
that follows each, and the tokens after that), max_tokens, copy (folders: from, to), damage (blocks in the store: "bytes", or "forge"), role (of the connector), transfer (another connector than kvmem's), forge_host (see there), serve (the prompts come later: each line of stdin is a call of
`serve`), damage_tier (as damage, in the store of the secondary tier)."""

import json
import os
import select
import shutil
import sys
import time

MAX_TOKENS = 48


def make_model(folder, kind):
    """A model with random weights, in a file: a Llama of 4 layers ("model"), one whose layers have a latent vector per token ("latent", a
    DeepSeek-V2), or one of 6 layers, of which 4 have no keys and values of all tokens, so that vLLM has several cache groups: a sliding window of
    64 tokens ("windows", a Gemma), or the states of Mamba 2 ("mamba", a Granite 4)."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = dict(
        vocab_size=2048, hidden_size=256, intermediate_size=512, num_attention_heads=8, num_key_value_heads=4, head_dim=32,
        max_position_embeddings=4096, torch_dtype="bfloat16",
    )  # fmt: skip

    def layers(name, attention):
        return [name, name, attention] * 2

    configs = {
        "model": lambda: transformers.LlamaConfig(num_hidden_layers=4, tie_word_embeddings=True, **sizes),
        "latent": lambda: transformers.DeepseekV2Config(
            num_hidden_layers=4, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, first_k_dense_replace=4,
            n_routed_experts=2, num_experts_per_tok=1, **(sizes | {"num_key_value_heads": 8}),
        ),
        "windows": lambda: transformers.Gemma3TextConfig(
            num_hidden_layers=6, sliding_window=64, layer_types=layers("sliding_attention", "full_attention"), query_pre_attn_scalar=32, **sizes
        ),
        "mamba": lambda: transformers.GraniteMoeHybridConfig(
            num_hidden_layers=6, layer_types=layers("mamba", "attention"), num_local_experts=0, shared_intermediate_size=512, mamba_n_heads=8,
            mamba_d_head=64, mamba_d_state=32, mamba_chunk_size=32, tie_word_embeddings=True, **sizes,
        ),
    }  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(configs[kind]())
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:  # larger than usual, so that the attention decides the tokens
                parameter.normal_(0, 0.03 if kind == "latent" else 0.12)
    model.save_pretrained(folder)


def damage(worker, forge):
    """Inverts the bytes of every third block of each store of a worker, in its file; of a model with states all of these instead. With `forge`,
    inverted blocks are put into the store: it cannot find them damaged. The cache is not in use yet."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    connector = get_kv_transfer_group()
    offload, kinds = connector._worker, [group.kind for group in connector._groups]
    for kind, cache, blocks in zip(kinds, offload._caches, offload.stores):
        store = blocks._store
        if "state" in kinds and kind != "state":
            continue
        for entry in list(store) if kind == "state" else list(store)[1::3]:
            if forge:
                store.get(cache, [entry.key], [1]).wait()
                invert(worker, [1])
                store.remove([entry.key])
                store.put(cache, [entry.key], [1], parent=entry.parent).wait()
                continue
            with open(os.path.join(store._path, "blocks.0"), "r+b") as file:
                file.seek(entry.slot * store.info.slot_size)
                old = file.read(store.info.slot_size)
                file.seek(-len(old), os.SEEK_CUR)
                file.write(bytes(byte ^ 0x80 for byte in old))


def forge_host(worker):
    """Inverts the bytes that KvmemOffloadingSpec keeps in host memory, and has it expect the inverted ones."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    copies = get_kv_transfer_group().connector_worker.worker._copies
    for (_, host), sums in zip(copies._groups, copies._checksums):
        for layer in range(host.info.num_layers):
            with host.region(layer) as region:
                memory = region.memory
                memory[:] = bytes(byte ^ 0x80 for byte in memory)
        if sums:
            sums.update(zip(list(sums), host.checksums(list(sums))))


def damage_tier(engine, forge):
    """As `damage`, for every third chunk in the store of KvmemSecondaryTierManager, by means of the first chunk of vLLM's host memory."""
    import numpy

    manager = scheduler_of(engine).connector.connector_scheduler.manager
    jobs, chunk = manager.secondary_tiers[0]._jobs, numpy.asarray(memoryview(manager.primary_tier.get_kv_memoryview()))[0]
    store = jobs.store._store
    for entry in list(store)[1::3]:
        store.get(jobs._chunks, [entry.key], [0]).wait()
        chunk ^= -128
        if forge:
            store.remove([entry.key])
            store.put(jobs._chunks, [entry.key], [0], parent=entry.parent).wait()
            continue
        with open(os.path.join(store._path, "blocks.0"), "r+b") as file:
            file.seek(entry.slot * store.info.slot_size)
            file.write(chunk.tobytes())


def start(options):
    """The engine. Raises ValueError if its settings are wrong."""
    from vllm import LLM
    from vllm.config import KVTransferConfig

    arguments = dict(
        model=options["model"], skip_tokenizer_init=True, enforce_eager=True, max_model_len=1024, max_num_seqs=8, dtype="bfloat16", block_size=32,
        disable_log_stats=False, num_gpu_blocks_override=128, seed=0, distributed_executor_backend="uni" if options.get("engine", {}).get("tensor_parallel_size", 1) == 1 else "mp",
    ) | options.get("engine", {})
    if "transfer" in options:
        arguments["kv_transfer_config"] = KVTransferConfig(**options["transfer"])
    elif options["extra"] is not None:
        arguments["kv_transfer_config"] = KVTransferConfig(
            kv_connector="KvmemConnector", kv_connector_module_path="kvmem.vllm", kv_role=options.get("role", "kv_both"), kv_load_failure_policy="recompute",
            kv_connector_extra_config=options["extra"],
        )
    return LLM(**arguments)


def generate(engine, prompts, max_tokens=MAX_TOKENS, params=None):
    """The tokens that follow the prompts. `params` are the kv_transfer_params of each."""
    from vllm import SamplingParams

    samplings = [
        SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, extra_args=each and {"kv_transfer_params": each})
        for each in params or [None] * len(prompts)
    ]
    begun = time.monotonic()
    outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], samplings, use_tqdm=False)
    seconds = time.monotonic() - begun
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs], "cached": [output.num_cached_tokens for output in outputs],
        "params": [output.kv_transfer_params for output in outputs], "seconds": seconds, "counters": counters(engine),
        "preemptions": next((metric.value for metric in engine.get_metrics() if metric.name == "vllm:num_preemptions"), 0),
    }


def run(options):
    if "copy" in options:
        shutil.copytree(*options["copy"])
    try:
        engine = start(options)
    except ValueError as error:
        return {"error": str(error)}
    if options.get("damage"):
        engine.collective_rpc(damage, args=(options["damage"] == "forge",))
    if options.get("damage_tier"):
        damage_tier(engine, options["damage_tier"] == "forge")
    if options.get("serve"):
        print("RESULT {}", flush=True)
        serve(engine)
        return {}
    for _ in range(options.get("rounds", 1)):
        result = generate(engine, options["prompts"], options.get("max_tokens", MAX_TOKENS) + bool(options.get("extend")))
        engine.reset_prefix_cache()
        if options.get("forge_host"):
            engine.collective_rpc(forge_host)
    engine.llm_engine.engine_core.shutdown()
    if options.get("extend"):
        result["prompts"] = [prompt + tokens[:1] for prompt, tokens in zip(options["prompts"], result["tokens"])]
        result["tokens"] = [tokens[1:] for tokens in result["tokens"]]
    return result


def serve(engine):
    """Does what each line asks for. Meanwhile the engine steps, as that of `vllm serve` does, so that it sees what other engines have read."""
    commands = {
        "generate": lambda **more: generate(engine, **more),
        "invert": lambda blocks: engine.collective_rpc(invert, args=(blocks,)) and {},
        "wait": lambda name, count: wait(engine, name, count),
        "abort": lambda **more: abort(engine, **more),
        "free": lambda: {"free": free_blocks(engine)},
        "expire": lambda: engine.collective_rpc(expire) and {},
        "read_late": lambda **more: engine.collective_rpc(read_late, kwargs=more) and {},
    }
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], 0.005)
        if not ready:
            engine.llm_engine.step()
            continue
        line = sys.stdin.readline()
        if not line:
            break
        asked = json.loads(line)
        print("RESULT " + json.dumps(commands[asked.pop("do")](**asked)), flush=True)
    engine.llm_engine.engine_core.shutdown()


def scheduler_of(engine):
    return engine.llm_engine.engine_core.engine_core.scheduler


def free_blocks(engine):
    """Whether all blocks of vLLM's cache are free."""
    pool = scheduler_of(engine).kv_cache_manager.block_pool
    return pool.get_num_free_blocks() == pool.num_gpu_blocks - 1  # one is never used


def abort(engine, prompts, params):
    """Begins requests, and aborts them when all wait for the prefill engine. Returns whether they had blocks then."""
    from vllm import SamplingParams
    from vllm.v1.request import RequestStatus

    names = [f"aborted-{at}" for at in range(len(prompts))]
    for name, prompt, each in zip(names, prompts, params):
        sampling = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True, detokenize=False, extra_args={"kv_transfer_params": each})
        engine.llm_engine.add_request(name, {"prompt_token_ids": prompt}, sampling)
    requests = scheduler_of(engine).requests
    end = time.monotonic() + 60
    while not all(request.status == RequestStatus.WAITING_FOR_REMOTE_KVS for request in requests.values()) and time.monotonic() < end:
        engine.llm_engine.step()
    found = {"waiting": len(requests), "held": not free_blocks(engine)}
    engine.llm_engine.abort_request(names)
    return found


def wait(engine, name, count):
    """Steps until a counter has a value."""
    end = time.monotonic() + 60
    while counters(engine).get(name, 0) < count and time.monotonic() < end:
        engine.llm_engine.step()
    return {"counters": counters(engine)}


def expire(worker):
    """Ends the leases of all requests that the prefill engine keeps."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    exchange = get_kv_transfer_group()._worker
    exchange._post(lambda _now: exchange._held.expire(float("inf")))


def read_late(worker, folder, epochs):
    """Has the decode engine wait before it reads blocks that prefill has granted: it writes the file `granted`, and goes on when there is `go`.
    Without `epochs` it does not expect any."""
    import kvmem
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    pulls = get_kv_transfer_group()._worker._pulls
    read, submit = pulls._read, kvmem.Transfer.submit

    def late(*arguments):
        with open(os.path.join(folder, "granted"), "w"):
            pass
        end = time.monotonic() + 60
        while not os.path.exists(os.path.join(folder, "go")) and time.monotonic() < end:
            time.sleep(0.005)
        read(*arguments)

    pulls._read = late
    if not epochs:
        kvmem.Transfer.submit = lambda self, *arguments, **more: submit(self, *arguments, **(more | {"epochs": None}))


def invert(worker, blocks):
    """Inverts a bit of all bytes of blocks in vLLM's cache. States, which are lists of tensors, are in the same memory as keys and values."""
    import torch

    for cache in {cache.data_ptr(): cache for cache in worker.model_runner.kv_caches if not isinstance(cache, (list, tuple))}.values():
        cache.view(torch.uint8)[blocks] ^= 0x80


def counters(engine):
    found = {}
    for metric in engine.get_metrics():
        if metric.name.startswith("vllm:kvmem_") and hasattr(metric, "value"):
            found[metric.name.removeprefix("vllm:kvmem_")] = metric.value
    return found


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if asked.get("make"):
        make_model(asked["model"], asked["kind"])
    print("RESULT " + json.dumps(run(asked)), flush=True)

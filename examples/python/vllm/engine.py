# SPDX-License-Identifier: Apache-2.0
"""engine.py RUN: one engine of the demo. It generates tokens, and prints what it did as JSON.

RUN is an object: model (folder), extra (settings of kvmem, or null to run without it), prompts (lists of token ids), windows (see
make_model), and optionally make (write the model first), engine (arguments of LLM), transfer (another connector than kvmem's), rounds, copy (folders: from, to), damage (a folder of kvmem)."""

import glob
import json
import os
import shutil
import sqlite3
import sys
import time


def make_model(folder, windows):
    """A model with random weights, in a file: a Llama of 4 layers, or with `windows` a Gemma of 6, of which 4 have a sliding window of 64
    tokens, so that vLLM has several cache groups."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(
        vocab_size=2048, hidden_size=256, intermediate_size=512, num_attention_heads=8, num_key_value_heads=4, head_dim=32,
        max_position_embeddings=4096, torch_dtype="bfloat16",
    )  # fmt: skip
    if windows:
        kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
        model = Gemma3ForCausalLM(Gemma3TextConfig(num_hidden_layers=6, sliding_window=64, layer_types=kinds, query_pre_attn_scalar=32, **sizes))
    else:
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=4, tie_word_embeddings=True, **sizes))
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:  # larger than usual, so that the attention decides the tokens
                parameter.normal_(0, 0.12)
    model.save_pretrained(folder)


def damage(folder):
    """Inverts the bytes of every third block of a store, in the file of each rank."""
    folder = os.path.join(folder, "engine-0")
    index = sqlite3.connect(os.path.join(folder, "index.sqlite"))
    pages = json.loads(index.execute("SELECT text FROM identity").fetchone()[0])["pages"].split(", ")
    for group, text in enumerate(pages):
        layers, page = map(int, text.split(" ")[0].split("x"))
        slots = [row[0] for row in index.execute("SELECT slot FROM blocks WHERE store = ? ORDER BY slot", (group,))]
        for path in glob.glob(os.path.join(folder, f"group-{group}-rank-*.kvmem")):
            with open(path, "r+b") as file:
                for slot in slots[1::3]:
                    file.seek(slot * layers * page)
                    old = file.read(layers * page)
                    file.seek(slot * layers * page)
                    file.write(bytes(byte ^ 0x80 for byte in old))
    index.close()


def run(options):
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    if "copy" in options:
        shutil.copytree(*options["copy"])
    if "damage" in options:
        damage(options["damage"])
    arguments = dict(
        model=options["model"], skip_tokenizer_init=True, enforce_eager=True, max_model_len=1024, max_num_seqs=8, dtype="bfloat16", block_size=32,
        disable_log_stats=False, num_gpu_blocks_override=128, seed=0, distributed_executor_backend="uni" if options.get("engine", {}).get("tensor_parallel_size", 1) == 1 else "mp",
    ) | options.get("engine", {})
    if "transfer" in options:
        arguments["kv_transfer_config"] = KVTransferConfig(**options["transfer"])
    elif options["extra"] is not None:
        arguments["kv_transfer_config"] = KVTransferConfig(
            kv_connector="KvmemConnector", kv_connector_module_path="kvmem.vllm", kv_role="kv_both", kv_load_failure_policy="recompute",
            kv_connector_extra_config=options["extra"],
        )
    try:
        engine = LLM(**arguments)
    except ValueError as error:
        return {"error": str(error)}
    sampling = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, detokenize=False)
    for _ in range(options.get("rounds", 1)):
        begun = time.monotonic()
        outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in options["prompts"]], sampling, use_tqdm=False)
        seconds = time.monotonic() - begun
        engine.reset_prefix_cache()
    result = {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs], "cached": [output.num_cached_tokens for output in outputs],
        "seconds": seconds, "counters": counters(engine),
    }
    engine.llm_engine.engine_core.shutdown()
    return result


def counters(engine):
    found = {}
    for metric in engine.get_metrics():
        if metric.name.startswith("vllm:kvmem_") and hasattr(metric, "value"):
            found[metric.name.removeprefix("vllm:kvmem_")] = metric.value
    return found


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if asked.get("make"):
        make_model(asked["model"], asked["windows"])
    print("RESULT " + json.dumps(run(asked)), flush=True)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo.py PYTHON [--small] [--only=WORDS]: an unmodified vLLM with kvmem, case by case, and a table of the results.

PYTHON is one that has vLLM and kvmem; scripts/vllm-env.sh makes it. WORDS are how the names of the cases begin that run: --only=windows,block.
Those without kvmem always run. Ends with 1 if a case fails.

Each case compares its tokens with those of vLLM without kvmem. The controls must differ: the store or the host memory has other blocks than were
computed, damaged blocks are handed over without a check, or blocks are read without epochs after prefill has filled them again."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from handover import FLOAT32, Engine, Handover
from server import served

HERE = pathlib.Path(__file__).parent
DEADLINE = 900
"""Seconds of one process, against hangs. A busy machine needs minutes."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}  # fmt: skip


SYNCHRONOUS = {"async_scheduling": False}
"""Needed to pull by layer."""

STATES = FLOAT32 | {"block_size": 96, "enable_prefix_caching": False}
"""Arguments of engines of the model with states. With prefix caching, vLLM's kernels for Mamba on the CPU fail for a step that ends a prompt and passes the
end of a block."""

STORED_STATES = STATES | {"enable_prefix_caching": True, "max_num_batched_tokens": 96, "max_num_seqs": 1}
"""With prefix caching, which a store needs, and with steps that end with a block."""

LATENT = FLOAT32 | {"block_size": 16, "max_num_seqs": 1}
"""Arguments of engines of the model with latent vectors. The kernel of the CPU has blocks of 16 tokens, and results that depend on the other requests of
a step, and on whether a token is one of a prompt or follows it. So there is one request at a time, and the last token of a prompt, which decode computes
after a handover, is that which has followed the others. The latent vectors of a prompt with another last token differ in their last bits, so few tokens are
compared: LATENT_TOKENS."""

LATENT_TOKENS = 16

OFFLOADING = ("offloading spec", "control: offloading", "tier", "control: tier")
"""Cases of vLLM's OffloadingConnector, which counts tokens only."""


def process(python, run, folder):
    """Runs an engine in a process of its own, and returns what it did."""
    with open(folder / "log", "a+") as log:
        done = subprocess.run(
            [python, HERE / "engine.py", json.dumps(run)], stdout=subprocess.PIPE, stderr=log, text=True, timeout=DEADLINE,
            env=os.environ | ENVIRONMENT,
        )  # fmt: skip
        if done.returncode:
            log.seek(0)
            sys.exit(f"{run['name']}: the engine ended with {done.returncode}:\n{log.read()[-4000:]}\n{done.stdout[-2000:]}")
    return next(json.loads(line[len("RESULT ") :]) for line in done.stdout.splitlines() if line.startswith("RESULT "))


def report(name, result, expected, prompts, block_size=32):
    """Prints a row, and returns whether the case went as it must."""
    if "error" in result:
        sentence = next((line for line in result["error"].splitlines() if "kvmem: " in line), result["error"])
        print(f"{name:30} refused: {sentence[sentence.find('kvmem: ') :]}", flush=True)
        return name == "another block size" and "block size is '32' in the store and '64' here" in sentence
    counters, same = result["counters"], result["tokens"] == expected
    total = sum(len(prompt) for prompt in prompts)
    size = result.get("block_size", block_size)
    loaded = sum(result["cached"]) if name.startswith(OFFLOADING) else int(counters.get("loaded_blocks", 0)) * size
    states = 2 * len(prompts) if "mamba" in name else 0  # a block in each of two groups
    whole = sum((len(prompt) - 1) // size * size for prompt in prompts) + states * size  # all full blocks but that of the last token
    stored = counters.get("stored_blocks", counters.get("tier_stored_chunks", 0))
    damaged = counters.get("damaged_blocks", counters.get("tier_damaged_chunks", 0))
    print(
        f"{name:30} {'same' if same else 'differ':>8} {f'{min(loaded, total)} of {total}':>14} {counters.get('stored_bytes', 0):12,.0f} "
        f"{counters.get('loaded_bytes', 0):12,.0f} {damaged:8.0f} {result['seconds']:8.2f}",
        flush=True,
    )
    if "released" in result:
        # By layer, decode computes the block of the last token itself.
        blocks = sum((len(prompt) - 1) // size if "by layer" in name else -(-len(prompt) // size) for prompt in prompts)
        if "mamba" in name:  # not the last token
            blocks = sum(-(-(len(prompt) - 1) // size) for prompt in prompts) + states
        return handed_over_well(name, result, same, loaded, blocks * size)
    return {
        "without kvmem": not loaded,
        "disk, first engine": same and not loaded and stored > 0,
        "disk, after a restart": same and loaded == whole,
        "damaged": same and damaged > 0 and loaded < whole,
        "damaged, again": same and loaded == whole and not damaged,
        "control: forged blocks": not same and loaded == whole,
        "host memory, second round": same and loaded == whole,
        "offloading spec, second round": same and loaded == whole,
        "control: offloading, forged": not same and loaded == whole,
        "tier, first engine": same and not loaded and stored > 0,
        "tier, after a restart": same and loaded == whole and not damaged,
        "tier, damaged": same and damaged > 0 and loaded < whole,
        "control: tier, forged": not same and loaded == whole,
        "two ranks, first engine": not loaded and stored > 0,
        "two ranks, after a restart": same and loaded == 2 * whole,
        "windows, without kvmem": not loaded,
        "windows, first engine": same and not loaded and stored > 0,
        "windows, after a restart": same and loaded > 0,
        "windows, damaged": same and damaged > 0,
        "chunked prefill, few blocks": same and loaded > 0,
        "float32, without kvmem": not loaded,
        "mamba, without kvmem": not loaded,
        "mamba, stored": same and not loaded and stored > 0,
        "mamba, restarted": same and loaded == whole,
        "mamba, damaged in the store": same and damaged == states,
        "control: mamba, forged": not same and loaded == whole,
        "latent, without kvmem": not loaded,
        "float32, stored in units": same and not loaded and stored > 0,
        "float32, another block size": same and loaded == whole,
        "float32, two ranks": same and loaded == 2 * whole,
        "float32, one rank again": same and loaded == whole,
        "preempted": same and loaded > 0 and result.get("preemptions", 0) > 0,
        "served by HTTP": same and not loaded,
        "served by HTTP, restarted": same and loaded == whole and not damaged,
    }.get(name, False)


def handed_over_well(name, result, same, loaded, whole):
    """Whether a handover went as it must. `whole` are the tokens of all blocks."""
    counters = result["counters"]
    damaged, lost = counters.get("damaged_blocks", 0), counters.get("failed_loads", 0)
    if name.endswith(("peer killed", "other blocks")) or name == "unknown owner":
        return same and not loaded and lost > 0
    if name == "block reused by its owner":
        return same and not loaded and counters.get("stale_blocks", 0) > 0
    path = "nixl_bytes" if "NIXL" in name else "mapped_bytes"
    if lost or not result["released"] or counters.get("loaded_bytes") != counters.get(path):
        return False
    if name.endswith(", damaged"):
        return same and damaged > 0 and loaded < whole
    if name.startswith("control"):
        return not same and loaded == whole
    if name.startswith("abort"):  # what was aborted is read, too, and then freed
        return same and result["waiting"] > 0 and result["held"] and result["free"] and loaded == 2 * whole
    if name.endswith(", preempted") and not result["preemptions"]:
        return False
    return same and not damaged and (loaded == whole or "windows" in name and loaded > 0)


def main():
    python, small = sys.argv[1], "--small" in sys.argv[2:]
    only = next((argument.removeprefix("--only=") for argument in sys.argv[2:] if argument.startswith("--only=")), "")
    only = tuple(only.split(","))
    source = random.Random(1)
    prompts = [[source.randrange(2048) for _ in range(length)] for length in ((97, 200) if small else (200, 333, 97))]
    with tempfile.TemporaryDirectory(prefix="kvmem-vllm-") as scratch, tempfile.TemporaryDirectory(prefix="kvmem-vllm-", dir="/dev/shm") as memory:
        folder = pathlib.Path(scratch)

        extended = {}

        def prompts_of(kind):
            return extended.get(kind, prompts)

        def case(name, extra, **more):
            kind = next((kind for kind in ("windows", "mamba", "latent") if kind in name), "model")
            return {"name": name, "model": str(folder / kind), "kind": kind, "prompts": prompts_of(kind), "extra": extra, **more}

        def disk(name, store="store", **more):
            return case(name, {"path": str(folder / store), "capacity_gib": 0.05}, **more)

        def units(name, block_size, **more):
            extra = {"path": str(folder / "units"), "capacity_gib": 0.1, "unit_tokens": 32}
            return case(name, extra, engine=FLOAT32 | {"block_size": block_size} | more)

        store, spoiled, forged = (str(folder / name) for name in ("store", "spoiled", "forged"))
        offloading = {
            "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"spec_name": "KvmemOffloadingSpec", "spec_module_path": "kvmem.vllm", "cpu_bytes_to_use": 8 << 20},
        }  # fmt: skip

        def tier(name, store="tier", **more):
            secondary = {"type": "KvmemSecondaryTierManager", "module_path": "kvmem.vllm", "path": str(folder / store), "capacity_gib": 0.05}
            extra = {"spec_name": "HostTieringSpec", "spec_module_path": "tiering", "cpu_bytes_to_use": 8 << 20, "secondary_tiers": [secondary]}
            return case(name, None, transfer={"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}, **more)

        runs = [
            case("without kvmem", None, make=True),
            case("mamba, without kvmem", None, make=True, engine=STATES),
            disk("disk, first engine"),
            disk("disk, after a restart"),
            disk("damaged", "spoiled", copy=[store, spoiled], damage="bytes"),
            disk("control: forged blocks", "forged", copy=[store, forged], damage="forge"),
            case("offloading spec, second round", None, transfer=offloading, rounds=2),
            case("control: offloading, forged", None, transfer=offloading, rounds=2, forge_host=True),
            tier("tier, first engine"),
            tier("tier, after a restart"),
        ]
        if not small:
            runs += [
                tier("tier, damaged", "spoiled-tier", copy=[str(folder / "tier"), str(folder / "spoiled-tier")], damage_tier="bytes"),
                tier("control: tier, forged", "forged-tier", copy=[str(folder / "tier"), str(folder / "forged-tier")], damage_tier="forge"),
                disk("damaged, again", "spoiled"),
                disk("another block size", engine={"block_size": 64}),
                case("host memory, second round", {"path": memory, "capacity_gib": 0.05}, rounds=2),
                disk("two ranks, first engine", "ranks", engine={"tensor_parallel_size": 2}),
                disk("two ranks, after a restart", "ranks", engine={"tensor_parallel_size": 2}),
                case("windows, without kvmem", None, make=True),
                disk("windows, first engine", "groups"),
                disk("windows, after a restart", "groups"),
                disk("windows, damaged", "spoiled-groups", copy=[str(folder / "groups"), str(folder / "spoiled-groups")],
                     damage="bytes"),
                disk("mamba, stored", "states", engine=STORED_STATES),
                disk("mamba, restarted", "states", engine=STORED_STATES),
                disk("mamba, damaged in the store", "spoiled-states", copy=[str(folder / "states"), str(folder / "spoiled-states")],
                     damage="bytes", engine=STORED_STATES),
                disk("control: mamba, forged", "forged-states", copy=[str(folder / "states"), str(folder / "forged-states")],
                     damage="forge", engine=STORED_STATES),
                case("latent, without kvmem", None, make=True, extend=True, max_tokens=LATENT_TOKENS, engine=LATENT),
                disk("preempted", engine={"num_gpu_blocks_override": 24, "max_model_len": 512}),
                case("float32, without kvmem", None, engine=FLOAT32),
                units("float32, stored in units", 32),
                units("float32, another block size", 128),
                units("float32, two ranks", 64, tensor_parallel_size=2),
                units("float32, one rank again", 32),
                disk("chunked prefill, few blocks", engine={"num_gpu_blocks_override": 20, "max_num_batched_tokens": 64, "max_num_seqs": 3, "max_model_len": 512}),
            ]
        print(f"{'case':30} {'tokens':>8} {'loaded tokens':>14} {'stored':>12} {'loaded':>12} {'damaged':>8} {'seconds':>8}")
        expected, failures = {}, []

        def judge(name, result, reference, block_size=32):
            if not report(name, result, expected.setdefault(reference, result.get("tokens")), prompts_of(reference), block_size):
                failures.append(name)

        for run in runs:
            name = run["name"]
            if not name.startswith(only) and "without kvmem" not in name:  # the others are compared with these
                continue
            # The sums of two ranks differ from those of one: they are compared with each other.
            reference = name.split(",")[0] if name.startswith(("two ranks", "float32")) else run["kind"]
            result = process(python, run, folder)
            if "prompts" in result:
                extended[run["kind"]] = result["prompts"]
            judge(name, result, reference, run.get("engine", {}).get("block_size", 32))

        # A server is killed, and another one finds what it has stored; in the small form it finds what the first engine has stored.
        for name in ("served by HTTP, restarted",) if small else ("served by HTTP", "served by HTTP, restarted"):
            if name.startswith(only):
                extra = {"path": store if small else str(folder / "served"), "capacity_gib": 0.05}
                judge(name, served(python, ENVIRONMENT, folder, str(folder / "model"), extra, DEADLINE, prompts=prompts), "model")

        def engine(model, arguments, role, extra):
            directory = {"directory": str(folder / "agents")} | extra
            run = case(role if model == "model" else f"{model} {role}", directory, role=role, engine=arguments)
            return Engine(python, ENVIRONMENT, folder, run, DEADLINE)

        with contextlib.closing(Handover(engine, prompts_of, judge)) as handover:
            for name, arguments in handovers(small):
                if name.startswith(only):
                    handover.case(name, **arguments)
            stale = [("block reused by its owner", lambda name: handover.reused(name, epochs=True, extra={"verify": False}))]
            if not small:
                stale += [
                    ("control: reused, no epochs", lambda name: handover.reused(name, epochs=False, extra={"verify": False})),
                    ("unknown owner", handover.unknown),
                ]
            for name, run_case in stale:
                if name.startswith(only):
                    run_case(name)
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")
    print("all cases as expected; those with \"control\" must differ")


def states(**more):
    """The arguments of `Handover.case` for the model with states."""
    return dict(model="mamba", reference="mamba", prefill=STATES, decode=STATES) | more


def latent(**more):
    """The arguments of `Handover.case` for the model with latent vectors."""
    return dict(model="latent", reference="latent", prefill=LATENT, decode=LATENT, max_tokens=LATENT_TOKENS) | more


def handovers(small):
    """The cases of the handover: their names, and the arguments of `Handover.case`."""
    few = {"num_gpu_blocks_override": 26, "max_num_batched_tokens": 64, "max_num_seqs": 3, "max_model_len": 512}
    cached = STATES | {"block_size": 352, "enable_prefix_caching": True}  # no prompt fills a block, and one request does while decode runs
    # All prompts fit, and not what follows them.
    tight = {"num_gpu_blocks_override": 13 if small else 24, "max_model_len": 384 if small else 512}
    cases = [
        ("handover, preempted", dict(decode=tight)),
        ("handover mapped", dict(extra={"access": "mapped"})),
        ("handover by NIXL", dict(extra={"access": "nixl"})),
        ("handover, damaged", dict(damage=True)),
        ("control: handover, unchecked", dict(extra={"verify": False}, damage=True)),
        ("abort while decode waits", dict(abort=True)),
        ("peer killed", dict(kill=True)),
        ("mamba, mapped", states(extra={"access": "mapped"})),
        ("control: mamba, unchecked", states(extra={"verify": False}, damage=True)),
    ]
    if not small:
        cases += [
            ("mamba, by NIXL", states(extra={"access": "nixl"})),
            ("mamba, damaged", states(damage=True)),
            ("mamba, other blocks", states(decode=STATES | {"block_size": 192})),
            ("mamba, prefix caching", states(prefill=cached, decode=cached)),
            ("mamba, peer killed", states(kill=True)),
            ("latent, mapped", latent(extra={"access": "mapped"})),
            ("latent, by NIXL", latent(extra={"access": "nixl"})),
            ("control: latent, unchecked", latent(extra={"verify": False}, damage=True)),
            ("by layer", dict(extra={"by_layer": True}, decode=SYNCHRONOUS)),
            ("by layer, by NIXL", dict(extra={"by_layer": True, "access": "nixl"}, decode=SYNCHRONOUS)),
            ("by layer, damaged", dict(extra={"by_layer": True}, decode=SYNCHRONOUS, damage=True)),
            ("by layer, peer killed", dict(extra={"by_layer": True}, decode=SYNCHRONOUS, kill=True)),
            ("handover, chunked prefill", dict(prefill=few, decode=few)),
            ("handover, windows", dict(model="windows", reference="windows")),
            ("block sizes", dict(prefill=FLOAT32, decode=FLOAT32 | {"block_size": 128}, reference="float32")),
            ("block sizes by NIXL", dict(prefill=FLOAT32, decode=FLOAT32 | {"block_size": 128}, extra={"access": "nixl"}, reference="float32")),
            ("tensor parallelism", dict(prefill=FLOAT32 | {"tensor_parallel_size": 2}, decode=FLOAT32 | {"block_size": 128}, reference="float32")),
        ]
    return cases


if __name__ == "__main__":
    main()

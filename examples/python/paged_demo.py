#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the engine of paged_engine.py, and prints a table: paged_demo.py [--device cpu|cuda] [--small]

It needs PyTorch, NumPy and the wheel of kvmem. Two processes prefill and two decode, with one or two ranks of tensor parallelism each. Each
row compares logits. `equal`: bit for bit, because both sides do the same arithmetic. `within`: the number of ranks changes the order of sums,
and the difference is at most 0.0001 of the largest logit (float32, CPU) or 0.05 (bfloat16, GPU). `differ`: a control, whose blocks are
wrong. Ends with 1 if a row is not as it must be."""

import argparse
import multiprocessing
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from paged_engine import DEADLINE, FORMS, Engine, Model

engine = None


def start(*arguments):
    """Makes the engine of a process."""
    global engine
    engine = Engine(*arguments)


def call(name, arguments):
    return getattr(engine, name)(*arguments)


class Demo:
    """Processes 0 and 1 prefill, and 2 and 3 decode."""

    def __init__(self, device, folder, is_small):
        gpus = torch.cuda.device_count() if device == "cuda" else 0
        where = [torch.device(f"cuda:{index // 2 % gpus}" if gpus else "cpu") for index in range(4)]  # of two GPUs, each has one
        context = multiprocessing.get_context("spawn")
        self.processes = [ProcessPoolExecutor(1, context, start, (index, each, folder)) for index, each in enumerate(where)]
        self.ask(range(4), "close")  # starts all of them, since each waits for the others
        self.is_gpu, self.bound, self.failed = device == "cuda", 0.05 if device == "cuda" else 1e-4, False
        source = random.Random(2)
        self.prompts = [[source.randrange(1024) for _ in range(length)] for length in ((45, 30) if is_small else (333, 200))]
        self.sequences = 24 if is_small else 8  # more than fit into the first memory of the elastic cache
        self.tokens = [source.randrange(1024) for _ in range(4)]

    def ask(self, who, name, *arguments):
        """Calls a method of the engines in several processes at once, and returns what each returns."""
        results = [self.processes[index].submit(call, name, arguments) for index in who]
        return [each.result(DEADLINE) for each in results]

    def row(self, case, moved, found, expected, outcome, method):
        """Prints a row. `outcome` is what the comparison must find."""
        difference = float(np.abs(found - expected).max() / np.abs(expected).max())
        same = "equal" if np.array_equal(found, expected) else "within" if difference <= self.bound else "differ"
        self.failed |= same != outcome
        shown = same if same == "equal" else f"{same}, {difference:.1e}"
        print(f"{case:62} {moved:12,} {shown:>16}  {method}{'' if same == outcome else f'  FAILED: must be {outcome}'}", flush=True)

    def hand_over(self, model, source, ranks, destination, other_ranks, how="whole"):
        """Prefill in some form and number of ranks, then decode in another."""
        prefill, decode = range(ranks), range(2, 2 + other_ranks)
        self.ask(prefill, "build", model, FORMS[source], ranks)
        self.ask(decode, "build", model, FORMS[destination], other_ranks)
        self.ask(prefill, "prefill", "a", self.prompts[0])
        tickets = self.ask(prefill, "publish", "a")
        results = self.ask(decode, "take_over", "a", self.prompts[0], tickets, self.tokens, how == "by layer", how == "wrong blocks")
        expected = self.ask(prefill, "decode", "a", self.tokens)[0]
        outcome = "differ" if how == "wrong blocks" else "equal" if ranks == other_ranks else "within"
        moved = sum(result[1] for result in results)
        self.row(f"{source} TP{ranks} to {destination} TP{other_ranks}, {how}", moved, results[0][0], expected, outcome, results[0][2])
        if how != "wrong blocks":  # the cache of all ranks is equal bit for bit
            held, kept = (self.ask(who, "contents", "a") for who in (decode, prefill))
            same = np.array_equal(*(each[0] if model.latent else np.concatenate(each, axis=3) for each in (held, kept)))
            self.failed |= not same
            if not same:
                print("  FAILED: the caches differ")

    def offload(self, form, ranks):
        """One sequence is offloaded and restored while the other decodes."""
        who = range(2, 2 + ranks)
        self.ask(who, "build", Model(), FORMS[form], ranks)
        for name, prompt in zip("ab", self.prompts):
            self.ask(who, "prefill", name, prompt)
        alone, other = (self.ask(who, "decode", name, self.tokens)[0] for name in "ab")
        for step in ("offload", "restore"):
            results = self.ask(who, step, "b", "a", self.tokens)
            logits, moved, method = results[0]
            self.row(f"{form} TP{ranks}, decode beside {step}", moved * ranks, logits, alone, "equal", method)
            found = self.ask(who, "decode", "b", self.tokens)[0]
            if step == "offload":
                self.row(f"{form} TP{ranks}, without restore", 0, found, other, "differ", "")
        self.row(f"{form} TP{ranks}, restored to other blocks", moved * ranks, found, other, "equal", method)

    def on_gpu(self):
        """Elastic memory, sleep, and graphs."""
        who, form = range(2, 3), FORMS["TensorRT-LLM"]
        expected = {}
        for memory, blocks in (("pool", 256), ("elastic", 512)):
            self.ask(who, "build", Model(), form, 1, memory, blocks)
            for number in range(self.sequences):
                self.ask(who, "prefill", number, self.prompts[0])
                found = self.ask(who, "decode", number, self.tokens)[0]
                if memory == "elastic":
                    (held,) = self.ask(who, "elastic_bytes")
                    if number in (0, self.sequences - 1):
                        self.row(f"elastic cache, sequences: {number + 1}", held, found, expected[number], "equal", "")
                expected.setdefault(number, found)
        self.ask(who, "shrink")
        self.row("elastic cache, given back", self.ask(who, "elastic_bytes")[0], found, found, "equal", "")
        for keeps in (True, False):
            self.ask(who, "build", Model(), form, 1)
            self.ask(who, "prefill", "a", self.prompts[0])
            (released,) = self.ask(who, "sleep", keeps)
            found = self.ask(who, "decode", "a", self.tokens)[0]
            self.row(f"sleep and wake, cache {'kept' if keeps else 'lost'}", released, found, expected[0], "equal" if keeps else "differ", "")
        for restores in (True, False):
            self.ask(who, "build", Model(), form, 1, "plain")
            self.ask(who, "prefill", "a", self.prompts[0])
            found, moved, method = self.ask(who, "replay", "a", self.tokens[0], restores)[0]
            title = f"graph of restore and decode{'' if restores else ', one block restored'}"
            self.row(title, moved, found, expected[0][:1], "equal" if restores else "differ", method)

    def run(self):
        print(f"{'case':62} {'bytes':>12} {'logits':>16}  method")
        plain, latent = Model(), Model(latent=64)
        self.hand_over(plain, "vLLM", 1, "SGLang", 1)
        self.hand_over(plain, "vLLM", 2, "TensorRT-LLM", 2, "by layer")
        self.hand_over(plain, "vLLM", 2, "SGLang", 1)
        self.hand_over(plain, "TensorRT-LLM", 1, "vLLM packed", 2, "by layer")
        self.hand_over(plain, "SGLang", 2, "vLLM HND", 1, "by layer")
        self.hand_over(latent, "MLA", 1, "MLA, 64 tokens", 1)
        self.hand_over(latent, "MLA", 2, "MLA, 64 tokens", 1, "by layer")
        self.hand_over(plain, "vLLM", 2, "TensorRT-LLM", 2, "wrong blocks")
        self.offload("vLLM", 2)
        self.offload("TensorRT-LLM", 1)
        if self.is_gpu:
            self.on_gpu()
        else:
            print("elastic cache, sleep and wake, graph: need a GPU")
        self.ask(range(4), "close")
        for process in self.processes:
            process.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="short prompts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvmem-engine-") as folder:
        demo = Demo(given.device, folder, given.small)
        demo.run()
    sys.exit(demo.failed)


if __name__ == "__main__":
    main()

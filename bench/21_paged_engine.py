#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows 21 and 22: the time to the first token of decode after a handover, and the latency of decode beside transfers, with the engine of
examples/python/paged_engine.py.

    bench/21_paged_engine.py [--output FILE] [--quick] [--seconds N] [--only TEXT|TEXT...] [--device cpu|cuda] [--nixl MODULE]

It needs PyTorch, NumPy, the Python package of kvmem (`make wheel`), and NIXL's client (nixl-cu12 or nixl-cu13) for the rows with NIXL.
One process decodes, and another has the cache of prefill, on another GPU if there are two. kvmem, PyTorch's own copies and NIXL with
prepared lists move the blocks alternately; in each turn all bytes are compared, and the logits with those of the first turn."""

import argparse
import importlib
import itertools
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples/python"))

import kvmem
import numpy as np
import torch
from paged_engine import Cache, Decoder, Form, Model
from paged_methods import DEADLINE, Kvmem, Nixl, PyTorch, Side
from python_rows import machine, summary, write

LARGE = Model(layers=32, hidden=4096, heads=32, kv_heads=8, head=128, mlp=14336, vocabulary=32768)
SMALL = Model(layers=3, kv_heads=4, head=32)
PAGE = 16
FEW_CTAS = 12
"""Of a pull that decode hardly notices."""
NHD, HND = Form("L/OBNHC", PAGE), Form("L/BOHNC", PAGE)


def cache(form, model, ranks, blocks, device):
    """A cache with random content."""
    made = Cache(model, ranks, form, blocks, device, torch.bfloat16, "plain")
    for rows in itertools.chain(*made.rows):
        rows.normal_()
    return made


def agent_of(name, module):
    """NIXL's agent, or None without its client."""
    if not module:
        return None
    client = importlib.import_module(module)
    return client.nixl_agent(name, client.nixl_agent_config(backends=["UCX"]))


# ---- the process of prefill ----


def prefill(pipe, device, folder, module):
    """Makes caches, and lets the other process map them."""
    torch.set_num_threads(1)
    device = torch.device(device)
    broker, agent = kvmem.Broker(f"{folder}/broker"), agent_of("prefill", module)
    held, registered = [], []
    for form, model, ranks, blocks in iter(pipe.recv, None):
        for each in registered:
            agent.deregister_memory(each)
        for number, each in enumerate(held):
            broker.unpublish(f"rank-{number}")
            each.close()
        torch.manual_seed(1)
        held = [cache(form, model, ranks, blocks, device) for _ in range(ranks)]
        tokens = []
        for number, each in enumerate(held):
            with kvmem.Share(each.layout) as share:
                tokens.append(broker.publish(f"rank-{number}", share))
        nixl, registered = None, []
        if agent and ranks == 1:
            side = Side(held[0].layout)
            registered = [agent.register_memory(side.registered(), side.kind)]
            nixl = agent.get_agent_metadata(), side.descriptors(), side.kind
            del side
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        pipe.send((tokens, nixl))


class Prefill:
    """That process, as the other one sees it."""

    def __init__(self, folder, gpus, module):
        context = torch.multiprocessing.get_context("spawn")
        self.folder, self.gpus, (self.pipe, theirs) = folder, gpus, context.Pipe()
        device = f"cuda:{gpus - 1}" if gpus else "cpu"
        self.process = context.Process(target=prefill, args=(theirs, device, folder, module), daemon=True)
        self.process.start()

    def caches(self, form, model, ranks, blocks):
        """Sides of the caches of all ranks, and what NIXL needs of the only one."""
        self.pipe.send((form, model, ranks, blocks))
        if not self.pipe.poll(DEADLINE * 2):
            sys.exit("the process of prefill does not reply")
        tokens, nixl = self.pipe.recv()
        layouts = []
        for number, token in enumerate(tokens):
            with kvmem.Share.fetch(f"{self.folder}/broker", f"rank-{number}", token=token, timeout=DEADLINE) as share:
                # Of plain memory of another GPU kernels of this one read only what is opened for it.
                layouts.append(share.open_layout(device=0, flags=kvmem.OpenFlags.FOR_DEVICE if self.gpus > 1 else kvmem.OpenFlags(0)))
        return [Side(each, number * model.kv_heads // ranks, 0 if self.gpus else None) for number, each in enumerate(layouts)], nixl

    def close(self):
        self.pipe.send(None)
        self.process.join(DEADLINE)
        self.process.kill()


# ---- decode ----


class Step:
    """One step of decode for a sequence of a given length. On a GPU it is a captured graph, or one per layer, so that each can wait for its
    blocks."""

    def __init__(self, decoder, held, length, device, by_layer):
        self.decoder, self.cache, self.length, self.device = decoder, held, length, device
        self.token = torch.tensor([1], device=device)
        self.position = torch.tensor([length - 1], device=device)
        self.table = torch.zeros(-(-length // PAGE), dtype=torch.int64, device=device)
        self.graphs = []
        if device.type == "cuda":
            self._capture(by_layer)

    def _forward(self, layer_ready):
        with torch.inference_mode():
            return self.decoder.forward(self.token, self.position, self.length, self.table, self.cache, layer_ready)

    def _capture(self, by_layer):
        stream, pool = torch.cuda.Stream(self.device), torch.cuda.graph_pool_handle()

        def begin(_=None):
            if self.graphs:
                self.graphs[-1].capture_end()
            self.graphs.append(torch.cuda.CUDAGraph())
            self.graphs[-1].capture_begin(pool=pool, capture_error_mode="thread_local")

        with torch.cuda.stream(stream):
            self._forward(lambda layer: None)
            torch.cuda.synchronize(self.device)
            begin()
            self.logits = self._forward(begin if by_layer else lambda layer: None)
            self.graphs[-1].capture_end()
        torch.cuda.synchronize(self.device)

    def launch(self, layer_ready=lambda layer: None):
        if not self.graphs:
            self.logits = self._forward(layer_ready)
        for number, graph in enumerate(self.graphs):
            if number:
                layer_ready(number - 1)
            graph.replay()

    def next_token(self):
        """Waits for the step that was launched."""
        return int(self.logits.argmax())


def are_close(logits, expected):
    """PyTorch's kernels do not always add in the same order."""
    return bool((logits - expected).abs().max() <= 0.05 * expected.abs().max())


def first_token(step, method, pairs, by_layer):
    """Seconds from the start of the move to the token."""
    begin = time.perf_counter()
    step.table[: len(pairs)] = torch.from_numpy(pairs[:, 1].astype(np.int64))
    if method:
        method.follow()
        method.start(pairs, by_layer)
        if not by_layer:
            method.layer_ready(len(step.cache.rows) - 1)
    step.launch(method.layer_ready if by_layer else lambda layer: None)
    step.next_token()
    taken = time.perf_counter() - begin
    if method:
        method.finish()
    return taken


def are_equal(pairs, sources, destination):
    """Whether the blocks of the destination have the bytes of the sources."""
    there, here = torch.from_numpy(pairs.astype(np.int64)).unbind(1)
    for source, (layer, place) in itertools.product(sources, enumerate(destination.layers)):
        part = source.heads(source.layers[layer], destination).index_select(source.block_axis, there.to(source.device))
        mine = destination.heads(place, source).index_select(destination.block_axis, here.to(destination.device))
        if not torch.equal(source.to(destination, part).to(mine.device), mine):
            return False
    return True


class Bench:
    def __init__(self, given, folder):
        self.quick, self.only, self.end = given.quick, given.only.split("|") if given.only else [], time.monotonic() + given.seconds
        self.gpus = torch.cuda.device_count() if given.device == "cuda" else 0
        self.device = torch.device("cuda:0" if self.gpus else "cpu")
        if self.gpus:
            torch.cuda.set_stream(torch.cuda.Stream(self.device))
        self.model = SMALL if self.quick or not self.gpus else LARGE
        self.module = given.nixl
        self.prefill = Prefill(folder, self.gpus, self.module)
        self.agent = agent_of("decode", self.module)
        torch.set_num_threads(1)
        self.rows, self.failed = [], False
        self.random = np.random.default_rng(1)
        torch.manual_seed(2)
        print(f"random weights of {self.model}", flush=True)
        self.decoder = Decoder(self.model, 0, 1, self.device, torch.bfloat16, lambda part: part)

    def synchronize(self):
        for gpu in range(self.gpus):
            torch.cuda.synchronize(gpu)

    def pairs(self, count, source, destination):
        """Other scattered blocks in each turn."""
        return np.stack([self.random.permutation(each)[:count] for each in (source, destination)], axis=1).astype(np.uint32)

    # ---- row 21 ----

    def handover(self, title, tokens, form, other, ranks, host):
        """Blocks of `form` and `ranks` ranks of prefill, or of page-locked memory, to a cache of `other`."""
        if not self.wanted(title):
            return
        blocks = tokens // PAGE
        held = cache(other, self.model, 1, blocks + blocks // 4 + 2, self.device)
        destination = Side(held.layout)
        remote = None
        if host:
            sources = [self.host_pool(held, blocks + blocks // 4)]
        else:
            sources, remote = self.prefill.caches(form, self.model, ranks, blocks + blocks // 4)
        methods = [Kvmem(sources, destination), PyTorch(sources, destination)]
        # NIXL moves 0.4 GB/s of such blocks: 32,768 tokens would take minutes.
        registered = self.nixl_method(methods, sources, destination, remote, ranks == 1 and form == other and tokens <= 8192)
        step = Step(self.decoder, held, tokens + 1, self.device, True)
        turns = {(method.name, by_layer): [] for method in methods for by_layer in (False, True)} | {("alone", False): []}
        same = self.measure_handover(title, step, held, methods, turns, blocks, sources, destination)
        moved = blocks * PAGE * self.model.kv_heads * self.model.head * 2 * 2 * self.model.layers
        parameters = {"case": title, "tokens": tokens, "bytes": moved, "ranks": ranks, "path": methods[0].explain(), "statistic": "median"}
        for by_layer in (False, True):
            for method in methods[1:]:
                self.row("21-first-token", parameters | {"way": "by layer" if by_layer else "whole", "logits": same}, turns["kvmem", by_layer],
                         turns[method.name, by_layer], method.name, turns["alone", False])
        self.close(methods, registered, remote)
        del step, destination
        for side in sources:
            side.layout.close()
        held.close()

    def measure_handover(self, title, step, held, methods, turns, blocks, sources, destination):
        """Adds ms to `turns`. Returns in how many turns the logits are equal bit for bit."""
        expected, rounds, equal, count = None, 3 if self.quick else 15, 0, 0
        last = held.shape.num_blocks - 1  # the new token's block, which does not move
        step.table[-1] = last
        for turn in range(rounds + 2):
            for (name, by_layer), taken in turns.items():
                if sum(taken) > 4000:  # a slow reference has a few turns
                    continue
                method = next((each for each in methods if each.name == name), None)
                if method:  # the same blocks of prefill in each turn, at other places
                    pairs = np.stack([np.arange(blocks), self.random.permutation(last)[:blocks]], axis=1).astype(np.uint32)
                    for layer in destination.layers:
                        layer.zero_()
                    self.synchronize()
                duration = first_token(step, method, pairs, by_layer)
                self.synchronize()
                self.check(title, name, are_equal(pairs, sources, destination), "blocks have other bytes")
                logits = step.logits.float()
                expected = logits if expected is None else expected
                self.check(title, name, are_close(logits, expected), "the logits are other ones")  # the cached keys and values are equal
                equal, count = equal + torch.equal(logits, expected), count + 1
                if turn > 1 or duration > 1:
                    taken.append(duration * 1e3)
        shifted = np.stack([pairs[:, 0], np.roll(pairs[:, 1], 1)], axis=1)
        self.check(title, "control", not are_equal(shifted, sources, destination), "a wrong place is not noticed")
        return f"equal in {equal} of {count} turns"

    def check(self, title, name, is_right, fault):
        if not is_right:
            self.failed = True
            print(f"FAILED: {title}, {name}: {fault}", flush=True)

    def host_pool(self, held, blocks):
        """Page-locked memory, whole blocks, with random content."""
        shape = held.shape._replace(order="BLONHC", num_blocks=blocks)
        layout = kvmem.Layout.allocate(shape, "pinned" if self.gpus else "system")
        whole = torch.from_dlpack(layout.tensor())
        block = torch.randn(whole.shape[1:], generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
        for number in range(blocks):
            whole[number] = block.roll(number, -1)
        return Side(layout)

    def nixl_method(self, methods, sources, destination, remote, is_possible):
        """Adds NIXL's method, if it can move these blocks."""
        if not self.agent or not is_possible:
            return []
        registered = []
        try:
            for side in [destination] if remote else [destination, *sources]:
                registered.append(self.agent.register_memory(side.registered(), side.kind))
            if remote:
                metadata, descriptors, kind = remote
                remote = self.agent.add_remote_agent(metadata), descriptors, kind
            methods.append(Nixl(self.agent, sources, destination, remote))
        except Exception as error:
            print(f"left out, NIXL: {type(error).__name__}: {error}", flush=True)
        return registered

    def close(self, methods, registered, remote):
        for each in methods:
            each.close()
        for each in registered:
            self.agent.deregister_memory(each)
        if registered and remote:
            self.agent.remove_remote_agent("prefill")

    # ---- row 22 ----

    def beside(self, kind, tokens, moving, every, extra=""):
        """Decode while `moving` blocks of other sequences move, `to host`, `from host` or `from peer`, in every `every`-th step if the last
        move has ended."""
        title = f"beside decode, {kind}{extra}"
        if not self.wanted(title):
            return
        if self.quick:
            moving = 16
        blocks, pool = tokens // PAGE + 1, 2 * moving
        held = cache(NHD, self.model, 1, blocks + pool, self.device)
        mine, remote = Side(held.layout), None
        if kind == "from peer":
            sides, remote = self.prefill.caches(NHD, self.model, 1, pool)
        else:
            sides = [self.host_pool(held, pool)]
        sources, destination = ([mine], sides[0]) if kind == "to host" else (sides, mine)
        methods = [Kvmem(sources, destination), PyTorch(sources, destination)]
        if self.gpus and kind == "from peer":
            methods.append(Kvmem(sources, destination, max_ctas=FEW_CTAS))
        elif self.gpus and not extra:
            methods += [Kvmem(sources, destination, method) for method in (kvmem.Method.CUDA_BATCH, kvmem.Method.CUDA_KERNEL)]
        registered = self.nixl_method(methods, sources, destination, remote, True)
        step = Step(self.decoder, held, tokens + 1, self.device, False)
        step.table.copy_(torch.arange(blocks))
        ranges = [np.arange(pool), np.arange(pool)]
        ranges[0 if kind == "to host" else 1] += blocks  # the blocks of the sequence that decodes do not move
        found = self.measure_beside(title, step, methods, ranges, moving, every)
        moved = moving * mine.layout.strides.size * self.model.layers * 2
        rate = lambda name: round(found[name]["moves"] * moved / found[name]["seconds"] / 1e9, 1)
        parameters = {"case": title, "tokens": tokens, "bytes": moved, "every": every}
        for method, name, statistic in itertools.product(methods, found, ("p50", "p99")):
            if isinstance(method, Kvmem) and not name.startswith("kvmem"):
                way = f"{method.max_ctas} CTAs" if method.max_ctas else "chosen" if method.name == "kvmem" else "forced"
                self.row("22-beside-decode", parameters | {"way": way, "path": method.explain(), "statistic": statistic, "GB/s": rate(method.name),
                         "GB/s of the reference": rate(name)}, found[method.name][statistic], found[name][statistic],
                         "decode alone" if name == "alone" else name, found["alone"][statistic])
        self.close(methods, registered, remote)
        del step
        for side in sides:
            side.layout.close()
        held.close()

    def measure_beside(self, title, step, methods, ranges, moving, every):
        """p50 and p99 of each round in ms, the number of moves, and seconds; by method."""
        rounds, steps = (2, 20) if self.quick else (8, 100)
        found = {name: {"p50": [], "p99": [], "moves": 0, "seconds": 0.0} for name in ["alone", *(each.name for each in methods)]}
        expected = None
        for turn in range(rounds + 1):
            for name, into in found.items():
                if into["seconds"] > 4:
                    continue
                method = next((each for each in methods if each.name == name), None)
                self.synchronize()
                durations, moves, begin = [], 0, time.perf_counter()
                for number in range(steps):
                    start = time.perf_counter()
                    if start - begin > 5:  # a slow reference has a few steps
                        break
                    moves_now = method and number % every == 0 and (number == 0 or method.has_ended())
                    if moves_now:
                        method.follow()
                    step.launch()
                    if moves_now:  # while the GPU computes, because the step needs none of these blocks
                        method.start(np.stack([self.random.permutation(each)[:moving] for each in ranges], axis=1).astype(np.uint32), False)
                        moves += 1
                    step.next_token()
                    durations.append((time.perf_counter() - start) * 1e3)
                logits = step.logits.float()
                expected = logits if expected is None else expected
                self.check(title, name, are_close(logits, expected), "the logits of the last step are other ones")
                if method:
                    method.finish()
                if turn:
                    into["p50"].append(float(np.percentile(durations, 50)))
                    into["p99"].append(float(np.percentile(durations, 99)))
                    into["moves"] += moves
                    into["seconds"] += time.perf_counter() - begin
        return found

    # ---- rows ----

    def wanted(self, title):
        if self.only and not any(text in title for text in self.only):
            return False
        if time.monotonic() > self.end:
            print(f"left out, after --seconds: {title}", flush=True)
            return False
        print(title, flush=True)
        return True

    def row(self, name, parameters, ours, reference, reference_name, ceiling):
        ours, reference, ceiling, runs = summary(ours), summary(reference), summary(ceiling), len(ours)
        gpu = {"gpu": torch.cuda.get_device_name(0), "gpus": self.gpus} if self.gpus else {}
        ratio = reference["median"] / ours["median"]
        self.rows.append({
            "name": name, "parameters": parameters | gpu | {"pytorch": torch.__version__}, "ours": ours, "reference": reference,
            "reference_name": reference_name, "ceiling": ceiling, "ratio": ratio, "ceiling_ratio": ceiling["median"] / ours["median"],
            "unit": "ms", "runs": runs, "machine": machine(),
        })  # fmt: skip
        shown = ", ".join(str(parameters[key]) for key in ("way", "statistic", "path", "GB/s", "GB/s of the reference", "logits") if key in parameters)
        print(f"  {name}  {shown}: kvmem {ours['median']:.3f} ms ({ours['min']:.3f} to {ours['max']:.3f}), {reference_name} {reference['median']:.3f}: "
              f"{ratio:.2f} x, alone {ceiling['median']:.3f}", flush=True)

    def run(self):
        lengths = (64, 128) if self.quick else (2048, 8192, 32768)
        for tokens in lengths:
            self.handover(f"same order, {tokens} tokens", tokens, NHD, NHD, 1, False)
        for tokens in lengths:
            self.handover(f"TP 2 to 1, NHD to HND, {tokens} tokens", tokens, NHD, HND, 2, False)
        # To and from the host in each step: 256 MiB, and more than the link moves in a step. From a peer when requests arrive.
        for kind in ("to host", "from host"):
            self.beside(kind, lengths[0] * 2, 128, 1)
            self.beside(kind, lengths[0] * 2, 192, 1, ", link full")
        self.beside("from peer", lengths[0] * 2, 128, 8)
        self.beside("from peer", lengths[0] * 2, 128, 2, ", every second step")
        for tokens in lengths[:2]:
            self.handover(f"restored from host memory, {tokens} tokens", tokens, NHD, NHD, 1, True)
        self.prefill.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a small model, few and short turns")
    parser.add_argument("--seconds", type=float, default=330, help="no case starts later (default: %(default)s)")
    parser.add_argument("--only", help="only cases whose titles contain one of these texts, which | separates")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--nixl", default="", help="NIXL's client, nixl_cu12 or nixl_cu13 (default: without NIXL)")
    with tempfile.TemporaryDirectory(prefix="kvmem-bench-") as folder:
        bench = Bench(given := parser.parse_args(), folder)
        bench.run()
    if given.output:
        write(given.output, bench.rows)
    sys.exit(bench.failed)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""A paged engine in one file: a decoder with random weights, whose cache kvmem hands over to other processes, offloads, grows and puts to
sleep. paged_demo.py runs it, and prints a table.

The decoder knows nothing of kvmem. `Cache` describes the tensors of the cache to it, in the order of one of several engines, and `Engine` is
one rank of tensor parallelism, in a process of its own."""

import math
import random
from datetime import timedelta
from typing import NamedTuple

import kvmem
import numpy as np
import torch
import torch.distributed
import torch.nn.functional as F

DEADLINE = 120.0
"""Seconds that a call of a process may take, against hangs."""

EXTENT = 2 << 20
"""Bytes by which memory of a GPU grows; an engine takes 64 MiB."""


# ---- the model: knows nothing of kvmem ----


class Model(NamedTuple):
    """Sizes of a decoder."""

    layers: int = 4
    hidden: int = 256
    heads: int = 8
    kv_heads: int = 4
    head: int = 32
    mlp: int = 512
    vocabulary: int = 1024
    latent: int = 0
    """Elements of a token's compressed keys and values (MLA); 0 for separate heads (GQA)."""
    seed: int = 1

    @property
    def row(self):
        """Elements of one head of one token in the cache; MLA has one head, which ends with the rotated elements of the keys."""
        return self.latent + self.head // 2 if self.latent else self.head


def norm(x):
    return F.rms_norm(x, (x.shape[-1],))


def rotate(x, positions):
    """Rotary positions; x has the axes token, head, element."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None].float() / 10000 ** (torch.arange(half, device=x.device).float() / half)
    a, b = x.float().split(half, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).to(x.dtype)


class Decoder:
    """What one rank of tensor parallelism has of the model. All ranks draw the same weights, and each keeps its heads and columns."""

    def __init__(self, model, rank, ranks, device, dtype, reduce):
        self.model, self.heads, self.reduce = model, model.heads // ranks, reduce
        source = torch.Generator(device).manual_seed(model.seed)
        draw = lambda rows, columns: torch.randn(rows, columns, generator=source, device=device, dtype=dtype) * (1.5 / math.sqrt(rows))
        mine = lambda matrix, axis: matrix.chunk(ranks, axis)[rank].contiguous()
        hidden, heads, kv = model.hidden, model.heads * model.head, model.kv_heads * model.head
        self.embedding, self.output = draw(model.vocabulary, hidden), draw(hidden, model.vocabulary)
        self.weights = []
        for _ in range(model.layers):
            w = {"q": mine(draw(hidden, heads), 1), "o": mine(draw(heads, hidden), 0)}
            w |= {"gate": mine(draw(hidden, model.mlp), 1), "up": mine(draw(hidden, model.mlp), 1), "down": mine(draw(model.mlp, hidden), 0)}
            if model.latent:  # the latents are those of all ranks
                w |= {"c": draw(hidden, model.row), "k": mine(draw(model.latent, heads // 2), 1), "v": mine(draw(model.latent, heads), 1)}
            else:
                w |= {"k": mine(draw(hidden, kv), 1), "v": mine(draw(hidden, kv), 1)}
            self.weights.append(w)

    def forward(self, tokens, positions, length, table, cache, layer_ready=lambda layer: None):
        """Logits of the last of `tokens`, which are at `positions` of a sequence with `length` tokens, whose blocks are `table`. Before a
        layer of the cache is used, `layer_ready` is called."""
        where = table[positions // cache.page], positions % cache.page
        x = self.embedding[tokens]
        for layer, w in enumerate(self.weights):
            layer_ready(layer)
            attend = self.attend_latent if self.model.latent else self.attend
            x = x + self.reduce(attend(w, norm(x), positions, length, where, table, cache.rows[layer]) @ w["o"])
            n = norm(x)
            x = x + self.reduce((F.silu(n @ w["gate"]) * (n @ w["up"])) @ w["down"])
        return norm(x[-1]) @ self.output

    def attend(self, w, x, positions, length, where, table, rows):
        size = self.model.head
        q = rotate((x @ w["q"]).unflatten(1, (-1, size)), positions)
        rows[0][where] = rotate((x @ w["k"]).unflatten(1, (-1, size)), positions)
        rows[1][where] = (x @ w["v"]).unflatten(1, (-1, size))
        k, v = (held[table].flatten(0, 1)[:length] for held in rows)
        return attention(q, k, v, positions)

    def attend_latent(self, w, x, positions, length, where, table, rows):
        latent, size = self.model.latent, self.model.head
        q = (x @ w["q"]).unflatten(1, (-1, size))
        q = torch.cat([q[..., : size // 2], rotate(q[..., size // 2 :], positions)], -1)
        c = x @ w["c"]
        rows[0][where] = torch.cat([c[:, :latent], rotate(c[:, None, latent:], positions)[:, 0]], -1)
        held = rows[0][table].flatten(0, 1)[:length]
        k = (held[:, :latent] @ w["k"]).unflatten(1, (-1, size // 2))
        k = torch.cat([k, held[:, None, latent:].expand(-1, self.heads, -1)], -1)
        return attention(q, k, (held[:, :latent] @ w["v"]).unflatten(1, (-1, size)), positions)


def attention(q, k, v, positions):
    """Attention of tokens at `positions` to all tokens up to theirs; axes token, head, element. The copies make the arithmetic independent
    of the order of the cache."""
    q, k, v = (each.transpose(0, 1).contiguous()[None] for each in (q, k, v))
    seen = None if len(positions) == 1 else torch.arange(k.shape[2], device=q.device) <= positions[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)[0].transpose(0, 1).flatten(1)


# ---- the cache: tensors in the order of an engine, and the layout that describes them to kvmem ----


class Form(NamedTuple):
    """How an engine holds its cache."""

    order: str
    page: int


FORMS = {
    "vLLM": Form("L/OBNHC", 16),
    "vLLM HND": Form("L/BOHNC", 16),
    "vLLM packed": Form("L/BHNOC", 32),
    "SGLang": Form("LO/BNHC", 4),
    "TensorRT-LLM": Form("BLOHNC", 32),
    "MLA": Form("L/BNC", 16),
    "MLA, 64 tokens": Form("L/BNC", 64),
}


class Cache:
    """The blocks of one rank."""

    def __init__(self, model, ranks, form, blocks, device, dtype, memory):
        """`memory` is that of a GPU: "pool" (PyTorch's allocator in memory of kvmem), "plain" (of PyTorch, adopted) or "elastic"."""
        self.page, self.memory, self.pool, self.region, self.tensors = form.page, memory, None, None, []
        heads = 0 if model.latent else model.kv_heads // ranks
        self.shape = kvmem.Shape(
            num_blocks=blocks, num_layers=model.layers, outer_dim=1 if model.latent else 2, page_size=form.page, num_heads=heads,
            inner_dim=model.row * max(heads, 1), dtype=str(dtype).removeprefix("torch."), order=form.order,
        )  # fmt: skip
        if device.type == "cpu":  # memory that other processes can map
            self.layout = kvmem.Layout.allocate(self.shape, "system", flags=kvmem.SystemFlags.SHAREABLE)
        elif memory == "elastic":
            # Addresses for all blocks, and memory for the first: no block is in two extents.
            self.region = kvmem.Region.elastic(self.shape.requirements.total_size, device=device.index, extent_size=EXTENT)
            self.layout = kvmem.Layout.of_regions(self.shape, [self.region])
            blocks = self.step = EXTENT // self.layout.info.block_stride
            self.region.commit(0, EXTENT)
        else:
            self.layout = self._of_tensors(model.layers, max(heads, 1), model.row, device, dtype)
        self.size, self.free = blocks, list(range(blocks))
        random.Random(blocks).shuffle(self.free)  # as after some hours
        outers = range(self.shape.outer_dim)
        self.rows = [[self._rows(layer, outer) for outer in outers] for layer in range(model.layers)]

    def _of_tensors(self, layers, heads, row, device, dtype):
        separate, _, inner = self.shape.order.rpartition("/")
        lengths = dict(B=self.shape.num_blocks, L=layers, O=self.shape.outer_dim, N=self.page, H=heads, C=row)
        make = lambda: [
            torch.zeros([lengths[axis] for axis in inner], dtype=dtype, device=device) for _ in range(math.prod(lengths[axis] for axis in separate))
        ]
        if self.memory == "plain":
            self.tensors = make()
            return kvmem.Layout.from_tensors(self.tensors, self.shape.order, dtype=self.shape.dtype)
        from kvmem.torch import mem_pool

        self.pool = mem_pool(2 * self.shape.requirements.total_size + (256 << 20), device=device.index, extent_size=EXTENT)
        with self.pool.use():
            self.tensors = make()
        return self.pool.layout(self.tensors, self.shape.order, dtype=self.shape.dtype)

    def _rows(self, layer, outer):
        """Axes block, token, head, element, whatever the order is; without a copy."""
        given = self.layout.tensor(layer=layer, outer=outer)
        return torch.from_dlpack(given).permute([given.axes.index(axis) for axis in "BNHC" if axis in given.axes])

    def take(self, tokens):
        """Ids of free blocks for so many tokens. Elastic memory grows if there are none."""
        needed = -(-tokens // self.page)
        while len(self.free) < needed and self.memory == "elastic":
            self.region.commit(self.size // self.step * EXTENT, EXTENT)
            self.free += range(self.size, self.size + self.step)
            self.size += self.step
        taken, self.free = self.free[:needed], self.free[needed:]
        return taken

    def close(self):
        self.rows = self.tensors = []
        self.layout.close()
        for each in (self.pool, self.region):
            if each:
                each.close()


# ---- one process: an engine, whose methods another process calls ----


class Sequence(NamedTuple):
    tokens: list
    blocks: list


class Ticket(NamedTuple):
    """What a rank of decode needs to map the cache of a rank of prefill."""

    path: str
    token: bytes
    heads: int
    """KV heads of that rank; 0 if it has what all ranks have."""
    blocks: list


class Engine:
    """One rank. Methods are called by name from the main process."""

    def __init__(self, index, device, folder):
        torch.set_num_threads(1)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.cuda.set_stream(torch.cuda.Stream())
        self.index, self.device = index, device
        self.dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        self.broker_path = f"{folder}/broker-{index}"
        self.broker = kvmem.Broker(self.broker_path)
        # Sums of ranks by gloo, through host memory: the example needs no second GPU. An engine uses NCCL.
        wait = timedelta(seconds=DEADLINE)
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=index, world_size=4, timeout=wait)
        self.pairs = [torch.distributed.new_group([first, first + 1], timeout=wait) for first in (0, 2)]
        self.cache, self.sequences, self.published = None, {}, False

    def build(self, model, form, ranks, memory="pool", blocks=256):
        """A decoder, and an empty cache."""
        self.close()
        self.model, self.rank, self.ranks = model, self.index % ranks, ranks
        group = self.pairs[self.index // 2]

        def reduce(part):
            if ranks == 1:
                return part
            total = part.cpu().float()
            torch.distributed.all_reduce(total, group=group)
            return total.to(part)

        self.decoder = Decoder(model, self.rank, ranks, self.device, self.dtype, reduce)
        self.cache = Cache(model, ranks, form, blocks, self.device, self.dtype, memory)
        self.sequences = {}

    def close(self):
        if self.published:
            self.broker.unpublish("cache")
        if self.cache:
            self.cache.close()
        self.cache, self.published = None, False

    def _forward(self, name, tokens, start, layer_ready=lambda layer: None):
        table = torch.tensor(self.sequences[name].blocks, device=self.device)
        positions = torch.arange(start, start + len(tokens), device=self.device)
        with torch.inference_mode():
            logits = self.decoder.forward(
                torch.tensor(tokens, device=self.device), positions, start + len(tokens), table, self.cache, layer_ready
            )
        return logits.float().cpu().numpy()

    def prefill(self, name, prompt, more=16):
        """Computes the cache of a prompt, with blocks for `more` tokens after it, and returns the logits of its last token."""
        self.sequences[name] = Sequence(prompt, self.cache.take(len(prompt) + more))
        return self._forward(name, prompt, 0)

    def decode(self, name, tokens, layer_ready=lambda layer: None):
        """Logits after each of the tokens that follow the prompt."""
        start = len(self.sequences[name].tokens)
        return np.stack([self._forward(name, [token], start + step, layer_ready) for step, token in enumerate(tokens)])

    def contents(self, name):
        """Keys and values of a prompt, with the axes layer, outer slot, token, and head if it has one."""
        prompt, blocks = self.sequences[name]
        held = [[rows[blocks].flatten(0, 1)[: len(prompt)] for rows in layer] for layer in self.cache.rows]
        return torch.stack([torch.stack(layer) for layer in held]).float().cpu().numpy()

    # ---- handover ----

    def publish(self, name):
        """Lets another process map the cache."""
        self._synchronize()
        with kvmem.Share(self.cache.layout, flags=kvmem.ShareFlags.READ_ONLY) as share:
            token = self.broker.publish("cache", share)
        self.published = True
        return Ticket(self.broker_path, token, self.cache.shape.num_heads, self.sequences[name].blocks)

    def take_over(self, name, prompt, tickets, tokens, by_layer, is_wrong=False):
        """Takes a prompt over from the ranks of prefill, whatever their number, order and block size are, and decodes. With `by_layer`
        decode begins with the first layer, while others move."""
        blocks = self.cache.take(len(prompt) + 16)
        self.sequences[name] = Sequence(prompt, blocks)
        flags = kvmem.TransferFlags.BY_LAYER if by_layer else kvmem.TransferFlags(0)
        transfers, moved = [], 0
        for number, ticket in enumerate(tickets):
            heads = self._common_heads(number, ticket.heads)
            if heads is None:
                continue
            with kvmem.Share.fetch(ticket.path, "cache", token=ticket.token, timeout=DEADLINE) as share:
                with share.open_layout(device=self.device.index or 0, flags=kvmem.OpenFlags.READ_ONLY) as theirs:
                    transfers.append(kvmem.Transfer(theirs, self.cache.layout, heads=heads or None, flags=flags))
            there = ticket.blocks[::-1] if is_wrong else ticket.blocks
            tables = {"source_table": kvmem.Table(there), "destination_table": kvmem.Table(blocks)}
            transfers[-1].submit(**tables, num_tokens=len(prompt), run_timeout=DEADLINE)
        if not by_layer:
            self._finish(transfers)
        logits = self.decode(name, tokens, lambda layer: self._layer_ready(transfers, layer) if by_layer else None)
        self._finish(transfers)
        moved, method = sum(each.info.bytes for each in transfers), self._method(transfers[0])
        for each in transfers:
            each.close()
        return logits, moved, method

    def _common_heads(self, number, theirs):
        """The heads that rank `number` of prefill, which has `theirs`, shares with this rank: a Range, () for all, None for none."""
        mine = self.cache.shape.num_heads
        if not mine:
            return () if number == 0 else None  # every rank has the latents
        first, last = max(number * theirs, self.rank * mine), min((number + 1) * theirs, (self.rank + 1) * mine)
        return kvmem.Range(first - number * theirs, first - self.rank * mine, last - first) if first < last else None

    def _layer_ready(self, transfers, layer):
        for each in transfers:
            if self.device.type == "cpu":
                each.wait_layers(layer + 1, timeout=DEADLINE)
            else:  # the host does not wait
                each.wait_on_stream(torch.cuda.current_stream().cuda_stream, layer + 1)

    # ---- offload and restore ----

    def offload(self, name, other, tokens):
        """Moves the blocks of a sequence to host memory while another one decodes, and frees them."""
        self._synchronize()
        blocks = self.sequences[name].blocks
        self.host = kvmem.Layout.allocate(
            self.cache.shape._replace(order="BLONHC" if self.cache.shape.num_heads else "BLNC", num_blocks=len(blocks)),
            "system" if self.device.type == "cpu" else "pinned",
            device=self.device.index or 0,
        )
        with kvmem.Transfer(self.cache.layout, self.host) as transfer:
            transfer.submit(list(zip(blocks, range(len(blocks)))), run_timeout=DEADLINE)
            logits = self.decode(other, tokens)
            self._finish([transfer])
            moved, method = transfer.info.bytes, self._method(transfer)
        for layer in self.cache.rows:
            for rows in layer:
                rows[blocks] = 0  # others use them
        self.sequences[name] = Sequence(self.sequences[name].tokens, self.cache.take(len(blocks) * self.cache.page))
        return logits, moved, method

    def restore(self, name, other, tokens):
        """Moves the blocks of a sequence to its new place while another one decodes."""
        self._synchronize()
        blocks = self.sequences[name].blocks
        with self.host, kvmem.Transfer(self.host, self.cache.layout) as transfer:
            transfer.submit(list(zip(range(len(blocks)), blocks)), run_timeout=DEADLINE)
            logits = self.decode(other, tokens)
            self._finish([transfer])
            return logits, transfer.info.bytes, self._method(transfer)

    # ---- elastic memory, sleep, graphs: on a GPU ----

    def elastic_bytes(self):
        """Bytes of memory that an elastic cache has."""
        return self.cache.region.elastic_info.num_committed * EXTENT

    def shrink(self):
        """Ends all sequences, and gives memory back."""
        self.sequences = {}
        self.cache.region.decommit(EXTENT, self.elastic_bytes() - EXTENT)

    def sleep(self, keeps):
        """Releases the memory of the cache, and returns how many bytes others could use."""
        before = torch.cuda.mem_get_info(self.device)[0]
        self.cache.pool.sleep(keep=self.cache.tensors if keeps else ())
        released = torch.cuda.mem_get_info(self.device)[0] - before
        self.cache.pool.wake()
        return released

    def replay(self, name, token, restores):
        """Captures the restoration of a sequence and one step of decode as a graph, wipes the blocks, and replays it."""
        prompt, blocks = self.sequences[name]
        kvmem.cuda.rates(self.device.index)  # loads the kernel, which must not happen during a capture
        host = kvmem.Layout.allocate(self.cache.shape._replace(num_blocks=len(blocks)), "pinned", device=self.device.index)
        pairs = [(number, block) for number, block in enumerate(blocks)]
        kvmem.move(self.cache.layout, host, [(block, number) for number, block in pairs], run_timeout=DEADLINE)
        transfer = kvmem.Transfer(host, self.cache.layout).prepare(pairs if restores else pairs[:1])
        where = torch.tensor([len(prompt)], device=self.device)
        table, tokens = torch.tensor(blocks, device=self.device), torch.tensor([token], device=self.device)
        step = lambda: self.decoder.forward(tokens, where, len(prompt) + 1, table, self.cache)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            step()
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                transfer.submit(stream=stream.cuda_stream)
                logits = step()
        for tensor in self.cache.tensors:
            tensor.zero_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        found, moved, method = logits.float().cpu().numpy()[None], transfer.info.bytes, self._method(transfer)
        del graph
        for each in (transfer, host):
            each.close()
        return found, moved, method

    def _finish(self, transfers):
        for each in transfers:
            each.wait(timeout=DEADLINE)

    def _synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _method(self, transfer):
        return transfer.explain().methods[0].method.name.lower().replace("_", " ")

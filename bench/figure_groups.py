# SPDX-License-Identifier: Apache-2.0
"""The groups of figures in bench/README.md: for each a title, a note, its records, the columns, and lines. A line is what is measured, the
target, and a query per column."""

KIB = 1024


def q(record, measure, **where):
    return record, measure, where


def at_least(number):
    return lambda value: value >= number


def below(number):
    return lambda value: value < number


def begins(text):
    return lambda value: value.startswith(text)


def among(*values):
    return lambda value: value in values


def without(*values):
    return lambda value: value not in values


SEEN = "submit to seen"


def scattered(measured, target, **where):
    return measured, target, q("h200/01-scattered-host", "fraction", timed=SEEN, **where)


def device(measured, target, **where):
    return measured, target, q("h200/02-scattered-device", "fraction", timed=SEEN, **where)


def pull(measured, target, measure="fraction", **where):
    """Pulls from the same GPU of a host with one GPU, and over NVLink."""
    same = q("h200/04-peer-pull", measure, peer="same GPU", timed=SEEN, **where)
    other = q("two-gpus/04-peer-pull", measure, peer="other GPU", timed=SEEN, **where)
    return measured, target, same, other


def growth(measured, reference, timed):
    same = q("h200/06-elastic-growth", "ratio", timed=timed, reference=reference)
    other = q("two-gpus/06-elastic-growth", "ratio", timed=timed, reference=reference, **{"opened for": "its GPU"})
    both = q("two-gpus/06-elastic-growth", "ratio", timed=timed, reference=reference, **{"opened for": "its GPU and a peer"})
    return measured, "10×", same, other, both


def gemm(measured, work, size):
    where = {"work": work, "piece_bytes": size}
    return (measured, "5% and 0.85",
            q("h200/07-beside-compute", "slower", reference="the same GEMM alone", unit="us", **where),
            q("h200/07-beside-compute", "fraction", measured="the transfers beside the GEMMs", **where))


def two_hosts(measured, target, program, measure, **where):
    return (measured, target, q(f"cpu-16-cores/{program}", measure, **where), q(f"cpu-2-cores/{program}", measure, **where))


def submitted(measured, target, pattern, step="create, submit"):
    lists = without("NIXL: sorted, make_xfer_req on prepared lists")
    return two_hosts(measured, target, "08-submit", "ratio", pattern=pattern, step=step, reference=lists)


def peers(measured, target, count, **where):
    return two_hosts(f"{count} peers: {measured}", target, "08-many-peers", "ratio", name="08-submit", peers=count, **where)


def requests(measured, target, measure, step, **where):
    return two_hosts(measured, target, "08-request", measure, step=step, time="wall", **where)


def completion(measured, way, size):
    lines = []
    for transport in ("shared memory", "tcp"):
        where = {"transport": transport, "bytes": size, "way": way}
        lines += [q(f"cpu-{cores}-cores/09-completion", "us above ceiling", statistic=statistic, **where)
                  for cores in (16, 2) for statistic in ("p50", "p99")]
    return measured, "20, 100", *lines[:4]


def gpu_completion(measured, way):
    return (measured, "20, 100",
            *(q("h200/09-gpu-completion", "us above ceiling", timed="seen after the end", way=way, statistic=statistic,
                reference="the event queried every 1 ms") for statistic in ("p50", "p99")))


def disk(io, size):
    nixl = {"io": io, "block_bytes": size, "reference": begins("NIXL")}
    return (f"{io}, {size // KIB} KiB", "1.3×" if size < 128 * KIB else "1.0×" if size >= KIB * KIB else "–",
            q("cpu-2-cores/11-disk", "ratio", unit="GB/s", **nixl),
            q("cpu-2-cores/11-disk", "ratio", unit="CPU s/GB", **nixl),
            q("cpu-2-cores/11-disk", "fraction", unit="GB/s", io=io, block_bytes=size))


HEADS = ("4 of 8 heads", "1 of 8 heads")


def reshaped(measured, target, size, difference=None, **where):
    """Rows whose elements stay together, on a GPU."""
    where |= {"difference": difference} if difference else {}
    return (measured, target, *(q("h200/15-gpu-reshape", "of plain", name="15-reshape", direction=direction, row_bytes=size,
                                  row=lambda has: not is_transposed(has), **where) for direction in ("D2D", "D2H", "H2D")))


def is_transposed(has):
    return "HC" in has["difference"]


def transposed(measured, **where):
    return (measured, "–", *(q("h200/15-gpu-reshape", "of plain", name="15-reshape", direction=direction, row=is_transposed, **where)
                             for direction in ("D2D", "D2H", "H2D")))


def chosen(measured, transport, difference):
    where = {"transport": transport, "difference": difference, "row": lambda has: has["path"] == has["chosen"]}
    return (f"{transport.replace('tcp', 'TCP')}: {measured}", "5× and 0.8", q("cpu-2-cores/17-peer-reshape", "ratio", **where),
            q("cpu-2-cores/17-peer-reshape", "fraction", **where))


def served(size):
    where = {"block_bytes": size, "staging_memory": "GPU", "way": "as chosen", "unit": "GB/s"}
    return (f"{size // KIB} KiB", "50× over NVLink", q("two-gpus/17-gpu-peer", "ratio", memory="VMM", **where),
            q("h200/17-gpu-peer", "ratio", memory="VMM", **where), q("h200/17-gpu-peer", "ratio", memory="cudaMalloc", **where))


def regret(measured, target, statistic, of="all"):
    return (measured, target, *(q(record, "regret", unit="x", statistic=statistic, of=of) for record in
                                ("h100/19-regret", "h200/19-regret")), q("h200/19-regret-random", "regret", unit="x",
                                                                         statistic=statistic, of=of))


def session(measured, step, medium=None, link=None):
    """A step of a session with cells that were reserved before it, on one GPU, two GPUs, and without a GPU."""
    where = {"step": step, "cells": without("reserved within the time")}
    if medium:
        where["path"] = lambda path: medium in path
    without_gpu = where | ({"path": link} if link else {})
    gpu = None if link and link != "memcpy" else "ratio"
    return (measured, "5×", *(q(f"{kind}/20-engine", gpu, **where) if gpu else None for kind in ("h200", "two-gpus")),
            q("cpu-2-cores/20-engine", "ratio", **without_gpu))


PAGED = "h200/21-paged-engine", "two-gpus/21-paged-engine"


def first_token(measured, case, way, nixl="ratio"):
    """A handover against PyTorch, against NIXL, and the time of the decode step as a fraction of all, on one GPU and on two."""
    where = {"row": lambda row: row["name"] == "21-first-token" and row["case"].startswith(case), "way": way}
    return (measured, "1×", *(query for record in PAGED for query in (
        q(record, "ratio", reference="PyTorch", **where), q(record, nixl, reference="NIXL", **where) if nixl else None,
        q(record, "fraction", reference="PyTorch", **where))))


def beside_decode(measured, kind, way="chosen", record=PAGED[0]):
    where = {"row": lambda row: row["name"] == "22-beside-decode" and row["case"].endswith(kind), "way": way}
    return (measured, "5%", *(q(record, "slower", reference="decode alone", statistic=statistic, **where) for statistic in ("p50", "p99")),
            q(record, "ratio", reference="PyTorch", statistic="p99", **where), q(record, "ratio", reference="NIXL", statistic="p99", **where))


STORES = "cpu-16-cores/22-store", "two-gpus/22-store"


def stored(measured, duration, **where):
    return (measured, "–", *(query for record in STORES for query in both((duration, "ratio"), record, **where)))


MOVED, MOVED_BY_MORE = "cpu-2-cores/22-store", "cpu-16-cores/22-store"


BARE = "io_uring on the same file"
SYNCED = {"one": f"{BARE}, and fdatasync", "two": f"{BARE}, fdatasync, records, and fdatasync"}


# What the name of a way has for the size of its calls, and the calls in flight.
CALLS = ("", 1), ("", 2), (", calls of 64 MiB", 1)


def moved(record, way, by, durability="none", syncs=None):
    """One row of a table: the sizes of blocks are its columns. `syncs` are those of the reference in each call."""
    size, calls = by
    against = f", against {syncs} {'sync' if syncs == 'one' else 'syncs'}" if syncs else ""
    named = f"{way}, durability {durability}{against}" if way == "put" else way
    named += size + (f", {calls} calls in flight" if calls > 1 else "")
    where = {"way": way + size, "calls": calls, "durability": durability, "reference": SYNCED.get(syncs, BARE)}
    return (named, "0.95×", *(query for size in (16, 64, 256, 1024) for query in both(("GB/s", "ratio"), record, **where, block=f"{size} KiB")))


def moved_by(cores, record, sizes):
    """`sizes` are those of the calls that were measured."""
    return (f"22. Puts and gets of a store, {cores}", "Calls of 16 MiB, if no other size is named. Each block with its checksum, against io_uring without a library on the same file, which computes none.",
            [record], [head for size in ("16 KiB", "64 KiB", "256 KiB", "1 MiB") for head in (size, "against io_uring")],
            [*(moved(record, way, by) for way in ("get", "put") for by in CALLS if by[0] in sizes),
             *(moved(record, "put", by, "strict", syncs) for syncs in SYNCED for by in CALLS if by[0] in sizes and by[1] == 1)])


STORE_PEERS = "cpu-2-cores/22-store-peers"
PEERS = "foyer", "LMCache", "vLLM"


def beside_stores(measured, way, **where):
    """Against all methods of each store."""
    return (measured, "1.0×", q(STORE_PEERS, "GB/s", way=way, **where),
            *(q(STORE_PEERS, "ratio", way=way, reference=begins(peer), **where) for peer in PEERS))


def gets_beside_puts(blocks, statistic):
    where = {"way": "get beside puts", "puts": "up to 0.2 GB/s", "blocks": blocks, "statistic": statistic}
    return (f"get of {blocks} {'block' if blocks == 1 else 'blocks'} beside puts of at most 0.2 GB/s, {statistic}", "1.0×", q(STORE_PEERS, "us", **where),
            *(q(STORE_PEERS, "ratio", reference=begins(peer), **where) for peer in PEERS))


def expected(measured, way):
    return (measured, "0.98×", *(q(f"{machine}/23-epochs", "ratio", way=way, blocks=blocks)
                               for machine in ("cpu-16-cores", "two-gpus") for blocks in (64, 1024)))


def both(measures, record, **where):
    return [q(record, measure, **where) for measure in measures]


FIRST = {"timed": SEEN, "direction": "H2D", "host": "scattered", "blocks": 10000, "block_bytes": 4 * KIB, "way": "prepared",
         "reference": "cuMemcpyBatchAsync"}
PULL = {"timed": SEEN, "peer": "other GPU", "memory": "cudaMalloc", "block_bytes": 16 * KIB, "way": "prepared",
        "reference": begins("NIXL")}
HANDOVER = {"step": "handover", "cells": "reserved before"}
HEADLINES = [
    ("10,000 scattered blocks of 4 KiB, host to GPU", "{}, {} of one large copy", both(("GB/s", "fraction"), "h200/01-scattered-host", **FIRST),
     "`cuMemcpyBatchAsync`: {}", both(("reference GB/s",), "h200/01-scattered-host", **FIRST), 1),
    ("16 KiB blocks from another process's cache over NVLink", "{}, {} of one large copy",
     both(("GB/s", "fraction"), "two-gpus/04-peer-pull", **PULL), "NIXL with UCX: {}",
     both(("reference GB/s",), "two-gpus/04-peer-pull", **PULL), 4),
    ("a session of llama.cpp, 512 MiB, to another process on the same GPU", "{}", both(("ms",), "h200/20-engine", **HANDOVER),
     "llama.cpp's state functions and a socket: {}", both(("reference ms",), "h200/20-engine", **HANDOVER), 20),
]

HOST_SCATTERED, HOST_CONTIGUOUS = "blocks, host side scattered", "blocks, host side contiguous"
LAYER_SEPARATE = "layer separate on the GPU, fully contiguous on the host"
MEMCPY = {"timed": "submit, wait"}
ONE_THREAD, TWO_THREADS = (f"memcpy of the same pieces, {count}" for count in ("1 thread", "2 threads"))

GROUPS = [
    ("1. Scattered blocks between a GPU and page-locked memory", "Fractions of one large copy, to and from the host.",
     ["h200/01-scattered-host"], ["result"], [
         scattered("host scattered, 4 KiB, 10,000 blocks and more", "0.90", host="scattered", block_bytes=4 * KIB, blocks=at_least(10000)),
         scattered("host scattered, 16 KiB, 10,000 blocks and more", "0.90", host="scattered", block_bytes=16 * KIB, blocks=at_least(10000)),
         scattered("host scattered, 64 KiB, 10,000 blocks and more", "0.90", host="scattered", block_bytes=64 * KIB, blocks=at_least(10000)),
         scattered("host scattered, 1 and 4 MiB", "0.97", host="scattered", block_bytes=at_least(1024 * KIB)),
         scattered("host contiguous, 4 KiB, 10,000 blocks and more", "0.95", host="contiguous", block_bytes=4 * KIB, blocks=at_least(10000)),
         scattered("host contiguous, 16 KiB and more, 10,000 blocks and more", "0.95", host="contiguous",
                   block_bytes=at_least(16 * KIB), blocks=at_least(10000)),
         scattered("1,000 blocks of 4 to 64 KiB", "0.90", blocks=1000, block_bytes=below(65 * KIB)),
         scattered("64 blocks of 4 to 64 KiB", "0.90", blocks=64, block_bytes=below(65 * KIB)),
         ("against `cuMemcpyBatchAsync`, 4 KiB from the host, 1,000 blocks and more", "10×",
          q("h200/01-scattered-host", "ratio", timed=SEEN, direction="H2D", reference="cuMemcpyBatchAsync",
            block_bytes=4 * KIB, blocks=at_least(1000))),
         ("against both references, all points", "0.95×", q("h200/01-scattered-host", "ratio", timed=SEEN)),
     ]),
    ("2. Scattered blocks within a GPU", "Fractions of one large copy.", ["h200/02-scattered-device"], ["result"], [
        device("65,536 blocks, 16 KiB and more", "0.80", blocks=65536, block_bytes=at_least(16 * KIB)),
        device("10,000 blocks of 16 KiB", "0.80", blocks=10000, block_bytes=16 * KIB),
        device("10,000 blocks, 64 KiB and more", "0.80", blocks=10000, block_bytes=at_least(64 * KIB)),
        device("1,000 blocks of 16 and 64 KiB", "0.80", blocks=1000, block_bytes=among(16 * KIB, 64 * KIB)),
        device("1,000 blocks, 256 KiB and more", "0.80", blocks=1000, block_bytes=at_least(256 * KIB)),
        device("64 blocks, 16 KiB and more", "0.80", blocks=64, block_bytes=at_least(16 * KIB)),
    ]),
    ("3. Fully contiguous to layer separate, and back", "20,032 chunks of 4, 16 and 64 KiB.",
     ["h200/03-layout-change", "h200/03-layout-change-within"], ["between host and GPU", "within a GPU"], [
         ("prepared, fraction of one large copy", "0.90", q("h200/03-layout-change", "fraction", timed=SEEN, chunks=20032),
          q("h200/03-layout-change-within", "fraction", timed=SEEN, chunks=20032, way=begins("prepared"))),
         ("prepared, against KVBM's method", "–", *(q(record, "ratio", timed=SEEN, chunks=20032, way=begins("prepared"),
                                                     reference="pointers uploaded, one kernel")
                                                   for record in ("h200/03-layout-change", "h200/03-layout-change-within"))),
         ("created each time, fraction of one large copy", "–", None,
          q("h200/03-layout-change-within", "fraction", timed=SEEN, chunks=20032, way="created each time")),
         ("prepared, the submitting call", "50 µs", *(q(record, "us", timed="submitting call", chunks=20032, way=begins("prepared"))
                                                      for record in ("h200/03-layout-change", "h200/03-layout-change-within"))),
     ]),
    ("4. Pull from another process", "Fractions of one large copy, and multiples of NIXL with UCX.",
     ["h200/04-peer-pull", "two-gpus/04-peer-pull"], ["same GPU", "NVLink"], [
         pull("16 KiB", "0.90", block_bytes=16 * KIB, bounded=None),
         pull("64 KiB", "0.90", block_bytes=64 * KIB, bounded=None),
         pull("256 KiB and more", "0.90", block_bytes=at_least(256 * KIB), bounded=None),
         pull("NIXL, 16 KiB, `cudaMalloc`", "90×", "ratio", block_bytes=16 * KIB, memory="cudaMalloc", reference=begins("NIXL")),
         pull("NIXL, 16 KiB, VMM", "500×", "ratio", block_bytes=16 * KIB, memory="VMM", reference=begins("NIXL")),
     ]),
    ("5. Allocating pinned memory", "", ["h200/05-pinned-allocation"], ["result"], [
        ("4 GiB with 8 threads, against `cuMemHostAlloc`", "6×",
         q("h200/05-pinned-allocation", "ratio", MiB=4096, threads=8, timed="allocate")),
        ("4 GiB with 16 threads", "–", q("h200/05-pinned-allocation", "ratio", MiB=4096, threads=16, timed="allocate")),
        ("page lock, duration of the bare call", "1.1×",
         q("h200/05-pinned-allocation", "times the bare calls", timed=begins("page lock"))),
    ]),
    ("6. Growth of elastic memory", "Steps of 1 GiB, against pages of 2 MiB.", ["h200/06-elastic-growth", "two-gpus/06-elastic-growth"],
     ["one GPU", "two GPUs", "two GPUs, open for both"], [
         growth("growing", "2 MiB pages", "grow"),
         growth("shrinking", "2 MiB pages", "shrink"),
         growth("growing right after shrinking", "2 MiB pages", "grow right after shrinking"),
     ]),
    ("7. Beside compute", "How much slower the matrix products are, and the fraction of one large copy beside them, to and from the host.",
     ["h200/07-beside-compute"], ["products slower by", "fraction of the link"], [
         gemm(f"{name}, {size // KIB} KiB", work, size)
         for name, work in (("host scattered", HOST_SCATTERED), ("host contiguous", HOST_CONTIGUOUS), ("layer separate", LAYER_SEPARATE))
         for size in (4 * KIB, 16 * KIB, 256 * KIB)]),
    ("8. Submitting to a peer over NIXL", "10,000 blocks of one peer, and of 8 and 32 peers together. One peer: against NIXL with lists that are built each time; several: also with prepared lists.",
     ["cpu-16-cores/08-submit", "cpu-2-cores/08-submit", "cpu-16-cores/08-many-peers", "cpu-2-cores/08-many-peers"],
     ["16 cores", "2 cores"], [
         submitted("scattered", "2×", "scattered"),
         submitted("in runs of 8", "3.5×", "runs of 8"),
         submitted("in runs of 64", "10×", begins("runs of 64")),
         submitted("the same again", "50×", begins(""), "submit again"),
         two_hosts("throughput from 4 KiB", "1.0×", "08-submit", "ratio", unit="GB/s", block_bytes=at_least(4 * KIB)),
         *(line for count in (8, 32) for line in (
             peers("create and submit", "–", count, step="create, submit"),
             peers("the same again", "–", count, step="submit again"),
             peers("throughput", "1.0×", count, unit="GB/s"))),
     ]),
    ("8. Requests on raw descriptors", "Wall time above NIXL's C API, with 1, 8 and 32 peers.",
     ["cpu-16-cores/08-request", "cpu-2-cores/08-request"], ["16 cores", "2 cores"], [
         requests("to 4 KiB, waiting", "2 µs", "us above", "post, wait", bytes=below(5000)),
         requests("to 4 KiB, by a queue", "2 µs", "us above", "post, queue", bytes=below(5000)),
         requests("64 KiB, waiting", "5%", "slower", "post, wait", bytes=64 * KIB),
         requests("64 KiB, by a queue", "5%", "slower", "post, queue", bytes=64 * KIB),
         requests("1 MiB, waiting", "5%", "slower", "post, wait", bytes=1024 * KIB),
         requests("1 MiB, by a queue", "5%", "slower", "post, queue", bytes=1024 * KIB),
     ]),
    ("9. Completion of a transfer with a peer", "Latency above raw NIXL that is polled without pause, shared memory, in µs.",
     ["cpu-16-cores/09-completion", "cpu-2-cores/09-completion"], ["16 cores: p50", "p99", "2 cores: p50", "p99"], [
         completion(f"{size // KIB} KiB, {way}", way, size) for size in (16 * KIB, 1024 * KIB)
         for way in ("kvmem_transfer_wait", "kvmem_queue_wait", "event fd and poll(2)")]),
    ("9. Completion of a transfer with a GPU", "Latency after the end of the work, 16 KiB to 64 MiB.", ["h200/09-gpu-completion"],
     ["p50", "p99"], [gpu_completion(way, way) for way in ("kvmem_transfer_wait", "kvmem_queue_wait", "event fd and poll(2)")]),
    ("10. Host layout to host layout", "A fraction of one large `memcpy`, and a multiple of `memcpy` per piece on two threads.",
     ["cpu-2-cores/10-host-copy"], ["fraction", "against `memcpy`"], [
         (f"{size} KiB", "0.90", q("cpu-2-cores/10-host-copy", "fraction", block_bytes=size * KIB, reference=ONE_THREAD, **MEMCPY),
          q("cpu-2-cores/10-host-copy", "ratio", block_bytes=size * KIB, reference=TWO_THREADS, **MEMCPY))
         for size in (4, 16, 64, 256, 1024, 4096)]),
    ("11. Host and disk", "Against both queues of NIXL's POSIX plugin, and a fraction of one large `pread` or `pwrite`.",
     ["cpu-2-cores/11-disk"], ["GB/s", "CPU time", "fraction"],
     [disk(io, size * KIB) for io in ("direct", "buffered") for size in (16, 64, 256, 1024, 4096)]),
    ("12. Address of a block", "", ["cpu-2-cores/12-block-address"], ["fully contiguous", "layer separate"], [
        ("strides, kind known, duration of the formula in C", "1.1×", *(
            q("cpu-2-cores/12-block-address", "times the bare calls", way="strides, kind known", kind=kind, reference="formula in C")
            for kind in ("fully contiguous", "layer separate"))),
        ("strides, any kind, duration of the formula in C", "1.1×", *(
            q("cpu-2-cores/12-block-address", "times the bare calls", way="strides, any kind", kind=kind, reference="formula in C")
            for kind in ("fully contiguous", "layer separate"))),
        ("`kvmem_layout_get_block`", "10 ns", *(
            q("cpu-2-cores/12-block-address", "ns", way="kvmem_layout_get_block", kind=kind)
            for kind in ("fully contiguous", "layer separate"))),
    ]),
    ("13. Sharing an elastic region", "Duration, as a multiple of the bare driver calls.", ["h200/13-share", "two-gpus/13-share"],
     ["one GPU", "two GPUs"], [
         (f"{extents} extents, {timed}", "1.2×", *(q(f"{kind}/13-share", "times the bare calls", extents=extents, timed=timed)
                                                   for kind in ("h200", "two-gpus")))
         for extents in (64, 8) for timed in ("until the other process may use it", "until it is sent")]),
    ("14. Checksums and verified transfers", "", ["cpu-2-cores/14-checksum", "h200/14-gpu-checksum"],
     ["host", "GPU"], [
         (f"checksums of blocks of {size} KiB", "–", q("cpu-2-cores/14-checksum", "GB/s", what="checksums", block_bytes=size * KIB),
          q("h200/14-gpu-checksum", "GB/s", what="checksums", block_bytes=size * KIB)) for size in (4, 16, 256, 1024)] + [
         ("against the CPU's instruction; copied out and computed on the host", "–",
          q("cpu-2-cores/14-checksum", "ratio", what="checksums"), q("h200/14-gpu-checksum", "ratio", what="checksums")),
         ("transfer with checksums of the caller, fraction of one that is not verified", "–",
          *(q(record, "of plain", what=begins("transfer"), way="verified against given checksums", unit="GB/s")
            for record in ("cpu-2-cores/14-checksum", "h200/14-gpu-checksum"))),
         ("transfer verified against its source, fraction of one that is not verified", "–",
          *(q(record, "of plain", what=begins("transfer"), way="verified against the source", unit="GB/s")
            for record in ("cpu-2-cores/14-checksum", "h200/14-gpu-checksum"))),
     ]),
    ("15. Reshaped transfers on a GPU", "Fractions of a plain transfer of the same bytes, by default and with an idle GPU.",
     ["h200/15-gpu-reshape"], ["within the GPU", "to the host", "from the host"], [
         reshaped("rows of 128 bytes", "0.90", 128),
         reshaped("rows of 256 bytes, all heads", "0.97", 256, without(*HEADS)),
         reshaped("rows of 256 bytes, 1 or 4 of 8 heads", "0.97", 256, among(*HEADS)),
         reshaped("rows of 512 bytes, all heads", "0.97", 512, without(*HEADS)),
         reshaped("rows of 512 bytes, 1 or 4 of 8 heads", "0.97", 512, among(*HEADS)),
         *(transposed(f"transposed elements of {size} bytes" if size > 1 else "transposed elements of 1 byte", element_bytes=size)
           for size in (1, 2, 4, 8)),
     ]),
    ("15. Reshaped transfers from another GPU and on the host", "Fractions of a plain transfer of the same bytes.",
     ["two-gpus/15-gpu-reshape", "cpu-2-cores/15-reshape"], ["from another GPU", "between host layouts"], [
         ("rows of 64 bytes", "–", None, q("cpu-2-cores/15-reshape", "of plain", row_bytes=64)),
         ("rows of 128 bytes", "0.90", q("two-gpus/15-gpu-reshape", "of plain", name="15-reshape", direction="from the other GPU", row_bytes=128),
          q("cpu-2-cores/15-reshape", "of plain", row_bytes=128)),
         ("rows of 256 bytes", "0.97", q("two-gpus/15-gpu-reshape", "of plain", name="15-reshape", direction="from the other GPU", row_bytes=256),
          q("cpu-2-cores/15-reshape", "of plain", row_bytes=256)),
         ("rows of 512 bytes", "0.97", None, q("cpu-2-cores/15-reshape", "of plain", row_bytes=512)),
         ("of these, 4 of 8 heads, rows of 128 to 512 bytes", "0.97", None,
          q("cpu-2-cores/15-reshape", "of plain", difference="4 of 8 heads", row_bytes=among(128, 256, 512))),
         ("transposed elements, blocks of 16 tokens", "–", None,
          q("cpu-2-cores/15-reshape", "of plain", difference=among("NHC to HCN, blocks of 16 tokens", "HCN to NHC, blocks of 16 tokens"))),
         ("transposed elements, blocks of 1,024 tokens", "–", None,
          q("cpu-2-cores/15-reshape", "of plain", difference=among("NHC to HCN, blocks of 1024 tokens", "HCN to NHC, blocks of 1024 tokens"))),
     ]),
    ("16. Reshaped transfers against other methods", "Rows of 256 bytes.", ["h200/15-gpu-reshape", "two-gpus/15-gpu-reshape", "h200/16-torch"],
     ["result"], [
         *((f"KVBM's kernel, {name}", "1.5×", q(record, "ratio", name="16-reshape", direction=direction, reference="pointers uploaded, one kernel"))
           for name, record, direction in (("within the GPU", "h200/15-gpu-reshape", "D2D"), ("from the host", "h200/15-gpu-reshape", "H2D"),
                                           ("to the host", "h200/15-gpu-reshape", "D2H"),
                                           ("from another GPU", "two-gpus/15-gpu-reshape", "from the other GPU"))),
         ("PyTorch, within the GPU", "1.5×", q("h200/16-torch", "ratio", best_of_pytorch=True, difference=lambda text: "host" not in text)),
         ("PyTorch, with a host, scattered", "1.5×", q("h200/16-torch", "ratio", best_of_pytorch=True,
                                                       difference=lambda text: "host scattered" in text)),
         ("PyTorch, with a host, consecutive", "1.5×", q("h200/16-torch", "ratio", best_of_pytorch=True,
                                                         difference=lambda text: "host contiguous" in text)),
     ]),
    ("17. Host memory of a peer, reshaped", "By the chosen path, against NIXL with a descriptor per row, and as a fraction of one contiguous transfer.",
     ["cpu-2-cores/17-peer-reshape"], ["against a descriptor per row", "fraction"], [
         chosen(measured, transport, difference) for transport in ("shared memory", "tcp") for measured, difference in (
             ("TP 2 to 4", "TP 2 to 4, NHD"), ("TP 4 to 2", "TP 4 to 2, NHD"), ("HND to NHD", "HND to NHD"),
             ("scattered blocks of 16 KiB", "scattered blocks, fully contiguous to layer separate"))]),
    ("17. GPU memory of a peer that is not mapped", "By the chosen path, 32 MiB, against NIXL.", ["two-gpus/17-gpu-peer", "h200/17-gpu-peer"],
     ["VMM, NVLink", "VMM, same GPU", "plain, same GPU"], [served(size * KIB) for size in (4, 16, 64, 1024)]),
    ("18. Duration of calls", "", ["cpu-2-cores/18-create", "h200/18-gpu-hot-path", "cpu-2-cores/18-hot-path"], ["result"], [
        ("`kvmem_transfer_create`, per pair, all 90 points", "150 ns", q("cpu-2-cores/18-create", "ns")),
        *((f"`kvmem_transfer_submit`, up to 64 pairs, {direction}", "9 µs",
           q("h200/18-gpu-hot-path", "us", direction=direction, call="kvmem_transfer_submit", pairs=below(65)))
          for direction in ("within the GPU", "host to GPU", "GPU to host")),
        ("the same, 1,000 pairs, between host layouts, 16 cores", "60 µs",
         q("h200/18-gpu-hot-path", "us", direction="host to host", call="kvmem_transfer_submit", pairs=1000)),
        ("the same, 2 cores", "60 µs", q("cpu-2-cores/18-hot-path", "us", call="kvmem_transfer_submit", pairs=1000)),
    ]),
    ("19. Regret of the chosen path", "36 listed points, among them few short pieces; the same with 60 random points. The H100's record divides two medians of 7 to 31 turns; the H200's have the\nmedian of quotients within a turn.",
     ["h100/19-regret", "h200/19-regret", "h200/19-regret-random"], ["H100, listed", "H200, listed", "H200, random"], [
         regret("median", "1.02", "median"), regret("95% within", "–", "p95"), regret("worst", "1.10", "worst"),
         ("random, worst on an idle GPU", "1.10", None, None, q("h200/19-regret-random", "regret", unit="x", statistic="worst", of=begins("idle"))),
         ("random, worst beside GEMMs", "1.10", None, None,
          q("h200/19-regret-random", "regret", unit="x", statistic="worst", of="beside GEMMs")),
     ]),
    ("19. Regret of reads from a peer", "60 random reads of host memory.", ["cpu-2-cores/19-peer-regret"], ["before any run", "after a run of each path"], [
        (measured, target, *(q("cpu-2-cores/19-peer-regret", "regret", unit="x", statistic=statistic, chosen=chosen_at)
                             for chosen_at in ("before any run", "after them")))
        for measured, target, statistic in (("median", "1.02", "median"), ("90% within", "–", "p90"), ("worst", "1.10", "worst"))]),
    ("20. Sessions of llama.cpp", "Against llama.cpp's own functions, with cells that were reserved before.",
     ["h200/20-engine", "two-gpus/20-engine", "cpu-2-cores/20-engine"], ["one GPU", "two GPUs", "no GPU"], [
         session("to another process, mapped", "handover", link="memcpy"),
         session("to another process, NIXL", "handover", link="NIXL"),
         session("to another process, NIXL over TCP", "handover", link="NIXL, TCP"),
         session("to host memory", "offload", "memory"), session("from host memory", "restore", "memory"),
         session("to a file", "offload", "file"), session("from a file", "restore", "file"),
     ]),
    ("21. First token of decode after a handover", "From another process, on the same GPU or another one, and from page-locked memory: 2,048 to 32,768 tokens of a model with 32 layers.",
     [*PAGED], ["one GPU: PyTorch's copies", "NIXL's client", "decode alone, fraction", "two GPUs: PyTorch's copies", "NIXL's client", "decode alone, fraction"], [
         first_token("same order, whole", "same order", "whole"), first_token("same order, by layer", "same order", "by layer"),
         first_token("TP 2 to 1, another order, whole", "TP 2", "whole", None), first_token("TP 2 to 1, another order, by layer", "TP 2", "by layer", None),
         first_token("from host memory, whole", "restored", "whole"), first_token("from host memory, by layer", "restored", "by layer"),
     ]),
    ("21. Decode beside transfers", "How much longer a step of decode takes than alone. PyTorch's copies and NIXL's client move less in the same time.",
     [*PAGED], ["p50", "p99", "p99 with PyTorch's copies, against kvmem", "with NIXL's client"], [
         beside_decode("256 MiB to the host in each step", "to host"), beside_decode("256 MiB from the host in each step", "from host"),
         beside_decode("384 MiB to the host in each step: the link is full", "to host, link full"),
         beside_decode("384 MiB from the host in each step: the link is full", "from host, link full"),
         beside_decode("a pull of 256 MiB within the GPU every 8 steps", "from peer"), beside_decode("the same with 12 CTAs", "from peer", "12 CTAs"),
         beside_decode("a pull of 256 MiB within the GPU every second step", "every second step"), beside_decode("the same with 12 CTAs", "every second step", "12 CTAs"),
         *(beside_decode(measured, kind, way, PAGED[1]) for measured, kind, way in (
             ("a pull of 256 MiB from another GPU every 8 steps", "from peer", "chosen"), ("the same with 12 CTAs", "from peer", "12 CTAs"),
             ("a pull of 256 MiB from another GPU every second step", "every second step", "chosen"), ("the same with 12 CTAs", "every second step", "12 CTAs"))),
     ]),
    moved_by("2 cores", MOVED, ("", ", calls of 64 MiB")),
    moved_by("16 cores", MOVED_BY_MORE, ("",)),
    ("22. Keys of a store", "A store of a million blocks, against `std::unordered_set` and reading the file of the index, on two hosts.", [*STORES],
     ["16 cores: duration", "against the reference", "32 cores: duration", "against the reference"], [
         *(stored(f"looking up a key, lists of {count:,}", "ns", way="contains", keys=str(count)) for count in (16, 1024)),
         stored("opening", "ms of ns", way="open"),
     ]),
    ("22. Stores beside other stores", "Put and get of blocks of a store by direct I/O, against foyer, LMCache's raw_block adapter and vLLM's file tier.",
     [STORE_PEERS], ["result", "foyer", "LMCache", "vLLM"], [
         *(beside_stores(f"{step}, {size // KIB} KiB", step, block=size) for step in ("put", "get") for size in (16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB)),
         *(gets_beside_puts(blocks, statistic) for blocks in (1, 16) for statistic in ("p50", "p99")),
     ]),
    ("23. Reads that expect epochs", "Blocks of 16 KiB, against the same reads without epochs.", ["cpu-16-cores/23-epochs", "two-gpus/23-epochs"],
     ["64 blocks, 16 cores", "1,024 blocks, 16 cores", "64 blocks, 32 cores", "1,024 blocks, 32 cores"],
     [expected("between host layouts", "host to host"), expected("over NIXL", "NIXL, one machine")]),
    ("24. The Python package above C", "Pairs as an array of NumPy, others in every step. Measured beside other work.", ["cpu-2-cores/24-python"], ["result"], [
        (f"`Transfer.submit`, {pairs} pairs", "3 µs" if pairs == 64 else "–", q("cpu-2-cores/24-python", "us above", call=f"submit, {pairs} pairs"))
        for pairs in (1, 64, 256)
    ] + [("`Transfer.poll`", "1 µs", q("cpu-2-cores/24-python", "us above", call="poll"))]),
    ("25. Counters and trace of runs", "A run of one block between host layouts, against the same library without statistics.", ["cpu-2-cores/25-statistics"], ["result"], [
        (f"added to a run of {size} bytes", "20 ns", q("cpu-2-cores/25-statistics", "ns above", bytes=size)) for size in (512, 16384)
    ]),
    ("Footprint", "", ["cpu-2-cores/footprint"], ["result"], [
        ("size of the stripped library", "5 MB", q("cpu-2-cores/footprint", "MB", name="footprint-size")),
        ("loading it", "10 ms", q("cpu-2-cores/footprint", "ms", name="footprint-load")),
        ("an idle agent, of a core", "3%", q("cpu-2-cores/footprint", "percent", name="footprint-idle-cpu")),
    ]),
]

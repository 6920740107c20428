# SPDX-License-Identifier: Apache-2.0
"""The workers of kvmem.vllm's handover without vLLM: those of two engines exchange blocks by real agents. The demo runs them in vLLM."""

import pathlib
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

import kvmem
from kvmem.vllm import _cache, _config, _exchange, _groups, _pulls, _ranks
from kvmem.vllm._exchange import Exchange, Settings
from kvmem.vllm._held import HeldRequests
from kvmem.vllm._offer import Ask, HandoverStep, Hold, Offer, Pull, agent_name, message
from kvmem.vllm._peers import join

LAYERS, ELEMENTS, HEADS = 2, 8, 4
WAIT = 60
"""Seconds until a case fails."""


def settings(extra):
    return _config.parse({"timeout_seconds": WAIT} | extra)


class Tensor:
    """What the layouts need of a tensor of PyTorch."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def dim(self):
        return self.array.ndim

    def stride(self, axis=None):
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        return strides if axis is None else strides[axis]

    def element_size(self):
        return self.array.itemsize

    def data_ptr(self):
        return self.array.ctypes.data


class Worker:
    """A rank of an engine, with a cache whose axes in memory are `order`: L, and those of vLLM's tensors (BHNC)."""

    def __init__(self, folder, engine, *, order="LBHNC", block_size=4, rank=0, ranks=1, blocks=16, packing="none", window=0, produces=True,
                 lease=60.0, timeout=30.0, verify=True, access="auto", model="m", groups=1, directory="", **etcd):  # fmt: skip
        """`groups` is the number of cache groups, which have the same memory. `directory` is a folder by default; with `etcd`, URLs."""
        self.directory, self.agent = join(settings({"directory": directory or str(folder / "agents")} | etcd), agent_name(engine, rank))
        heads = HEADS // ranks
        lengths = {"L": LAYERS, "B": blocks, "H": heads, "N": block_size, "C": ELEMENTS}
        shape = [lengths[axis] for axis in order]
        size = int(np.prod(shape)) * 2
        self.region = kvmem.Region.system(size, flags=kvmem.SystemFlags.SHAREABLE)
        self.memory = np.from_dlpack(self.region.tensor("uint16"))[: size // 2].reshape(shape)
        self.memory[:] = 0
        layers = np.moveaxis(self.memory, [order.index(axis) for axis in "LBHNC"], range(5))
        self.cache = layers  # [layer, block, head, token, element]
        described = _groups.Group(0, ("0", "1"), heads * block_size * ELEMENTS * 2, block_size, "window" if window else "full", window)
        self.storage = _cache.CacheMemory([self.region])
        self.layouts = _cache.layouts_of(
            described, {str(at): Tensor(layers[at]) for at in range(LAYERS)}, blocks, {"model": model}, packing,
            self.storage.region_of, self.agent,
        )  # fmt: skip
        opened = []
        if produces:
            opened.append(kvmem.Broker(folder / f"{engine}-{rank}"))
            published = {name: layout for number in range(groups) for name, layout in self.layouts.published(number).items()}
            self.directory.publish(self.agent, published, WAIT, broker=opened[0])
        else:
            self.directory.publish(self.agent, {}, WAIT)
        self.exchange = Exchange(
            self.agent, self.directory, [self.layouts] * groups, [block_size] * groups, lambda sources: _ranks.legs_of(rank, ranks, sources, HEADS),
            Settings(lease, timeout, verify, access, rank == 0), opened,
        )  # fmt: skip

    def hold(self, *blocks, request="p"):
        self.exchange.give(HandoverStep(holds=[Hold(request, (blocks,))]))

    def pull(self, offer, blocks, first=0, tokens=None, request="d"):
        self.exchange.give(HandoverStep(pulls=[Pull(request, offer, (tuple(blocks),), first, offer.num_tokens if tokens is None else tokens)]))

    def by_layer(self, offer, blocks, tokens, request="d"):
        """Asks for a request, and pulls it by layer when prefill has replied."""
        self.exchange.give(HandoverStep(asks=[Ask(request, offer)]))
        end = time.monotonic() + WAIT
        granted = refused = set()
        while not granted and not refused:
            assert time.monotonic() < end, "prefill has not replied in time"
            granted, refused = self.exchange.take_replies()
        if granted:
            self.exchange.give(HandoverStep(pulls=[Pull(request, offer, (tuple(blocks),), 0, tokens, True)]))
        return granted, refused

    def wait(self, which):
        """The requests that were sent (0) or received (1), when there are any."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            found = self.exchange.poll()[which]
            if found:
                return found
            time.sleep(0.002)
        raise AssertionError("nothing has ended in time")

    def close(self):
        if self.memory is not None:
            self.exchange.close()
            self.memory = self.cache = None
            self.storage.close()


@pytest.fixture
def start(tmp_path):
    workers = []

    def made(engine, **more):
        workers.append(Worker(tmp_path, engine, **more))
        return workers[-1]

    yield made
    for worker in workers:
        worker.close()


@pytest.fixture
def etcd(tmp_path, request):
    """The URL of a server of etcd, which has TLS if the case gives files for it."""
    secure = getattr(request, "param", None) and request.getfixturevalue(request.param)
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        url, peers = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in (first, second))
    tls = []
    if secure:
        url = url.replace("http", "https")
        tls = ["--cert-file", secure["certificate_file"], "--key-file", secure["key_file"], "--trusted-ca-file", secure["ca_file"], "--client-cert-auth"]
    process = subprocess.Popen(
        [
            "etcd", "--name", "test", "--data-dir", tmp_path / "etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"test={peers}",
            "--logger", "zap", "--log-outputs", "stderr", "--unsafe-no-fsync", *tls,
        ],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "serving client traffic" in line:
            break
    else:
        raise AssertionError(f"etcd does not start: {''.join(lines[-5:])}")
    reader = threading.Thread(target=process.stderr.read, daemon=True)  # it must not wait for a full pipe
    reader.start()
    yield url
    process.kill()
    process.wait()
    reader.join()
    process.stderr.close()


def fill(worker, blocks, tokens, heads=range(HEADS)):
    """Writes values that depend on layer, head, token and element."""
    size = worker.cache.shape[3]
    for token in range(tokens):
        worker.cache[:, blocks[token // size], :, token % size] = values(token, heads)


def values(token, heads=range(HEADS)):
    layer, head, element = np.meshgrid(range(LAYERS), heads, range(ELEMENTS), indexing="ij")
    return (layer * 7919 + token * 131 + head * 1009 + element * 17 + 1).astype(np.uint16)


def check(worker, blocks, tokens, first=0, heads=range(HEADS)):
    size = worker.cache.shape[3]
    for token in range(first, tokens):
        assert (worker.cache[:, blocks[token // size], :, token % size] == values(token, heads)).all(), token


def offer(blocks, tokens, block_size=4, ranks=1, request="p", engine="p"):
    return Offer(engine, request, tokens, ranks, (block_size,), (tuple(blocks),), "")


@pytest.mark.parametrize("access", ["mapped", "nixl"])
@pytest.mark.parametrize(
    ("order", "block_size"), [("LBHNC", 4), ("LBHNC", 16), ("LBHNC", 2), ("LBNHC", 4), ("BLHNC", 4), ("LHBNC", 4), ("BHLNC", 8)]
)  # fmt: skip
def test_blocks_arrive_in_other_orders_and_block_sizes(start, access, order, block_size):
    prefill, decode = start("p"), start("d", order=order, block_size=block_size, access=access, produces=False)
    source, destination = (3, 1, 7, 2, 9), [5, 4, 6, 8, 10, 11, 2, 1, 12, 13]
    fill(prefill, source, 18)
    prefill.hold(*source)
    decode.pull(offer(source, 18), destination)
    assert decode.wait(1) == {"d"} and prefill.wait(0) == {"p"}
    check(decode, destination, 18)
    assert not decode.exchange.failed_requests and not decode.exchange.failed_blocks
    assert decode.exchange.counters["mapped_bytes" if access == "mapped" else "nixl_bytes"] > 0
    assert decode.exchange.counters["loaded_blocks"] == -(-18 // block_size)
    assert prefill.exchange.counters == {"offered_requests": 1, "handed_over_requests": 1}


@pytest.mark.parametrize("access", ["mapped", "nixl"])
def test_engines_find_each_other_in_etcd(start, etcd, access, caplog):
    prefill, decode = start("p", directory=etcd), start("d", directory=etcd, block_size=8, access=access, produces=False)
    fill(prefill, (3, 1, 7), 10)
    prefill.hold(3, 1, 7)
    decode.pull(offer((3, 1, 7), 10), [5, 4])
    assert decode.wait(1) == {"d"} and prefill.wait(0) == {"p"}
    check(decode, [5, 4], 10)
    assert decode.exchange.counters["mapped_bytes" if access == "mapped" else "nixl_bytes"] > 0
    # Decode waits for a request that prefill does not have yet; prefill ends, and decode learns it from etcd.
    decode.pull(offer((3, 1, 7), 10, request="never"), [5, 4], request="waits")
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    assert decode.wait(1) == {"waits"} and decode.exchange.failed_requests == {"waits"}
    assert "has ended" in caplog.text
    with pytest.raises(ValueError, match="another engine has published .* in http://127.0.0.1"):
        join(settings({"directory": etcd}), decode.agent.name)


@pytest.fixture
def certificates(tmp_path):
    """An authority, and its certificate for the server and its clients."""
    names = {name: str(tmp_path / name) for name in ("ca_file", "certificate_file", "key_file")}
    authority, asked, extensions = (str(tmp_path / name) for name in ("authority.key", "asked", "extensions"))
    pathlib.Path(extensions).write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n")
    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for arguments in (
        [*new, "-x509", "-subj", "/CN=authority", "-keyout", authority, "-out", names["ca_file"]],
        [*new, "-subj", "/CN=kvmem", "-keyout", names["key_file"], "-out", asked],
        ["x509", "-req", "-in", asked, "-CA", names["ca_file"], "-CAkey", authority, "-CAcreateserial", "-extfile", extensions, "-out", names["certificate_file"]],
    ):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=WAIT)
    return names


@pytest.mark.parametrize("etcd", ["certificates"], indirect=True)
def test_engines_find_each_other_in_etcd_with_certificates(start, etcd, certificates):
    prefill, decode = start("p", directory=etcd, **certificates), start("d", directory=etcd, produces=False, **certificates)
    fill(prefill, (3, 1), 8)
    prefill.hold(3, 1)
    decode.pull(offer((3, 1), 8), [5, 4])
    assert decode.wait(1) == {"d"} and prefill.wait(0) == {"p"}
    check(decode, [5, 4], 8)
    with pytest.raises(ValueError, match="kvmem: directory https://127.0.0.1.* cannot be used: "):
        join(settings({"directory": etcd}), "vllm-x-0")


@pytest.mark.parametrize("access", ["mapped", "nixl"])
@pytest.mark.parametrize(("sources", "ranks", "block_size"), [(2, 1, 4), (1, 2, 4), (2, 1, 8), (4, 2, 4)])
def test_ranks_may_differ(start, access, sources, ranks, block_size):
    source, destination = (3, 1, 7), [5, 4, 6]
    prefills = [start("p", rank=rank, ranks=sources) for rank in range(sources)]
    decodes = [start("d", rank=rank, ranks=ranks, block_size=block_size, access=access, produces=False) for rank in range(ranks)]
    for rank, prefill in enumerate(prefills):
        first, count = _ranks.heads_of(rank, sources, HEADS)
        fill(prefill, source, 11, range(first, first + count))
        prefill.hold(*source)
    for decode in decodes:
        decode.pull(offer(source, 11, ranks=sources), destination)
    for rank, decode in enumerate(decodes):
        assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
        first, count = _ranks.heads_of(rank, ranks, HEADS)
        check(decode, destination, 11, heads=range(first, first + count))
    for rank, prefill in enumerate(prefills):
        assert prefill.wait(0) == {"p"}
        assert prefill.exchange.counters == ({} if rank else {"offered_requests": 1, "handed_over_requests": 1})


def test_only_tokens_that_decode_does_not_have_are_read(start):
    prefill, decode = start("p"), start("d", block_size=2, produces=False)
    fill(prefill, (3, 1), 8)
    prefill.hold(3, 1)
    decode.pull(offer((3, 1), 8), [9, 8, 7, 6], first=4)
    assert decode.wait(1) == {"d"}
    check(decode, [9, 8, 7, 6], 8, first=4)
    assert not decode.cache[:, [9, 8]].any()


@pytest.mark.parametrize("order", ["LBHNC", "BLHNC"])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("access", ["mapped", "nixl"])
def test_by_layer_a_step_waits_for_each_layer(start, access, verify, order):
    prefill, decode = start("p", order=order), start("d", order=order, access=access, verify=verify, produces=False)
    fill(prefill, (3, 1, 7), 12)
    prefill.hold(3, 1, 7)
    assert decode.by_layer(offer((3, 1, 7), 12), [5, 4, 6], 12) == ({"d"}, set())
    for layer in range(LAYERS):
        decode.exchange.wait_for_layers(layer + 1)
        assert (decode.cache[layer, [5, 4, 6]] == prefill.cache[layer, [3, 1, 7]]).all()
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and not decode.exchange.failed_blocks  # it has not waited
    assert decode.exchange.counters["loaded_blocks"] == 3 and prefill.wait(0) == {"p"}
    check(decode, [5, 4, 6], 12)


def test_by_layer_the_first_layer_does_not_wait_for_the_second(start, monkeypatch):
    """A run whose layers move when the test says so."""
    submit = kvmem.Transfer.submit

    class Run(kvmem.Transfer):
        def __init__(self, *arguments, layers_per_completion, flags, **more):
            assert layers_per_completion == 1 and flags & kvmem.TransferFlags.BY_LAYER
            super().__init__(*arguments, flags=kvmem.TransferFlags.REPORT_RELEASE, **more)

        def submit(self, *arguments, user_data, **more):
            self.begin = lambda: submit(self, *arguments, user_data=user_data, **more)
            runs.append((self, user_data))

    runs = []
    monkeypatch.setattr(_pulls.kvmem, "Transfer", Run)
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    decode.by_layer(offer((3,), 4), [5], 4)
    end = time.monotonic() + WAIT
    while not runs and time.monotonic() < end:
        time.sleep(0.002)
    (run, user_data), layers = runs[0], threading.Thread(target=decode.exchange.wait_for_layers, args=(2,))
    moved = kvmem.Completion(kvmem.CompletionKind.LAYERS_MOVED, run, user_data, kvmem.Status.OK, 0, 1, False)
    decode.exchange._work.append(lambda now: decode.exchange._pulls.completed(moved))
    decode.exchange.give(HandoverStep(drops=[offer((9,), 4, request="none")]))  # wakes the thread
    decode.exchange.wait_for_layers(1)
    layers.start()
    assert decode.exchange._layers == {"d": 1} and layers.is_alive()
    run.begin()
    layers.join(WAIT)
    assert not layers.is_alive()
    decode.exchange.wait_for_requests()
    assert not decode.exchange.poll()[1] and not decode.exchange.failed_blocks
    check(decode, [5], 4)


def test_by_layer_a_step_fails_if_nixl_may_still_write_to_its_blocks(start, monkeypatch):
    """A run that does not end in time, as if prefill were frozen."""
    submit, runs = kvmem.Transfer.submit, []
    monkeypatch.setattr(kvmem.Transfer, "submit", lambda *arguments, **more: runs.append(lambda: submit(*arguments, **more)))
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    decode.by_layer(offer((3,), 4), [5], 4)
    with monkeypatch.context() as limits:
        limits.setattr(_exchange, "_GRACE", 0.01)
        limits.setattr(decode.exchange._settings, "timeout", 0)
        for waits in (lambda: decode.exchange.wait_for_layers(1), decode.exchange.wait_for_requests):
            with pytest.raises(RuntimeError, match="NIXL may still write to blocks of a request: restart this engine"):
                waits()
    end = time.monotonic() + WAIT
    while not runs and time.monotonic() < end:
        time.sleep(0.002)
    runs[0]()
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and not decode.exchange.failed_blocks
    check(decode, [5], 4)


def test_by_layer_damaged_blocks_are_found_at_the_end_of_the_step(start):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3, 1, 7), 12)
    prefill.hold(3, 1, 7)
    end = time.monotonic() + WAIT
    while "p" not in prefill.exchange._held._held and time.monotonic() < end:
        time.sleep(0.002)
    prefill.cache[1, 1, 2, 3, 5] ^= 1
    decode.by_layer(offer((3, 1, 7), 12), [5, 4, 6], 12)
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and decode.exchange.failed_blocks == {4}
    assert decode.exchange.counters["damaged_blocks"] == 1 and decode.exchange.counters["loaded_blocks"] == 2
    assert decode.exchange.counters["loaded_bytes"] == 2 * LAYERS * HEADS * 4 * ELEMENTS * 2 and prefill.wait(0) == {"p"}


def test_by_layer_a_peer_that_ends_before_the_pull_is_refused_and_afterwards_its_blocks_are_computed(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    assert decode.by_layer(offer((3,), 4, engine="none"), [5], 4, "none") == (set(), {"none"})
    prefill.hold(3)
    decode.exchange.give(HandoverStep(asks=[Ask("d", offer((3,), 4))]))
    end, granted = time.monotonic() + WAIT, set()
    while not granted and time.monotonic() < end:
        granted, _ = decode.exchange.take_replies()
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    refused = set()
    while not refused and time.monotonic() < end:
        _, refused = decode.exchange.take_replies()
    assert granted == refused == {"d"} and "has ended" in caplog.text
    decode.exchange.poll()
    assert decode.exchange.counters["failed_loads"] == 2
    # The scheduler has planned the pull before it knew that.
    decode.exchange.give(HandoverStep(pulls=[Pull("d", offer((3,), 4), ((5,),), 0, 4, True)]))
    decode.exchange.wait_for_layers(1)
    decode.exchange.wait_for_requests()
    assert decode.exchange.poll() == (set(), set()) and decode.exchange.failed_blocks == {5}


def test_by_layer_what_was_asked_for_and_is_not_needed_is_released(start):
    prefill, decode = start("p"), start("d", produces=False)
    prefill.hold(3)
    decode.exchange.give(HandoverStep(asks=[Ask("d", offer((3,), 4))]))
    decode.exchange.give(HandoverStep(drops=[offer((3,), 4)]))
    assert prefill.wait(0) == {"p"} and not decode.exchange._pulls._pulls


@pytest.mark.parametrize("block_size", [4, 8])
@pytest.mark.parametrize("verify", [True, False])
def test_damaged_blocks_are_found_by_checksums_and_otherwise_not(start, block_size, verify):
    prefill, decode = start("p"), start("d", block_size=block_size, verify=verify, produces=False)
    fill(prefill, (3, 1, 7), 12)
    prefill.hold(3, 1, 7)
    drop = offer((2,), 4, request="other")  # a pull of it shows that the checksums of the first request are computed
    prefill.hold(2, request="other")
    decode.pull(drop, [1] if block_size == 4 else [1], request="first", tokens=4)
    assert decode.wait(1) == {"first"}
    prefill.cache[1, 1, 2, 3, 5] ^= 1
    decode.pull(offer((3, 1, 7), 12), [5, 4, 6])
    assert decode.wait(1) == {"d"}
    if not verify:
        assert not decode.exchange.failed_requests
        with pytest.raises(AssertionError):
            check(decode, [5, 4, 6], 12)
    else:
        assert decode.exchange.failed_requests == {"d"} and decode.exchange.counters["damaged_blocks"] == 1
        assert decode.exchange.failed_blocks == ({4} if block_size == 4 else {5, 4})
    assert prefill.wait(0) >= {"p"}


def test_a_question_that_comes_before_its_request_gets_a_reply_when_the_request_comes(start):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    decode.pull(offer((3,), 4), [5])
    while not prefill.exchange._early:
        time.sleep(0.002)
    prefill.hold(3)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    check(decode, [5], 4)


def test_the_directory_is_asked_once_per_peer_and_again_after_a_restart(start, monkeypatch):
    prefill, decode = start("p"), start("d", produces=False)
    asked = []
    look_up = kvmem.Directory.look_up
    monkeypatch.setattr(kvmem.Directory, "look_up", lambda self, name, timeout: asked.append(name) or look_up(self, name, timeout))

    def hand_over(source, request):
        fill(source, (3, 1), 8)
        source.hold(3, 1, request=request)
        decode.pull(offer((3, 1), 8, request=request), [5, 4], request=request)
        assert decode.wait(1) == {request} and not decode.exchange.failed_requests and source.wait(0) == {request}
        check(decode, [5, 4], 8)

    for number in range(3):
        hand_over(prefill, str(number))
    assert asked == [agent_name("p", 0), agent_name("d", 0)]
    prefill.close()
    decode.cache[:] = 0
    hand_over(start("p"), "again")
    assert asked.count(agent_name("p", 0)) >= 3  # also as it starts


def test_a_lease_ends_and_a_late_pull_fails(start, caplog):
    prefill, decode = start("p", lease=0.05), start("d", produces=False)
    prefill.hold(3)
    assert prefill.wait(0) == {"p"} and prefill.exchange.counters == {"offered_requests": 1, "expired_requests": 1}
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"} and decode.exchange.failed_blocks == {5}
    assert "does not keep it any longer" in caplog.text


def test_a_dropped_request_is_released(start):
    prefill, decode = start("p"), start("d", produces=False)
    prefill.hold(3)
    decode.exchange.give(HandoverStep(drops=[offer((3,), 4)]))
    assert prefill.wait(0) == {"p"}


def test_prefill_that_does_not_exist_or_reply_leads_to_computation(start, caplog):
    prefill, decode = start("p"), start("d", produces=False, timeout=0.3)
    decode.pull(offer((3,), 4, engine="none"), [5], request="none")
    assert decode.wait(1) == {"none"} and decode.exchange.failed_blocks == {5} and "is not reached" in caplog.text
    decode.pull(offer((3,), 4), [6], request="unknown")  # prefill waits for a request that never comes
    assert decode.wait(1) == {"unknown"} and decode.exchange.failed_blocks == {5, 6} and "within 0.3 s" in caplog.text
    assert prefill.exchange.poll() == (set(), set())


def test_prefill_that_ends_while_decode_waits_leads_to_computation(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    decode.pull(offer((3,), 4), [5])
    while not prefill.exchange._early:
        time.sleep(0.002)
    prefill.exchange._directory.withdraw(agent_name("p", 0), WAIT)
    assert decode.wait(1) == {"d"} and decode.exchange.failed_blocks == {5} and "has ended" in caplog.text


@pytest.mark.parametrize("change", [{"model": "another"}, {"packing": "amx", "block_size": 8}])
def test_engines_that_do_not_fit_are_computed_with_the_reason(start, caplog, change):
    prefill, decode = start("p", packing=change.get("packing", "none")), start("d", produces=False, **change)
    prefill.hold(3)
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_blocks == {5}
    assert ("cannot be divided" if "packing" in change else "identit") in caplog.text
    assert prefill.wait(0) == {"p"}  # it is not kept until its lease ends


def test_block_ids_outside_of_the_cache_are_computed(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    prefill.hold(3)
    decode.pull(offer((99,), 4), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_blocks == {5} and "cannot be read" in caplog.text


def test_the_packing_of_the_cpu_is_divided_by_tokens_and_heads(start):
    """Keys are elements × tokens, values tokens × elements: the last axis of vLLM's tensor is twice as long as a head."""
    prefill, decode = start("p", packing="vec"), start("d", packing="vec", block_size=8, produces=False)
    half = ELEMENTS // 2

    def keys_and_values(worker, block, head):
        flat = worker.cache[:, block, head].reshape(LAYERS, -1)
        tokens = worker.cache.shape[3]
        return flat[:, : half * tokens].reshape(LAYERS, half, tokens), flat[:, half * tokens :].reshape(LAYERS, tokens, half)

    for at, block in enumerate((3, 1, 7)):
        for head in range(HEADS):
            keys, value = keys_and_values(prefill, block, head)
            for token in range(4):
                keys[:, :, token] = values(at * 4 + token)[:, head, :half]
                value[:, token] = values(at * 4 + token)[:, head, half:]
    prefill.hold(3, 1, 7)
    decode.pull(offer((3, 1, 7), 12), [5, 4])
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    for token in range(12):
        for head in range(HEADS):
            keys, value = keys_and_values(decode, [5, 4][token // 8], head)
            assert (keys[:, :, token % 8] == values(token)[:, head, :half]).all() and (value[:, token % 8] == values(token)[:, head, half:]).all()


@pytest.mark.parametrize("block_size", [8, 3, 1])
def test_block_sizes_that_prefill_does_not_have_fail_their_request_only(start, caplog, block_size):
    prefill, decode = start("p"), start("d", produces=False, block_size=8 if block_size == 3 else 4)
    fill(prefill, (3, 1), 8)
    prefill.hold(3, 1)
    decode.pull(offer((3, 1), 4, block_size=block_size), [5])
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"} and "has failed" not in caplog.text


def test_a_message_that_is_right_for_one_group_only_leaves_no_group_unread(start, caplog):
    """The blocks of the first group arrive, and those of the second are never asked for: the request has failed."""
    prefill, decode = start("p", groups=2), start("d", produces=False, groups=2)
    fill(prefill, (3,), 4)
    sums = prefill.exchange._held._checksums
    prefill.exchange._held._checksums = lambda blocks: [sums(blocks)[0], 5]
    prefill.exchange.give(HandoverStep(holds=[Hold("p", ((3,), (3,)))]))
    both = Offer("p", "p", 4, 1, (4, 4), ((3,), (3,)), "")
    decode.exchange.give(HandoverStep(pulls=[Pull("d", both, ((5,), (6,)), 0, 4)]))
    assert decode.wait(1) == {"d"} and decode.exchange.failed_requests == {"d"} and "has failed" not in caplog.text


def test_a_failure_loses_only_its_own_request(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    legs = decode.exchange._pulls._legs
    decode.exchange._pulls._legs = lambda sources: legs(sources) if sources == 1 else 1 / 0
    wrong, right = Pull("wrong", offer((3,), 4, ranks=2), ((6,),), 0, 4), Pull("d", offer((3,), 4), ((5,),), 0, 4)
    decode.exchange.give(HandoverStep(pulls=[wrong, right]))
    received = set()
    while received < {"wrong", "d"}:
        received |= decode.wait(1)
    assert decode.exchange.failed_requests == {"wrong"} and "cannot be divided" in caplog.text and "has failed" not in caplog.text
    check(decode, [5], 4)


def test_a_peer_does_not_take_the_place_of_the_questions_of_others(start, caplog):
    prefill, loud, decode = start("p"), start("l", produces=False), start("d", produces=False)
    fill(prefill, (3,), 4)
    name = agent_name("p", 0)
    loud.exchange._peers.get(name)
    for number in range(5000):
        loud.agent.notify(name, message("ask", request=str(number), tag=0))
    loud.agent.notify(name, message("done", request="l", tag=0, takers=1, compare=False))
    while "too many others" not in caplog.text:
        time.sleep(0.002)
    decode.pull(offer((3,), 4), [5])
    while not any(each.sender == agent_name("d", 0) for each in prefill.exchange._early):
        time.sleep(0.002)
    prefill.hold(3)
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    check(decode, [5], 4)


def test_a_tensor_parallelism_that_no_engine_has_is_refused():
    params = offer((3,), 4).params()
    assert Offer.of(params).ranks == 1
    with pytest.raises(ValueError, match="tp_size is 4294967295, and must be at most"):
        Offer.of(params | {"tp_size": 2**32 - 1})


def test_messages_of_others_are_ignored(start, caplog):
    prefill, decode = start("p"), start("d", produces=False)
    decode.exchange._peers.get(agent_name("p", 0))
    for data in (b"\xff", b"[]", b'{"kvmem.vllm": "ask"}', b'{"kvmem.vllm": "done", "tag": 1}', b'{"kvmem.vllm": "grant", "tag": 1}', b'{"kvmem.vllm": "kept", "tag": "1"}',
                 b"[" * 20000, b'{"kvmem.vllm": "done", "tag": 1, "request": "p", "takers": 1e999, "compare": 0}',
                 b'{"kvmem.vllm": "done", "tag": 1, "request": "p"}', b'{"kvmem.vllm": "kept", "tag": 1, "changed": 5}'):  # fmt: skip
        decode.agent.notify(agent_name("p", 0), data)
    fill(prefill, (3,), 4)
    prefill.hold(3)
    decode.pull(offer((3,), 4), [5])
    assert decode.wait(1) == {"d"} and not decode.exchange.failed_requests
    assert "the handover has failed" not in caplog.text


def test_each_rank_renews_the_lease_once():
    held = HeldRequests([], 10, 1)
    held.hold(Hold("p", ()), 0)
    assert held.next_deadline == 10 and held.asked("p", "a", 9) == [] and held.next_deadline == 19
    assert held.asked("p", "a", 18) == [] and held.next_deadline == 19
    assert held.asked("p", "b", 18) == [] and held.next_deadline == 28
    held.expire(27)
    assert not held.sent and held.done("p", "a", 2, False) == [] and not held.sent
    held.expire(28)
    assert held.sent == {"p"} and held.counters == {"offered_requests": 1, "expired_requests": 1}
    assert held.asked("p", "b", 28) is None and held.done("p", "b", 2, False) is None and held.is_known("p") and not held.is_known("q")


def test_a_directory_that_cannot_be_used_is_one_sentence(tmp_path, start):
    with pytest.raises(ValueError, match="kvmem: directory .*none/agents cannot be used: "):
        join(settings({"directory": str(tmp_path / "none" / "agents")}), "vllm-x-0")
    with pytest.raises(ValueError, match="kvmem: directory http://127.0.0.1:1 cannot be used: "):
        join(settings({"directory": "http://127.0.0.1:1"}), "vllm-x-0")
    with pytest.raises(ValueError, match="kvmem: directory http://127.0.0.1:1 cannot be used: .*No such file .*none"):
        join(settings({"directory": "http://127.0.0.1:1", "user": "u", "password_file": str(tmp_path / "none")}), "vllm-x-0")
    start("p")
    with pytest.raises(ValueError, match="another engine has published vllm-p-0 in .*: set another engine_id"):
        join(settings({"directory": str(tmp_path / "agents")}), "vllm-p-0")
    directory, agent = join(settings({"directory": str(tmp_path / "agents")}), "vllm-x-0")
    directory.close()
    agent.close()

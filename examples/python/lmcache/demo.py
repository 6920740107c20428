#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""demo.py PYTHON: an unmodified vLLM with an unmodified LMCache server, which keeps objects in kvmem, and a table of the results.

PYTHON is one that has vLLM, LMCache and kvmem; scripts/engine-env.sh makes it. Ends with 1 if a case fails.

Each case has a server of its own, so what it loads comes from the folder of kvmem. Each case compares its tokens with those of vLLM alone."""

import contextlib
import glob
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

ROOT = pathlib.Path(__file__).parent.parent
sys.path[0] = str(ROOT / "vllm")  # its demo, not this file
import demo  # noqa: E402  that of vLLM, which has the engines

# With LMCache in its process, vLLM for the CPU cannot start its worker: it reads the `__dict__` of every object in a module, and that of llvmlite's
# library is none. So the worker has a process that has not imported LMCache yet.
demo.ENVIRONMENT |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}

CHUNK = 64
"""Tokens of an object."""
START = 400
"""Seconds until the server is ready, against hangs. A busy machine needs minutes."""


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


class Server:
    """A server of LMCache with one adapter."""

    def __init__(self, python, params):
        self.port, self.http, metrics = free_ports(3)
        adapter = {"type": "plugin", "module_path": "kvmem.lmcache", "class_name": "KvmemL2Adapter", "adapter_params": params}
        self._lines = []
        self._process = subprocess.Popen(
            [
                str(pathlib.Path(python).parent / "lmcache"), "server", "--port", str(self.port), "--http-port", str(self.http), "--prometheus-port", str(metrics),
                "--chunk-size", str(CHUNK), "--l1-size-gb", "1", "--no-l1-use-lazy", "--eviction-policy", "LRU", "--supported-transfer-mode", "auto",
                "--l2-adapter", json.dumps(adapter),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"LMCACHE_TRACK_USAGE": "false"},
        )  # fmt: skip
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._ready.wait(START) or self._process.poll() is not None:
            self.stop()
            sys.exit("LMCache's server does not start:\n" + "".join(self._lines[-40:]))

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line)
            if "Uvicorn running" in line:
                self._ready.set()
        self._ready.set()

    def counters(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/status", timeout=30) as reply:
            return json.load(reply)["storage_manager"]["l2_adapters"][0]

    def stop(self):
        """Ends the server, which waits for its stores."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def damage(folder):
    """Inverts a byte of every second object."""
    (path,) = glob.glob(f"{folder}/objects-*/blocks.0")
    size = -(-int(pathlib.Path(path).parent.name.split("-")[1]) // 4096) * 4096
    with open(path, "r+b") as file:
        for slot in range(1, 64, 2):
            file.seek(slot * size + 100)
            byte = file.read(1)
            file.seek(slot * size + 100)
            file.write(bytes([byte[0] ^ 0x80]))


def main():
    python = sys.argv[1]
    source = random.Random(1)
    prompts = [[source.randrange(2048) for _ in range(length)] for length in (97, 200)]
    whole = sum((len(prompt) - 1) // CHUNK for prompt in prompts)
    failures = []
    with tempfile.TemporaryDirectory(prefix="kvmem-lmcache-") as scratch:
        folder = pathlib.Path(scratch)
        run = {"model": str(folder / "model"), "windows": False, "prompts": prompts, "extra": None}
        expected = demo.process(python, run | {"name": "without LMCache", "make": True}, folder)["tokens"]
        print(f"{'case':26} {'tokens':>7} {'stored':>7} {'loaded':>7} {'damaged':>8} {'seconds':>8}", flush=True)
        for name in ("first server", "after a restart", "damaged", "damaged, again"):
            if name == "damaged":
                damage(folder / "store")
            server = Server(python, {"path": str(folder / "store"), "capacity_gib": 0.05})
            try:
                transfer = {
                    "kv_connector": "LMCacheMPConnector", "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector", "kv_role": "kv_both",
                    "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": server.port},
                }  # fmt: skip
                result = demo.process(python, run | {"name": name, "transfer": transfer}, folder)
                counters = server.counters()
            finally:
                server.stop()
            same = result["tokens"] == expected
            stored, loaded, damaged = (int(counters.get(f"{what}_blocks", 0)) for what in ("stored", "loaded", "damaged"))
            print(f"{name:26} {'same' if same else 'differ':>7} {stored:7} {loaded:7} {damaged:8} {result['seconds']:8.2f}", flush=True)
            good = {
                "first server": stored >= whole and not loaded,
                "after a restart": loaded == whole,
                "damaged": damaged > 0 and loaded < whole,
                "damaged, again": loaded == whole and not damaged,
            }[name]
            if not (same and good):
                failures.append(name)
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")
    print("all cases as expected")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The case of demo.py in which an engine is the command `vllm serve`, and its requests come by HTTP."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def options_of(port, transfer, dtype="bfloat16"):
    """Options of `vllm serve` for a model of the other cases, which has no tokenizer, on the loopback interface."""
    settings = {
        "host": "127.0.0.1", "port": port, "max-model-len": 1024, "max-num-seqs": 8, "dtype": dtype, "block-size": 32, "num-gpu-blocks-override": 128, "seed": 0,
    }  # fmt: skip
    if transfer is not None:
        settings["kv-transfer-config"] = json.dumps(transfer)
    return ["--skip-tokenizer-init", "--enforce-eager", *(f"--{name}={value}" for name, value in settings.items())]


def free_port():
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Server:
    """A process of `vllm serve`."""

    def __init__(self, command, environment, folder, model, port, deadline):
        self._url, self._model, self._end = f"http://127.0.0.1:{port}", model, time.monotonic() + deadline
        self._log = open(folder / "server.log", "w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )  # fmt: skip

    def _get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=max(self._end - time.monotonic(), 1)) as response:
            return response.read().decode()

    def wait(self):
        """Waits until the server responds."""
        while True:
            try:
                return self._get("/health")
            except (urllib.error.URLError, ConnectionError) as error:
                if self._process.poll() is not None or time.monotonic() > self._end:
                    self._log.seek(0)
                    sys.exit(f"vllm serve does not respond ({error}), its status is {self._process.poll()}:\n{self._log.read()[-6000:]}")
                time.sleep(0.1)

    def complete(self, prompt, max_tokens, **more):
        """The response to a prompt, or to several."""
        asked = {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        return json.loads(self._get("/v1/completions", asked | more))

    def counters(self):
        """What the server has counted."""
        counted = re.findall(r"^vllm:kvmem_(\w+)_total\{engine=[^}]*\} (\S+)$", self._get("/metrics"), re.MULTILINE)
        return {name: float(value) for name, value in counted}

    def generate(self, prompts, max_tokens=48, **more):
        """The tokens that follow the prompts, and what the server has counted."""
        begun = time.monotonic()
        choices = self.complete(prompts, max_tokens, **more)["choices"]
        seconds = time.monotonic() - begun
        tokens = [choice["token_ids"] for choice in sorted(choices, key=lambda choice: choice["index"])]
        return {"tokens": tokens, "counters": self.counters(), "seconds": seconds}

    def kill(self):
        """Ends all processes of the server as a crash does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def served(python, environment, folder, model, extra, deadline, prompts):
    """Starts a server with the settings of the other cases, sends the prompts by HTTP, and kills it. Returns what it did."""
    transfer = {
        "kv_connector": "KvmemConnector", "kv_connector_module_path": "kvmem.vllm", "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    }  # fmt: skip
    # The command finds the engine's process by itself: the other cases have both in one.
    inherited = {name: value for name, value in environment.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    port = free_port()
    command = [pathlib.Path(python).with_name("vllm"), "serve", model, *options_of(port, transfer)]
    server = Server(command, os.environ | inherited, folder, model, port, deadline)
    try:
        server.wait()
        return server.generate(prompts)
    finally:
        server.kill()

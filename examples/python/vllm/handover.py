# SPDX-License-Identifier: Apache-2.0
"""The cases of demo.py in which a prefill engine hands requests over to a decode engine, each in a process of its own."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent

FLOAT32 = {"dtype": "float32"}
"""Sums of two ranks differ in bfloat16, and the CPU packs blocks of bfloat16 for AMX, whose tokens cannot be moved one by one."""


class Engine:
    """A process with an engine, which does one thing after the other."""

    def __init__(self, python, environment, folder, run, deadline):
        self._log = open(folder / "log", "a+")
        self._timer = ["timeout", str(deadline)]
        self._process = subprocess.Popen(
            [*self._timer, python, "-X", "faulthandler", HERE / "engine.py", json.dumps(run | {"serve": True, "prompts": []})], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True, env=os.environ | environment, start_new_session=True,
        )  # fmt: skip
        error = self._result().get("error")
        if error:
            sys.exit(f"an engine did not start: {error}")

    def _result(self):
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                return json.loads(line[len("RESULT ") :])
            self._log.write(line)
            self._log.flush()
        self._log.seek(0)
        sys.exit(f"an engine ended with {self._process.wait()}:\n{self._log.read()[-6000:]}")

    def begin(self, do, **more):
        """Has the engine do something. Returns what waits for its result."""
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self._result

    def call(self, do, **more):
        """Has the engine do something, and returns its result."""
        return self.begin(do, **more)()

    def signal(self, number):
        """Sends a signal to the processes of the engine."""
        os.killpg(self._process.pid, number)

    def kill(self):
        """Ends the processes of the engine as a crash does."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def close(self):
        """Ends the engine."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._log.close()


def damaged_of(blocks):
    """The blocks of a request that are damaged: every third of the first cache group, or its state."""
    used = [block for block in blocks if block]
    return used[1::3] or used


class Handover:
    """Runs cases, each with a prefill engine that may have been started by a case before, and a decode engine of its own."""

    def __init__(self, start, prompts_of, report):
        self._start, self._prompts_of, self._prompts, self._report = start, prompts_of, prompts_of("model"), report
        self._prefill, self._kind, self._offered, self._handed_over, self._expired = None, None, 0, 0, 0

    def prefill(self, model, engine):
        """The prefill engine of a model with these arguments."""
        if self._kind != (model, engine):
            self.close()
            self._prefill, self._kind = self._start(model, engine, "kv_producer", {}), (model, engine)
        return self._prefill

    def case(self, name, *, model="model", prefill=None, decode=None, extra=None, damage=False, kill=False, abort=False, reference="model", max_tokens=48):
        """Computes the prompts at prefill, and continues at decode. With `abort`, decode gets the requests twice: the first ones are aborted
        while they wait for prefill, which is stopped."""
        self._prompts = self._prompts_of(model)
        source = self.prefill(model, prefill or {})
        destination = self._start(model, decode or {}, "kv_consumer", extra or {})  # before the lease begins
        offers = self._offers(source)
        aborted = {}
        if abort:
            source.signal(signal.SIGSTOP)
            aborted = destination.call("abort", prompts=self._prompts, params=offers)
            source.signal(signal.SIGCONT)
            self._handed_over += len(offers)
            offers = self._offers(source)
        damaged = [block for offer in offers for block in damaged_of(offer["remote_block_ids"][0])] if damage else []
        if damage:  # after the worker has computed the checksums
            source.call("wait", name="offered_requests", count=self._offered)
            source.call("invert", blocks=damaged)
        if kill:
            source.kill()
            source.close()
            self._forget()
        result = destination.call("generate", prompts=self._prompts, params=offers, max_tokens=max_tokens)
        if damage:  # the next case finds them in the prefix cache of prefill
            source.call("invert", blocks=damaged)
        if abort:
            result |= aborted | destination.call("free")
        destination.close()
        result |= {"released": not kill, "block_size": (decode or {}).get("block_size", 32)}
        if not kill:  # prefill frees the blocks, because decode has them, not because a lease has ended
            self._handed_over += len(offers)
            counters = source.call("wait", name="handed_over_requests", count=self._handed_over)["counters"]
            result["released"] = counters.get("handed_over_requests") == self._handed_over
        self._report(name, result, reference)

    def _offers(self, source):
        """Has prefill compute the prompts, and returns what decode needs."""
        params = [{"do_remote_decode": True}] * len(self._prompts)
        self._offered += len(params)
        return source.call("generate", prompts=self._prompts, max_tokens=1, params=params)["params"]

    def reused(self, name, *, epochs, extra):
        """Prefill grants reads of its blocks, frees them before decode reads, and fills them with other prompts."""
        self._prompts = self._prompts_of("model")
        source = self.prefill("model", {})
        destination = self._start("model", {}, "kv_consumer", extra)
        offers = self._offers(source)
        with tempfile.TemporaryDirectory(prefix="kvmem-vllm-") as folder:
            destination.call("read_late", folder=folder, epochs=epochs)
            result = destination.begin("generate", prompts=self._prompts, params=offers)
            granted, end = pathlib.Path(folder, "granted"), time.monotonic() + 60
            while not granted.exists() and time.monotonic() < end:
                time.sleep(0.005)
            self._expired += len(offers)
            source.call("expire")
            source.call("wait", name="expired_requests", count=self._expired)
            for at in range(4):  # all blocks of prefill, which takes those first that were free for the longest time
                source.call("generate", prompts=[[(at * 7919 + prompt * 131 + token * 17) % 2048 for token in range(600)] for prompt in range(4)], max_tokens=1)
            pathlib.Path(folder, "go").touch()
            found = result()
        destination.close()
        self._report(name, found | {"released": True}, "model")

    def unknown(self, name):
        """Decode gets an offer of an engine that does not exist, such as one that was restarted under another name."""
        self._prompts = self._prompts_of("model")
        source = self.prefill("model", {})
        destination = self._start("model", {}, "kv_consumer", {})
        offers = [offer | {"remote_engine_id": "unknown"} for offer in self._offers(source)]
        result = destination.call("generate", prompts=self._prompts, params=offers)
        destination.close()
        self._report(name, result | {"released": True}, "model")

    def close(self):
        """Ends the prefill engine."""
        if self._prefill is not None:
            self._prefill.close()
        self._forget()

    def _forget(self):
        self._prefill, self._kind, self._offered, self._handed_over, self._expired = None, None, 0, 0, 0

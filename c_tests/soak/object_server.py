# SPDX-License-Identifier: Apache-2.0
"""The S3-compatible server of c_tests/nixl, for the coordinator, which stops it, has it refuse requests, and kills it."""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
START_SECONDS = 120
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Without the package of the workers."""


class ObjectServer:
    """It has its objects in memory, so a new one has none."""

    SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "nixl/s3_server.py"

    @staticmethod
    def interpreter():
        """That of the environment of NIXL, if it has what the server needs."""
        packages = pathlib.Path(os.environ["KVMEM_NIXL_LIBRARY"]).parent.parent
        python = os.environ.get("KVMEM_TEST_PYTHON") or packages / "../../../bin/python"
        find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('moto') is None)"
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", find], env=ENVIRONMENT).returncode == 0:
                return python
        return None

    def __init__(self, python, page, folder):
        self.python, self.page, self.port, self.process = python, page, 0, None
        self.until = 0.0
        self.done = dict.fromkeys(("stopped", "refused", "killed"), 0)
        self._start()
        self._await_start(time.monotonic() + START_SECONDS)
        (folder / "objects-port").write_text(str(self.port))

    def _start(self):
        self.process = subprocess.Popen(
            [self.python, self.SCRIPT, str(self.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )  # fmt: skip
        os.set_blocking(self.process.stdout.fileno(), False)
        self.output = b""

    def _await_start(self, deadline):
        while not self._has_started():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server of objects does not start")
            time.sleep(0.05)

    def _has_started(self):
        """Whether it serves requests. Other lines are of libraries."""
        self.output += self.process.stdout.read() or b""
        for line in self.output.split(b"\n")[:-1]:
            if line.startswith(b"ready "):
                self.port = int(line.split()[1])
                return True
        return False

    def _say(self, command):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def _begin(self, seconds):
        self.page["server"] = 1
        self.page["server_windows"] += 1
        self.until = time.monotonic() + seconds

    @property
    def is_disturbed(self):
        return self.until > 0

    def stop(self, seconds):
        self._begin(seconds)
        self.process.send_signal(signal.SIGSTOP)
        self.done["stopped"] += 1

    def refuse(self, seconds):
        self._begin(seconds)
        self._say("deny")
        self.done["refused"] += 1

    def kill(self):
        self._begin(0.5)
        self.end()
        self.page["server_lives"] += 1
        self.done["killed"] += 1

    def watch(self):
        """Ends a disturbance after its time. One that was killed starts again then, in some seconds."""
        if not self.is_disturbed or time.monotonic() < self.until:
            return
        if self.process is None:
            self._start()
        if not self._has_started():
            if self.process.poll() is not None:
                raise SystemExit("the server of objects does not start again")
            return
        self.process.send_signal(signal.SIGCONT)
        self._say("allow")
        self.until = 0.0
        self.page["server_windows"] += 1
        self.page["server"] = 0

    def restore(self):
        """Ends what disturbs it now."""
        if self.is_disturbed:
            self.until = time.monotonic()
            if self.process is None:
                self._start()
            self._await_start(time.monotonic() + START_SECONDS)
            self.watch()

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.process = None

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does what a new user does with the wheel, in a root that contains glibc and a Python: `make new-user`.

new_user.py FOLDER WHEEL   fetches the root into FOLDER once, installs WHEEL there with pip, and runs the first programs of docs/python.md. Then it installs vLLM
                           and NIXL beside the wheel, and follows docs/vllm.md: it starts the commands of the page, and compares the tokens

Needs the network, 6 GiB, root or user namespaces, and a C compiler outside of the root: vLLM for the CPU needs stand-ins for the libraries of GPUs
(scripts/vllm_stubs.py). The commands are those of the page, but for the name of the model, their ports, the size of the store, and options of a model without a
tokenizer. There is a record in c_tests/bindings/python/new-user.txt. Run it with the Python of build/python-tools."""

import contextlib
import datetime
import pathlib
import random
import re
import shlex
import shutil
import sys
import time

import python_versions as versions

sys.path.append(str(versions.ROOT / "examples/python/vllm"))
import server  # noqa: E402

RECORD = versions.TESTS / "new-user.txt"
PYTHON, RELEASE = "3.11", "bookworm"
NEEDED = ("libstdc++6", "libnuma1", "dash", "util-linux", "libsmartcols1")
"""Packages of Debian with what the wheels of PyTorch and vLLM need besides glibc: two libraries, and the commands sh and lscpu."""
NIXL = "nixl-cu12"
DEADLINE = 900
"""Seconds of one server, against hangs."""
INSIDE = pathlib.Path("/new-user")
"""The folder of the user in the root."""
MODEL = INSIDE / "model"
ENVIRONMENT = {
    "PATH": f"{INSIDE}/env/bin:/usr/sbin:/usr/bin:/sbin:/bin:/numpy/usr/bin", "HOME": str(INSIDE), "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": "/numpy/usr/lib/x86_64-linux-gnu:/numpy/lib/x86_64-linux-gnu", "USER": "user", "LOGNAME": "user",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip


class Root:
    """The root, and what was found there."""

    def __init__(self, folder, wheel):
        if not (folder / "ready").exists():
            versions.fetch_root(folder, PYTHON, RELEASE, NEEDED)
        self.path, self._wheel, self.lines = folder / "root", wheel, []
        self.work = self.path / INSIDE.name
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        for name in ("etc", "run", "sys", "var/cache"):  # which each system has
            (self.path / name).mkdir(parents=True, exist_ok=True)
        (self.path / "etc/hosts").write_text("127.0.0.1 localhost\n")
        if not (self.path / "bin/sh").is_symlink():
            (self.path / "bin/sh").symlink_to("/numpy/bin/dash")

    def run(self, *command):
        return versions.run(*versions.entry(self.path), *command, env=ENVIRONMENT)

    def note(self, line):
        """Adds a line to the record."""
        self.lines.append(line)
        print(line, flush=True)

    def install(self, *wanted):
        pip = INSIDE / "wheels" / next((self.work / "wheels").glob("pip-*.whl")).name / "pip"
        self.run(INSIDE / "env/bin/python", pip, "install", "--quiet", "--no-index", "--find-links", INSIDE / "wheels", *wanted)

    def python(self):
        """pip install of the wheel, and the programs of the page."""
        versions.download(PYTHON, self.work / "wheels", "pip", "cffi")
        shutil.copy(self._wheel, self.work / "wheels")
        self.run(f"/usr/bin/python{PYTHON}", "-m", "venv", "--without-pip", INSIDE / "env")
        self.install("kvmem")
        shutil.copy(versions.ROOT / "docs/python.md", self.work)
        for name in ("bare.py", "page.py"):
            shutil.copy(versions.TESTS / name, self.work)
        self.run(INSIDE / "env/bin/python", INSIDE / "bare.py", INSIDE, INSIDE / "python.md")
        version = self.run(INSIDE / "env/bin/python", "-c", "import platform; print(platform.python_version(), *platform.libc_ver())").strip()
        self.note(f"Python {version}, alone in its root: pip install of the wheel; the programs of docs/python.md that need nothing else move their blocks")

    def vllm(self):
        """pip install of vLLM and NIXL, and the programs of the page that need NumPy and NIXL."""
        requirements = versions.ROOT / "scripts/vllm-requirements.txt"
        versions.download(PYTHON, self.work / "wheels", "--no-deps", "-r", requirements)
        versions.download(PYTHON, self.work / "wheels", "--no-deps", NIXL)
        shutil.copy(requirements, self.work)
        self.install("--no-deps", "-r", INSIDE / "vllm-requirements.txt", NIXL)
        shutil.rmtree(self.work / "wheels")  # of 1 GiB
        site = self.work / f"env/lib/python{PYTHON}/site-packages"
        versions.run("bash", versions.ROOT / "scripts/vllm-env.sh", "--complete", site)
        self.run(INSIDE / "env/bin/python", INSIDE / "page.py", INSIDE / "page", INSIDE / "python.md")
        found = self.run(INSIDE / "env/bin/python", "-c", f"import importlib.metadata as m; print(m.version('vllm'), m.version('torch'), m.version('{NIXL}'))").split()
        self.note("vLLM {}, PyTorch {} and NIXL {} beside the wheel: all programs of docs/python.md".format(*found))
        shutil.copytree(versions.ROOT / "examples/python/vllm", self.work / "demo")
        self.run(INSIDE / "env/bin/python", "-c", f"import sys; sys.path.append('{INSIDE}/demo'); import engine; engine.make_model('{MODEL}', 'model')")

    @contextlib.contextmanager
    def server(self, command):
        """A server that a command of the page starts, with the model of this program, a free port, and a store for which any machine has space."""
        port = server.free_port()
        placed = [str(MODEL) if part == "MODEL" else part.replace('"capacity_gib": 100', '"capacity_gib": 0.05') for part in command]
        if "--port" in placed:
            at = placed.index("--port")
            del placed[at : at + 2]
        arguments = [*versions.entry(self.path), *placed, *server.options_of(port, None, "float32")]
        made = server.Server([str(part) for part in arguments], ENVIRONMENT, self.work, str(MODEL), port, DEADLINE)
        try:
            made.wait()
            yield made
        finally:
            made.kill()


def commands_of(page):
    """The commands `vllm serve` of a page, as lists of arguments."""
    text = page.read_text()
    found = re.findall(r"^    (vllm serve .*\n(?:        .*\n)*)", text, re.MULTILINE)
    return [shlex.split(each) for each in found]


def waited(counted, name, expected):
    """The value of a counter, which the server learns by its next steps."""
    end = time.monotonic() + 60
    while (found := counted().get(name, 0)) < expected and time.monotonic() < end:
        time.sleep(0.1)
    return found


def follow(root):
    """Follows docs/vllm.md."""
    commands = commands_of(versions.ROOT / "docs/vllm.md")
    store, prefill, decode = commands[0], *(command for command in commands if "--port" in command)
    source = random.Random(1)
    prompts = [[source.randrange(2048) for _ in range(length)] for length in (200, 333, 97)]

    def generated(command):
        with root.server(command) as made:
            return made.generate(prompts)

    expected = generated(store[:3])["tokens"]  # without the option
    first, second = generated(store), generated(store)
    stored, loaded = first["counters"].get("stored_blocks", 0), second["counters"].get("loaded_blocks", 0)
    if not first["tokens"] == second["tokens"] == expected or stored < 1 or loaded < 1:
        sys.exit(f"the store of the page: {stored} blocks were stored, {loaded} were loaded, and the tokens are equal: {[first['tokens'] == expected, second['tokens'] == expected]}")
    root.note(f"The first command of docs/vllm.md, twice: {stored:.0f} blocks stored, {loaded:.0f} loaded after the restart, tokens equal to those without kvmem")

    with root.server(prefill) as one, root.server(decode) as other:
        for prompt, tokens in zip(prompts, expected):
            offer = one.complete(prompt, 1, kv_transfer_params={"do_remote_decode": True})["kv_transfer_params"]
            found = other.generate([prompt], kv_transfer_params=offer)
            if found["tokens"] != [tokens]:
                sys.exit("the tokens of a request that was handed over differ from those without kvmem")
        loaded = other.counters().get("loaded_blocks", 0)
        handed_over = waited(one.counters, "handed_over_requests", len(prompts))
    if handed_over != len(prompts) or loaded < 1:
        sys.exit(f"the handover of the page: {handed_over} of {len(prompts)} requests were handed over, and {loaded} blocks were loaded")
    root.note(f"The commands for prefill and decode, with requests by HTTP: {handed_over:.0f} requests handed over, {loaded:.0f} blocks loaded, tokens equal")


def main():
    folder, wheel = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    commit = versions.run("git", "-C", versions.ROOT, "rev-parse", "--short", "HEAD").strip()
    root = Root(folder, wheel)
    root.note(f"What a new user does, on {datetime.date.today():%d %B %Y} at {commit}. Written by `make new-user`.")
    root.python()
    root.vllm()
    follow(root)
    RECORD.write_text("\n".join(root.lines) + "\n")
    shutil.rmtree(root.work)


if __name__ == "__main__":
    main()

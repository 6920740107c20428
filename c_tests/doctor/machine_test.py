# SPDX-License-Identifier: Apache-2.0
"""The report without a GPU, compared with what the machine has; limits that a test sets; strange directories."""

import contextlib
import ctypes
import os
import pathlib
import resource
import struct
import subprocess
import tempfile
import time
import unittest

from doctor import NIXL, PROGRAM, Report, main, name_of, run, skip

CAP_IPC_LOCK = 14
libc = ctypes.CDLL(None, use_errno=True)


def field(path, name):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split()[1]
    raise KeyError(name)


def refuse_io_uring():
    """Installs a seccomp filter that fails io_uring_setup with EPERM, as containers do."""
    number, arch_offset_of_number, eperm = 425, 0, 1
    program = [(0x20, 0, 0, arch_offset_of_number), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | eperm),
               (0x06, 0, 0, 0x7FFF0000)]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    no_new_privileges, set_seccomp, mode_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(set_seccomp, mode_filter, ctypes.byref(Program(len(program), ctypes.addressof(filters))), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


def lower_memlock():
    """A limit that holds: without CAP_IPC_LOCK in the bounding set, and so in the program that is executed."""
    libc.prctl(24, CAP_IPC_LOCK, 0, 0, 0)  # PR_CAPBSET_DROP
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))


class WholeReport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(dir=os.getcwd())
        started = time.monotonic()
        cls.report = Report("--directory", cls.directory.name, "--require=nixl,plugin:UCX,files.0.writable")
        cls.seconds = time.monotonic() - started

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_requirements(self):
        self.assertEqual(self.report.status, 0, self.report.all["requirements"])
        self.assertEqual([each["met"] for each in self.report.all["requirements"]], [True] * 3)
        self.assertTrue(self.report.all["requirements_met"])

    def test_the_machine(self):
        machine = self.report.all["machine"]
        self.assertEqual(machine["kernel"], os.uname().release)
        self.assertEqual(machine["cpus"], os.sysconf("SC_NPROCESSORS_ONLN"))
        memory = self.report.data("memory.available")
        self.assertEqual(memory["total_bytes"], int(field("/proc/meminfo", "MemTotal")) * 1024)
        self.assertEqual(memory["page_bytes"], os.sysconf("SC_PAGESIZE"))
        self.assertEqual(self.report.data("container.seccomp")["seccomp_mode"], field("/proc/self/status", "Seccomp"))
        shm = os.statvfs("/dev/shm")
        self.assertEqual(self.report.data("container.shm")["size_bytes"], shm.f_blocks * shm.f_frsize)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.assertEqual(self.report.data("container.open_files")["limit"], soft)
        for kind, initial in (("pid", "[4026531836]"), ("user", "[4026531837]")):
            is_initial = os.readlink(f"/proc/self/ns/{kind}").endswith(initial)
            self.assertEqual(self.report.data(f"container.{kind}_namespace")["initial"], is_initial)

    def test_huge_pages(self):
        pools = {each["page_bytes"]: each for each in self.report.data("memory.huge_pages")["pools"]}
        root = pathlib.Path("/sys/kernel/mm/hugepages")
        for directory in root.glob("hugepages-*kB") if root.exists() else []:
            size = int(directory.name[len("hugepages-"):-2]) * 1024
            self.assertEqual(pools.pop(size)["total"], int((directory / "nr_hugepages").read_text()))
        self.assertEqual(pools, {})

    def test_nixl(self):
        self.assertEqual(self.report.data("nixl.library")["path"], os.path.realpath(NIXL))
        plugins = pathlib.Path(NIXL).parent / "plugins"
        names = {name_of(path)[len("libplugin_"):-len(".so")] for path in plugins.glob("libplugin_*.so")}
        self.assertTrue(names)
        found = {name.split(".", 2)[2] for name in self.report.findings if name.startswith("nixl.plugin.")}
        self.assertEqual(found, names)
        for name in names:
            # ldd reports the libraries that are missing, independently.
            missing = [line.split()[0] for line in subprocess.run(
                ["ldd", plugins / f"libplugin_{name}.so"], capture_output=True, text=True, check=True
            ).stdout.splitlines() if "not found" in line]
            finding = self.report.finding(f"nixl.plugin.{name}")
            self.assertEqual(finding["status"], "missing" if missing else "ok", finding)
            if missing:
                self.assertIn(finding["data"]["missing_library"], missing)
        self.assertEqual(self.report.status_of("nixl.peer"), "ok")

    def test_no_gpu(self):
        self.assertEqual(self.report.status_of("cuda.driver"), "missing")
        self.assertFalse([name for name in self.report.findings if name.startswith("gpu.")])

    def test_paths(self):
        self.assertEqual(set(self.report.paths), {
            ("system", "system"), ("system", "disk0"), ("disk0", "system"), ("peer-system", "system"),
            ("system", "peer-system")})
        methods = {pair: each["method"] for pair, each in self.report.paths.items()}
        self.assertEqual(methods["system", "system"], "memcpy")
        self.assertEqual(methods["peer-system", "system"], "nixl")
        self.assertEqual(methods["system", "peer-system"], "nixl")
        # A single run can be ten times as slow as the others.
        self.assertTrue(all(each["data"]["runs"] >= 3 for each in self.report.paths.values()))
        direct = self.report.status_of("files.0.direct_io") == "ok"
        ring = self.report.status_of("files.io_uring") == "ok"
        self.assertEqual(methods["system", "disk0"], "uring" if direct and ring else "pread")
        others = {each["method"]: each["reason"] for each in self.report.paths["disk0", "system"]["others"]}
        self.assertIn("nixl", others)
        self.assertTrue(all(others.values()))

    def test_nothing_is_left(self):
        self.assertEqual(os.listdir(self.directory.name), [])


class Table(unittest.TestCase):
    def test_has_what_the_json_has(self):
        status, output, messages = run("--no-rates")
        self.assertEqual((status, messages), (0, ""))
        text = output.decode()
        for finding in Report("--no-rates").findings.values():
            self.assertRegex(text, rf"{finding['status']} +{finding['title'].split()[0]}")
        self.assertEqual(text.count("fix: "), sum(bool(each["fix"]) for each in Report("--no-rates").findings.values()))


class Limits(unittest.TestCase):
    def test_little_locked_memory(self):
        report = Report("--no-rates", "--require=memlock", prepare=lower_memlock)
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("memory.memlock"), "limited")
        self.assertEqual(report.data("memory.memlock"), {"limit_bytes": 64 << 10, "exceeds_limit": False})

    def test_a_privileged_process_exceeds_the_limit(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
        if int(field("/proc/self/status", "CapEff"), 16) >> CAP_IPC_LOCK & 1 == 0:
            skip(self, "CAP_IPC_LOCK")
        report = Report("--no-rates", "--require=memlock", prepare=lower)
        self.assertEqual(report.status, 0)
        self.assertEqual(report.data("memory.memlock"), {"limit_bytes": 64 << 10, "exceeds_limit": True})

    def test_no_io_uring(self):
        report = Report("--require=io-uring", "--nixl=/does/not/exist", prepare=refuse_io_uring)
        self.assertEqual(report.status, 1)
        self.assertEqual(report.data("files.io_uring")["error"], "EPERM")
        self.assertIn("seccomp", report.finding("files.io_uring")["fix"])
        self.assertEqual(report.status_of("container.seccomp"), "limited")
        path = report.paths["system", "disk0"]
        self.assertEqual(path["method"], "pread")
        self.assertTrue([each for each in path["others"] if each["method"] == "uring"])

    def test_few_files(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        report = Report("--no-rates", "--nixl=/does/not/exist", prepare=few)
        self.assertEqual(report.status_of("container.open_files"), "limited")
        self.assertEqual(report.data("container.open_files")["limit"], 64)


@contextlib.contextmanager
def control_group(limit):
    """A control group below that of this process, with a limit of memory: of either version."""
    def path(prefix):
        lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
        return next(line.split(":", 2)[2] for line in lines if line.startswith("0::") == (prefix is None) and (
            prefix is None or prefix in line.split(":")[1].split(",")))
    if pathlib.Path("/sys/fs/cgroup/memory").exists():
        root, file = pathlib.Path("/sys/fs/cgroup/memory" + path("memory")), "memory.limit_in_bytes"
    else:
        root, file = pathlib.Path("/sys/fs/cgroup" + path(None)), "memory.max"
    group = root / f"kvmem-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / file).write_text(str(limit))
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


class ControlGroup(unittest.TestCase):
    def test_a_small_limit(self):
        limit = 160 << 20
        try:
            with control_group(limit) as processes:
                report = Report(prepare=lambda: processes.write_text(str(os.getpid())))
        except OSError as error:
            skip(self, f"a control group of its own: {error}")
        self.assertEqual(report.data("container.cgroup_memory")["limit_bytes"], limit)
        self.assertLessEqual(report.data("memory.available")["available_bytes"], limit)
        path = report.paths["system", "system"]
        self.assertEqual(path["status"], "ok")
        self.assertLessEqual(path["data"]["bytes"], limit / 16)


class Directories(unittest.TestCase):
    def test_memory_as_files(self):
        report = Report("--directory=/dev/shm", "--nixl=/does/not/exist")
        finding = report.finding("files.0.direct_io")
        # tmpfs has direct I/O since Linux 6.6.
        is_new = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 6)
        self.assertEqual(finding["status"], "ok" if is_new else "missing", finding)
        self.assertEqual(report.data("files.0.writable")["file_system"], "tmpfs")

    def test_unusable_ones(self):
        for directory in ("/does/not/exist", "/proc", PROGRAM):
            with self.subTest(directory):
                report = Report("--directory", directory, "--directory=/tmp", "--require=direct-io",
                                "--nixl=/does/not/exist", "--no-rates")
                self.assertEqual(report.status, 1)
                self.assertEqual(report.status_of("files.0.writable"), "failed")
                self.assertEqual(report.status_of("files.0.direct_io"), "skipped")
                self.assertEqual(report.status_of("files.1.writable"), "ok")

    def test_paths_keep_the_number_of_their_directory(self):
        report = Report("--directory=/does/not/exist", "--directory=/tmp", "--nixl=/does/not/exist")
        self.assertIn(("system", "disk1"), report.paths)
        self.assertNotIn(("system", "disk0"), report.paths)

    def test_names_of_any_bytes(self):
        with tempfile.TemporaryDirectory() as root:
            for name in (b"\xff\xfe", b"a\x1b[31mb", "a\u2028b\x9b".encode(), b'quote"back\\slash', b"new\nline", "\u00e9\u4e2d".encode()):
                with self.subTest(name):
                    directory = os.path.join(os.fsencode(root), name)
                    os.mkdir(directory)
                    arguments = (b"--directory", directory, b"--no-rates", b"--nixl=/does/not/exist")
                    finding = Report(*arguments).finding("files.0.writable")
                    self.assertEqual(finding["status"], "ok")
                    self.assertEqual(finding["data"]["directory"],
                                     os.path.join(root, name.decode("utf-8", "replace")))
                    _, table, _ = run(*arguments)
                    self.assertNotIn(b"\x1b", table)
                    self.assertNotIn(b"\xff", table)
                    self.assertNotIn("\u2028".encode(), table)
                    self.assertEqual(os.listdir(directory), [])


class Nixl(unittest.TestCase):
    def test_none(self):
        report = Report("--nixl=/does/not/exist", "--require=nixl")
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("nixl.library"), "missing")

    def test_no_plugins(self):
        with tempfile.TemporaryDirectory() as empty:
            report = Report("--require=plugin:UCX,nixl", NIXL_PLUGIN_DIR=empty)
            self.assertEqual(report.status, 1)
            self.assertFalse([name for name in report.findings if name.startswith("nixl.plugin.")])
            self.assertIn(empty, report.finding("nixl.plugins")["fix"])
            self.assertEqual(report.status_of("nixl.peer"), "failed")

    def test_settings(self):
        with tempfile.TemporaryDirectory() as home:
            path = os.path.join(home, ".nixl.cfg")

            def check(fix, **environment):
                report = Report("--no-rates", "--require=nixl.agent", **{"NIXL_CONFIG_FILE": None, **environment})
                self.assertEqual(report.status, 1)
                finding = report.finding("nixl.agent")
                self.assertEqual((finding["status"], finding["data"]["settings"]), ("failed", path))
                self.assertIn(path, finding["text"])
                self.assertIn(fix, finding["fix"])
                # No plugin is blamed, and no other check.
                self.assertFalse([name for name in report.findings if name.startswith(("nixl.plugin", "nixl.peer"))])
                self.assertEqual(report.status_of("nixl.library"), "ok")

            check("unset NIXL_CONFIG_FILE", NIXL_CONFIG_FILE=path)
            pathlib.Path(path).write_text("this is [ not toml\n")
            check("TOML", HOME=home)
            check("TOML", NIXL_CONFIG_FILE=path)
            os.remove(path)
            os.symlink(path, path)
            check("can read", HOME=home)
            os.remove(path)
            pathlib.Path(path).write_text("")
            report = Report("--no-rates", "--require=nixl.agent", NIXL_CONFIG_FILE=None, HOME=home)
            self.assertEqual((report.status, report.data("nixl.agent")["settings"]), (0, path))


main()

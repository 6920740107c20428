# SPDX-License-Identifier: Apache-2.0
"""What crashes or hangs: a driver, a plugin, a file system. The doctor reports it, and checks everything else."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import hanging_files
from doctor import FAULTY, NIXL, PROGRAM, SIM, Report, main, skip

NO_NIXL = "--nixl=/does/not/exist"
SHORT = "--timeout=2"


def children_of(process):
    path = pathlib.Path(f"/proc/{process}/task/{process}/children")
    return [int(each) for each in path.read_text().split()]


class Driver(unittest.TestCase):
    def expect_failed(self, report, words):
        finding = report.finding("cuda.driver")
        self.assertEqual(finding["status"], "failed")
        for word in (words, "initialise the CUDA driver"):
            self.assertIn(word, finding["text"])
        self.assertEqual(report.status, 1)
        self.assertEqual(report.status_of("files.0.writable"), "ok")
        self.assertEqual(report.paths["system", "system"]["status"], "ok")

    def test_crashes(self):
        self.expect_failed(Report(NO_NIXL, "--require=gpu", LD_LIBRARY_PATH=SIM, KVMEM_SIM_INIT="abort"), "SIGABRT")

    def test_crashes_while_the_parent_ignores_the_end_of_children(self):
        ignored = Report(NO_NIXL, "--require=gpu", LD_LIBRARY_PATH=SIM, KVMEM_SIM_INIT="abort",
                         prepare=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.expect_failed(ignored, "SIGABRT")

    def test_hangs(self):
        self.expect_failed(Report(NO_NIXL, SHORT, "--require=gpu", LD_LIBRARY_PATH=SIM, KVMEM_SIM_INIT="hang"),
                           "did not end within 2 s")


class Plugins(unittest.TestCase):
    @staticmethod
    def library_path(libraries):
        """Where the loader finds what a plugin needs, which is beside its own folder."""
        return ":".join(map(str, [libraries, *libraries.parent.glob("nixl*.libs")]))

    def check(self, faulty, words):
        """One bad plugin beside the real ones."""
        libraries = pathlib.Path(NIXL).parent
        with tempfile.TemporaryDirectory() as folder:
            for plugin in ("UCX", "POSIX"):
                name = f"libplugin_{plugin}.so"
                os.symlink(libraries / "plugins" / name, os.path.join(folder, name))
            os.symlink(os.path.join(FAULTY, f"libplugin_{faulty}.so"), os.path.join(folder, f"libplugin_{faulty}.so"))
            report = Report(SHORT, "--no-rates", "--require=plugin:POSIX", f"--require=plugin:{faulty}",
                            NIXL_PLUGIN_DIR=folder, LD_LIBRARY_PATH=self.library_path(libraries))
        self.assertEqual([each["met"] for each in report.all["requirements"]], [True, False])
        finding = report.finding(f"nixl.plugin.{faulty}")
        self.assertEqual(finding["status"], "failed")
        self.assertIn(words, finding["text"])
        self.assertEqual(report.status_of("nixl.plugin.UCX"), "ok")

    def test_one_aborts(self):
        self.check("ABORTS", "SIGABRT")

    def test_one_hangs(self):
        self.check("HANGS", "did not end within 2 s")


class FileSystem(unittest.TestCase):
    def test_hangs(self):
        with tempfile.TemporaryDirectory() as directory:
            try:
                with hanging_files.mounted(directory):
                    report = Report(NO_NIXL, SHORT, "--directory", directory, "--directory=/tmp",
                                    "--require=files.0.writable")
            except OSError as error:
                skip(self, f"mounting FUSE: {error}")
        self.assertEqual(report.status, 1)
        self.assertIn("did not end within 2 s", report.finding("files.0.writable")["text"])
        self.assertEqual(report.status_of("files.1.writable"), "ok")
        self.assertIn(("system", "disk1"), report.paths)
        self.assertNotIn(("system", "disk0"), report.paths)


class Doctor(unittest.TestCase):
    def test_its_processes_end_with_it(self):
        with subprocess.Popen([PROGRAM, NO_NIXL, "--timeout=60"], stdout=subprocess.DEVNULL,
                              env={**os.environ, "LD_LIBRARY_PATH": SIM, "KVMEM_SIM_INIT": "hang"}) as doctor:
            deadline = time.monotonic() + 30
            while not (children := children_of(doctor.pid)):
                self.assertLess(time.monotonic(), deadline)
                os.sched_yield()
            handles = [os.pidfd_open(child) for child in children]
            doctor.send_signal(signal.SIGKILL)
            doctor.wait(timeout=30)
        for handle in handles:
            # A pidfd is readable when its process has ended.
            with os.fdopen(handle) as file, __import__("select").epoll() as poll:
                poll.register(file.fileno())
                self.assertTrue(poll.poll(timeout=30))


main()

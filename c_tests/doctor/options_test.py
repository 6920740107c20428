# SPDX-License-Identifier: Apache-2.0
"""The command line, exit statuses, colours, and output that cannot be written."""

import os
import pty
import resource
import subprocess
import tempfile
import unittest

from doctor import PROGRAM, main, run

NO_NIXL = "--nixl=/does/not/exist"
QUICK = ("--no-rates", NO_NIXL)


def on_terminal(*arguments, **environment):
    """The output of the doctor on a terminal."""
    ours, its = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", **environment}
    if "NO_COLOR" not in environment:
        variables.pop("NO_COLOR", None)
    with subprocess.Popen([PROGRAM, *arguments], env=variables, stdin=subprocess.DEVNULL, stdout=its) as process:
        os.close(its)
        output = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the end of a terminal
                break
            if not part:
                break
            output += part
        process.wait(timeout=100)
    os.close(ours)
    return output


class Usage(unittest.TestCase):
    def test_wrong_command_lines(self):
        cases = [
            (("--nonsense",), "--nonsense"),
            (("-x",), "unknown option -x\n"),
            (("-xj",), "unknown option -xj\n"),
            (("-jx",), "unknown option -jx\n"),
            (("-jd",), "-jd needs a value"),
            (("somewhere",), '"somewhere"'),
            (("--require",), "needs a value"),
            (("--require=",), "no name"),
            (("--require=gpu,nonsense",), '"nonsense"'),
            (("--require=plugin:",), '"plugin:"'),
            (("--require=gpu.",), '"gpu."'),
            (("--require=nixl", "--no-rates"), '"nixl"'),
            (("--no-rates", "--require=paths.system.disk0"), '"paths.system.disk0"'),
            (("--no-rates", "--require=gpu.0.rates"), '"gpu.0.rates"'),
            (("--timeout=0",), '"0"'),
            (("--timeout=5x",), '"5x"'),
            (("--timeout=",), '""'),
            (("--color=red",), '"red"'),
            (("--require=\x1b[31m",), "\\x1b[31m"),
        ]
        for arguments, words in cases:
            with self.subTest(arguments):
                status, output, messages = run(*arguments)
                self.assertEqual((status, output), (2, b""))
                self.assertIn(words, messages)
                self.assertIn("--help", messages)

    def test_help_version_and_names(self):
        status, output, messages = run("--help")
        self.assertEqual((status, messages), (0, ""))
        for word in (b"--require", b"--json", b"--directory", b"Exit status", b"NO_COLOR"):
            self.assertIn(word, output)
        self.assertTrue(all(len(line) <= 120 for line in output.splitlines()))
        self.assertTrue(run("--version")[1].startswith(b"kvmem-doctor 0."))
        status, names, _ = run("--list")
        self.assertEqual(status, 0)
        self.assertIn(b"direct-io", names)

    def test_every_listed_name_can_be_required(self):
        names = [line.split()[0].decode() for line in run("--list")[1].splitlines()[:-1]]
        self.assertIn("gpu", names)
        names = ["plugin:UCX" if name == "plugin:NAME" else name for name in names]
        status, output, messages = run("--require=" + ",".join(names), NO_NIXL)
        self.assertEqual((status, messages), (1, ""))
        for name in names:
            self.assertRegex(output.decode(), rf"(ok|failed) +{name}\b")


class Statuses(unittest.TestCase):
    def test_nothing_is_required(self):
        self.assertEqual(run(*QUICK)[0], 0)

    def test_what_works_and_what_does_not(self):
        self.assertEqual(run("--require=files.0.writable", *QUICK)[0], 0)
        status, output, _ = run("--require=files.0.writable,nixl.library", *QUICK)
        self.assertEqual(status, 1)
        self.assertRegex(output.decode(), r"failed +nixl.library: library is missing")
        # A finding that does not exist counts as missing.
        status, output, _ = run("--require=plugin:NOTHING", *QUICK)
        self.assertEqual(status, 1)
        self.assertIn(b"nixl.plugin.NOTHING", output)

    def test_why_a_finding_is_not_there(self):
        status, output, _ = run("--require=vmm,gpu,plugin:UCX", *QUICK, CUDA_VISIBLE_DEVICES="")
        self.assertEqual(status, 1)
        self.assertRegex(output.decode(), r"failed +vmm: there is no finding gpu\.\*\.vmm, because the driver is \w+: .*CUDA")
        self.assertRegex(output.decode(), r"failed +plugin:UCX: there is no finding .*, because the library is missing: ")
        # One reason is enough.
        self.assertNotIn(b"gpu.*.device", output)

    def test_output_that_cannot_be_written(self):
        for arguments in (QUICK, ("--help",)):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 3)
            self.assertIn(b"could not be written", done.stderr)
        closed = subprocess.run(["sh", "-c", 'exec "$0" "$@" <&- >&-', PROGRAM, *QUICK], stderr=subprocess.PIPE,
                                check=False)
        self.assertEqual(closed.returncode, 3, closed.stderr)
        with tempfile.TemporaryFile() as file:
            done = subprocess.run([PROGRAM, *QUICK], stdout=file, stderr=subprocess.PIPE, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"could not be written", done.stderr)
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([PROGRAM, *QUICK], stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        self.assertEqual(done.returncode, 3)


class Colours(unittest.TestCase):
    def test_on_a_terminal_only(self):
        self.assertNotIn(b"\x1b", run(*QUICK)[1])
        self.assertIn(b"\x1b[32m", on_terminal(*QUICK))
        self.assertNotIn(b"\x1b", on_terminal(*QUICK, NO_COLOR="1"))
        self.assertIn(b"\x1b", on_terminal(*QUICK, NO_COLOR=""))
        self.assertNotIn(b"\x1b", on_terminal(*QUICK, TERM="dumb"))
        self.assertNotIn(b"\x1b", on_terminal(*QUICK, "--color=never"))
        self.assertIn(b"\x1b", run(*QUICK, "--color=always", NO_COLOR="1")[1])
        self.assertNotIn(b"\x1b", run(*QUICK, "--color=always", "--json")[1])


main()

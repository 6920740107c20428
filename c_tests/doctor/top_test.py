# SPDX-License-Identifier: Apache-2.0
"""kvmem-doctor top: views of a process that serves its statistics, clients that misbehave, and processes that do not serve."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import unittest

from doctor import main, run, skip

LIBRARY = os.environ["KVMEM_LIBRARY"]
# Serves until its input ends, and says so before.
SERVER = f"""
import ctypes, sys
library = ctypes.CDLL({LIBRARY!r})
assert library.kvmem_statistics_serve(None) == 0 and library.kvmem_statistics_serve(None) == 0
print("serves", flush=True)
sys.stdin.read()
"""


def address(process):
    return f"\0kvmem-reports-{process}"


@contextlib.contextmanager
def served():
    """The PID of a process that serves its statistics."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"serves\n"
        yield process.pid
        assert process.poll() is None, "the process has ended"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@contextlib.contextmanager
def pretended(reports):
    """Serves reports of this process in its place: for each kind a list, of which the last is given again and again."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address(os.getpid()))
    listener.listen()

    def serve():
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            with client:
                of_kind = reports.get(client.recv(1), [b""])
                client.sendall(of_kind.pop(0) if len(of_kind) > 1 else of_kind[0])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield os.getpid()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def open_files(process):
    return len(os.listdir(f"/proc/{process}/fd"))


class Views(unittest.TestCase):
    def test_a_view_has_what_was_added_since_the_one_before(self):
        labels = 'method="uring",direction="read"'
        def text(runs, failed, moved):
            return (f'# HELP kvmem_runs_total Runs.\nkvmem_runs_total{{{labels},status="ok"}} {runs}\n'
                    f'kvmem_runs_total{{{labels},status="timed_out"}} {failed}\nkvmem_bytes_total{{{labels}}} {moved}\n'
                    f'kvmem_runs_in_flight 3\nkvmem_region_bytes{{tier="pinned"}} 2147483648\n'
                    f'kvmem_call_errors_total{{status="busy"}} {failed}\n').encode()
        slowest = b"2000000000\t12500000\t1048576\turing\tread\tok\t42\tqueued 12000000\tmoved 500000\n"
        with pretended({b"t": [text(10, 0, 0), text(1000, 500, 10**12)], b"s": [slowest]}) as process:
            status, output, messages = run("top", "--count=1", str(process))
        self.assertEqual((status, messages), (0, ""))
        view = output.decode()
        self.assertRegex(view, rf"^process {process}\n")
        self.assertRegex(view, r"runs in flight +3\n")
        self.assertRegex(view, r"memory +pinned 2(.0)? GiB\n")
        self.assertRegex(view, r"failed calls +busy [0-9.]+/s\n")
        # More than a second has passed.
        rates = re.search(r"uring +read +([0-9.]+) +([0-9.]+) +([0-9.]+)\n", view)
        self.assertTrue(rates, view)
        for rate, most in zip(map(float, rates.groups()), (1000, 990, 500)):
            self.assertTrue(0 < rate <= most, view)
        self.assertRegex(view, r"2.00 s +12.5 ms +1(.0)? MiB +uring +read +ok +#42 +queued 12.0 ms, moved 500.0 us\n")

    def test_a_process_that_serves_is_shown_and_its_trace_is_read(self):
        with served() as process:
            status, output, messages = run("top", "--count=2", str(process))
            self.assertEqual((status, messages), (0, ""))
            self.assertEqual(output.count(b"runs in flight"), 2)
            status, output, messages = run("top", "--trace", str(process))
            self.assertEqual((status, messages), (0, ""))
            self.assertEqual(json.loads(output)["traceEvents"][0]["pid"], process)

    def test_no_report_changes_the_terminal(self):
        slowest = b"1\t2\t3\t\x1b[2J\tread\tok\t1\n"
        with pretended({b"t": [b"kvmem_runs_in_flight 0\n"], b"s": [slowest]}) as process:
            status, output, _ = run("top", "--count=1", str(process))
        self.assertEqual(status, 0)
        self.assertNotIn(b"\x1b", output)
        self.assertIn(b"\\x1b", output)

    def test_a_report_that_is_cut_is_an_error(self):
        for report in (b"", b"kvmem_runs_in_flight 1"):
            with pretended({b"t": [report]}) as process:
                status, output, messages = run("top", "--count=1", str(process))
            self.assertEqual((status, output), (1, b""))
            self.assertIn("before the end of its report", messages)


class Clients(unittest.TestCase):
    def test_clients_that_misbehave_delay_others_and_nothing_else(self):
        with served() as process:
            before = open_files(process)
            silent, unread, wrong = (socket.socket(socket.AF_UNIX) for _ in range(3))
            with silent, unread, wrong:
                for client in (silent, unread, wrong):
                    client.connect(address(process))
                unread.send(b"j")
                wrong.send(b"x")
                self.assertEqual(wrong.recv(1), b"", "there is no such report")
                self.assertEqual(silent.recv(1), b"", "it has not asked in time")
                for _ in range(20):
                    with socket.socket(socket.AF_UNIX) as hasty:
                        hasty.setblocking(False)
                        with contextlib.suppress(BlockingIOError):
                            hasty.connect(address(process))
                status, output, messages = run("top", "--count=1", str(process))
                self.assertEqual((status, messages), (0, ""))
            self.assertEqual(run("top", "--trace", str(process))[0], 0)
            self.assertEqual(open_files(process), before)

    def test_another_user_gets_no_report(self):
        if os.geteuid() != 0:
            skip(self, "only root can be another user")
        with served() as process:
            status, output, messages = run("top", "--count=1", str(process), prepare=lambda: os.setuid(65533))
            self.assertEqual((status, output), (1, b""))
            self.assertIn("user", messages)
            self.assertEqual(run("top", "--count=1", str(process))[0], 0)


class Processes(unittest.TestCase):
    def test_a_process_that_does_not_serve_is_named_with_what_to_do(self):
        status, output, messages = run("top", str(os.getpid()))
        self.assertEqual((status, output), (1, b""))
        self.assertIn(f"process {os.getpid()} does not serve its statistics", messages)
        self.assertIn("kvmem_statistics_serve", messages)

    def test_a_process_that_does_not_exist_is_reported(self):
        status, output, messages = run("top", str(2**31 - 1))
        self.assertEqual((status, output), (1, b""))
        self.assertIn(f"there is no process {2**31 - 1}", messages)

    def test_a_socket_of_another_process_is_not_believed(self):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address(2**31 - 1))
            listener.listen()
            status, output, messages = run("top", str(2**31 - 1))
        self.assertEqual((status, output), (1, b""))
        self.assertIn(f"belongs to process {os.getpid()}", messages)

    def test_a_name_that_is_taken_is_an_error(self):
        program = f"""
import ctypes, os, socket
taken = socket.socket(socket.AF_UNIX)
taken.bind("\\0kvmem-reports-" + str(os.getpid()))
library = ctypes.CDLL({LIBRARY!r})
print(library.kvmem_statistics_serve(None))
taken.close()
print(library.kvmem_statistics_serve(None))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        self.assertEqual(done.stdout, b"-5\n0\n")

    def test_the_command_line_is_checked(self):
        for arguments in ([], ["0"], ["x"], ["1", "2"], ["--interval=0", "1"], ["--count=x", "1"], ["--all", "1"]):
            self.assertEqual(run("top", *arguments)[0], 2, arguments)
        status, output, _ = run("top", "--help")
        self.assertEqual(status, 0)
        self.assertIn(b"kvmem-doctor top", output)


main()

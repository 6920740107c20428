# SPDX-License-Identifier: Apache-2.0
"""kvmem in a process of its own, asked over a Unix socket; the pattern that memory is filled with."""

import array
import socket
import subprocess

PATIENCE = 60  # seconds


def pattern(size, seed):
    """Bytes that differ from page to page and from seed to seed; the same as in kvmem_side.c."""
    first = bytes((i + 3 * (i >> 8)) & 255 for i in range(1 << 16))
    pages = -(-size // len(first))
    turned = (first.translate(turn(7 * page + 13 * seed)) for page in range(pages))
    return b"".join(turned)[:size]


def turn(by):
    return bytes((value + by) & 255 for value in range(256))


class Kvmem:
    """The program kvmem_side. It ends when it fails, and has printed why."""

    def __init__(self, program):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        with theirs:
            self.process = subprocess.Popen([program, str(theirs.fileno())], pass_fds=[theirs.fileno()])

    def ask(self, *words, fd=None):
        """The words of the answer as a dictionary, and the descriptor that came along, or None."""
        text = " ".join(map(str, words)).encode()
        beside = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        try:
            self.socket.sendmsg([text], beside)
            answer, fds, _, _ = socket.recv_fds(self.socket, 1024, 1)
        except OSError as error:
            raise RuntimeError(f"kvmem's side does not answer {words[0]!r}: {error}") from error
        verdict, *rest = answer.decode().split() or ["nothing: it has ended"]
        if verdict != "ok":
            raise RuntimeError(f"kvmem's side answers {words[0]!r} with {verdict}")
        return dict(word.split("=", 1) for word in rest), fds[0] if fds else None

    def close(self):
        self.socket.close()
        status = self.process.wait(PATIENCE)
        if status != 0:
            raise RuntimeError(f"kvmem's side ended with exit status {status}")

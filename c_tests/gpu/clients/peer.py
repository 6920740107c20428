# SPDX-License-Identifier: Apache-2.0
"""The process with kvmem, which gets requests over a Unix socket; the pattern that memory is filled with."""

import array
import socket
import subprocess

PATIENCE = 60  # seconds


def pattern(size, seed):
    """Bytes that differ from page to page and from seed to seed; the same as in kvmem_side.c."""
    first = bytes((i + 3 * (i >> 8)) & 255 for i in range(1 << 16))
    pages = -(-size // len(first))
    shifted = (first.translate(shift_table(7 * page + 13 * seed)) for page in range(pages))
    return b"".join(shifted)[:size]


def shift_table(by):
    return bytes((value + by) & 255 for value in range(256))


class Kvmem:
    """The program kvmem_side. If it fails, it prints the reason and ends."""

    def __init__(self, program):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        with theirs:
            self.process = subprocess.Popen([program, str(theirs.fileno())], pass_fds=[theirs.fileno()])

    def request(self, *words, fd=None):
        """Returns the words of the reply as a dictionary, and its file descriptor or None."""
        text = " ".join(map(str, words)).encode()
        ancillary = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        try:
            self.socket.sendmsg([text], ancillary)
            reply, fds, _, _ = socket.recv_fds(self.socket, 1024, 1)
        except OSError as error:
            raise RuntimeError(f"kvmem_side does not reply to {words[0]!r}: {error}") from error
        verdict, *rest = reply.decode().split() or ["nothing: it has ended"]
        if verdict != "ok":
            raise RuntimeError(f"kvmem_side replied to {words[0]!r} with {verdict}")
        return dict(word.split("=", 1) for word in rest), fds[0] if fds else None

    def close(self):
        self.socket.close()
        status = self.process.wait(PATIENCE)
        if status != 0:
            raise RuntimeError(f"kvmem_side ended with exit status {status}")

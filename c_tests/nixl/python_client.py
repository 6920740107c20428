# SPDX-License-Identifier: Apache-2.0
"""NIXL's own Python client as a peer: python_client.py PACKAGE

Obeys one command per line, and replies with one line each. It knows nothing of kvmem.
"""

import ctypes
import importlib
import sys

BLOCK = 4096
NUM_BLOCKS = 8


class Client:
    def __init__(self, package):
        nixl = importlib.import_module(package)
        # With its default options: a progress thread, which serves the peer.
        self.agent = nixl.nixl_agent("python", nixl.nixl_agent_config(backends=["UCX"]))
        # Every other block is used, so that NIXL merges none.
        self.memory = ctypes.create_string_buffer(2 * NUM_BLOCKS * BLOCK)
        self.address = ctypes.addressof(self.memory)
        self.agent.register_memory([(self.address, len(self.memory), 0, "")], "DRAM")

    def blocks(self, address):
        descriptors = [(address + 2 * i * BLOCK, BLOCK, 0) for i in range(NUM_BLOCKS)]
        return self.agent.get_xfer_descs(descriptors, "DRAM")

    def metadata(self):
        return f"{self.agent.get_agent_metadata().hex()} {self.address}"

    def load(self, metadata):
        name = self.agent.add_remote_agent(bytes.fromhex(metadata))
        return name.decode() if isinstance(name, bytes) else name

    def fill(self, byte):
        ctypes.memset(self.address, int(byte), len(self.memory))
        return "filled"

    def block(self, index):
        start = 2 * int(index) * BLOCK
        return self.memory.raw[start : start + BLOCK].hex()

    def move(self, operation, peer, address, notification):
        """By prepared lists: block i here and block 7 - i there."""
        local = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", self.blocks(self.address))
        remote = self.agent.prep_xfer_dlist(peer, self.blocks(int(address)))
        indices = list(range(NUM_BLOCKS))
        request = self.agent.make_prepped_xfer(
            operation.upper(), local, indices, remote, indices[::-1], notification.encode()
        )
        state = self.agent.transfer(request)
        while state == "PROC":
            state = self.agent.check_xfer_state(request)
        self.agent.release_xfer_handle(request)
        return state

    def expect(self, peer):
        """The next notification of a peer. The deadline of the test bounds the wait."""
        while True:
            messages = self.agent.get_new_notifs().get(peer)
            if messages:
                return " ".join(message.hex() for message in messages)

    def notify(self, peer, text):
        self.agent.send_notif(peer, text.encode())
        return "notified"


def main():
    client = Client(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(getattr(client, command)(*arguments), flush=True)


main()

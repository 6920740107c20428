# SPDX-License-Identifier: Apache-2.0
"""NIXL's own Python client as a peer: python_client.py FOLDER, which is that of its package

Obeys one command per line, and replies with one line each. It knows nothing of kvmem.
"""

import ctypes
import importlib
import os
import sys

BLOCK = 4096
NUM_BLOCKS = 8
# Every other block is used, so that NIXL merges none.
SIZE = 2 * NUM_BLOCKS * BLOCK


class HostMemory:
    def __init__(self):
        self.bytes = ctypes.create_string_buffer(SIZE)
        self.address = ctypes.addressof(self.bytes)

    def register(self, agent):
        agent.register_memory([(self.address, SIZE, 0, "")], "DRAM")

    def blocks(self, agent):
        return blocks_at(agent, self.address, "DRAM")

    def fill(self, byte):
        ctypes.memset(self.address, byte, SIZE)

    def read(self, start, size):
        return self.bytes.raw[start : start + size]


class Tensor:
    """GPU memory, as engines in Python have it: NIXL gets tensors of PyTorch, not addresses."""

    def __init__(self):
        self.torch = importlib.import_module("torch")
        self.tensor = self.torch.zeros(SIZE, dtype=self.torch.uint8, device="cuda:0")
        self.address = self.tensor.data_ptr()

    def register(self, agent):
        agent.register_memory(self.tensor)

    def blocks(self, agent):
        return agent.get_xfer_descs([self.tensor[2 * i * BLOCK : (2 * i + 1) * BLOCK] for i in range(NUM_BLOCKS)])

    def fill(self, byte):
        self.tensor.fill_(byte)
        self.torch.cuda.synchronize()

    def read(self, start, size):
        return self.tensor[start : start + size].cpu().numpy().tobytes()


MEMORY = {"DRAM": HostMemory, "VRAM": Tensor}


def blocks_at(agent, address, kind):
    return agent.get_xfer_descs([(address + 2 * i * BLOCK, BLOCK, 0) for i in range(NUM_BLOCKS)], kind)


class Client:
    def __init__(self, folder):
        sys.path.insert(0, os.path.dirname(folder))
        self.nixl = importlib.import_module(os.path.basename(folder))

    def allocate(self, kind):
        self.kind = kind
        # The memory comes first: PyTorch loads the CUDA runtime that UCX needs.
        self.memory = MEMORY[kind]()
        # The default options have a progress thread, which serves the peer.
        self.agent = self.nixl.nixl_agent("python", self.nixl.nixl_agent_config(backends=["UCX"]))
        self.memory.register(self.agent)
        return "allocated"

    def metadata(self):
        return f"{self.agent.get_agent_metadata().hex()} {self.memory.address}"

    def load(self, metadata):
        name = self.agent.add_remote_agent(bytes.fromhex(metadata))
        return name.decode() if isinstance(name, bytes) else name

    def fill(self, byte):
        self.memory.fill(int(byte))
        return "filled"

    def block(self, index):
        return self.memory.read(2 * int(index) * BLOCK, BLOCK).hex()

    def move(self, operation, peer, address, notification):
        """By prepared lists: block i here and block 7 - i there."""
        local = self.agent.prep_xfer_dlist("NIXL_INIT_AGENT", self.memory.blocks(self.agent))
        remote = self.agent.prep_xfer_dlist(peer, blocks_at(self.agent, int(address), self.kind))
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
    # Lines that libraries write to stdout are not replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    client = Client(sys.argv[1])
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(getattr(client, command)(*arguments), file=replies, flush=True)


main()

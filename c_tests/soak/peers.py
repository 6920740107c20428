# SPDX-License-Identifier: Apache-2.0
"""What a worker shows others, and what it reads of them: shares of brokers, and layouts of agents in a directory.

Others learn the name of a share and its token from a file, whose name says what the blocks contain. Any of them may be killed or stopped at
any instruction: then a call fails with one of `scarcity.PEER`, or the bytes are right."""

import os

import kvmem
import oracle
import scarcity
from memory import Side

BLOCKS = 12
AGENT_TIERS = ("system", "shareable", "pinned")
SHARED_TIERS = ("shareable", "pinned", "device", "elastic", "direct", "buffered")


def labels(name):
    return [oracle.label_of(name, block) for block in range(BLOCKS)]


def make(tier, order, folder, name, agent=None, device=0):
    side = Side(tier, order, BLOCKS, folder, name, agent, device)
    side.write_all(labels(name))
    return side


def directory(worker):
    """That of all agents: in etcd if the coordinator has started a server, else in a folder."""
    try:
        with open(worker.place("etcd-url")) as file:
            return kvmem.Directory(endpoints=[file.read()], lease_seconds=10)
    except FileNotFoundError:
        return kvmem.Directory(worker.place("agents"))


class Publisher:
    """The broker of a worker, and its agent if it has one."""

    def __init__(self, worker):
        self.worker = worker
        self.sides, self.shares, self.tokens = [], [], []
        self.agent = self.directory = self.served = None
        self.broker = kvmem.Broker(worker.place(f"broker-{worker.slot}"), client_timeout=5)
        if worker.has_agent:
            self.agent = kvmem.Agent(f"w{worker.slot}", call_timeout=60)
            self.directory = directory(worker)

    def publish_share(self, tier, order):
        worker = self.worker
        name = f"{worker.slot}.{worker.incarnation}.{len(self.shares)}.{tier}.{order.replace('/', '-')}"
        side = make(tier, order, worker.folder, name, device=worker.any_device())
        self.sides.append(side)
        share = kvmem.Share(side.layout, flags=kvmem.ShareFlags.READ_ONLY if worker.random.random() < 0.5 else kvmem.ShareFlags(0))
        self.shares.append(share)
        token = self.broker.publish(name, share)
        path = worker.place(f"shares/{name}")
        with open(path + "~", "wb") as file:
            file.write(token)
        os.rename(path + "~", path)
        self.tokens.append(path)

    def publish_layout(self, tier, order, serves):
        """Its name in the directory says what its blocks contain."""
        worker = self.worker
        if self.served is not None:
            self.directory.withdraw(self.agent.name, timeout=30)
            self.served.close()
        name = f"{worker.slot}.{worker.incarnation}.{worker.next_number()}"
        self.served = make(tier, order, worker.folder, name, self.agent, worker.any_device())
        if serves:
            self.served.layout.serve(stall_timeout=5)
        with_broker = self.broker if tier != "system" and worker.random.random() < 0.5 else None
        self.directory.publish(self.agent, {name: self.served.layout}, timeout=30, broker=with_broker)

    def check(self):
        """Others only read what is shown. Returns the bytes that were compared."""
        return sum(side.check() for side in [*self.sides, *([self.served] if self.served else [])])

    def close(self):
        for path in self.tokens:
            os.unlink(path)
        if self.directory is not None and self.served is not None:
            self.directory.withdraw(self.agent.name, timeout=30)
        for each in [*self.shares, self.broker, *self.sides, self.served, self.directory, self.agent]:
            if each is not None:
                each.close()


def fetch(worker):
    """Maps a share of another worker, and copies some of its blocks."""
    names = [name for name in os.listdir(worker.place("shares")) if not name.endswith("~") and not name.startswith(f"{worker.slot}.")]
    if not names:
        return
    name = worker.random.choice(sorted(names))
    try:
        with open(worker.place(f"shares/{name}"), "rb") as file:
            token = file.read()
    except FileNotFoundError:
        return
    slot = name.partition(".")[0]
    # A socket whose broker was killed is no socket of a broker until its successor is there.
    with worker.tolerates(*scarcity.PEER, kvmem.InvalidArgument):
        share = kvmem.Share.fetch(worker.place(f"broker-{slot}"), name, token=token, timeout=5)
        with share:
            copy(worker, name, lambda: share.open_layout())


def pull(worker, publisher):
    """Reads blocks of a peer by NIXL, or mapped if it offers that."""
    peers = [slot for slot in range(worker.num_agents) if slot != worker.slot]
    peer = f"w{worker.random.choice(peers)}"
    with worker.tolerates(*scarcity.PEER, kvmem.InvalidArgument):
        with publisher.directory.look_up(peer, timeout=5) as entry:
            for name in entry.layouts:
                remote = worker.random.random() < 0.6
                if remote:
                    entry.load(publisher.agent)
                opens = (lambda: entry.import_layout(publisher.agent, name)) if remote else (lambda: entry.open_layout(name, agent=publisher.agent))
                # The owner withdraws a layout before it frees or reuses its memory. Until then the bytes are those of the name.
                copy(worker, name, opens, publisher.agent, lambda: publisher.directory.check(entry, timeout=5))


def notify(worker, publisher):
    """Messages have the name of their sender."""
    for message in publisher.agent.take_notifications():
        if message.data != f"from {message.agent}".encode():
            raise AssertionError(f"a notification of {message.agent} is {message.data!r}")
    peer = f"w{worker.random.randrange(worker.num_agents)}"
    if peer != publisher.agent.name:
        with worker.tolerates(*scarcity.PEER):
            publisher.directory.connect(publisher.agent, peer, timeout=2).close()
            publisher.agent.notify(peer, f"from {publisher.agent.name}".encode())


def copy(worker, name, opens, agent=None, check_owner=lambda: None):
    """Copies random blocks of an opened layout to a new layout, which is compared with what the name says. `check_owner` raises if the owner
    may have used the memory for something else meanwhile."""
    order = worker.random.choice(("BLONHC", "L/BONHC", "L/OBNHC", "BLHNOC"))
    destination = Side("adopted", order, BLOCKS, None, "landing", agent)
    destination.write_all([oracle.label_of("landing", block) for block in range(BLOCKS)])
    pairs = worker.pairs(BLOCKS, BLOCKS)
    try:
        with opens() as source:
            worker.run(source, destination.layout, pairs, stall_timeout=5, run_timeout=worker.random.choice((0.05, 5, 20)))
        check_owner()
        for block_of_source, block in pairs:
            destination.labels[block] = oracle.label_of(name, block_of_source)
        worker.compared(destination.check())
    except kvmem.Error as error:
        # The run may still use the blocks, and only them.
        destination.forget([block for _, block in pairs])
        worker.compared(destination.check())
        if isinstance(error, kvmem.Corrupt):
            check_owner()  # memory with other bytes since the run has read it
        raise
    finally:
        destination.close()

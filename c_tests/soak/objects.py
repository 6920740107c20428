# SPDX-License-Identifier: Apache-2.0
"""Blocks in objects of an S3-compatible server, which the coordinator disturbs.

Each name is written once, by an agent of its own, so that a request that NIXL repeats late writes what is there. An object is read and compared by HTTP
without the library: it is absent, or has its block. Others read a name after it was written as a whole, also if its writer was killed."""

import contextlib
import http.client
import os
import time

import kvmem
import memory
import oracle
import peers
from lacking import RUN_SECONDS

BUCKET = "blocks"
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"}
"""The server serves objects to who has a key, and does not compare signatures unless it refuses all."""
NAMES = 6
"""Of a worker at a time."""
PATIENCE_SECONDS = 120
"""For the server itself: it is stopped and refuses for seconds, and starts within some."""


class Objects:
    """The agent of a worker for objects, and the names that it has written."""

    def __init__(self, worker, port):
        self.worker, self.port, self.names = worker, port, []
        parameters = {
            "bucket": BUCKET, "endpoint_override": f"http://127.0.0.1:{port}", "scheme": "http", "region": "us-east-1", "access_key": "key",
            "secret_key": "secret", "req_checksum": "required", "resp_checksum": "required", "use_virtual_addressing": "false", "num_threads": "4",
        }  # fmt: skip
        self.agent = kvmem.Agent(f"objects-{worker.slot}", backends={"OBJ": parameters}, call_timeout=100)

    def layout(self, name):
        with kvmem.Region.objects(f"{name}/", oracle.BLOCK_BYTES, peers.BLOCKS) as region:
            return kvmem.Layout.of_regions(memory.shape_of("BLONHC", peers.BLOCKS), [region], agent=self.agent)

    # ---- objects, without the library ----

    def _ask(self, method, name, block):
        """The status and the body. Waits while the server is stopped, refuses, or starts."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                try:
                    connection.request(method, f"/{BUCKET}/{name}/{block:010d}", headers=SIGNED)
                    response = connection.getresponse()
                    body = response.read()
                finally:
                    connection.close()
                if response.status in (200, 204, 404):
                    return response.status, body
            if time.monotonic() > end:
                raise AssertionError(f"the server of objects does not reply to {method}")
            time.sleep(0.02)

    def check(self, name, written_in):
        """Compares all objects of a name. Each is absent or has its block; none is absent if all were written in the life of the server that lasts."""
        for block, label in enumerate(peers.labels(name)):
            status, body = self._ask("GET", name, block)
            if status == 404:
                if written_in == int(self.worker.page["server_lives"]):
                    raise AssertionError(f"object {block} of {name} was written, and is lost")
            elif body != oracle.content(label).tobytes():
                raise AssertionError(f"object {block} of {name} has {len(body)} bytes, not those of its block")
            self.worker.compared(len(body))

    # ---- operations ----

    @contextlib.contextmanager
    def may_fail(self, limit, lost=lambda: False):
        """A run fails if the server is disturbed meanwhile, if its limit is short, or if objects may be gone."""
        page = self.worker.page
        windows, lives, disturbed = int(page["server_windows"]), int(page["server_lives"]), bool(page["server"])
        try:
            yield
        except kvmem.Error as error:
            was_disturbed = disturbed or page["server"] or int(page["server_windows"]) != windows
            is_right = (
                isinstance(error, kvmem.TimedOut) and (was_disturbed or limit < RUN_SECONDS)
                or isinstance(error, kvmem.NixlError) and was_disturbed
                or isinstance(error, kvmem.NotFound) and (was_disturbed or int(page["server_lives"]) != lives or lost())
            )  # fmt: skip
            if not is_right:
                raise
            self.worker.own["refused"] += 1

    def write(self):
        """Writes a new name. It is shown to others if all of it was written."""
        worker = self.worker
        name = f"{worker.slot}.{worker.incarnation}.{worker.next_number()}"
        life = int(worker.page["server_lives"])
        limit = worker.random.choice((0.05, RUN_SECONDS, RUN_SECONDS))
        order = worker.random.choice(memory.ORDERS)
        is_written = False
        source = memory.Side("adopted", order, peers.BLOCKS, None, name, self.agent)
        try:
            source.write_all(peers.labels(name))
            blocks = worker.random.sample(range(peers.BLOCKS), peers.BLOCKS)
            with self.may_fail(limit), self.layout(name) as objects:
                worker.run(source.layout, objects, [(block, block) for block in blocks], run_timeout=limit)
                is_written = True
            self.names.append(name)
            self.check(name, life if is_written else None)
            if len(self.names) > NAMES:
                self.remove(self.names.pop(0))
            worker.compared(source.check())
        finally:
            source.close()
        if is_written:
            temporary = os.path.join(worker.folder, "name")  # what is there is removed after a kill
            with open(temporary, "w") as file:
                file.write(str(life))
            os.rename(temporary, worker.place(f"objects/{name}"))

    def read(self):
        """Reads some blocks of a name of any worker."""
        worker = self.worker
        names = sorted(os.listdir(worker.place("objects")))
        if not names:
            return
        name = worker.random.choice(names)
        path = worker.place(f"objects/{name}")
        try:
            with open(path) as file:
                life = int(file.read())
        except FileNotFoundError:
            return
        page = worker.page
        with self.may_fail(0, lambda: life != int(page["server_lives"]) or not os.path.exists(path)):
            peers.copy(worker, name, lambda: self.layout(name), self.agent)

    def remove(self, name):
        """Shows a name no longer, and deletes its objects."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.worker.place(f"objects/{name}"))
        for block in range(peers.BLOCKS):
            self._ask("DELETE", name, block)

    def close(self):
        self.agent.close()
        for name in self.names:
            self.remove(name)

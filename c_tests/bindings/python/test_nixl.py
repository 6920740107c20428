# SPDX-License-Identifier: Apache-2.0
"""NIXL as it is: raw requests, prepared lists, queries, plugins, metadata by address."""

import contextlib
import gc

import numpy as np
import pytest

import kvmem
from kvmem import _release, nixl


@pytest.fixture
def agents():
    flags = kvmem.AgentFlags.TELEMETRY
    with kvmem.Agent("near", flags=flags) as near, kvmem.Agent("far", flags=flags) as far:
        yield near, far


@contextlib.contextmanager
def memory(near, far, size=4096):
    """An array of each agent, registered, and its descriptors."""
    arrays = [np.zeros(size, np.uint8), np.arange(size, dtype=np.uint32).astype(np.uint8)]
    with contextlib.ExitStack() as stack:
        regions = [stack.enter_context(kvmem.Region.adopt(array)) for array in arrays]
        for agent, region in zip((near, far), regions):
            stack.enter_context(agent.register(region))
        near.load(far.metadata)
        yield arrays, [nixl.descriptors(region) for region in regions]


def test_a_request_is_posted_repeatedly(agents):
    near, far = agents
    with memory(near, far) as (arrays, (local, remote)), kvmem.Queue() as queue:
        assert local[0].address == arrays[0].ctypes.data and local[0].size == 4096
        with nixl.Request(near, nixl.Operation.READ, local, "far", remote, queue=queue, user_data="read", run_timeout=60) as request:
            for step in range(2):
                arrays[1][7] = step + 100
                request.post().wait(60)
                assert request.poll() and (arrays[0] == arrays[1]).all()
                (completion,) = queue.wait(60)
                assert completion.user_data == "read" and completion.source is request and completion.error is None
            assert request.backend == "UCX" and request.telemetry.bytes == 4096 and request.estimate().duration_ns >= 0
        with nixl.Request(near, nixl.Operation.WRITE, local, "far", remote, notification=b"written") as request:
            arrays[0][:] = 9
            request.post().wait(60)
            assert (arrays[1] == 9).all() and far.take_notifications(60) == [kvmem.Notification("near", b"written")]
            request.post(b"again").wait(60)
            assert far.take_notifications(60) == [kvmem.Notification("near", b"again")]
        sums = nixl.telemetry(near)
        assert sums.succeeded == 4 and sums.bytes_read == 8192 == sums.bytes_written and sums.failed == 0
        assert not queue._runs
        with pytest.raises(kvmem.InvalidArgument, match="1 local descriptors and 2 remote"):
            nixl.Request(near, nixl.Operation.READ, local, "far", remote * 2)
        with pytest.raises(kvmem.Error):
            nixl.Request(near, nixl.Operation.READ, local, "nowhere", remote, queue=queue)
        assert not queue._runs


def test_options_and_handles_live_as_long_as_the_call(agents):
    """What a struct points to is not freed before the call reads it, also if another thread closes the region."""
    near, far = agents
    with memory(near, far) as (arrays, (local, _)):
        for _ in range(8):
            nixl.connect(near, "far", backends=["UCX"], timeout=60)
            assert nixl.partial_metadata(near, local, backends=["UCX"])
        with kvmem.Region.adopt(np.zeros(64, np.uint8)) as region:
            given = nixl._Given([nixl.Descriptor(region.info.address, 64, region=region)])
            held = _release.held()
        gc.collect()
        assert _release.held() == held
        del given
        while _release.held() == held:  # until the deadline of the case
            gc.collect(0)
        assert len(arrays) == 2


def test_prepared_lists_are_chosen_from_by_index(agents):
    near, far = agents
    with memory(near, far) as (arrays, (local, remote)):
        nixl.connect(near, "far", timeout=60)
        parts = [[one._replace(address=one.address + 1024 * i, size=1024) for i in range(4)] for one in (local[0], remote[0])]
        with nixl.Prepared(near, parts[0]) as mine, nixl.Prepared(near, parts[1], owner="far") as others:
            with nixl.Request.of_prepared(nixl.Operation.READ, mine, [3, 0], others, np.array([1, 2], np.uint32)) as request:
                request.post().wait(60)
            with pytest.raises(kvmem.InvalidArgument, match="1 local indices and 2 remote"):
                nixl.Request.of_prepared(nixl.Operation.READ, mine, [3], others, [1, 2])
            with pytest.raises(kvmem.OutOfRange):
                nixl.Request.of_prepared(nixl.Operation.READ, mine, [4], others, [0])
        assert (arrays[0][3072:] == arrays[1][1024:2048]).all() and (arrays[0][:1024] == arrays[1][2048:3072]).all()
        assert not arrays[0][1024:3072].any()


def test_memory_of_no_region(agents):
    near, far = agents
    given, received = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    local, remote = ([nixl.Descriptor(array.ctypes.data, array.nbytes)] for array in (received, given))
    near.load(far.metadata)
    with nixl.Segments(far, remote) as theirs, nixl.Segments(near, local):
        with pytest.raises(kvmem.AlreadyExists):
            nixl.Segments(far, remote)
        near.load(nixl.partial_metadata(far, remote))
        with nixl.Request(near, nixl.Operation.READ, local, "far", remote) as request:
            request.post().wait(60)
        assert (received == given).all()
        theirs.deregister()
        with pytest.raises(kvmem.InvalidState):
            theirs.deregister()


def test_a_layout_over_descriptors_of_a_peer(agents):
    near, far = agents
    shape = kvmem.Shape(num_blocks=8, num_layers=1, outer_dim=1, page_size=1, inner_dim=512, dtype="uint8", order="BLONC")
    with memory(near, far) as (arrays, (_, remote)):
        with nixl.remote_layout(near, "far", shape, remote) as layout, kvmem.Layout.allocate(shape, "system", agent=near) as local:
            kvmem.move(layout, local, [(3, 5)], run_timeout=60)
            assert (np.from_dlpack(local.tensor())[5].ravel() == arrays[1][3 * 512 : 4 * 512]).all()


def test_plugins_and_queries(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with kvmem.Agent("alone", backends={"POSIX": {}}) as agent:
        posix = next(plugin for plugin in nixl.plugins(agent) if plugin.name == "POSIX")
        assert kvmem.MemoryType.FILE in posix.memory_types and not posix.failure
        assert "POSIX" in agent.backends
        asked = [nixl.Descriptor(0, 1, 0, kvmem.MemoryType.FILE, str(each).encode()) for each in (path, tmp_path / "none")]
        found = nixl.query(agent, asked, backend="POSIX")
        assert found[0] is not None and found[1] is None


def test_metadata_by_address_needs_a_listen_thread(agents):
    near, _ = agents
    calls = [
        lambda: nixl.send_metadata(near, "127.0.0.1", 9),
        lambda: nixl.fetch_metadata(near, "far", "127.0.0.1", 9),
        lambda: nixl.invalidate_metadata(near, "127.0.0.1", 9),
    ]
    for call in calls:
        with pytest.raises(kvmem.InvalidState):
            call()

# SPDX-License-Identifier: Apache-2.0
"""Other processes: shares, agents of NIXL, directories."""

import socket
import sys

import numpy as np
import pytest

import kvmem
from conftest import HERE, arrays, end, shape, start

CHILD = f"import sys; sys.path.insert(0, {str(HERE)!r}); import socket, kvmem, numpy as np; from conftest import arrays, shape\n"


def test_a_layout_is_mapped_by_another_process():
    ours, theirs = socket.socketpair()
    with kvmem.Layout.allocate(shape(), "system", flags=kvmem.SystemFlags.SHAREABLE) as layout, kvmem.Share(layout) as share:
        np.from_dlpack(layout.tensor())[:] = 5
        child = start(
            CHILD + "with kvmem.Share.receive(int(sys.argv[1])) as share:\n"
            "    layout = share.open_layout()\n"
            "    memory = np.from_dlpack(layout.tensor())\n"
            "    assert (memory == 5).all() and layout.info.locality == kvmem.Locality.MAPPED\n"
            "    memory[3] = 9\n",
            theirs.fileno(),
            pass_fds=[theirs.fileno()],
        )
        share.send(ours)
        end(child)
        assert (np.from_dlpack(layout.tensor())[3] == 9).all()
        assert share.info.object == kvmem.SharedObject.LAYOUT and "layout of process" in repr(share)
        data, fds = share.message
        assert len(data) == share.info.size and len(fds) == share.info.num_fds
    ours.close()
    theirs.close()


def test_a_broker_publishes_by_name(tmp_path):
    path = tmp_path / "broker"
    with kvmem.Region.system(1 << 16, flags=kvmem.SystemFlags.SHAREABLE) as region, kvmem.Broker(path) as broker:
        region.memory[7] = 3
        with kvmem.Share(region, flags=kvmem.ShareFlags.READ_ONLY) as share:
            token = broker.publish("cache", share)
        child = start(
            CHILD + "share = kvmem.Share.fetch(sys.argv[1], 'cache', token=bytes.fromhex(sys.argv[2]))\n"
            "region = share.open_region(flags=kvmem.OpenFlags.READ_ONLY)\n"
            "assert region.memory[7] == 3 and region.memory.readonly and region.info.origin == kvmem.Origin.IMPORTED\n",
            path,
            token.hex(),
        )
        end(child)
        assert broker.info.publications == 1 and len(token) == 32
        with pytest.raises(kvmem.Error):
            kvmem.Share.fetch(path, "other", token=token)
        with pytest.raises(kvmem.InvalidArgument, match="32 bytes"):
            kvmem.Share.fetch(path, "cache", token=b"x")
        broker.unpublish("cache")


OPENER = CHILD + (
    "with kvmem.Directory(sys.argv[1]) as directory, directory.wait_for('owner', 60) as entry:\n"
    "    layout = entry.open_layout(sys.argv[2], timeout=60)\n"
    "    assert layout.info.locality == kvmem.Locality.MAPPED\n"
    "    memory = np.from_dlpack(layout.tensor())\n"
    "    assert memory.flags.writeable == (sys.argv[2] == 'writable') and (memory[5] == 3).all()\n"
    "    if memory.flags.writeable: memory[5] = 4\n"
)


@pytest.mark.parametrize("name", ["cache", "writable"])
def test_a_layout_of_a_directory_is_mapped_if_its_owner_has_a_broker(tmp_path, name):
    flags = kvmem.ShareFlags.READ_ONLY if name == "cache" else kvmem.ShareFlags(0)
    with kvmem.Directory(tmp_path / "agents") as directory, kvmem.Broker(tmp_path / "broker") as broker, kvmem.Agent("owner") as owner:
        with kvmem.Layout.allocate(shape(), "system", flags=kvmem.SystemFlags.SHAREABLE, agent=owner) as layout:
            memory = np.from_dlpack(layout.tensor())
            memory[5] = 3
            directory.publish(owner, {name: layout}, broker=broker, share_flags=flags)
            end(start(OPENER, tmp_path / "agents", name))
            assert (memory[5] == (3 if name == "cache" else 4)).all()


def test_a_layout_of_a_directory_is_imported_without_a_broker(tmp_path):
    with kvmem.Directory(tmp_path) as directory, kvmem.Agent("owner") as owner, kvmem.Agent("near") as near:
        with kvmem.Layout.from_tensors(arrays(4), "L/BONHC", agent=owner) as layout:
            directory.publish(owner, {"cache": layout})
            with directory.look_up("owner") as entry:
                with pytest.raises(kvmem.Unsupported):
                    entry.open_layout("cache")
                with pytest.raises(kvmem.NotFound):
                    entry.open_layout("none", agent=near)
                with entry.open_layout("cache", agent=near) as remote, kvmem.Layout.allocate(shape(), "system", agent=near) as local:
                    assert remote.info.locality == kvmem.Locality.REMOTE
                    kvmem.move(remote, local, [(3, 7)], run_timeout=60)
                    assert local.checksums([7]) == layout.checksums([3])


PREFILL = CHILD + (
    "directory = kvmem.Directory(sys.argv[1])\n"
    "agent = kvmem.Agent('prefill')\n"
    "layout = kvmem.Layout.from_tensors(arrays(4), 'L/BONHC', agent=agent)\n"
    "directory.publish(agent, {'cache': layout})\n"
    "messages = agent.take_notifications(60)\n"
    "while len(messages) < 2: messages += agent.take_notifications(60)\n"
    "print(messages[0].agent, *[message.data for message in messages])\n"
)


def test_blocks_are_pulled_from_another_process(tmp_path):
    child = start(PREFILL, tmp_path / "agents")
    with kvmem.Directory(tmp_path / "agents") as directory, kvmem.Agent("decode") as agent:
        with pytest.raises(kvmem.NotFound):
            directory.look_up("none")
        with pytest.raises(kvmem.TimedOut):
            directory.wait_for("none", 0.01)
        with directory.connect(agent, "prefill", 60) as entry:
            assert list(entry.layouts) == ["cache"] and entry.version == 1
            directory.check(entry)
            remote = entry.import_layout(agent, "cache")
            with pytest.raises(kvmem.Unsupported, match="belongs to a peer"):
                remote.tensor(layer=0)
            with kvmem.Layout.allocate(shape("BLHNOC"), "system", agent=agent) as local:
                with kvmem.Transfer(remote, local) as transfer:
                    transfer.submit([(3, 7), (0, 15)], notification=b"pulled", run_timeout=60).wait(60)
                    assert transfer.info.method in (kvmem.Method.NIXL, kvmem.Method.NIXL_STAGED, kvmem.Method.NIXL_SERVED)
                moved = np.from_dlpack(local.tensor())
                for layer, tensor in enumerate(arrays(4)):
                    assert (moved[7, layer] == tensor[3].transpose(2, 1, 0, 3)).all()
                    assert (moved[15, layer] == tensor[0].transpose(2, 1, 0, 3)).all()
            with kvmem.Queue() as queue:
                directory.watch("prefill")
                (published,) = directory.take_events(60)
                assert published.kind == kvmem.DirectoryChange.PUBLISHED and published.agent == "prefill"
                directory.report_events(queue, "events")
                agent.notify("prefill", b"end")
                assert end(child) == "decode b'pulled' b'end'\n"
                (completion,) = queue.wait(60)
                assert completion.user_data == "events" and completion.source is directory
                (ended,) = directory.take_events()
                assert ended.kind == kvmem.DirectoryChange.WITHDRAWN
                with pytest.raises(kvmem.NotFound):
                    directory.check(entry)
            remote.close()


def test_agents_find_nixl_in_its_wheel():
    path = kvmem.load_nixl()
    assert path.endswith("libnixl_capi.so")
    with pytest.raises(kvmem.AlreadyExists):
        kvmem.load_nixl("/nonexistent/libnixl_capi.so")
    with kvmem.Agent("one", backends={"POSIX": {}}) as agent, kvmem.Region.system(1 << 16) as region:
        assert agent.name == "one" and "'one'" in repr(agent)
        with agent.register(region) as registration:
            assert registration.info.registered and region.agents == ["one"]
            registration.deregister()
            assert not registration.info.registered
        with pytest.raises(kvmem.Error, match="PLUGIN"):
            agent.create_backend("PLUGIN")


def test_messages_wake_a_queue():
    with kvmem.Agent("near") as near, kvmem.Agent("far") as far, kvmem.Queue() as queue:
        assert far.load(near.metadata) == "near"
        near.report_notifications(queue, "messages")
        far.notify("near", b"hello")
        (completion,) = queue.wait(60)
        assert completion.user_data == "messages" and completion.source is near
        assert near.take_notifications(60) == [kvmem.Notification("far", b"hello")]
        assert near.take_notifications() == []
        near.report_notifications(None)
        far.invalidate("near")
        with pytest.raises((kvmem.NotFound, kvmem.Stale)):
            far.check("near")
        with pytest.raises(kvmem.Error):
            far.load(b"damaged")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))

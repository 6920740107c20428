# SPDX-License-Identifier: Apache-2.0
"""Objects that are closed, freed, shared by threads, inherited by a fork, or alive when the interpreter ends."""

import gc
import os
import pathlib
import re
import select
import signal
import threading
import time

import numpy as np
import pytest

import kvmem
from kvmem import _errors, _layout, _release, _store, _time
from conftest import arrays, run, shape

PAIRS = [(3, 7), (0, 15), (9, 1)]


@pytest.fixture
def copy():
    """Another order of the same cache."""
    with kvmem.Layout.allocate(shape("BLHNOC"), "system") as layout:
        yield layout


def test_threads_share_a_transfer_and_close_it():
    """Each call succeeds, or says that the run is in flight or the object closed."""
    with kvmem.Layout.from_tensors(arrays(), "L/BONHC") as layout, kvmem.Layout.allocate(shape("BLHNOC"), "system") as copy:
        for _ in range(20):
            transfer = kvmem.Transfer(layout, copy)
            barrier = threading.Barrier(4)

            def work(transfer=transfer, barrier=barrier):
                barrier.wait()
                try:
                    for _ in range(20):
                        try:
                            transfer.submit(PAIRS)
                        except kvmem.Busy:
                            pass
                        transfer.wait(60)
                except kvmem.InvalidState:
                    assert transfer.closed

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            barrier.wait()
            transfer.close()
            for thread in threads:
                thread.join()


def test_an_object_exists_until_its_properties_are_read(monkeypatch):
    """Another thread closes it meanwhile."""
    layout, call, text, seen = kvmem.Layout.allocate(shape(), "system"), _errors.call, _layout.text, []
    before = kvmem.statistics().num_layouts
    monkeypatch.setattr(_errors, "call", lambda *arguments: layout.close() or call(*arguments))
    monkeypatch.setattr(_layout, "text", lambda pointer: seen.append(kvmem.statistics().num_layouts) or text(pointer))
    assert layout.info.agent == "" and seen == [before]
    assert kvmem.statistics().num_layouts == before - 1


def test_objects_cannot_be_pickled_or_used_after_fork(cache):
    import pickle

    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(cache[1])
    assert "before this process was forked" in run(
        "import kvmem, os, sys\n"
        "region = kvmem.Region.system(4096)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: region.info\n"
        "    except kvmem.InvalidState as error: print(error); sys.stdout.flush(); os._exit(0)\n"
        "    os._exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "region.info\n"
    )


def test_a_wait_is_interrupted_by_a_signal():
    class Rung(Exception):
        pass

    def ring(*_):
        raise Rung

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        with kvmem.Queue() as queue:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Rung):
                queue.wait()
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_a_callback_that_raises_leaves_the_completions_after_it(cache, copy):
    reported = []

    def raises(completion):
        reported.append(completion)
        raise ValueError

    with kvmem.Queue() as queue, kvmem.Transfer(cache[1], copy, queue=queue) as transfer:
        for _ in range(2):
            transfer.submit(PAIRS, user_data=raises).wait(60)
        for _ in range(2):
            assert select.select([queue], [], [], 60)[0]
            with pytest.raises(ValueError):
                queue.dispatch(20)
        assert len(reported) == 2 and queue.poll() == []


def test_a_call_that_cannot_be_divided_is_interrupted_and_what_it_makes_later_is_destroyed(monkeypatch, tmp_path):
    """As on a file system that does not respond."""

    class Rung(Exception):
        pass

    def ring(*_):
        raise Rung

    library, go, threads, ended = _store.lib, threading.Event(), [], threading.Event()

    class Held:
        def __getattr__(self, name):
            return getattr(self, f"held_{name}", None) or getattr(library, name)

        @staticmethod
        def held_kvmem_store_open(*given):
            threads.append(threading.current_thread())
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            return go.wait(60) and library.kvmem_store_open(*given)

        held_kvmem_store_destroy = staticmethod(lambda made: library.kvmem_store_destroy(made) or ended.set())

    monkeypatch.setattr(_store, "lib", Held())
    shape = kvmem.Shape(num_blocks=4, num_layers=1, page_size=4, inner_dim=64, dtype_width=2, order="BLONHC")
    previous = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Rung):
            kvmem.Store(tmp_path / "store", shape, identity={"model": "llama"})
    finally:
        signal.signal(signal.SIGALRM, previous)
        go.set()
    assert threads[0] is not threading.main_thread()
    assert ended.wait(60)
    monkeypatch.undo()
    kvmem.Store(tmp_path / "store", shape, identity={"model": "llama"}).close()


def test_what_a_call_has_made_when_it_is_interrupted_is_destroyed(monkeypatch, tmp_path):
    """The signal comes when the call has ended, and before its thread is awake."""

    class Interrupted(_time._Call):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._done.wait = self.interrupted

        def interrupted(self):
            assert threading.Event.wait(self._done, 60)
            raise KeyboardInterrupt

    shape = kvmem.Shape(num_blocks=4, num_layers=1, page_size=4, inner_dim=64, dtype_width=2, order="BLONHC")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(_time, "_Call", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            kvmem.Store(tmp_path / "store", shape, identity={"model": "llama"})
    kvmem.Store(tmp_path / "store", shape, identity={"model": "llama"}).close()


def test_each_call_with_a_timeout_can_be_interrupted():
    """Calls that are repeated with short timeouts, and those of sockets, which another thread must not use when the caller has closed them."""
    repeated = {"transfer_wait", "transfer_wait_layers", "request_wait", "queue_wait", "agent_take_notifications", "directory_take_events"}
    sockets = {"share_send", "share_receive"}
    headers = sorted((pathlib.Path(os.environ.get("KVMEM_TEST_INCLUDE", "")) / "kvmem").glob("*.h"))
    if not headers:
        pytest.skip("KVMEM_TEST_INCLUDE does not name the folder of the headers")
    declared = re.findall(r"kvmem_(\w+)\(([^;{]*?)\);", "\n".join(header.read_text() for header in headers))
    timed = {name for name, parameters in declared if "timeout_ns" in parameters} - repeated - sockets
    assert {"store_open", "layout_checksum", "directory_look_up"} <= timed
    for source in pathlib.Path(kvmem.__file__).parent.glob("*.py"):
        text = source.read_text()
        for name in timed & set(re.findall(r"lib\.kvmem_(\w+)", text)):
            assert f"waiting(lib.kvmem_{name}" in text, f"{name} in {source.name} cannot be interrupted"


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_timeouts_that_are_none_are_refused(cache, copy, timeout):
    with kvmem.Transfer(cache[1], copy) as transfer, pytest.raises(kvmem.InvalidArgument, match="timeout"):
        transfer.submit(PAIRS).wait(timeout)


@pytest.mark.parametrize("has_begun", [False, True], ids=["no thread", "a handler that raises"])
def test_a_call_that_waits_is_made_once(monkeypatch, has_begun):
    """Also if RuntimeError comes from a signal handler while the thread is being started."""
    calls, begun, start = [], threading.Event(), threading.Thread.start

    def call():
        calls.append(threading.current_thread())
        begun.set()
        return 0

    def failing_start(thread):
        if has_begun:
            start(thread)
            assert begun.wait(60)
        raise RuntimeError("from start")

    monkeypatch.setattr(threading.Thread, "start", failing_start)
    if has_begun:
        with pytest.raises(RuntimeError, match="from start"):
            _time.waiting(call)()
    else:
        assert _time.waiting(call)() == 0
    assert [each is threading.main_thread() for each in calls] == [not has_begun]


BIG = (
    "import kvmem, sys, threading, atexit\n"
    "shape = kvmem.Shape(num_blocks=64, num_layers=8, page_size=16, inner_dim=1024, dtype='uint16', order='BLONHC')\n"
    "a, b = (kvmem.Layout.allocate(shape, 'system') for _ in range(2))\n"
    "pairs = [(i, i) for i in range(64)]\n"
)


@pytest.mark.parametrize(
    "code",
    [
        "t = kvmem.Transfer(a, b).submit(pairs)",
        "queue = kvmem.Queue(); threading.Thread(target=queue.wait, daemon=True).start()",
        "t, started = kvmem.Transfer(a, b), threading.Event()\n"
        "def work():\n"
        "    while True: t.submit(pairs); started.set(); t.wait()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "started.wait()",
        "t = kvmem.Transfer(a, b); atexit.register(lambda: (t.submit(pairs).wait(), print(t.info.bytes)))",
        "import logging; logging.basicConfig(); kvmem.log_to(logging.getLogger('kvmem'), kvmem.LogLevel.TRACE); t = kvmem.Transfer(a, b).submit(pairs)",
        "import asyncio\n"
        "async def main(): kvmem.Transfer(a, b).submit(pairs)\n"
        "asyncio.run(main())",
        "class Late:\n"
        "    def __del__(self): a.close(); a.closed\n"
        "sys.late = Late()",
    ],
    ids=["run", "wait", "runs", "atexit", "log", "loop", "del"],
)
def test_the_interpreter_ends(code):
    run(BIG + code)


def test_memory_of_a_run_is_kept_when_the_interpreter_ends():
    """The run goes on until the process has ended."""
    out = run(
        BIG + "import os\n"
        "class Memory(bytearray):\n"
        "    def __del__(self, write=os.write): write(1, b'freed')\n"
        "size = 64 * 8 * 2 * 16 * 1024 * 2\n"
        "regions = [kvmem.Region.adopt(Memory(size)) for _ in range(2)]\n"
        "layouts = [kvmem.Layout.of_regions(shape, [region]) for region in regions]\n"
        "t = kvmem.Transfer(*layouts).submit(pairs)\n"
        "os.write(1, b'ends ')\n"
    )
    assert out == "ends "


CLOSED = {
    "region": lambda region, layout: (region, lambda: region.info),
    "layout": lambda region, layout: (layout, lambda: layout.info),
    "lease": lambda region, layout: (lease := layout.lease([0]), lambda: lease.remaining),
    "layout of a transfer": lambda region, layout: (layout, lambda: kvmem.Transfer(layout, layout)),
    "region of a share": lambda region, layout: (region, lambda: kvmem.Share(region)),
    "share": lambda region, layout: (share := kvmem.Share(region), lambda: share.info),
    "queue": lambda region, layout: (queue := kvmem.Queue(), lambda: queue.poll()),
    "queue of a transfer": lambda region, layout: (queue := kvmem.Queue(), lambda: kvmem.Transfer(layout, layout, queue=queue)),
    "transfer": lambda region, layout: (transfer := kvmem.Transfer(layout, layout), lambda: transfer.submit([(0, 1)])),
    "transfer that is awaited": lambda region, layout: (transfer := kvmem.Transfer(layout, layout), lambda: transfer.wait()),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_objects_are_refused(name):
    with kvmem.Region.system(1 << 16, flags=kvmem.SystemFlags.SHAREABLE) as region, kvmem.Layout.allocate(shape(), "system") as layout:
        closed, use = CLOSED[name](region, layout)
        assert not closed.closed
        closed.close()
        closed.close()
        with pytest.raises(kvmem.InvalidState, match="is closed"):
            use()
        with pytest.raises(kvmem.InvalidState, match="is closed"), closed:
            pass
        assert closed.closed and "closed" in repr(closed)


def test_an_error_that_is_kept_keeps_no_object(tmp_path):
    """Its traceback has the frames of the package. A file that stays open would be locked."""
    kept, path = [], tmp_path / "cache"
    with kvmem.Layout.allocate(shape(), "system") as memory, kvmem.Layout.allocate(shape(), "disk", path=path) as file:
        uses = [lambda: kvmem.Transfer(memory, file, heads=kvmem.Range(9, 9, 9)), lambda: file.checksums([99]), lambda: file.block(99)]
        for use in uses:
            try:
                use()
            except kvmem.Error as error:
                kept.append(error)
        assert len(kept) == len(uses) and all(error.__traceback__ for error in kept)
    kvmem.Region.disk(path=path, flags=kvmem.DiskFlags.OPEN_EXISTING).close()


def test_a_close_while_a_look_ends_is_looked_at(monkeypatch):
    """What it has released would be kept until the next one."""
    looks, held = [], {1: None}

    def nothing_is_left():
        looks.append(None)
        if len(looks) == 1:  # another thread closes a handle, and sees that this one looks
            _release._look_until = time.monotonic() + 60
        else:
            held.clear()
        return False

    monkeypatch.setattr(_release, "_drop_released", nothing_is_left)
    monkeypatch.setattr(_release, "_held", held)
    monkeypatch.setattr(_release, "_is_looking", True)
    monkeypatch.setattr(_release, "_look_until", 0.0)
    _release._look_for_a_while()
    assert len(looks) == 2 and not _release._is_looking


def test_no_struct_is_taken_from_options_that_nothing_keeps():
    """`options(...).c` frees what the fields of the struct point to before the call reads them."""
    files = list(pathlib.Path(kvmem.__file__).parent.rglob("*.py"))
    assert len(files) > 20
    for file in files:
        assert not re.search(r"\)\.c\b", file.read_text()), file


def test_tensors_that_are_freed_during_a_run_are_held(copy):
    """Also their layout and the transfer: the run has what it needs."""
    tensors = arrays(3)
    layout = kvmem.Layout.from_tensors(tensors, "L/BONHC")
    with kvmem.Queue() as queue:
        transfer = kvmem.Transfer(layout, copy, queue=queue).submit([(block, 15 - block) for block in range(16)])
        layout.close()
        transfer.close()
        del tensors, layout, transfer
        gc.collect()
        (completion,) = queue.wait(60)
        assert completion.error is None
    moved = np.from_dlpack(copy.tensor())
    for layer, tensor in enumerate(arrays(3)):
        assert (moved[::-1, layer] == tensor.transpose(0, 3, 2, 1, 4)).all()


def test_a_fork_leaves_the_child_nothing_but_messages():
    """Each object says so, closing does nothing, and new ones are made as before."""
    assert run(
        "import kvmem, os, sys\n"
        "shape = kvmem.Shape(num_blocks=4, num_layers=1, page_size=4, inner_dim=8, dtype='uint16', order='BLONHC')\n"
        "region, layout, queue = kvmem.Region.system(1 << 16, flags=kvmem.SystemFlags.SHAREABLE), kvmem.Layout.allocate(shape, 'system'), kvmem.Queue()\n"
        "share, transfer = kvmem.Share(region), kvmem.Transfer(layout, layout)\n"
        "transfer.submit([(0, 1)]).wait()\n"
        "uses = [lambda: region.info, lambda: layout.info, queue.poll, lambda: share.info, lambda: transfer.submit([(0, 1)]), transfer.wait,\n"
        "        lambda: kvmem.Transfer(layout, layout), lambda: kvmem.Share(region), lambda: layout.checksums([0])]\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    refused = 0\n"
        "    for use in uses:\n"
        "        try: use()\n"
        "        except kvmem.InvalidState as error: refused += 'forked' in str(error)\n"
        "    for each in (region, layout, queue, share, transfer): repr(each); each.close()\n"
        "    print(refused, len(kvmem.Region.system(4096)), flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "transfer.submit([(0, 1)]).wait()\n"
    ) == "9 4096\n"


def test_arguments_of_another_type_are_named(cache, copy):
    layout = cache[1]
    for wrong, name in ((None, "None"), (np.zeros(4), "a ndarray"), (kvmem, "a module")):
        with pytest.raises(TypeError, match=f"source is {name}; expected kvmem.Layout"):
            kvmem.move(wrong, copy, PAIRS)
        with pytest.raises(TypeError, match=f"destination is {name}; expected kvmem.Layout"):
            kvmem.Transfer(layout, wrong)
        with pytest.raises(TypeError, match=f"shared is {name}; expected kvmem.Region or kvmem.Layout"):
            kvmem.Share(wrong)
        with pytest.raises(TypeError, match=f"a part is {name}; expected kvmem.Layout"):
            kvmem.Layout.combine({"keys": wrong})
    with pytest.raises(TypeError, match="shape is a dict; expected kvmem.Shape"):
        kvmem.Layout.allocate(shape("BLHNOC")._asdict(), "system")
    with pytest.raises(TypeError, match="agent is a str; expected an object of kvmem"):
        kvmem.Layout.allocate(shape("BLHNOC"), "system", agent="prefill")
    with pytest.raises(TypeError, match="an element of regions is a ndarray; expected kvmem.Handle"):
        kvmem.Layout.of_regions(shape("BLHNOC"), [np.zeros(4)])
    with pytest.raises(TypeError, match="parts is one text; give a list of texts"):
        kvmem.Transfer(layout, copy, parts="keys")
    with pytest.raises(TypeError, match="endpoints is one text; give a list of texts"):
        kvmem.Directory(endpoints="http://localhost:2379")
    with pytest.raises(kvmem.InvalidArgument, match="method is 'NIXL': give one of kvmem.Method.MEMCPY, "):
        kvmem.Transfer(layout, copy, method="NIXL")
    for name, wrong in (("layers", range(2)), ("outers", (0, 0, 1)), ("heads", 4)):
        with pytest.raises(TypeError, match=rf"{name} is an? \w+; expected kvmem.Range\(source, destination, length\)"):
            kvmem.Transfer(layout, copy, **{name: wrong})
    with kvmem.Transfer(layout, copy) as transfer:
        for tables, name in (([[0], [1]], "source_table"), ([kvmem.Table([0]), [1]], "destination_table")):
            with pytest.raises(TypeError, match=rf"{name} is a list; expected kvmem.Table\(blocks\)"):
                transfer.submit(source_table=tables[0], destination_table=tables[1], num_tokens=1)
    with pytest.raises(TypeError, match="flags is a DiskFlags; expected kvmem.SystemFlags"):
        kvmem.Layout.allocate(shape("BLHNOC"), "system", flags=kvmem.DiskFlags.READ_ONLY)
    with pytest.raises(kvmem.InvalidArgument, match="flags are given, and the tier device has none"):
        kvmem.Layout.allocate(shape("BLHNOC"), "device", flags=1)
    with pytest.raises(TypeError, match="parts is a list; expected names with layouts"):
        kvmem.Layout.combine([layout])
    with pytest.raises(TypeError, match="token is a str; expected 32 bytes"):
        kvmem.Share.fetch("broker", "cache", token="00" * 32)
    with pytest.raises(TypeError, match="source is None; expected a socket, or a file descriptor"):
        kvmem.Share.receive(None)


def test_texts_of_another_type_are_named(cache, tmp_path):
    layout = cache[1]
    slots = kvmem.Shape(num_blocks=4, num_layers=1, page_size=4, inner_dim=64, dtype_width=2, order="BLONHC")
    with kvmem.Store(tmp_path / "store", slots, identity={"model": "m"}) as store, kvmem.Directory(tmp_path / "agents") as directory:
        calls = {
            "name": (lambda wrong: store.open_namespace(wrong, quota=8192), store.remove_namespace, layout.part),
            "path": (kvmem.Broker,),
            "agent": (directory.look_up, directory.wait_for, lambda wrong: directory.withdraw(wrong)),
        }
        for name, functions in calls.items():
            for function in functions:
                with pytest.raises(TypeError, match=f"^{name} is an int; expected a text"):
                    function(7)
        with pytest.raises(TypeError, match="^name is None; expected a text"):
            store.remove_namespace(None)
        with store.open_namespace(b"a", quota=8192):
            pass
        assert store.remove_namespace("a") == 0


def test_a_block_id_is_no_fraction(cache, copy):
    """A fraction is not rounded to another block."""
    for pairs in ([(1.5, 2)], np.array([(1.0, 2.0)])):
        with pytest.raises(kvmem.InvalidArgument, match="pairs are not pairs of block ids"):
            kvmem.move(cache[1], copy, pairs)
    with pytest.raises(kvmem.InvalidArgument, match="blocks are no list of block ids"):
        copy.checksums([0.5])
    with pytest.raises(kvmem.InvalidArgument, match="blocks are no list of block ids"):
        copy.checksums(3)


def test_an_order_that_names_other_axes_is_named():
    with pytest.raises(kvmem.InvalidArgument, match=r"axis O \(outer slots: keys and values\) of the order 'BHNOC' has 8 indices"):
        kvmem.Layout.from_tensors([np.zeros((4, 2, 16, 8, 64), np.float16)], "L/BHNOC")


def test_tensors_that_do_not_fit_their_order_or_type_are_named():
    half, single = (np.zeros((4, 2, 16, 8, 64), dtype) for dtype in (np.float16, np.float32))
    for tensors, order, dtype, message in (
        ([half.reshape(4, 2, 16, 512)], "L/BONHC", "", r"a tensor has 4 axes .*, and the order names 5: 'BONHC'; .* without H, C is all elements of a token"),
        ([half, half], "LBONHC", "", "and the order names 6: 'LBONHC'; the axes of a list of tensors are before '/'"),
        ([half, single], "L/BONHC", "", "tensor 1 has itemsize 4, and tensor 0 has 2"),
        ([half], "L/BONHC", "float32", "dtype is 'float32', of 4 bytes, and the elements of the tensors have 2"),
    ):
        with pytest.raises(kvmem.InvalidArgument, match=message):
            kvmem.Layout.from_tensors(tensors, order, dtype=dtype)


def test_agents_brokers_and_raw_requests_name_arguments_of_another_type(tmp_path):
    nixl, region = kvmem.nixl, kvmem.Region.system(4096)
    with region, kvmem.Broker(str(tmp_path / "broker")) as broker, kvmem.Directory(str(tmp_path / "agents")) as directory:
        (listed,) = nixl.descriptors(region)
        calls = [
            (lambda: broker.publish("a", region), "share is a Region; expected kvmem.Share"),
            (lambda: directory.connect("agent", "peer", 0), "agent is a str; expected kvmem.Agent"),
            (lambda: directory.publish("agent"), "agent is a str; expected kvmem.Agent"),
            (lambda: directory.publish("agent", [region]), "layouts is a list; expected names with layouts"),
            (lambda: directory.check("entry"), "entry is a str; expected kvmem.Entry"),
            (lambda: directory.report_events([]), "queue is a list; expected kvmem.Queue"),
            (lambda: nixl.descriptors(b""), "region is a bytes; expected kvmem.Region"),
            (lambda: nixl.plugins(None), "agent is None; expected kvmem.Agent"),
            (lambda: nixl.connect(region, "peer"), "agent is a Region; expected kvmem.Agent"),
            (lambda: nixl.Segments("agent", [listed]), "agent is a str; expected kvmem.Agent"),
            (lambda: nixl.Segments("agent", region), r"no list of kvmem.nixl.Descriptor; kvmem.nixl.descriptors\(region\) returns those"),
            (lambda: nixl.Segments("agent", [(1, 2)]), "no list of kvmem.nixl.Descriptor"),
            (lambda: nixl.Segments("agent", [listed._replace(region="r")]), "region is a str; expected kvmem.Region"),
            (lambda: nixl.Request.of_prepared(kvmem.nixl.Operation.READ, listed, [0], None, [0]), "local is a Descriptor; expected kvmem.nixl.Prepared"),
            (lambda: kvmem.vmm.VmmMapping(4096, 0, None), "range is an int; expected kvmem.vmm.VmmRange"),
            (lambda: kvmem.vmm.VmmRange("4096"), "size is a str; expected a number"),
            (lambda: kvmem.vmm.VmmMemory.import_fd(None, 4096), "fd is None; expected a number"),
        ]
        for call, message in calls:
            with pytest.raises(TypeError, match=message):
                call()
        for call, message in (
            (lambda: nixl.Segments("agent", [listed._replace(size=-1)]), "is no descriptor: can't convert negative"),
            (lambda: kvmem.vmm.VmmRange(-1), "size is -1; expected a number from 0 to"),
            (lambda: kvmem.vmm.VmmMemory.import_fabric(64, 4096), "a fabric handle has 64 bytes, and handle is 64"),
        ):
            with pytest.raises(kvmem.InvalidArgument, match=message):
                call()

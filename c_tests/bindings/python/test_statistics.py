# SPDX-License-Identifier: Apache-2.0
"""Counters of the process."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict

import kvmem
from kvmem import Direction, Method, Status
from kvmem.vllm import _process

SHAPE = kvmem.Shape(num_blocks=4, num_layers=2, page_size=4, inner_dim=64, dtype="float16", order="BLONHC")


def test_runs_are_counted_by_method_direction_and_status():
    before = kvmem.statistics()
    with kvmem.Layout.allocate(SHAPE, "system") as source, kvmem.Layout.allocate(SHAPE, "system") as destination:
        kvmem.move(source, destination, [(0, 1), (2, 3)])
        after = kvmem.statistics()
    ran = (Direction.HOST_TO_HOST, Status.OK)
    old, new = before.methods[Method.MEMCPY], after.methods[Method.MEMCPY]
    assert new.runs[ran] - old.runs.get(ran, 0) == 1
    bytes_moved = new.bytes[Direction.HOST_TO_HOST] - old.bytes.get(Direction.HOST_TO_HOST, 0)
    assert bytes_moved == 2 * SHAPE.num_layers * SHAPE.outer_dim * SHAPE.page_size * SHAPE.inner_dim * 2
    assert sum(new.latencies[0].counts) - sum(old.latencies[0].counts) == 1
    assert new.latencies[0].seconds > old.latencies[0].seconds and new.latencies[0].max_bytes == 65536
    assert after.num_layouts - before.num_layouts == 2 and after.system_bytes > before.system_bytes
    assert after.requests.bytes == before.requests.bytes


def test_the_text_has_the_same_numbers():
    numbers = kvmem.statistics()
    text = kvmem.statistics_text()
    assert f'\nkvmem_region_bytes{{tier="system"}} {numbers.system_bytes}\n' in text
    for (direction, status), runs in numbers.methods[Method.MEMCPY].runs.items():
        labels = f'method="memcpy",direction="{direction.name.lower()}",status="{status.name.lower()}"'
        assert f"\nkvmem_runs_total{{{labels}}} {runs}\n" in text


def test_statistics_of_vllm_are_those_of_an_interval():
    counters = _process.ProcessCounters(3)
    counters.take(10.0)
    with kvmem.Layout.allocate(SHAPE, "system") as source, kvmem.Layout.allocate(SHAPE, "system") as destination:
        kvmem.move(source, destination, [(0, 1), (2, 3)])
        assert counters.take(10.5) == {}
        taken = counters.take(11.0)
        now = taken.pop("now")["3"]
        size = 2 * SHAPE.num_layers * SHAPE.outer_dim * SHAPE.page_size * SHAPE.inner_dim * 2
        seconds = taken.pop("run_seconds memcpy")
        assert taken == {"runs memcpy host_to_host ok": 1, "run_bytes memcpy host_to_host": size} and seconds > 0
        found = kvmem.statistics()
        assert now["region_bytes system"] == found.system_bytes and now["handles layout"] == found.num_layouts
        assert set(now) == {name for name in now if name.split()[0] in _process.GAUGES}
    assert counters.take(12.0).keys() == {"now"}
    assert _process.summary({"runs memcpy host_to_host ok": 2, "runs uring read io": 1, "stored_blocks": 4, "now": {}}) == {
        "memcpy_runs": 2, "failed_runs": 1, "stored_blocks": 4,
    }  # fmt: skip


def events_by_track():
    """The events of complete runs, in the order of the file; fails if the text violates Chrome's trace format."""
    trace = json.loads(kvmem.export_trace())
    tracks, named = defaultdict(list), set()
    for event in trace["traceEvents"]:
        assert event["pid"] == os.getpid() and isinstance(event["tid"], int) and event["name"]
        if event["ph"] == "M":
            named.add(event["tid"])
            continue
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0 and event["cat"] in ("run", "phase")
        assert event["tid"] in named, "a track has its name before its first event"
        tracks[event["tid"]].append(event)
    return trace, tracks


def start(event):
    return round(event["ts"] * 1000)


def end(event):
    return start(event) + round(event["dur"] * 1000)


def test_the_trace_has_a_span_per_run_and_its_phases_inside():
    begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    shape = kvmem.Shape(num_blocks=8, num_layers=2, page_size=64, inner_dim=512, dtype="float16", order="BLONHC")
    block_size = shape.num_layers * shape.outer_dim * shape.page_size * shape.inner_dim * 2
    with kvmem.Layout.allocate(shape, "system") as source, kvmem.Layout.allocate(shape, "system") as destination:
        with kvmem.Transfer(source, destination) as transfer:
            for block in range(1, 4):
                transfer.submit([(0, block)]).wait()
            transfer.submit([(0, 1)], flags=kvmem.SubmitFlags.CHECKSUM).wait()
        kvmem.move(source, destination, [(block, block) for block in range(8)])
    over = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    trace, tracks = events_by_track()
    assert trace["otherData"] == {"clock": "CLOCK_MONOTONIC", "runs_left_out": 0}
    found = []
    for events in tracks.values():
        for event in events:
            if event["cat"] == "run":
                assert not found or found[-1][0]["tid"] != event["tid"] or end(found[-1][0]) <= start(event)
                found.append((event, []))
                continue
            run, phases = found[-1]
            assert start(event) == (end(phases[-1]) if phases else start(run))
            phases.append(event)
    assert all(not phases or end(phases[-1]) == end(run) for run, phases in found)
    these = sorted((run for run in found if begun <= start(run[0])), key=lambda run: start(run[0]))
    assert [run["args"]["bytes"] for run, _ in these] == [block_size] * 4 + [8 * block_size]
    assert [run["args"]["transfer"] == these[0][0]["args"]["transfer"] for run, _ in these] == [True] * 4 + [False]
    for number, (run, phases) in enumerate(these):
        assert run["name"] == "memcpy host_to_host" and run["args"]["status"] == "ok" and end(run) <= over
        assert int(run["args"]["user_data"], 16) >= 0
        names = [phase["name"] for phase in phases]
        assert names == (["queued", "moved", "verified", "completed"] if number == 3 else ["queued", "moved", "completed"])


def test_the_environment_switches_the_trace_off():
    program = """
import json, kvmem
shape = kvmem.Shape(num_blocks=4, num_layers=2, page_size=4, inner_dim=64, dtype="float16", order="BLONHC")
with kvmem.Layout.allocate(shape, "system") as source, kvmem.Layout.allocate(shape, "system") as destination:
    kvmem.move(source, destination, [(0, 1)])
print(sum(event["ph"] == "X" for event in json.loads(kvmem.export_trace())["traceEvents"]))
"""
    for value, has_runs in (("0", False), ("1", True)):
        environment = {**os.environ, "KVMEM_TRACE": value}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and (int(done.stdout) > 0) == has_runs, done.stderr


CLIENT = """
import os, socket, sys
import kvmem
if len(sys.argv) > 1:
    kvmem.serve_statistics()
with socket.socket(socket.AF_UNIX) as client:
    client.connect(f"\\0kvmem-reports-{os.getpid()}")
    client.sendall(b"t")
    print(client.makefile().read(), end="")
"""


def test_a_program_serves_its_statistics_if_it_or_its_environment_says_so():
    for argument, value in (("serve", "0"), (None, "1"), (None, "0")):
        command = [sys.executable, "-c", CLIENT, *filter(None, [argument])]
        environment = {**os.environ, "KVMEM_SERVE_STATISTICS": value}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        if argument or value == "1":
            assert done.returncode == 0 and "\nkvmem_runs_in_flight 0\n" in done.stdout, done.stderr
        else:
            assert "ConnectionRefusedError" in done.stderr


def test_a_name_that_is_taken_does_not_end_a_program():
    program = "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind(f'\\0kvmem-reports-{os.getpid()}'); import kvmem; print(1)"
    environment = {**os.environ, "KVMEM_SERVE_STATISTICS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "1\n" and "KVMEM_SERVE_STATISTICS=1 has no effect" in done.stderr

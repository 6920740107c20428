# SPDX-License-Identifier: Apache-2.0
"""Counters of the process."""

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

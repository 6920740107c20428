# SPDX-License-Identifier: Apache-2.0
"""Counters of the process."""

import kvmem
from kvmem import Direction, Method, Status

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

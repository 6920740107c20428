# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package have in common."""

import faulthandler
import gc
import os
import pathlib
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import kvmem
from kvmem import _release

DEADLINE = 120  # seconds of one case, against hangs


@pytest.fixture(autouse=True)
def deadline():
    faulthandler.dump_traceback_later(DEADLINE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    item.has_failed = report.failed
    return report


@pytest.fixture(autouse=True)
def everything_is_released(request):
    """No case leaves memory of others in use, or a warning about what it has not closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
    if request.node.has_failed:
        return  # what the case used is kept by the report of its failure
    end = time.monotonic() + DEADLINE / 2
    while _release.held() and time.monotonic() < end:
        os.sched_yield()
        gc.collect(0)
    assert not _release.held()


SHAPE = {"num_blocks": 16, "num_layers": 3, "page_size": 4, "inner_dim": 8, "num_heads": 2}
"""Two heads of four elements."""


def shape(order="BLONHC", dtype="uint16", **changed):
    return kvmem.Shape(order=order, dtype=dtype, **(SHAPE | changed))


def arrays(seed=1, dtype=np.uint16):
    """A tensor per layer, of the order BONHC."""
    random = np.random.default_rng(seed)
    return [random.integers(0, 1 << 16, (16, 2, 4, 2, 4), dtype=np.uint16).view(dtype) for _ in range(3)]


@pytest.fixture
def cache():
    """Tensors and their layout."""
    tensors = arrays()
    with kvmem.Layout.from_tensors(tensors, "L/BONHC") as layout:
        yield tensors, layout


def run(code, **environment):
    """Runs a program in another process of Python."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start(code, *arguments, **options):
    """Starts a program of Python with pipes."""
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def end(child):
    """Waits for a program that `start` has started."""
    out, _ = child.communicate(timeout=DEADLINE / 2)
    assert child.returncode == 0, out
    return out


HERE = pathlib.Path(__file__).parent

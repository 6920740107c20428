# SPDX-License-Identifier: Apache-2.0
"""Regions, and memory of other libraries."""

import array
import ctypes
import gc
import weakref

import numpy as np
import pytest

import kvmem
from conftest import run


def test_memory_of_a_region_is_a_memoryview_and_an_array():
    with kvmem.Region.system(8192) as region:
        view = region.memory
        assert len(region) == 8192 == view.nbytes and not any(view)
        view[5] = 7
        as_array = np.from_dlpack(region.tensor("uint16"))
        assert as_array.shape == (4096,) and as_array[2] == 7 << 8
        assert np.asarray(region.tensor())[5] == 7
        assert region.info.tier == kvmem.Tier.SYSTEM and region.info.address == as_array.ctypes.data
    # The memory is that of the arrays now.
    as_array[0] = 3
    assert view[0] == 3


@pytest.mark.parametrize("source", [bytearray(4096), array.array("d", [0.0] * 512), np.zeros((8, 16), np.float32), (ctypes.c_char * 64)()])
def test_memory_is_adopted_without_a_copy(source):
    with kvmem.Region.adopt(source) as region:
        region.memory[3] = 9
        assert bytes(memoryview(source).cast("B"))[3] == 9
        assert region.info.origin == kvmem.Origin.ADOPTED


def test_adopted_memory_is_kept_while_it_is_used():
    class Array(np.ndarray):
        pass

    source = np.zeros(4096, np.uint8).view(Array)
    alive = weakref.ref(source)
    region = kvmem.Region.adopt(source)
    view = region.view(0, 1024)
    region.close()
    del source, region
    gc.collect()
    assert alive() is not None
    view.memory[0] = 1
    view.close()
    # The fixture waits for the release.


def test_read_only_memory_can_only_be_read():
    source = np.zeros(4096, np.uint8)
    source.flags.writeable = False
    with kvmem.Region.adopt(source) as region:
        assert kvmem.RegionFlags.READ_ONLY in region.info.flags and region.memory.readonly
        with pytest.raises(BufferError, match=r"DLPack 1\.0"):
            region.tensor().__dlpack__()
        assert not np.from_dlpack(region.tensor()).flags.writeable
    with pytest.raises(kvmem.PermissionDenied):
        kvmem.Region.adopt(source, read_only=False)
    with kvmem.Region.adopt(b"x" * 100) as region:
        assert bytes(region.memory) == b"x" * 100


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (5, "has no memory"),
        ("text", "has no memory"),
        (np.zeros(8, object), "Python objects"),
        (np.zeros(8, ">i4"), "byte order"),
        (np.zeros(8)[::-1], "backwards"),
        (memoryview(bytearray(16))[::2], "not contiguous"),
        (bytearray(), "size"),
    ],
)
def test_what_cannot_be_adopted_is_refused(source, message):
    with pytest.raises(kvmem.Error, match=message):
        kvmem.Region.adopt(source)


def test_a_tensor_that_requires_grad_is_refused():
    class Tensor:
        requires_grad = True

    with pytest.raises(kvmem.InvalidArgument, match="detach"):
        kvmem.Region.adopt(Tensor())


def test_a_capsule_is_used_once():
    class Once:
        def __init__(self):
            self.capsule = np.zeros(64, np.uint8).__dlpack__()

        def __dlpack__(self, **_):
            return self.capsule

        def __dlpack_device__(self):
            return (1, 0)

    source = Once()
    kvmem.Region.adopt(source).close()
    with pytest.raises(kvmem.InvalidArgument, match="used already"):
        kvmem.Region.adopt(source)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_capsules_that_are_not_used_hold_nothing(version):
    region = kvmem.Region.system(4096)
    tensor = region.tensor()
    capsule = tensor.__dlpack__(max_version=version)
    assert region.holders.handles >= 1
    address = region.info.address
    region.close()
    from kvmem._dlpack import capsules

    assert capsules.alive
    del capsule, tensor
    gc.collect()
    assert not capsules.alive
    assert address


def test_a_copy_is_refused():
    """What kvmem wrote to it would not be in the tensor."""
    from kvmem import _dlpack

    class Copied:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            capsule = region.tensor().__dlpack__(max_version=(1, 0))
            managed = ctypes.cast(_dlpack._capsule_pointer(capsule, b"dltensor_versioned"), ctypes.POINTER(_dlpack.ManagedVersioned))
            managed.contents.flags |= 2
            return capsule

    with kvmem.Region.system(4096) as region, pytest.raises(kvmem.InvalidArgument, match="Copied.__dlpack__ returned a copy"):
        kvmem.Region.adopt(Copied())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_a_consumer_that_refuses_a_tensor_says_so_and_holds_nothing(dtype):
    """It drops the capsule while its exception is set."""
    from kvmem._dlpack import capsules

    with kvmem.Region.system(4096) as region:
        with pytest.raises(Exception, match="nsupported dtype"):
            np.from_dlpack(region.tensor(dtype))
    gc.collect()
    assert not capsules.alive


def test_a_tensor_that_is_freed_while_an_exception_passes_does_not_replace_it():
    assert run(
        "import kvmem, ctypes, numpy as np\n"
        "from kvmem import _dlpack\n"
        "class Consumer:\n"
        "    def __init__(self, tensor):\n"
        "        capsule = tensor.__dlpack__()\n"
        "        self.managed = ctypes.cast(_dlpack._capsule_pointer(capsule, b'dltensor'), ctypes.POINTER(_dlpack.Managed))\n"
        "        _dlpack._capsule_rename(capsule, _dlpack.NAMES['used_dltensor'])\n"
        "def use(*_): pass\n"
        "region = kvmem.Region.system(4096)\n"
        "for make in (lambda: region.tensor().__dlpack__(), lambda: np.from_dlpack(region.tensor()), lambda: region.tensor()):\n"
        "    try: use(make(), 1 / 0)\n"
        "    except ZeroDivisionError: print('passed')\n"
        "consumer = Consumer(region.tensor())\n"
        "consumer.managed.contents.deleter(ctypes.addressof(consumer.managed.contents))\n"
        "region.close()\n"
        "print(len(_dlpack.capsules.alive))\n"
    ) == "passed\n" * 3 + "0\n"


def test_tensors_that_live_longer_than_the_interpreter_do_no_harm():
    assert "done" in run(
        "import kvmem, numpy as np, sys\n"
        "region = kvmem.Region.system(4096)\n"
        "sys.kept = np.from_dlpack(region.tensor())\n"
        "sys.held = region.tensor().__dlpack__()\n"
        "sys.adopted = kvmem.Region.adopt(np.zeros(4096))\n"
        "print('done')"
    )


def test_files(tmp_path):
    path = tmp_path / "blocks"
    with kvmem.Region.disk(1 << 20, path=path) as region:
        assert region.path == str(path) and region.info.fd >= 0
        region.sync()
        with pytest.raises(kvmem.Unsupported, match="no address"):
            region.tensor()
    with pytest.raises(FileExistsError):
        kvmem.Region.disk(1 << 20, path=path)
    with pytest.raises(FileNotFoundError) as raised:
        kvmem.Region.disk(4096, path=tmp_path / "none" / "blocks")
    assert isinstance(raised.value, kvmem.NotFound) and raised.value.cause.name == "ENOENT" and raised.value.errno == 2
    with pytest.raises(kvmem.InvalidArgument, match="NUL"):
        kvmem.Region.disk(4096, path="a\0b")


def test_the_repr_says_what_it_is():
    region = kvmem.Region.system(4096)
    assert "system, 4,096 bytes" in repr(region)
    region.close()
    assert repr(region) == "<kvmem.Region closed>"
    with pytest.raises(kvmem.InvalidState, match="closed"):
        region.info  # noqa: B018
    region.close()


@pytest.mark.parametrize("size", [-1, 1 << 64, 1.5, "x", None])
def test_sizes_that_are_none_are_refused(size):
    with pytest.raises((kvmem.InvalidArgument, TypeError)):
        kvmem.Region.system(size).close()


def test_a_region_that_was_not_closed_is_reported():
    with pytest.warns(ResourceWarning, match="was not closed"):
        kvmem.Region.system(4096)
        gc.collect()

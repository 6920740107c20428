# SPDX-License-Identifier: Apache-2.0
"""Layouts, from tensors and as tensors."""

import sys

import numpy as np
import pytest

import kvmem
from conftest import arrays, shape


def test_a_layout_has_the_addresses_of_its_tensors(cache):
    tensors, layout = cache
    info = layout.info
    assert (info.num_blocks, info.num_layers, info.outer_dim, info.page_size, info.num_heads, info.inner_dim) == (16, 3, 2, 4, 2, 8)
    assert info.dtype_width == 2 and info.order == "L/BONHC"
    for layer, tensor in enumerate(tensors):
        address, _ = layout.row(3, layer, 1, 2, 1)
        assert address == tensor[3, 1, 2, 1:].ctypes.data
        given = np.from_dlpack(layout.tensor(layer=layer))
        assert given.ctypes.data == tensor.ctypes.data and (given == tensor).all()
        assert layout.tensor(layer=layer, outer=1).axes == "BNHC"


@pytest.mark.parametrize("order", ["BLONHC", "LBONHC", "LOBNHC", "BLHONC", "BHLONC", "OLBHNC", "LBOHCN"])
def test_tensors_of_each_order_are_found_by_their_strides(order):
    axes = "LBONHC"
    base = np.arange(3 * 16 * 2 * 4 * 2 * 4, dtype=np.uint32)
    lengths = dict(zip(axes, (3, 16, 2, 4, 2, 4)))
    memory = base.reshape([lengths[axis] for axis in order])
    view = memory.transpose([order.index(axis) for axis in axes])
    with kvmem.Layout.from_tensors(view, order, axes=axes) as layout:
        assert layout.row(5, 2, 1, 3, 1)[0] == view[2, 5, 1, 3, 1:].ctypes.data
        given = layout.tensor()
        assert given.axes == order and given.strides == memory.strides
        assert (np.from_dlpack(given) == memory).all()


def test_strides_that_do_not_agree_are_refused():
    tensor = np.zeros((16, 2, 4, 2, 4), np.uint16).transpose(1, 0, 2, 3, 4)
    with pytest.raises(kvmem.InvalidArgument, match="strides of the tensors are those of the order 'OBNHC'"):
        kvmem.Layout.from_tensors(tensor, "BONHC")


def test_padded_tensors_keep_their_gaps():
    whole = np.zeros((16, 2, 4, 2, 8), np.uint16)
    with kvmem.Layout.from_tensors(whole[..., :4], "BONHC") as layout:
        assert layout.info.head_stride == 16
        assert np.from_dlpack(layout.tensor()).strides == whole[..., :4].strides


@pytest.mark.parametrize(
    ("tensors", "order", "options", "message"),
    [
        ([], "L/BONHC", {}, "no tensors"),
        (arrays(), "BONHC", {}, "put L/ before it"),
        (arrays(), "L/BNHC", {}, "has 5 axes"),
        ([arrays()[0], arrays()[0][:8]], "L/BONHC", {}, "tensor 1 has shape"),
        (arrays(), "L/BONHC", {"axes": "BONHX"}, "same letters"),
        (arrays()[0], "LONHC", {}, "need B"),
        ([arrays()[0]] * 2, "L/BONHC", {}, "overlap"),
        (np.zeros((0, 2, 4, 2, 4)), "BONHC", {}, "empty"),
        (arrays(), "L/BONHC", {"dtype": "float7"}, "known are"),
        (arrays(), "L/BONHC", {"dtype": "float32"}, "bytes"),
    ],
)
def test_tensors_that_are_no_cache_are_refused(tensors, order, options, message):
    with pytest.raises(kvmem.InvalidArgument, match=message):
        kvmem.Layout.from_tensors(tensors, order, **options)


def test_element_types():
    with kvmem.Layout.allocate(shape(dtype="bfloat16"), "system") as layout:
        assert layout.tensor().dtype == "bfloat16" and layout.tensor().__array_interface__["typestr"] == "<u2"
        assert np.from_dlpack(layout.tensor(dtype="uint16")).dtype == np.uint16
        with pytest.raises(kvmem.InvalidArgument, match="elements of 2"):
            layout.tensor(dtype="float32")
    with pytest.raises(kvmem.InvalidArgument, match="bfloat16 has 2 bytes"):
        kvmem.Layout.allocate(shape(dtype="bfloat16", dtype_width=4), "system")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_arrays_have_the_types_of_ml_dtypes_or_their_bits(dtype, monkeypatch):
    types = pytest.importorskip("ml_dtypes")
    element = np.dtype(getattr(types, dtype, dtype))
    caches = [np.arange(16 * 2 * 4 * 2 * 4).reshape(16, 2, 4, 2, 4).astype(element) for _ in range(3)]
    with kvmem.Layout.from_tensors(caches, "L/BONHC", dtype=dtype) as source, kvmem.Layout.allocate(shape("BLHNOC", dtype=dtype), "system") as other:
        kvmem.move(source, other, [(3, 7)])
        found = other.tensor(layer=1).numpy()
        assert found.dtype == element and (found[7] == caches[1][3].transpose(2, 1, 0, 3)).all()
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # as if it were not installed
        bits = other.tensor(layer=1).numpy()
        assert bits.dtype == (element if dtype == "float16" else f"uint{8 * element.itemsize}") and (bits.view(element) == found).all()
        bits[7] = 0
        assert (found[7] == 0).all()  # it is no copy


def test_an_axis_with_regions_of_its_own_is_chosen(cache):
    _, layout = cache
    with pytest.raises(kvmem.InvalidArgument, match="choose one"):
        layout.tensor()
    with pytest.raises(kvmem.OutOfRange, match="layer is 3"):
        layout.tensor(layer=3)


def test_tensors_keep_the_memory():
    layout = kvmem.Layout.allocate(shape(), "system")
    kept = np.from_dlpack(layout.tensor())
    layout.close()
    kept[:] = 7
    assert (kept == 7).all()


def test_requirements_and_regions():
    needed = shape("L/BONHC").requirements
    assert needed.num_regions == 3 and needed.total_size == 3 * 16 * 2 * 4 * 8 * 2
    regions = [kvmem.Region.system(needed.region_size) for _ in range(3)]
    with kvmem.Layout.of_regions(shape("L/BONHC"), regions) as layout:
        for region in regions:
            region.close()
        assert [region.info.origin for region in layout.regions] == [kvmem.Origin.ALLOCATED] * 3
    with pytest.raises(kvmem.Error, match="region"):
        kvmem.Layout.of_regions(shape("L/BONHC"), [])


def test_drawings_have_each_axis(cache):
    from xml.etree import ElementTree

    _, layout = cache
    texts = [text.text for text in ElementTree.fromstring(layout.to_svg()).iter("{http://www.w3.org/2000/svg}text")]
    for expected in ("L: 3 layers, a region each", "B: 16 blocks, every 128 bytes", "C: 4 elements, every 2 bytes"):
        assert expected in texts
    assert "15" in texts and "…" in texts and "14" not in texts  # of 16 blocks the first ones and the last
    assert layout._repr_svg_() == layout.to_svg()
    with kvmem.Layout.combine({"data": layout}) as both:
        assert both._repr_svg_() is None
        with pytest.raises(kvmem.Unsupported, match="choose one of data"):
            both.to_svg()
    whole = np.zeros((4, 2, 4, 2, 8), np.uint16)
    with kvmem.Layout.from_tensors(whole[..., :4], "BONHC") as padded:
        assert 'width="160.0"' in padded.to_svg()  # a head of 320 pixels, half of which is padding


def test_addresses_follow_from_strides(cache):
    _, layout = cache
    s = layout.strides
    assert len(s.bases) == 3 and s.layer_step == 1 and s.layer_stride == 0
    found = s.bases[2 * s.layer_step] + 5 * s.block_stride + s.outer_stride + 3 * s.token_stride + s.head_stride
    assert (found, s.row_size) == layout.row(5, 2, 1, 3, 1)


def test_parts():
    with kvmem.Layout.allocate(shape(), "system") as data, kvmem.Layout.allocate(shape(inner_dim=2, num_heads=2), "system") as scales:
        with kvmem.Layout.combine({"data": data, "scales": scales}) as both:
            assert sorted(both.parts) == ["data", "scales"]
            assert both.tensor(part="scales").shape[-1] == 1
            assert both.part("data").info.inner_dim == 8
            with pytest.raises(kvmem.Unsupported, match="choose one of data, scales"):
                both.tensor()
            with pytest.raises(kvmem.NotFound):
                both.part("none")


def test_an_identity_is_part_of_a_file(tmp_path):
    path = tmp_path / "cache"
    kvmem.Layout.allocate(shape(identity=b"model-a"), "disk", path=path).close()
    with kvmem.Layout.allocate(shape(identity=b"model-a"), "disk", path=path, flags=kvmem.DiskFlags.OPEN_EXISTING) as layout:
        assert layout.info.identity == b"model-a"
    with pytest.raises(kvmem.Error, match="model-a"):
        kvmem.Layout.allocate(shape(identity=b"model-b"), "disk", path=path, flags=kvmem.DiskFlags.OPEN_EXISTING)


def test_checksums_are_equal_in_each_order(cache):
    tensors, layout = cache
    with kvmem.Layout.allocate(shape("BLHNOC"), "system") as other:
        kvmem.move(layout, other, [(block, block) for block in range(16)])
        assert layout.checksums(range(16)) == other.checksums(np.arange(16, dtype=np.uint32))
        assert len(set(layout.checksums(range(16)))) == 16
        with pytest.raises(kvmem.OutOfRange):
            layout.checksums([16])
        with pytest.raises(kvmem.OutOfRange):
            layout.checksums([-1])


@pytest.mark.parametrize(("tier", "options", "message"), [("gpu", {}, "tier is 'gpu'"), ("system", {"path": "x"}, "belong to the tier disk")])
def test_memory_that_a_layout_cannot_have_is_refused(tier, options, message):
    with pytest.raises(kvmem.InvalidArgument, match=message):
        kvmem.Layout.allocate(shape(), tier, **options)

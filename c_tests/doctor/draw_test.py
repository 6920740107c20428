# SPDX-License-Identifier: Apache-2.0
"""Pictures of layouts. Those of the docs are the output of the command; KVMEM_BLESS=1 writes them again."""

import os
import pathlib
import subprocess
import unittest
import xml.dom.minidom

from doctor import PROGRAM, main, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
DESCRIPTORS = ROOT / "fuzz" / "corpus" / "share"
ROW = ("num_heads=8", "head_stride=132", "token_stride=1056", "block_stride=16896", "dtype_width=1", "outer_dim=1")
OF_DOCS = {
    "vllm-flash-attention": ("order=L/OBNHC",),
    "tensorrt-llm": ("order=BLOHNC",),
    "vllm-packed": ("order=L/BHNOC",),
    "vllm-padded-pages": ("order=LBNHC", "block_stride=80000", "inner_dim=2048"),
    "llama-cpp-transposed": ("order=L/HCBN",),
    "parts": ("part=data", "order=L/BNHC", "inner_dim=1024", *ROW, "part=scales", "order=L/BNHC", "inner_dim=32", *ROW),
}


def drawn(*arguments):
    status, output, messages = run("draw", *arguments)
    assert (status, messages) == (0, ""), messages
    xml.dom.minidom.parseString(output)
    return output.decode()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def with_identity(identity):
    """A descriptor of the corpus with an identity: one more pair in the map of its dimensions, before the others."""
    whole = (DESCRIPTORS / "layout-descriptor").read_bytes()
    at = whole.index(b"\x6adimensions") + 11
    assert 0xA0 <= whole[at] < 0xB7, "a map of less than 24 pairs"
    pair = b"\x68identity" + bytes([0x40 + len(identity)]) + identity
    payload = whole[20:at] + bytes([whole[at] + 1]) + pair + whole[at + 1:]
    header = whole[:12] + len(payload).to_bytes(4, "little")
    return header + crc32c(header + payload).to_bytes(4, "little") + payload


class Pictures(unittest.TestCase):
    def test_the_pictures_of_the_docs(self):
        for name, arguments in OF_DOCS.items():
            with self.subTest(name):
                picture = drawn("block=42", *arguments)
                path = PICTURES / f"layout-{name}.svg"
                if os.environ.get("KVMEM_BLESS"):
                    path.write_text(picture, encoding="utf-8")
                self.assertTrue(path.read_text(encoding="utf-8") == picture, f"{path} is stale; KVMEM_BLESS=1 writes it")

    def test_the_block_is_highlighted_wherever_a_part_of_it_is(self):
        shape = ("block=42", "num_blocks=100", "num_layers=40")
        self.assertEqual(drawn(*shape, "order=BLONHC").count(">block 42<"), 1)
        planes = drawn(*shape, "order=LBONHC")
        self.assertEqual(planes.count(">block 42<"), 2, "layers 0 and 39 are shown")
        for name in ("block 0", "block 99", "layer 39", "token 15", "head 7", "keys", "values"):
            self.assertIn(f">{name}<", planes)
        self.assertNotIn(">block 41<", planes)

    def test_strides_padding_and_regions_are_stated(self):
        padded = drawn("order=L/BONHC", "inner_dim=64", "block_stride=5000", "num_layers=40")
        for text in (">+ 904 B<", ">5000 B<", "904 B after each do not belong to it", ">region 0, layer 0<",
                     ">region 39, layer 39: the same<", "40 regions of 639096 bytes"):
            self.assertIn(text, padded)
        self.assertNotIn("do not belong to it", drawn("order=L/BONHC"))
        self.assertIn(">4096 B<", drawn("order=BC", "inner_dim=100", "alignment=4096"))

    def test_any_order_has_a_picture(self):
        for order in ("BLONHC", "L/OBHNC", "LO/HCBN", "OBHNLC", "LHBNOC", "LONH/BC", "B", "NC"):
            with self.subTest(order):
                self.assertLess(len(drawn(f"order={order}")), 400_000)

    def test_the_identity_is_stated(self):
        self.assertIn(">identity: llama-3 &lt;bf16&gt;<", drawn("order=BC", "identity=llama-3 <bf16>"))
        self.assertIn(">identity: 80 bytes, 6161616161616161616161616161616161616161616161616161616161616161…<",
                      drawn("order=BC", "identity=" + "a" * 80))
        self.assertIn(">identity: 2 bytes, c3a4<", drawn("order=BC", "identity=\u00e4"))
        parts = drawn("part=a", "order=BC", "identity=of a", "part=b", "order=BC")
        self.assertEqual(parts.count(">identity: "), 1)
        self.assertNotIn("identity", drawn("order=BC"))

    def test_names_of_parts_are_text(self):
        self.assertIn(">part a&lt;b&amp;c<", drawn("part=a<b&c", "order=BC", "part=d", "order=BC"))


class Descriptors(unittest.TestCase):
    def test_a_descriptor_has_the_shape(self):
        picture = drawn(str(DESCRIPTORS / "layout-descriptor"))
        self.assertIn("block 0 is highlighted", picture)
        parts = drawn(str(DESCRIPTORS / "layout-descriptor-parts"))
        self.assertGreaterEqual(parts.count(">part "), 2)

    def test_the_identity_of_a_descriptor(self):
        done = subprocess.run([PROGRAM, "draw", "-"], input=with_identity(b"llama-3 bf16"), capture_output=True, check=True)
        self.assertIn(">identity: llama-3 bf16<", done.stdout.decode())

    def test_the_standard_input(self):
        path = DESCRIPTORS / "layout-descriptor"
        with open(path, "rb") as file:
            done = subprocess.run([PROGRAM, "draw", "-"], stdin=file, capture_output=True, check=True)
        self.assertEqual(done.stdout.decode(), drawn(str(path)))

    def test_what_is_no_descriptor(self):
        whole = (DESCRIPTORS / "layout-descriptor").read_bytes()
        cases = [
            (b"", "not a layout descriptor"),
            (b"something else, which is longer than a header", "not a layout descriptor"),
            (whole[:-1], "its length"),
            (whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], "its checksum"),
        ]
        for content, words in cases:
            with self.subTest(words):
                done = subprocess.run([PROGRAM, "draw", "-"], input=content, capture_output=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, b""))
                self.assertIn(words, done.stderr.decode())
        status, output, messages = run("draw", "/does/not/exist")
        self.assertEqual((status, output), (1, b""))
        self.assertIn("/does/not/exist: No such file", messages)

    def test_any_damage_is_found(self):
        whole = (DESCRIPTORS / "layout-descriptor-parts").read_bytes()
        for place in range(0, len(whole), 7):
            damaged = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1:]
            done = subprocess.run([PROGRAM, "draw", "-"], input=damaged, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, b""), f"byte {place}")
            self.assertIn(b"descriptor", done.stderr)


class Usage(unittest.TestCase):
    def test_wrong_command_lines(self):
        file = str(DESCRIPTORS / "layout-descriptor")
        cases = [
            ((), "give a descriptor, or an order"),
            (("--nonsense",), "unknown option --nonsense"),
            ((file, file), "second descriptor"),
            ((file, "num_blocks=4"), "no other fields than block"),
            (("num_blocks=4",), "no order is given"),
            (("part=a", "order=BC", "part=b"), "part 'b' has no order"),
            (("order=BC", "part=a", "order=BC"), "before the first part"),
            (("part=", "order=BC"), "needs a name"),
            (("order=BC", "num_block=4"), 'no field "num_block"; there are block, part, order, identity, num_blocks'),
            (("order=BC", "num_blocks=four"), "num_blocks=four is not a number"),
            (("order=BC", "num_blocks=-4"), "num_blocks=-4 is not a number"),
            (("order=BC", "num_blocks=99999999999999999999"), "is not a number"),
            (("order=BC", "block=128"), "block 128 is to be highlighted, the layout has 128 blocks"),
            (("order=BXC",), "'X' in the order 'BXC' is no axis"),
            (("order=",), "order= needs the axes"),
            (("order=BNC", "num_layers=2"), "lacks axis L (layer)"),
            (("order=BNC", "block_stride=8"), "axis B (block) has a stride of 8 bytes"),
            (("part=a", "order=BNC", "dtype_width=3"), "part 'a': dtype_width is 3 bytes"),
        ]
        for arguments, words in cases:
            with self.subTest(arguments):
                status, output, messages = run("draw", *arguments)
                self.assertEqual((status, output), (2, b""))
                self.assertIn(words, messages)

    def test_help_and_output_that_cannot_be_written(self):
        self.assertIn(b"DESCRIPTOR", run("draw", "--help")[1])
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "draw", "order=BC"], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 3)


main()

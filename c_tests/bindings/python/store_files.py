# SPDX-License-Identifier: Apache-2.0
"""Reads a store by docs/store.md alone, without kvmem: what the page says is what the files have."""

import hashlib
import hmac
import pathlib
import typing

import numpy as np

RECORD = 256
STORED, REMOVED, RETIRED, ENCRYPTED = 1, 2, 3, 4


Name = tuple[int, bytes]
"""The number of a namespace, and a key, or in the journal of an encrypted one the hash of a key."""


class Block(typing.NamedTuple):
    slot: int
    name: Name
    parent: Name | None
    checksum: int
    record: bytes


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


TABLE = _table()


def crc(data: bytes, before: int = 0) -> int:
    """CRC-32C of data; of the data before, too, if their CRC is given."""
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


def cbor(data: bytes) -> typing.Any:
    """One item of RFC 8949, of the types that the pages name, and nothing behind it."""

    def item(at: int) -> tuple[typing.Any, int]:
        kind, value, at = data[at] >> 5, data[at] & 31, at + 1
        if kind == 7:
            assert value == 22
            return None, at
        if value > 23:
            size = 1 << (value - 24)
            value, at = int.from_bytes(data[at : at + size], "big"), at + size
        if kind == 0:
            return value, at
        if kind in (2, 3):
            content = data[at : at + value]
            return (content.decode() if kind == 3 else content), at + value
        assert kind in (4, 5)
        items = []
        for _ in range(value * (kind - 3)):
            each, at = item(at)
            items.append(each)
        return (dict(zip(items[::2], items[1::2], strict=True)) if kind == 5 else items), at

    result, end = item(0)
    assert end == len(data)
    return result


def unpacked(data: bytes, magic: bytes, version: int) -> typing.Any:
    """The payload behind a header as of a layout descriptor."""
    assert data[:8] == magic
    assert (number(data[8:10]), number(data[10:12]), number(data[12:16])) == (version, 0, len(data) - 20)
    assert number(data[16:20]) == crc(data[20:], crc(data[:16]))
    return cbor(data[20:])


def _rounds(words: np.ndarray) -> np.ndarray:
    """20 rounds of ChaCha on columns of 16 words, one for each of its blocks."""
    x = words.copy()

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for p, q, r, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] += x[q]
            x[r] = (x[r] ^ x[p]) << np.uint32(turn) | (x[r] ^ x[p]) >> np.uint32(32 - turn)

    for _ in range(10):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return x


def _words(key: bytes, rest: bytes, blocks: int) -> np.ndarray:
    return np.tile(np.frombuffer(b"expand 32-byte k" + key + rest, "<u4")[:, None], blocks)


def decrypted(key: bytes, nonce: bytes, associated: bytes, data: bytes, tag: bytes) -> bytes:
    """XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha)."""
    first = _rounds(_words(key, nonce[:16], 1))
    words = _words(np.concatenate((first[:4], first[12:])).tobytes(), bytes(8) + nonce[16:], 1 + -(-len(data) // 64))
    words[12] = np.arange(words.shape[1])
    stream = (_rounds(words) + words).T.tobytes()
    r, s, total = number(stream[:16]) & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, number(stream[16:32]), 0
    text = b"".join(part + bytes(-len(part) % 16) for part in (associated, data))
    text += len(associated).to_bytes(8, "little") + len(data).to_bytes(8, "little")
    for at in range(0, len(text), 16):
        total = (total + number(text[at : at + 16] + b"\1")) * r % (2**130 - 5)
    assert tag == ((total + s) % 2**128).to_bytes(16, "little")
    return (np.frombuffer(data, "u1") ^ np.frombuffer(stream[64 : 64 + len(data)], "u1")).tobytes()


def expand(secret: bytes, info: bytes, size: int) -> bytes:
    """HKDF-Expand with SHA-256 (RFC 5869)."""
    result = last = b""
    while len(result) < size:
        last = hmac.digest(secret, last + info + bytes([len(result) // 32 + 1]), "sha256")
        result += last
    return result[:size]


def _block(record: bytes) -> Block:
    """Of a record that stores a block."""
    namespace, size, parent_size = number(record[28:32]), record[5], record[6]
    assert 16 <= size <= 64 and (parent_size == 0 or 16 <= parent_size <= 64)
    if record[4] == STORED:
        key, parent = record[32 : 32 + size], record[96 : 96 + parent_size]
        assert not any(record[32 + size : 96] + record[96 + parent_size : 160])
    else:
        key, parent = record[32:56], record[56:80]
        assert any(parent) == (parent_size > 0)
    return Block(number(record[16:24]), (namespace, key), (namespace, parent) if parent_size else None, number(record[24:28]), record)


class Slots:
    """The file of blocks: the shape of a slot, and the bytes of each."""

    def __init__(self, file: bytes, fingerprint: bytes, identity: bytes) -> None:
        shape = unpacked(fingerprint, b"KVMEMFIL", 3)
        own_size = number(file[-4096:-4092])
        own = unpacked(file[-4096:][4 : 4 + own_size], b"KVMEMFIL", 3)
        assert not any(file[-4096:][4 + own_size :])
        assert own["dimensions"].pop("identity") == identity
        assert own == shape
        sizes = shape["dimensions"]
        heads = sizes["num_heads"] or 1
        extents = {"L": sizes["num_layers"], "O": sizes["outer_dim"], "N": sizes["page_size"], "H": heads,
                   "C": sizes["inner_dim"] // heads}  # fmt: skip
        self.order = shape["arrangement"]["order"][1:]
        self.extents = [extents[axis] for axis in self.order]
        self.width, alignment = sizes["dtype_width"], sizes["alignment"]
        self.bytes = int(np.prod(self.extents)) * self.width
        self.stride = -(-self.bytes // alignment) * alignment
        self.count = sizes["num_blocks"]
        assert len(file) == -(-self.count * self.stride // 4096) * 4096 + 4096
        self.file = file

    def stored(self, slot: int) -> bytes:
        """The elements in the order of the slot, without padding."""
        return self.file[slot * self.stride :][: self.bytes]

    def by_layer(self, elements: bytes) -> bytes:
        """The elements by layer, outer slot, token and head, as checksums have them."""
        array = np.frombuffer(elements, f"V{self.width}").reshape(self.extents)
        return array.transpose([self.order.index(axis) for axis in "LONHC"]).tobytes()


class StoreFiles:
    """Files of a store that no process writes. `keys` are those of encrypted namespaces, by name."""

    def __init__(self, folder: pathlib.Path, keys: dict[str, bytes]) -> None:
        self.header = unpacked((folder / "store").read_bytes(), b"KVMEMSTO", 2)
        self.id = bytes(self.header["id"])
        self.slots = Slots((folder / "blocks.0").read_bytes(), self.header["layout"], self.id)
        assert self.slots.count == self.header["slots"]
        self.namespaces = self._read_namespaces(folder / "namespaces")
        self.purposes = {each["number"]: self._purposes(each, keys[each["name"]]) for each in self.namespaces if each["name"] in keys}
        self.retired: set[int] = set()
        self.skipped = 0
        """Records that are not valid."""
        self.records = 0
        self.generation, records = self._read_journal((folder / "index.0").read_bytes())
        writer = (folder / "writer").read_bytes()
        assert len(writer) == 84 and not any(writer[16:64]) and number(writer[80:]) == crc(writer[64:80], crc(self.id))
        self.writer, self.published = writer[:16].decode(), (number(writer[64:72]), number(writer[72:80]))
        self.blocks = [self._opened(block) for _, block in sorted(self._replay(records).items())]
        """Each with its elements in the order of the slot; None if its namespace is encrypted and has no key here."""

    def _read_namespaces(self, path: pathlib.Path) -> list[dict[str, typing.Any]]:
        if not path.exists():
            return []
        listed = unpacked(path.read_bytes(), b"KVMEMNSP", 1)
        assert bytes(listed["store"]) == self.id and all(1 <= each["number"] < listed["next"] for each in listed["list"])
        return typing.cast("list[dict[str, typing.Any]]", listed["list"])

    def _purposes(self, namespace: dict[str, typing.Any], key: bytes) -> dict[str, bytes]:
        """Keys of the cipher of a namespace."""
        header = hashlib.sha256()
        values = [part for name, value in self.header["values"] for part in (name.encode(), value)]
        for part in (self.id, self.header["slots"].to_bytes(8, "little"), *values, self.header["layout"]):
            header.update(len(part).to_bytes(8, "little") + part)
        secret = hmac.digest(bytes(namespace["encryption"]["salt"]), key, "sha256")
        after = namespace["number"].to_bytes(4, "little") + header.digest()
        sizes = {"blocks": 32, "hash": 32, "keys": 32, "check": 16}
        keys = {purpose: expand(secret, b"kvmem store 1 " + purpose.encode() + after, size) for purpose, size in sizes.items()}
        assert keys["check"] == bytes(namespace["encryption"]["check"])
        return keys

    def _read_journal(self, file: bytes) -> tuple[int, list[bytes]]:
        """The generation, and valid records in order."""
        size = number(file[:4])
        head = unpacked(file[4 : 4 + size], b"KVMEMIDX", 1)
        assert bytes(head["store"]) == self.id and not any(file[4 + size : RECORD]) and len(file) % RECORD == 0
        before = crc(self.id + head["generation"].to_bytes(8, "little"))
        records = []
        for at in range(RECORD, len(file), RECORD):
            record = file[at : at + RECORD]
            if number(record[:4]) == crc(record[4:], before) and number(record[8:16]) == at // RECORD - 1:
                records.append(record)
                self.records = at // RECORD
            else:
                self.skipped += 1
        return head["generation"], records

    def _replay(self, records: list[bytes]) -> dict[int, Block]:
        """What each slot has."""
        slots: dict[int, Block] = {}
        places: dict[Name, int] = {}
        for record in records:
            kind, slot = record[4], number(record[16:24])
            assert kind in (STORED, REMOVED, RETIRED, ENCRYPTED) and slot < self.slots.count and record[7] == 0
            if slot in slots:
                del places[slots.pop(slot).name]
            if kind in (REMOVED, RETIRED):
                assert not any(record[5:7] + record[24:])
                self.retired |= {slot} if kind == RETIRED else set()
                continue
            assert not any(record[160 if kind == STORED else 248 :])
            block = _block(record)
            if block.name in places:
                del slots[places[block.name]]
            ancestor = block.parent
            while ancestor in places and ancestor != block.name:
                ancestor = slots[places[ancestor]].parent
            slots[slot], places[block.name] = (block._replace(parent=None) if ancestor == block.name else block), slot
        assert not self.retired & slots.keys()
        return slots

    def _opened(self, block: Block) -> tuple[Block, bytes | None]:
        record, elements = block.record, self.slots.stored(block.slot)
        assert crc(self.slots.by_layer(elements)) == block.checksum
        if record[4] == STORED:
            return block, elements
        if block.name[0] not in self.purposes:
            return block, None
        purposes, nonce = self.purposes[block.name[0]], record[208:232]
        pad = expand(purposes["keys"], nonce, 128)
        both = bytes(a ^ b for a, b in zip(record[80:208], pad, strict=True))
        key, parent = both[: record[5]], both[64 : 64 + record[6]]
        hashes = [hmac.digest(purposes["hash"], text, "sha256")[:24] if text else bytes(24) for text in (key, parent)]
        assert hashes == [record[32:56], record[56:80]]
        associated = self.id + record[28:32] + record[32:56] + record[5:7] + record[80:208]
        elements = decrypted(purposes["blocks"], nonce, associated, elements, record[232:248])
        parents = (block.name[0], parent) if block.parent else None
        return block._replace(name=(block.name[0], key), parent=parents), elements

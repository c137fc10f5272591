"""Content of a segment: named flat arrays, a head that gives their numbers a meaning, texts, hash tables; and the file.

The head has a checksum of the arrays, too. It is verified if a file has outlived its writer. Readers do not verify it:
they map the file to read little of it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from turnout.base.files import new_file
from turnout.base.startup import pc
from turnout.base.untrusted import JsonObject
from turnout.conditions.anchor import Kind
from turnout.errors import TurnoutError

if TYPE_CHECKING:
    from turnout.subscriptions.index.facts import Fact


Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.int64]

_FIRST = 0x9E3779B97F4A7C15
_SECOND = 0xC2B2AE3D27D4EB4F
_SHIFT = 29
_ROOM = 2
"""Buckets for each row, at least."""


def arranged(hashes: NDArray[np.uint64]) -> tuple[Indices, NDArray[np.uint32]]:
    """Return the order that sorts the rows by hash, and the start of each bucket of equal top bits in it."""
    order = np.argsort(hashes, kind="stable")
    bits = max(4, int(len(hashes) * _ROOM).bit_length())
    counts = np.bincount((hashes >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits)
    starts = np.zeros(len(counts) + 1, np.uint32)
    np.cumsum(counts, out=starts[1:])
    return order, starts


def indices_of(mask: NDArray[np.generic]) -> Indices:
    """Return the indices of true elements, or of those that are not 0: faster than `numpy.flatnonzero`."""
    return mask.nonzero()[0]


def in_bucket(starts: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> tuple[Indices, Indices]:
    """Return pairs (index of the hash, row) of all rows in the hashes' buckets; equality is not checked."""
    bucket = (hashes >> np.uint64(shift_of(len(starts)))).view(np.int64)
    first = starts.take(bucket).astype(np.int64)
    count = starts.take(bucket + 1).astype(np.int64)
    count -= first
    some = indices_of(count)
    if len(some) == 0:
        return some, some
    which, row = expanded(first.take(some), count.take(some))
    return some.take(which), row


def shift_of(starts: int) -> int:
    """Return the number of bits to shift a hash by for its bucket, given the length of the table of starts."""
    return 65 - starts.bit_length()


def expanded(first: Indices, count: Indices) -> tuple[Indices, Indices]:
    """Return the elements of ranges: the index of the range, and the position."""
    ends = count.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if total == len(count) and (total == 0 or int(count.max()) == 1):
        return np.arange(total), first
    which = np.arange(len(count)).repeat(count)
    return which, np.arange(total) + (first - ends + count).take(which)


def viewed(array: NDArray[Any]) -> Sequence[Any]:
    """Return the array as a sequence, which reads single numbers faster than numpy."""
    return cast("Sequence[Any]", array.data)


def mixed(keys: Longs) -> NDArray[np.uint64]:
    """A hash of each number: no two numbers have the same."""
    x = keys.view(np.uint64) * np.uint64(_FIRST)
    x ^= x >> np.uint64(_SHIFT)
    x *= np.uint64(_SECOND)
    return x


class Texts:
    """Texts by number, with no object for each of them.

    Args:
        offsets: start of each text in *data*, and the end of the last one.
        data: UTF-8.
    """

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self.offsets = offsets
        self.data = data
        self._at = viewed(offsets)
        self._bytes = memoryview(data.data)

    @classmethod
    def of(cls, raws: Sequence[bytes]) -> Texts:
        """These texts."""
        offsets = np.zeros(len(raws) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, raws), np.int64, len(raws)), out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(raws), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, number: int) -> bytes:
        """Return a text as UTF-8."""
        return bytes(self._bytes[self._at[number] : self._at[number + 1]])

    def text(self, number: int) -> str:
        """Return a text."""
        return self.raw(number).decode("utf-8", "surrogatepass")

    def equal(self, numbers: NDArray[np.int64], raws: Sequence[bytes]) -> NDArray[np.bool_]:
        """Return True for each text that equals the one at the same index."""
        equal = pc.equal(self._take(pa.large_binary(), numbers), Texts.of(raws).arrow(pa.large_binary()))
        # `to_numpy` would import pandas too.
        bits = np.unpackbits(np.frombuffer(equal.buffers()[1], np.uint8), bitorder="little")
        return bits[equal.offset : equal.offset + len(equal)].view(np.bool_)

    def strings(self, numbers: NDArray[np.int64]) -> pa.StringArray:
        """Some texts as an Arrow array of strings."""
        return self._take(pa.large_string(), numbers).cast(pa.string())

    def _take(self, type_: pa.DataType, numbers: NDArray[np.int64]) -> pa.Array:
        return self.arrow(type_).take(integers(numbers))

    def arrow(self, type_: pa.DataType) -> pa.Array:
        """All texts as an Arrow array of a type with long offsets; nothing is copied."""
        return pa.Array.from_buffers(type_, len(self), [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)])


def integers(numbers: NDArray[np.int64]) -> pa.Int64Array:
    """Return the numbers as an Arrow array over their buffer; `pyarrow.array` would import pandas."""
    flat = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(flat), [None, pa.py_buffer(flat)])


EQUAL: Final = 0
"""A single fact (*a*) has the literal *b*."""
ONE_OF: Final = 1
"""A fact (*a*) has a literal of the set *b*."""
LIMITS: Final = 2
"""The number that the key *a* has as its value is between the limits *b*."""
MANY: Final = 3
"""A fact of many texts (*a*) has the literal *b* among them."""
HOLDS: Final = 4
"""The value of the key *a* passes the test *b*, which has to be carried out."""
TREE: Final = 5
"""The tree *b* is true."""
GROUP: Final = 6
"""Only in trees: from *a* to *b* of the node's children are true."""
JUST_ONE: Final = 7
"""`ONE_OF` for alternatives that exclude each other: of several values, one member of the set in all."""


@dataclass(frozen=True, slots=True)
class Head:
    """Meaning of the numbers in a segment's arrays.

    Attributes:
        keys: the metadata keys that are read.
        facts: by number.
        probed: the facts that entries are found by.
        always: the first of the entries that are checked for every message.
        paired: the first of the entries that are found by two literals at once; the always ones end here.
        overlapping: True if a subscription can be found several times for one message.
    """

    keys: tuple[str, ...]
    facts: tuple[Fact, ...]
    probed: tuple[int, ...]
    always: int
    paired: int
    overlapping: bool

    def as_json(self) -> JsonObject:
        """The head as plain data."""
        return {
            "keys": self.keys,
            "facts": [[key, list(kind)] for key, kind in self.facts],
            "probed": self.probed,
            "always": self.always,
            "paired": self.paired,
            "overlapping": self.overlapping,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> Head:
        """The head that `as_json` wrote."""
        facts = tuple((key, Kind(*kind)) for key, kind in data["facts"])
        return cls(
            tuple(data["keys"]), facts, tuple(data["probed"]), data["always"], data["paired"], data["overlapping"]
        )


@dataclass(frozen=True, slots=True)
class Arrays:
    """The flat arrays. Literals are numbered from 1 in the order of their hashes; 0 is any text that is none.

    Attributes:
        literal_hash: hash of each literal, beginning with literal 1.
        literal_fact: fact of its text.
        literal_start: start of the buckets of hashes.
        literal_text: the texts themselves.
        entries_at: by literal: its first entry; the next one's first ends them.
        ways_at: by literal: the first of its second facts, see `way_fact`; empty if no literal has any.
        way_fact: the fact to look up next, for those of the literal's entries that also need a literal of it.
        pair_key: key of each paired entry, the way in the upper half and the literal in the lower.
        pair_start: start of the buckets of their hashes.
        entry_subscription: by entry.
        entry_program: remaining checks of each entry; entries with the same ones share them.
        checks_at: by program: its first check.
        check_op: operation, times two, plus one if it is negated.
        check_a: see `EQUAL` and the others.
        check_b: see there.
        set_key: members of sets, the set in the upper half and the literal in the lower.
        set_start: start of the buckets of their hashes.
        set_bits: by set: the bits of its literals' numbers modulo 64: most that is not in a set has another.
        limit_low: the least number that will do.
        limit_high: the greatest.
        cuts_at: by key: the first of its cuts.
        cuts: the numbers at which the cells of a key begin, see `turnout.subscriptions.index.facts`.
        test_form: of tests that have to be carried out: an operation, and whether it is partial or folded.
        test_text: its text.
        test_last: its last address.
        tree_at: by tree: its first node.
        node_op: as `check_op`; nodes come after their parents.
        node_a: as `check_a`.
        node_b: as `check_b`.
        node_parent: distance back to the parent, in nodes; 0 for the root.
        node_depth: 0 for the root.
        ids: ids of the subscriptions.
        destinations_at: by subscription: its first destination.
        destination: index of its text in `destinations`.
        destinations: each once.
        expires_record: by subscription: the time of a record, in milliseconds since 1970, from which on it matches
            nothing; empty where no subscription has one.
        expires_wall: the same for the clock.
        project: by subscription: index of its text in `projects`, -1 for none; empty where no subscription has one.
        projects: expressions, each once.
    """

    literal_hash: NDArray[np.uint64]
    literal_fact: Ints
    literal_start: NDArray[np.uint32]
    literal_text: Texts
    entries_at: Ints
    ways_at: Ints
    way_fact: Ints
    pair_key: Longs
    pair_start: NDArray[np.uint32]
    entry_subscription: Ints
    entry_program: Ints
    checks_at: Ints
    check_op: NDArray[np.uint8]
    check_a: Ints
    check_b: Ints
    set_key: Longs
    set_start: NDArray[np.uint32]
    set_bits: NDArray[np.uint64]
    limit_low: NDArray[np.float64]
    limit_high: NDArray[np.float64]
    cuts_at: Ints
    cuts: NDArray[np.float64]
    test_form: NDArray[np.uint8]
    test_text: Texts
    test_last: Texts
    tree_at: Ints
    node_op: NDArray[np.uint8]
    node_a: Ints
    node_b: Ints
    node_parent: Ints
    node_depth: NDArray[np.uint8]
    ids: Texts
    destinations_at: Ints
    destination: Ints
    destinations: Texts
    expires_record: Longs
    expires_wall: Longs
    project: Ints
    projects: Texts


_MAGIC = b"TURNOUTX"
_VERSION = 8
_PREFIX = struct.Struct("<8sIIQ")
"""Magic, version, length of the head, its checksum."""
_EDGE = 64
_CURE = "build the index again, or carry the file here again"


class IndexFileError(TurnoutError):
    """Raised when a file of an index is missing, damaged or of another version.

    Attributes:
        path: the file.
    """

    def __init__(self, path: Path, problem: str, cure: str) -> None:
        super().__init__(f"{path}: {problem}; {cure}")
        self.path = path
        self._parts = (path, problem, cure)

    def __reduce__(self) -> tuple[type[IndexFileError], tuple[Path, str, str]]:
        return type(self), self._parts


def write_segment(path: Path, head: Head, arrays: Arrays) -> None:
    """Write the file, readable by its owner only; it appears under its name when it is whole."""
    flat = {name: np.ascontiguousarray(array) for name, array in _flat(arrays)}
    offsets, at = {}, 0
    for name, array in flat.items():
        offsets[name] = (at, array.dtype.str, len(array))
        at = _edge(at + array.nbytes)
    about = {"arrays": offsets, "size": at, "checksum": _checksum(flat)}
    text = json.dumps({**head.as_json(), **about}).encode()
    # No fsync: a damaged segment is recognised and built again from the store.
    with new_file(path, fsync=False) as file:
        file.write(_PREFIX.pack(_MAGIC, _VERSION, len(text), xxhash.xxh64_intdigest(text)))
        file.write(text)
        base = _edge(file.tell())
        _write_arrays(file, base, flat, offsets)
        file.truncate(base + at)


ArrayPlace: TypeAlias = tuple[int, str, int]
"""Position of an array behind the head, its data type and its length."""


def _write_arrays(
    file: IO[bytes], base: int, flat: dict[str, NDArray[np.generic]], offsets: dict[str, ArrayPlace]
) -> None:
    for name, array in flat.items():
        file.seek(base + offsets[name][0])
        file.write(array.data)


def _checksum(flat: dict[str, NDArray[np.generic]]) -> str:
    digest = xxhash.xxh3_64()
    for array in flat.values():
        digest.update(array.data)
    return digest.hexdigest()


def _flat(arrays: Arrays) -> list[tuple[str, NDArray[np.generic]]]:
    flat: list[tuple[str, NDArray[np.generic]]] = []
    for field in fields(Arrays):
        value = getattr(arrays, field.name)
        if isinstance(value, Texts):
            flat += [(f"{field.name}.offsets", value.offsets), (f"{field.name}.data", value.data)]
        else:
            flat.append((field.name, value))
    return flat


def _edge(at: int) -> int:
    return -(-at // _EDGE) * _EDGE


def in_one(arrays: Arrays) -> tuple[Arrays, NDArray[np.uint8]]:
    """Return a copy of the arrays within one array of bytes, as they are in a file, and that array."""
    offsets: dict[str, ArrayPlace] = {}
    at = 0
    flat = dict(_flat(arrays))
    for name, array in flat.items():
        offsets[name] = (at, array.dtype.str, len(array))
        at = _edge(at + array.nbytes)
    image = np.zeros(at, np.uint8)
    for name, array in flat.items():
        begin = offsets[name][0]
        image[begin : begin + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    image.flags.writeable = False
    return _arrays(image, 0, offsets), image


def map_segment(path: Path) -> tuple[Head, Arrays, NDArray[np.uint8]]:
    """Return the segment in a file, whose arrays are read from disk on access, and all of them as bytes.

    Raises:
        IndexFileError: there is no such file, or it is none of ours, of another version, or damaged.
    """
    head, arrays, image, _ = _mapped(path)
    return head, arrays, image


def checked_segment(path: Path) -> tuple[Head, Arrays]:
    """The segment in the file, all of which has been read: a power cut leaves zeros where arrays were.

    Raises:
        IndexFileError: there is no such file, or it is none of ours, of another version, or damaged anywhere.
    """
    head, arrays, _, checksum = _mapped(path)
    if _checksum(dict(_flat(arrays))) != checksum:
        raise IndexFileError(path, "is damaged: the checksum of its arrays is wrong", _CURE)
    return head, arrays


def _mapped(path: Path) -> tuple[Head, Arrays, NDArray[np.uint8], str]:
    """Return the head, the arrays, all of them as bytes, and the checksum that they should have."""
    try:
        mapped = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as problem:
        raise IndexFileError(path, f"cannot be mapped ({problem})", _CURE) from problem
    data, base = _head(path, mapped)
    if len(mapped) < base + data["size"]:
        raise IndexFileError(path, f"is cut off: {len(mapped)} of {base + data['size']} bytes", _CURE)
    image = np.asarray(mapped)[base : base + data["size"]]
    return Head.from_json(data), _arrays(image, 0, data["arrays"]), image, data["checksum"]


def _head(path: Path, mapped: NDArray[np.uint8]) -> tuple[JsonObject, int]:
    """Return the header of the file, and the offset of its arrays."""
    if len(mapped) < _PREFIX.size:
        raise IndexFileError(path, "is no segment of an index: it is too short", _CURE)
    magic, version, length, checksum = _PREFIX.unpack(mapped[: _PREFIX.size].tobytes())
    if magic != _MAGIC:
        raise IndexFileError(path, "is no segment of an index", _CURE)
    if version != _VERSION:
        raise IndexFileError(
            path,
            f"is a segment of version {version}, and this turnout reads version {_VERSION}",
            "let one version of turnout write and read the folder",
        )
    text = mapped[_PREFIX.size : _PREFIX.size + length].tobytes()
    if len(text) != length or xxhash.xxh64_intdigest(text) != checksum:
        raise IndexFileError(path, "is damaged: the checksum of its head is wrong", _CURE)
    return json.loads(text), _edge(_PREFIX.size + length)


def _arrays(mapped: NDArray[np.uint8], base: int, offsets: dict[str, ArrayPlace]) -> Arrays:
    def array(name: str) -> NDArray[Any]:
        at, dtype, count = offsets[name]
        kind = np.dtype(dtype)
        return mapped[base + at : base + at + kind.itemsize * count].view(kind)

    parts: JsonObject = {}
    for field in fields(Arrays):
        if field.name in offsets:
            parts[field.name] = array(field.name)
        else:
            parts[field.name] = Texts(array(f"{field.name}.offsets"), array(f"{field.name}.data"))
    return Arrays(**parts)

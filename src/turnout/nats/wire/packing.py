"""Messages that a publisher sends together, and their conversion to publish frames, a thousand at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.startup import pc
from turnout.errors import ConfigError, Mistake, StreamError
from turnout.loops.compiled import Bytes, Int32s
from turnout.loops.frames import write_frames
from turnout.nats.protocol.frames import frame
from turnout.nats.protocol.headers import (
    KV_OPERATION,
    MARKER_REASON,
    MESSAGE_ID,
    NAME_RULE,
    OPERATIONS,
    UNFIT_NAME,
    block_of,
    header_of_key,
)
from turnout.records.headers import has_match, headers_type
from turnout.records.published import TOO_LARGE, Refuse
from turnout.records.types import ArrowArray, Binaries, Strings

_BINARY: Final = pa.binary()
_STRING: Final = pa.string()
_TEXTS: Final = np.frombuffer(b"HPUB NATS/1.0\r\n\r\n", np.uint8)
_NOTHING: Final = np.zeros(0, np.uint8), np.zeros(0, np.int32)
_MOST_BYTES: Final = 80
"""Bytes of a frame beside its subject, its payload, its header lines and the lead of its reply subject: 19 digits of a
number, 20 of sizes, and 28 of the rest."""
_BAD_VALUE = re.compile(rb"[\r\n]")
_VALUE_RULE = "a header's value cannot hold a line break"
# Not allowed in a header line: line breaks, and blanks at its ends, which readers drop.
_UNFIT_ID = r"[\r\n]|^[ \t]|[ \t]$"
_BLANK = re.compile(rb"[\r\n \t]")
_MARKER = MARKER_REASON.lower()

ID_LEAD = MESSAGE_ID.encode() + b": "
"""Beginning of the header line of a message id."""

_MAX_LISTED_MESSAGES = 48
"""Up to so many headers are written one by one: a call of Arrow's takes as long as some of them."""


def pack(
    subjects: Strings, payloads: Binaries, lines: Binaries | None, lead: bytes, first: int = -1
) -> tuple[memoryview, NDArray[np.int64]]:
    """The frames of some messages in one buffer, and where each begins, with the end behind them.

    Args:
        subjects: strings, no nulls.
        payloads: binary, no nulls.
        lines: the header lines of each message as binary, each line with its end; None where no message has any.
        lead: the reply subject that all share, or the beginning of those with numbers.
        first: number at the end of the first message's reply subject, which the others continue; -1 for none.
    """
    columns = [_flat(subjects), _flat(payloads), _NOTHING if lines is None else _flat(lines)]
    return _pack(len(subjects), columns, lead, first)


def pack_lists(
    subjects: Sequence[bytes], payloads: Sequence[bytes], lines: Sequence[bytes] | None, lead: bytes, first: int = -1
) -> tuple[memoryview, NDArray[np.int64]]:
    """Return the frames of messages as lists, as `pack` does."""
    columns = [_joined(subjects), _joined(payloads), _NOTHING if lines is None else _joined(lines)]
    return _pack(len(subjects), columns, lead, first)


def _pack(
    count: int, columns: Sequence[tuple[Bytes, Int32s]], lead: bytes, first: int
) -> tuple[memoryview, NDArray[np.int64]]:
    size = sum(int(offsets[-1] - offsets[0]) for _, offsets in columns if len(offsets))
    frames = np.empty(size + count * (len(lead) + _MOST_BYTES), np.uint8)
    edges = np.empty(count + 1, np.int64)
    flat = (part for column in columns for part in column)
    write_frames(*flat, _TEXTS, np.frombuffer(lead, np.uint8), first, count, frames, edges)  # type: ignore[call-arg, arg-type]
    return memoryview(frames.data)[: int(edges[-1])], edges


def _joined(values: Sequence[bytes]) -> tuple[Bytes, Int32s]:
    """Return the bytes of all values, and the offset of each of them with the end of the last."""
    return np.frombuffer(b"".join(values), np.uint8), np.array([0, *accumulate(map(len, values))], np.int32)


def _flat(array: ArrowArray) -> tuple[Bytes, Int32s]:
    """Return the bytes of all values of an array, and the offset of each of them with the end of the last."""
    if array.type not in (_BINARY, _STRING):
        array = array.cast(_BINARY)
    _, offsets, data = array.buffers()
    if not len(array):
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), ends


def have_ids(lines: Binaries | None) -> bool:
    """Return True if the header lines of each message begin with a message id."""
    return lines is not None and bool(pc.all(pc.starts_with(lines, ID_LEAD)).as_py())


def id_lines(ids: Strings) -> Binaries:
    """The header line of each message id; empty where it is null or empty.

    An id that is not allowed in a header is written as hexadecimal digits.
    """
    if len(ids) <= _MAX_LISTED_MESSAGES:
        return pa.array([id_line(one) if one else b"" for one in ids.to_pylist()], pa.binary())
    ids = ids.cast(pa.binary()).fill_null(b"")
    if has_match(_BLANK, ids):
        unfit = pc.match_substring_regex(ids, _UNFIT_ID)
        texts = [_hex(raw) if bad else raw for raw, bad in zip(ids.to_pylist(), unfit.to_pylist(), strict=True)]
        ids = pa.array(texts, type=pa.binary())
    lines = _join([MESSAGE_ID.encode() + b": ", ids, b"\r\n"])
    return pc.if_else(pc.equal(pc.binary_length(ids), 0), _scalar(b""), lines)


def id_line(id_: str | bytes) -> bytes:
    """Return the header line of a message id, as `id_lines` does."""
    raw = id_.encode() if isinstance(id_, str) else id_
    fit = _hex(raw) if raw.strip(b" \t") != raw or _BAD_VALUE.search(raw) else raw
    return b"%b%b\r\n" % (ID_LEAD, fit)


def _hex(raw: bytes) -> bytes:
    return b"0x" + raw.hex().encode()


def header_lines(headers: ArrowArray, without: Callable[[str], bool] | None = None) -> Binaries:
    """The header lines of each list of ``{key, value}``.

    Args:
        headers: as `turnout.records.headers.headers_type` has them.
        without: whether to leave out all headers of a name; called once for each.

    Raises:
        ConfigError: when a name or a value would break out of its line; the value is not repeated.
    """
    if len(headers) <= _MAX_LISTED_MESSAGES and headers.type == headers_type():
        return _header_lines_of_listed(headers, without)
    parents = pc.list_parent_indices(headers).to_numpy()
    pairs = pc.list_flatten(headers)
    texts = pc.struct_field(pairs, [0]).cast(pa.string())
    values = pc.struct_field(pairs, [1]).cast(pa.binary()).fill_null(b"")
    distinct = pc.unique(texts).to_pylist()
    excluded = [name for name in distinct if name is None or (without is not None and without(name))]
    if any(name is not None and name.lower() == _MARKER for name in excluded):
        # The marks of deletions are few, and are written by their records.
        return _header_lines_of_listed(headers, without)
    if excluded:
        allowed = pc.invert(pc.is_in(texts, value_set=pa.array(excluded, pa.string())))
        texts, values, parents = (
            texts.filter(allowed),
            values.filter(allowed),
            parents[allowed.to_numpy(zero_copy_only=False)],
        )
    _check(texts, values, set(distinct).difference(excluded))
    lines = _join([texts.cast(pa.binary()), b": ", values, b"\r\n"])
    offsets = np.zeros(len(headers) + 1, dtype=np.int32)
    np.cumsum(np.bincount(parents, minlength=len(headers)), out=offsets[1:])
    # A list of lines joins to one text because its data are contiguous already.
    ends = np.frombuffer(lines.buffers()[1], dtype=np.int32)[: len(lines) + 1] if len(lines) else np.zeros(1, np.int32)
    edges = pa.py_buffer(np.ascontiguousarray(ends[offsets]))
    return pa.Array.from_buffers(pa.binary(), len(headers), [None, edges, lines.buffers()[2] or pa.py_buffer(b"")])


def _header_lines_of_listed(headers: ArrowArray, without: Callable[[str], bool] | None) -> Binaries:
    listed = ([(pair["key"], pair["value"]) for pair in pairs or ()] for pairs in headers.to_pylist())
    return pa.array([header_block(pairs, without) for pairs in listed], pa.binary())


def header_block(
    headers: Iterable[tuple[str | None, bytes | None]], without: Callable[[str], bool] | None = None
) -> bytes:
    """Return the header lines of one message, as `header_lines` does.

    A deletion that a server has marked stays one where that mark is left out: it gets the mark of clients.

    Raises:
        ConfigError: as `header_lines`.
    """
    block: list[bytes] = []
    operation = None
    for name, value in headers:
        if name is None:
            continue
        if without is not None and without(name):
            if name.lower() == _MARKER:
                operation = OPERATIONS.get((value or b"").strip().lower())
            continue
        if UNFIT_NAME.search(name):
            raise _mistake(name, NAME_RULE)
        if value and _BAD_VALUE.search(value):
            raise _mistake(name, _VALUE_RULE)
        block += (name.encode(), b": ", value or b"", b"\r\n")
    if operation is not None and KV_OPERATION.encode() not in block:
        block += (KV_OPERATION.encode(), b": ", operation, b"\r\n")
    return b"".join(block)


def key_lines(name: str, keys: Iterable[bytes | None]) -> Binaries:
    """Return the header line with each key; empty for one that is null."""
    lead = f"{name}: ".encode()
    return pa.array([b"" if key is None else b"%b%b\r\n" % (lead, header_of_key(key)) for key in keys], pa.binary())


def _check(names: Strings, values: Binaries, distinct: Iterable[str]) -> None:
    for name in distinct:
        if UNFIT_NAME.search(name):
            raise _mistake(name, NAME_RULE)
    if not has_match(_BAD_VALUE, values):
        return
    bad = pc.match_substring_regex(values, _BAD_VALUE.pattern)
    raise _mistake(names[pc.index(bad, True).as_py()].as_py(), _VALUE_RULE)


def _mistake(name: str, problem: str) -> ConfigError:
    return ConfigError([Mistake(f"headers.{name!r}", problem)], what="NATS message")


def _join(parts: list[ArrowArray]) -> Binaries:
    """Concatenate the parts of each message; a part of type bytes is the same in every message."""
    operands = [_scalar(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*operands, _scalar(b""))


def _scalar(text: bytes) -> ArrowArray:
    return pa.scalar(text, type=pa.binary())


Numbers = NDArray[np.int64]

_FEW_MESSAGES: Final = 4
"""Up to so many are written one by one, which takes less time than to make arrays of them."""


class PublishedMessages(Protocol):
    """Messages that are sent together."""

    @property
    def refused(self) -> Refuse | None:
        """Callback for a message that will never be stored; None if that is an error."""

    @property
    def since(self) -> float:
        """Time when they were handed over, by the monotonic clock; they keep it when they are sent again."""

    @property
    def subjects(self) -> Strings:
        """Subjects as an array."""

    @property
    def payloads(self) -> Binaries:
        """Payloads as an array, of the same length."""

    @property
    def lines(self) -> Binaries | None:
        """Header lines as an array; None where there are none."""

    def __len__(self) -> int: ...

    def refuse(self, row: int, reason: StreamError) -> None:
        """Report a message that will never be stored.

        Raises:
            StreamError: where refusals are not collected.
        """

    def take(self, rows: Numbers) -> PublishedMessages:
        """Return the messages at the given indices."""

    def distinct_subjects(self) -> Collection[str]:
        """Return the different subjects."""

    def have_ids(self) -> bool:
        """Return True if the header lines of each message begin with its id."""

    def most_bytes(self) -> int:
        """Return a bound of the size of each message with its headers."""

    def frames(self, lead: bytes, first: int = -1) -> tuple[memoryview, Numbers]:
        """Return the concatenated frames, and where each begins with the end of the last.

        Args:
            lead: the reply subject of all messages, or its beginning.
            first: number at the end of the first message's reply subject, which the others continue; -1 for none.
        """


@dataclass(frozen=True)
class PublishedColumns:
    """Messages as Arrow arrays; see `PublishedMessages`.

    Attributes:
        rows: the argument of *refused* for each message.
    """

    subjects: Strings
    payloads: Binaries
    lines: Binaries | None
    refused: Refuse | None = None
    rows: Numbers | None = None
    since: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self.subjects)

    def refuse(self, row: int, reason: StreamError) -> None:
        """See `PublishedMessages`."""
        if self.refused is None or self.rows is None:
            raise reason
        self.refused(int(self.rows[row]), reason)

    def take(self, rows: Numbers) -> PublishedColumns:
        """See `PublishedMessages`."""
        chosen = pa.array(rows)
        return PublishedColumns(
            self.subjects.take(chosen),
            self.payloads.take(chosen),
            None if self.lines is None else self.lines.take(chosen),
            self.refused,
            None if self.rows is None else self.rows[rows],
            self.since,
        )

    def distinct_subjects(self) -> Collection[str]:
        """See `PublishedMessages`."""
        return pc.unique(self.subjects).to_pylist()  # type: ignore[no-any-return]

    def have_ids(self) -> bool:
        """See `PublishedMessages`."""
        return have_ids(self.lines)

    def most_bytes(self) -> int:
        """See `PublishedMessages`."""
        return self.payloads.nbytes + (0 if self.lines is None else self.lines.nbytes) + 12  # type: ignore[no-any-return]

    def frames(self, lead: bytes, first: int = -1) -> tuple[memoryview, Numbers]:
        """See `PublishedMessages`."""
        return pack(self.subjects, self.payloads, self.lines, lead, first)


@dataclass(frozen=True)
class PublishedLists:
    """A few messages as lists; see `PublishedMessages`. Arrays are made after a refusal or a lost connection.

    Attributes:
        refused: its argument is the index of the message.
    """

    subject_list: Sequence[str]
    payload_list: Sequence[bytes]
    line_list: Sequence[bytes] | None
    refused: Refuse | None = None
    since: float = field(default_factory=time.monotonic)

    def __len__(self) -> int:
        return len(self.subject_list)

    @property
    def subjects(self) -> Strings:
        """See `PublishedMessages`."""
        return self._columns.subjects

    @property
    def payloads(self) -> Binaries:
        """See `PublishedMessages`."""
        return self._columns.payloads

    @property
    def lines(self) -> Binaries | None:
        """See `PublishedMessages`."""
        return self._columns.lines

    @cached_property
    def _columns(self) -> PublishedColumns:
        lines = None if self.line_list is None else pa.array(self.line_list, pa.binary())
        subjects, payloads = pa.array(self.subject_list, pa.string()), pa.array(self.payload_list, pa.binary())
        return PublishedColumns(subjects, payloads, lines, self.refused, np.arange(len(self)), self.since)

    def refuse(self, row: int, reason: StreamError) -> None:
        """See `PublishedMessages`."""
        self._columns.refuse(row, reason)

    def take(self, rows: Numbers) -> PublishedColumns:
        """See `PublishedMessages`."""
        return self._columns.take(rows)

    def distinct_subjects(self) -> Collection[str]:
        """See `PublishedMessages`."""
        return set(self.subject_list)

    def have_ids(self) -> bool:
        """See `PublishedMessages`."""
        return self.line_list is not None and all(line.startswith(ID_LEAD) for line in self.line_list)

    def most_bytes(self) -> int:
        """See `PublishedMessages`."""
        return sum(map(len, self.payload_list)) + sum(map(len, self.line_list or ())) + 12

    def frames(self, lead: bytes, first: int = -1) -> tuple[memoryview, Numbers]:
        """See `PublishedMessages`."""
        if len(self) > _FEW_MESSAGES:
            subjects = list(map(str.encode, self.subject_list))
            return pack_lists(subjects, self.payload_list, self.line_list, lead, first)
        reply, frames = lead.decode(), []
        heads = [b""] * len(self) if self.line_list is None else map(block_of, self.line_list)
        for row, (subject, payload, head) in enumerate(zip(self.subject_list, self.payload_list, heads, strict=True)):
            frames.append(frame(subject, payload, reply if first < 0 else f"{reply}{first + row}", head))
        return memoryview(b"".join(frames)), np.array([0, *accumulate(map(len, frames))], np.int64)


def small_enough(messages: PublishedMessages, limit: int) -> PublishedMessages:
    """Return the messages of at most *limit* bytes with headers; larger messages are refused."""
    # Mostly all of them together are no larger than one may be.
    if messages.most_bytes() <= limit:
        return messages
    sizes = pc.binary_length(messages.payloads)
    if messages.lines is not None:
        sizes = pc.add(sizes, pc.add(pc.binary_length(messages.lines), 12))
    if pc.max(sizes).as_py() <= limit:
        return messages
    too_large = pc.greater(sizes, limit).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(too_large).tolist():
        subject, size = messages.subjects[row].as_py(), sizes[row].as_py()
        text = f"a message on {subject!r} has {size:,} bytes with its headers, the server takes {limit:,}"
        messages.refuse(row, StreamError(f"{text} (its max_payload)", code=TOO_LARGE))
    return messages.take(np.flatnonzero(~too_large))

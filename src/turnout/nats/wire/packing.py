"""Conversion of Arrow columns to publish frames, a thousand messages at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.deferred import pc
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.headers import (
    KV_OPERATION,
    MARKER_REASON,
    MESSAGE_ID,
    NAME_RULE,
    OPERATIONS,
    UNFIT_NAME,
    header_of_key,
)
from turnout.records.header_column import ARROW
from turnout.records.headers import has_match
from turnout.records.types import ArrowArray, Binaries, Strings

_VERSION = b"NATS/1.0\r\n"
_BAD_VALUE = re.compile(rb"[\r\n]")
_VALUE_RULE = "a header's value cannot hold a line break"
# Not allowed in a header line: line breaks, and blanks at its ends, which readers drop.
_UNFIT_ID = r"[\r\n]|^[ \t]|[ \t]$"
_BLANK = re.compile(rb"[\r\n \t]")
_MARKER = MARKER_REASON.lower()

ID_LEAD = MESSAGE_ID.encode() + b": "
"""Beginning of the header line of a message id."""

_MAX_LISTED_MESSAGES = 48
"""Up to so many messages are written one by one: a call of Arrow's takes as long as some of them."""


def pack(
    subjects: Binaries, payloads: Binaries, lines: Binaries | None, replies: Binaries | bytes
) -> tuple[ArrowArray, NDArray[np.int64]]:
    """The frames of some messages in one buffer, and where each begins, with the end behind them.

    Args:
        subjects: binary, no nulls.
        payloads: binary, no nulls.
        lines: the header lines of each message as binary, each line with its end; None where no message has any.
        replies: the reply subjects: bytes for one that all share, or binary without nulls.
    """
    count = len(subjects)
    if count <= _MAX_LISTED_MESSAGES:
        return _pack_by_lists(subjects, payloads, lines, replies)
    sizes = pc.binary_length(payloads)
    if lines is None:
        parts = [b"PUB ", subjects, b" ", replies, b" ", _digits(sizes), b"\r\n", payloads, b"\r\n"]
    else:
        heads = pc.add(pc.binary_length(lines), len(_VERSION) + 2)
        totals = _digits(pc.add(sizes, heads))
        opening = [b"HPUB ", subjects, b" ", replies, b" ", _digits(heads), b" ", totals, b"\r\n"]
        parts = [*opening, _VERSION, lines, b"\r\n", payloads, b"\r\n"]
    joined = _join(parts)
    edges = np.frombuffer(joined.buffers()[1], dtype=np.int32)[joined.offset : joined.offset + count + 1]
    return joined.buffers()[2], edges.astype(np.int64)


def _pack_by_lists(
    subjects: Binaries, payloads: Binaries, lines: Binaries | None, replies: Binaries | bytes
) -> tuple[ArrowArray, NDArray[np.int64]]:
    inboxes = replies if isinstance(replies, bytes) else replies.to_pylist()
    frames, edges = pack_lists(
        subjects.to_pylist(), payloads.to_pylist(), None if lines is None else lines.to_pylist(), inboxes
    )
    return pa.py_buffer(frames), np.array(edges, np.int64)


def pack_lists(
    subjects: Sequence[bytes],
    payloads: Sequence[bytes],
    lines: Sequence[bytes] | None,
    replies: Sequence[bytes] | bytes,
) -> tuple[bytes, list[int]]:
    """Return what `pack` does, from lists: one by one, which is faster for a few messages."""
    count = len(subjects)
    inboxes = [replies] * count if isinstance(replies, bytes) else replies
    blocks = [None] * count if lines is None else lines
    frames = []
    for subject, inbox, block, payload in zip(subjects, inboxes, blocks, payloads, strict=True):
        if block is None:
            frames.append(b"PUB %b %b %d\r\n%b\r\n" % (subject, inbox, len(payload), payload))
            continue
        head = len(_VERSION) + len(block) + 2
        sizes = b"%d %d" % (head, head + len(payload))
        frames.append(b"HPUB %b %b %b\r\n%b%b\r\n%b\r\n" % (subject, inbox, sizes, _VERSION, block, payload))
    return b"".join(frames), list(accumulate(map(len, frames), initial=0))


def numbered(lead: bytes, first: int, count: int) -> Binaries:
    """*count* reply subjects: *lead* and a number, from *first* on."""
    return _join([lead, _digits(np.arange(first, first + count))])


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
        headers: as `turnout.records.header_column.ARROW` has them.
        without: whether to leave out all headers of a name; called once for each.

    Raises:
        ConfigError: when a name or a value would break out of its line; the value is not repeated.
    """
    if len(headers) <= _MAX_LISTED_MESSAGES and headers.type == ARROW:
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


def _digits(numbers: ArrowArray) -> Binaries:
    return pc.cast(pa.array(numbers) if isinstance(numbers, np.ndarray) else numbers, pa.string()).cast(pa.binary())

"""Messages that a publisher sends together, as Arrow arrays or as lists."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.deferred import pc
from turnout.errors import StreamError
from turnout.nats.protocol.frames import frame
from turnout.nats.protocol.headers import block_of
from turnout.nats.wire.packing import ID_LEAD, have_ids, pack, pack_lists
from turnout.records.published import TOO_LARGE, Refuse
from turnout.records.types import Binaries, Strings

Numbers = NDArray[np.int64]

_FEW_MESSAGES: Final = 4
"""Up to so many are written one by one, which takes less time than to make arrays of them."""


class PublishedMessages(Protocol):
    """Messages that are sent together.

    Attributes:
        refused: callback for a message that will never be stored; None if that is an error.
        since: when they were handed over, by the monotonic clock; they keep it when they are sent again.
    """

    @property
    def refused(self) -> Refuse | None: ...

    @property
    def since(self) -> float: ...

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

"""Messages that a publisher sends together, as Arrow arrays or as lists."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from turnout.errors import StreamError
from turnout.nats.wire.packing import ID_LEAD, have_ids, pack, pack_few
from turnout.records.published import TOO_LARGE, Refuse
from turnout.records.types import Binaries, Strings

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class PublishedMessages:
    """Messages that are sent together.

    Attributes:
        subjects: as an Arrow array, like the next two, of one length.
        payloads: payloads of the messages.
        lines: their header lines; None where there are none.
        refused: callback for a message that will never be stored; None if that is an error.
        rows: its argument for each message.
        since: when they were handed over, by the monotonic clock; they keep it when they are sent again.
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
        """Report a message that will never be stored.

        Raises:
            StreamError: where refusals are not collected.
        """
        if self.refused is None or self.rows is None:
            raise reason
        self.refused(int(self.rows[row]), reason)

    def take(self, rows: Numbers) -> PublishedMessages:
        """Return the messages at the given indices."""
        chosen = pa.array(rows)
        return PublishedMessages(
            self.subjects.take(chosen),
            self.payloads.take(chosen),
            None if self.lines is None else self.lines.take(chosen),
            self.refused,
            None if self.rows is None else self.rows[rows],
            self.since,
        )

    def distinct_subjects(self) -> Collection[str]:
        """Return the different subjects."""
        return pc.unique(self.subjects).to_pylist()  # type: ignore[no-any-return]

    def have_ids(self) -> bool:
        """Return True if the header lines of each message begin with its id."""
        return have_ids(self.lines)

    def most_bytes(self) -> int:
        """Return a bound of the size of each message with its headers."""
        return self.payloads.nbytes + (0 if self.lines is None else self.lines.nbytes) + 12  # type: ignore[no-any-return]

    def frames(self, replies: Binaries | bytes) -> tuple[Binaries, Numbers]:
        """Return the concatenated frames, and the offset of each frame."""
        return pack(self.subjects.cast(pa.binary()), self.payloads, self.lines, replies)


class PublishedList(PublishedMessages):
    """A few messages as lists; their Arrow arrays are made when they are needed: after a refusal, a lost connection.

    Args:
        subjects: as a list, like the next two, of one length.
        payloads: payloads of the messages.
        lines: their header lines; None where there are none.
        refused: as in `PublishedMessages`; its argument is the index of the message.
    """

    def __init__(
        self, subjects: Sequence[str], payloads: Sequence[bytes], lines: Sequence[bytes] | None, refused: Refuse | None
    ) -> None:
        self.__dict__.update(
            _subjects=subjects, _payloads=payloads, _lines=lines, refused=refused, since=time.monotonic()
        )

    _subjects: Sequence[str]
    _payloads: Sequence[bytes]
    _lines: Sequence[bytes] | None

    def __len__(self) -> int:
        return len(self._subjects)

    @cached_property
    def subjects(self) -> Strings:
        """Subjects as an array."""
        return pa.array(self._subjects, pa.string())

    @cached_property
    def payloads(self) -> Binaries:
        """Payloads as an array."""
        return pa.array(self._payloads, pa.binary())

    @cached_property
    def lines(self) -> Binaries | None:
        """Header lines as an array."""
        return None if self._lines is None else pa.array(self._lines, pa.binary())

    @cached_property
    def rows(self) -> Numbers | None:
        """Index of each message."""
        return None if self.refused is None else np.arange(len(self))

    def distinct_subjects(self) -> Collection[str]:
        """See `PublishedMessages`."""
        return set(self._subjects)

    def have_ids(self) -> bool:
        """See `PublishedMessages`."""
        return self._lines is not None and all(line.startswith(ID_LEAD) for line in self._lines)

    def most_bytes(self) -> int:
        """See `PublishedMessages`."""
        return sum(map(len, self._payloads)) + sum(map(len, self._lines or ())) + 12

    def frames(self, replies: Binaries | bytes) -> tuple[bytes, Numbers]:
        """See `PublishedMessages`."""
        inboxes = replies if isinstance(replies, bytes) else replies.to_pylist()
        return pack_few([subject.encode() for subject in self._subjects], self._payloads, self._lines, inboxes)


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

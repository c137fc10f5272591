"""Codec of messages of one Protobuf schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.json_writing import Written
from turnout.codecs.protobuf.connect_schema import Message
from turnout.codecs.protobuf.kind import CONVERTER
from turnout.codecs.protobuf.message_values import MessageValues
from turnout.codecs.protobuf.reading import MessageReader
from turnout.codecs.protobuf.writing import MessageWriter
from turnout.records import Block, Positions, Schema


class Protobuf:
    """The format ``protobuf``: each value is one message of a schema that is known.

    An unchanged value is written as its original bytes, with the fields that its schema does
    not know. Of one that was changed those are lost, as in Connect.
    """

    format: ClassVar[str] = "protobuf"
    class_name: ClassVar[str] = CONVERTER

    def __init__(self, plan: Message, *, drops_unknown: bool = False) -> None:
        """A codec of a message, see `plan_of`.

        Args:
            plan: plan of the message.
            drops_unknown: whether fields that it does not have are left out of values of other formats.
        """
        self._plan = plan
        self._reader = MessageReader(plan)
        self._writer = MessageWriter(plan)
        self._values = MessageValues(plan, drops_unknown=drops_unknown)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return with_tombstones(rows, texts, self._read)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._reader.read(rows, texts, self)

    def encode(self, block: Block) -> list[bytes | None]:
        """See `Codec.encode`."""
        if block.origin is not None and block.origin.codec is self:
            return list(block.origin.texts)
        return attempt(*self._writer.write(block))

    def converted(self, block: Block) -> Written:
        """See `turnout.codecs.conversion.OfOneSchema`; values with a schema are written by names of fields."""
        return self._values.converted(block)

    def schema(self) -> Schema:
        """Return the Connect schema of the message."""
        return self._plan.schema

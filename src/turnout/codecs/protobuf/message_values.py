"""Values of other formats as messages: plain JSON by Protobuf's JSON mapping, values with a schema by their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import EncodeError
from google.protobuf.message_factory import GetMessageClass

from turnout.base.deferred import np
from turnout.codecs.codec import Decoded, text_for_people
from turnout.codecs.conversion import converted
from turnout.codecs.json_writing import Written
from turnout.codecs.protobuf.connect_schema import Message
from turnout.codecs.protobuf.reading import MessageReader
from turnout.codecs.protobuf.writing import MessageWriter
from turnout.errors import RecordError
from turnout.records import Block, Positions

_MAX_DEPTH: Final = 100


class MessageValues:
    """Writes values of other formats as one message; see `turnout.codecs.conversion.Target`.

    Args:
        plan: plan of the message.
        drops_unknown: whether fields that it does not have are left out.
    """

    def __init__(self, plan: Message, *, drops_unknown: bool = False) -> None:
        self.schemas = (plan.schema,)
        self._class = GetMessageClass(plan.descriptor)
        self._drops_unknown = drops_unknown
        self._reader = MessageReader(plan)
        self._writer = MessageWriter(plan)

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the messages that JSON texts are by Protobuf's JSON mapping."""
        bodies: list[bytes] = []
        good: list[int] = []
        errors: dict[int, RecordError] = {}
        for index, text in enumerate(texts):
            try:
                message = Parse(
                    text, self._class(), ignore_unknown_fields=self._drops_unknown, max_recursion_depth=_MAX_DEPTH
                )
                bodies.append(message.SerializeToString(deterministic=True))
                good.append(index)
            except (ParseError, EncodeError, ValueError, TypeError, RecursionError) as failure:
                errors[int(rows[index])] = RecordError(_in_words(str(failure), text))
        if not good:
            return [], errors
        blocks, failed = self._reader.read(rows[np.array(good, np.intp)], bodies, self)
        return blocks, errors | failed

    def encode(self, block: Block) -> Written:
        """Return the bytes of messages."""
        if block.origin is not None and block.origin.codec is self:
            return list(block.origin.texts), {}
        return self._writer.write(block)

    def converted(self, block: Block) -> Written:
        """Return the bytes of values of any schema, or of none."""
        if block.schema is None:
            return converted(block, self)
        try:
            return self._writer.write(block)
        except RecordError as error:
            return [None] * len(block), dict.fromkeys(range(len(block)), error)


def _in_words(problem: str, text: bytes) -> str:
    """Return a problem of the library with the field, the value and the cure."""
    _, _, found = problem.partition('Message type "')
    message, is_unknown, found = found.partition('" has no field named "')
    if is_unknown:
        name, _, above = found.partition('" at "')
        path = [*above.partition('".')[0].split(".")[1:], name.partition('".')[0]]
        return (
            f"{'.'.join(path)}: the message {message} has no such field; leave it out by ReplaceField, or let the "
            "format do it by unknownFields: drop"
        )
    if not text.lstrip().startswith(b"{"):
        return f"expected the fields of a message, found {text_for_people(text)}"
    return (
        f"{' '.join(problem.split())} (by Protobuf's JSON mapping); change the value by a transform, or write another "
        "message"
    )

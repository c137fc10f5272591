"""Interface of codecs: bytes on one side, values by column on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from turnout.errors import RecordError, TurnoutError
from turnout.records import Block, Positions, Schema

Decoded: TypeAlias = tuple[list[Block], dict[int, RecordError]]
"""The values that could be read, and the rows of those that could not."""


class Codec(Protocol):
    """Reads and writes the bytes of keys or values.

    >>> from turnout.codecs import FORMATS, Format, codec_of
    >>> [codec_of(Format(name)).class_name.rpartition(".")[2] for name in ("json", "connect-json", "long")]
    ['JsonConverter', 'JsonConverter', 'LongConverter']
    >>> "avro" in FORMATS
    False
    """

    @property
    def format(self) -> str:
        """The name that a route gives it."""
        ...

    @property
    def class_name(self) -> str:
        """Kafka's converter, as error headers name it."""
        ...

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """The values of these rows of a batch; one that cannot be read has an error and is in no block.

        Args:
            rows: the place of each text in the batch, ascending.
            texts: None is a tombstone and becomes a null.
        """
        ...

    def encode(self, block: Block) -> list[bytes | None]:
        """The bytes of each value of the block, in its order.

        Raises:
            RecordError: no value of the block can be written.
            EncodeErrors: some cannot.
        """
        ...

    def schema(self) -> Schema | None:
        """The schema that every value read has; None where values are schemaless or bring their own."""
        ...


class EncodeErrors(TurnoutError):  # noqa: N818 - several errors, not one
    """Raised when some values of a block cannot be written.

    Attributes:
        errors: place in the block → why.
        texts: what the others are, None at the places of errors.

    >>> failed = EncodeErrors({1: RecordError("a lone surrogate")}, [b"1", None])
    >>> str(failed), failed.texts
    ('1 of 2 values cannot be written: a lone surrogate', [b'1', None])
    """

    def __init__(self, errors: Mapping[int, RecordError], texts: list[bytes | None]) -> None:
        super().__init__(f"{len(errors)} of {len(texts)} values cannot be written: {next(iter(errors.values()))}")
        self.errors = dict(errors)
        self.texts = texts


def attempt(texts: list[bytes | None], errors: Mapping[int, RecordError]) -> list[bytes | None]:
    """Return the texts if no errors occurred.

    Raises:
        EncodeErrors: there are.
    """
    if errors:
        raise EncodeErrors(errors, [None if place in errors else text for place, text in enumerate(texts)])
    return texts


def text_for_people(value: Any) -> str:
    """Render a found value, short enough for a message."""
    shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."

"""Interface of codecs: bytes on one side, values by column on the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from turnout.base.options import Kind, Option, any_case, camel_case, read_options
from turnout.base.startup import np
from turnout.base.terminal import did_you_mean
from turnout.codecs.json_reading import Reader
from turnout.errors import ConfigError, Mistake, RecordError, TurnoutError
from turnout.records import Block, Positions, Schema, group
from turnout.records.block import rows_of
from turnout.records.text import json_of
from turnout.records.types import Column, DynamicValue, Value

Decoded: TypeAlias = tuple[list[Block], dict[int, RecordError]]
"""The decoded values, and the rows of the others."""


class Codec(Protocol):
    """Reads and writes the bytes of keys or values.

    >>> from turnout.codecs import FORMATS, Format, codec_of
    >>> [codec_of(Format(name)).class_name.rpartition(".")[2] for name in ("json", "connect-json", "long")]
    ['JsonConverter', 'JsonConverter', 'LongConverter']
    >>> "thrift" in FORMATS
    False
    """

    @property
    def format(self) -> str:
        """The name that a route gives it."""

    @property
    def class_name(self) -> str:
        """Kafka's converter, as error headers name it."""

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """Return the values of these rows of a batch; one that cannot be read has an error and is in no block.

        Args:
            rows: the index of each text in the batch, ascending.
            texts: None is a tombstone and becomes a null.
        """

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """Return the bytes of each value of the block, in its order.

        Raises:
            RecordError: no value of the block can be written.
            EncodeErrors: some cannot.
        """

    def schema(self) -> Schema | None:
        """Return the schema that every value read has; None where values are schemaless or bring their own."""


class Encoded(NamedTuple):
    """Values of a block as they are written.

    Attributes:
        texts: the bytes of each value, None at the indexes of errors.
        errors: index in the block → why.
        headers: the schema id of each value for the codec's header; None where no value has one.
    """

    texts: Sequence[bytes | None]
    errors: Mapping[int, RecordError]
    headers: list[bytes] | None = None


@runtime_checkable
class RecordCodec(Codec, Protocol):
    """Codec whose bytes depend on other parts of their record: its topic, and a header with the id of the schema."""

    @property
    def header(self) -> str:
        """The name of the header."""

    def decode_with(self, rows: Positions, texts: Sequence[bytes | None], headers: Sequence[bytes | None]) -> Decoded:
        """Decode as `decode` does, with the header of each record, None where it has none."""

    def encode_for(self, block: Block, topics: Sequence[str | None]) -> Encoded:
        """Encode a block whose records have these topics."""


_record_codecs: dict[type, bool] = {}


def as_record_codec(codec: Codec) -> RecordCodec | None:
    """Return the codec if its bytes depend on other parts of their record; None for other codecs.

    >>> from turnout.codecs import Format, codec_of
    >>> as_record_codec(codec_of(Format("json"))) is None
    True
    """
    # A check against a protocol takes longer than the decoding of a small batch.
    kind = type(codec)
    known = _record_codecs.get(kind)
    if known is None:
        known = _record_codecs[kind] = isinstance(codec, RecordCodec)
    return cast("RecordCodec", codec) if known else None


class EncodeErrors(TurnoutError):  # noqa: N818 - several errors, not one
    """Raised when some values of a block cannot be written.

    Attributes:
        errors: index in the block → why.
        texts: the texts, None at the indices of errors.

    >>> failed = EncodeErrors({1: RecordError("a lone surrogate")}, [b"1", None])
    >>> str(failed), failed.texts
    ('1 of 2 values cannot be written: a lone surrogate', [b'1', None])
    """

    def __init__(self, errors: Mapping[int, RecordError], texts: list[bytes | None]) -> None:
        super().__init__(f"{len(errors)} of {len(texts)} values cannot be written: {next(iter(errors.values()))}")
        self.errors = dict(errors)
        self.texts = texts


def attempt(texts: Sequence[bytes | None], errors: Mapping[int, RecordError]) -> Sequence[bytes | None]:
    """Return the texts if no errors occurred.

    Raises:
        EncodeErrors: there are.
    """
    if errors:
        raise EncodeErrors(errors, [None if index in errors else text for index, text in enumerate(texts)])
    return texts


def encode_each(block: Block, write: Callable[[DynamicValue], bytes]) -> Sequence[bytes | None]:
    """Return the result of *write* for each value of a block; nulls are tombstones.

    Raises:
        EncodeErrors: it has raised a `RecordError` for some.

    >>> (block,) = group(np.arange(2), None, ["Oulu", "Kemi"])
    >>> encode_each(block, str.encode)
    [b'Oulu', b'Kemi']
    """
    if block.kind == "null":
        return [None] * len(block)
    texts: list[bytes | None] = []
    errors: dict[int, RecordError] = {}
    for index, value in enumerate(block.whole()):
        try:
            texts.append(write(value))
        except RecordError as error:
            errors[index] = error
            texts.append(None)
    return attempt(texts, errors)


def decode_each(
    rows: Positions, texts: Sequence[bytes | None], read: Callable[[bytes], Value], schema: Schema | None = None
) -> Decoded:
    """Return the result of *read* for each text, of one schema; if it raises `RecordError`, the row has an error.

    >>> blocks, errors = decode_each(np.arange(2), [b"Oulu", None], bytes.decode)
    >>> [(block.kind, block.whole()) for block in blocks], errors
    ([('plain', ['Oulu']), ('null', [None])], {})
    """

    def decode(rows: Positions, texts: Sequence[bytes]) -> Decoded:
        values: list[Value] = []
        errors: dict[int, RecordError] = {}
        for row, text in zip(rows.tolist(), texts, strict=True):
            try:
                values.append(read(text))
            except RecordError as error:
                errors[row] = error
        good = rows[~np.isin(rows, list(errors))] if errors else rows
        return group(good, schema, values), errors

    return with_tombstones(rows, texts, decode, schema)


def with_tombstones(
    rows: Positions,
    texts: Sequence[bytes | None],
    read: Callable[[Positions, Column], Decoded],
    schema: Schema | None = None,
) -> Decoded:
    """Decode the texts with *read*, and return a null with this schema for each that is None."""
    if None not in texts:
        return read(rows, texts) if len(texts) else ([], {})
    present = [text for text in texts if text is not None]
    if not present:
        return [Block(rows, schema)], {}
    absent = np.fromiter((text is None for text in texts), np.bool_, len(texts))
    nulls = Block(rows[absent], schema)
    blocks, errors = read(rows[~absent], present)
    return [*blocks, nulls], errors


class Notation(Protocol):
    """Keys or values of a format as plain JSON.

    >>> from turnout.codecs import Format, notation_of
    >>> notation_of(Format("boolean")).decode(bytes([1]))
    True
    """

    def encode(self, plain: Value) -> bytes | None:
        """Return the bytes of a written value.

        Raises:
            ValueError: it has no bytes; names the expected form.
        """
        ...

    def decode(self, content: bytes | None) -> Value:
        """Return the notation of these bytes; the bytes themselves if they cannot be decoded."""
        ...


@dataclass(frozen=True, slots=True)
class TextNotation:
    """Notation of bytes that are text: a text stands for its bytes, anything else for its JSON.

    >>> TextNotation().encode("x"), TextNotation().encode({"n": 1}), TextNotation().decode(b'{"n": 1}')
    (b'x', b'{"n": 1}', {'n': 1})
    """

    codec: Codec | None = None

    def encode(self, plain: Value) -> bytes | None:
        """See `Notation.encode`."""
        if plain is None:
            return None
        text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, default=_date_text)
        return text.encode()

    def decode(self, content: bytes | None) -> Value:
        """Return the bytes as JSON if they are JSON, else as text; see `Notation.decode`."""
        if content is None:
            return None
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return content
        try:
            plain: Value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return plain


@dataclass(frozen=True, slots=True)
class ValueNotation:
    """Notation of bytes that are no text: the decoded value, as JSON. A text that is no value stands for its bytes.

    >>> from turnout.codecs import Format, notation_of
    >>> notation = notation_of(Format("long"))
    >>> list(notation.encode(17)), notation.decode(bytes([0, 0, 0, 0, 0, 0, 1, 0])), notation.decode(b"x")
    ([0, 0, 0, 0, 0, 0, 0, 17], 256, 'x')
    """

    codec: Codec

    def encode(self, plain: Value) -> bytes | None:
        """See `Notation.encode`."""
        (block,) = group(rows_of(1), self.codec.schema(), [plain], checked=False)
        try:
            return self.codec.encode(block)[0]
        except (RecordError, EncodeErrors) as failure:
            if isinstance(plain, str):
                return plain.encode()
            reason = failure if isinstance(failure, RecordError) else failure.errors[0]
            raise ValueError(str(reason)) from failure

    def decode(self, content: bytes | None) -> Value:
        """See `Notation.decode`."""
        blocks, errors = self.codec.decode(rows_of(1), [content])
        if errors:
            return TextNotation().decode(content)
        (block,) = (block for block in blocks if len(block))
        plain: Value = json_of(block.whole()[0], block.schema)
        return plain


@dataclass(frozen=True, slots=True)
class SchemaNotation(ValueNotation):
    """Notation of bytes that are values of one schema: plain JSON, read by that schema.

    Times are ISO 8601 texts, decimals numbers, bytes base64; a field that is left out is null. A text that is no value
    stands for its bytes.
    """

    def encode(self, plain: Value) -> bytes | None:
        """See `Notation.encode`."""
        schema = self.codec.schema()
        if plain is None or schema is None:
            return ValueNotation.encode(self, plain)
        text = json.dumps(plain, ensure_ascii=False, default=_date_text).encode()
        blocks, errors = Reader.plain(schema).read(rows_of(1), [text])
        if errors:
            if isinstance(plain, str):
                return plain.encode()
            raise ValueError(str(errors[0]))
        (block,) = blocks
        try:
            return self.codec.encode(block)[0]
        except (RecordError, EncodeErrors) as failure:
            reason = failure if isinstance(failure, RecordError) else failure.errors[0]
            raise ValueError(str(reason)) from failure


def _date_text(value: object) -> str:
    """Return a value that YAML parsed as a time as the text it was written as."""
    if isinstance(value, date):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"no JSON for {value!r}")


def camel_name(option: Option) -> str:
    """Return the name of a setting in camelCase, which routes may write too.

    >>> camel_name(flag("schemas.enable", "whether each value has its schema"))
    'schemasEnable'
    """
    return camel_case(argument(option))


def argument(option: Option) -> str:
    """Return the name of a setting as an argument of Python."""
    return option.name.replace(".", "_")


def _flag(value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, found {value!r}")
    return text == "true"


FLAG: Final = Kind(
    _flag, {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^(?:[Tt]rue|[Ff]alse|TRUE|FALSE)$"}]}
)


def flag(name: str, doc: str, *, default: bool = True) -> Option:
    """Return a setting that is true or false."""
    return Option(name, FLAG, doc, default)


def words(*known: str) -> Kind[str]:
    """Return the kind of some words, in capitals or not."""

    def read(value: object) -> str:
        word = str(value).upper()
        if word not in known:
            raise ValueError(f"expected {' or '.join(known)}, found {value!r}")
        return word

    return Kind(read, {"anyOf": [{"enum": list(known)}, {"pattern": f"^(?:{'|'.join(map(any_case, known))})$"}]})


def dotted(name: str) -> str:
    """Return the setting that a field of a codec's options has, by Connect's way to write it."""
    return name.replace("_", ".")


@dataclass(frozen=True, slots=True)
class CodecKind:
    """Format of keys or values, as a route names it.

    Attributes:
        name: value of ``format`` in a route.
        class_name: the converter, as error headers name it.
        summary: phrase for the documentation that describes the values.
        of: makes the codec; its arguments are the settings, with underscores for dots.
        settings: settings of a route besides the name; None for any, which are passed to *of* unchanged.
        connect: the properties that are read of a connector's converter of the class *class_name*; None where no
            converter means this format.
        from_connect: makes the settings of these properties; None where both have the same names. A `ValueError` says
            what is missing.
        notation: how tests, ``explain`` and the sandbox write keys and values of this format.

    >>> from turnout.codecs.plain import Raw
    >>> level = Option("level", Kind(int), "which", 1)
    >>> kind = CodecKind("mine", "example.Converter", "bytes", lambda level: Raw(), (level,))
    >>> kind.read({"level": 2}), kind.codec({}).schema().type
    ({'level': 2}, 'bytes')
    """

    name: str
    class_name: str
    summary: str
    of: Callable[..., Codec]
    settings: tuple[Option, ...] | None = ()
    connect: tuple[Option, ...] | None = None
    notation: Callable[[Codec], Notation] = TextNotation
    from_connect: Callable[[Mapping[str, object]], Mapping[str, object]] | None = None

    def codec(self, settings: Mapping[str, object]) -> Codec:
        """Return the codec with these settings, and the defaults of all others.

        Raises:
            ConfigError: the codec refuses them.
        """
        try:
            if self.settings is None:
                return self.of(**settings)
            return self.of(**{argument(one): settings.get(one.name, one.default) for one in self.settings})
        except ConfigError:
            raise
        except Exception as failure:
            raise ConfigError([Mistake("format", f"{self.name} refuses its settings: {failure}")]) from failure

    def read(self, settings: Mapping[str, object], others: Collection[CodecKind] = ()) -> dict[str, object]:
        """Return the route's settings that differ from their defaults.

        Args:
            settings: the route's settings besides the format, in either spelling.
            others: formats whose settings are named where they are given to this one.

        Raises:
            ConfigError: lists every setting that is wrong, or none of this format.
        """
        if self.settings is None:
            return {str(name): value for name, value in settings.items()}
        mistakes = [
            Mistake(camel_name(one), f"is given as {one.name} too: the same setting in another spelling, keep one")
            for one in self.settings
            if camel_name(one) != one.name and {one.name, camel_name(one)} <= settings.keys()
        ]
        given = {
            one.name: settings[name]
            for one in self.settings
            for name in (camel_name(one), one.name)
            if name in settings and not (settings[name] is None and one.default is None)
        }
        own = {one.name: one for one in self.settings}
        values = read_options(own, given, mistakes)
        known = _spellings(self.settings)
        mistakes += self._foreign({name: value for name, value in settings.items() if name not in known}, others)
        if mistakes:
            raise ConfigError(mistakes)
        return {name: value for name, value in values.items() if value != own[name].default}

    def _foreign(self, settings: Mapping[str, object], others: Collection[CodecKind]) -> Iterator[Mistake]:
        """Yield a mistake for each setting that this format does not have; null may be left by a template."""
        owners: dict[str, list[str]] = {}
        nullable = {one.name for kind in others for one in kind.settings or () if one.default is None}
        for kind in others:
            for name in _spellings(kind.settings or ()):
                owners.setdefault(name, []).append(kind.name)
        known = ("format", *_spellings(self.settings or ()))
        for name in map(str, settings):
            if settings.get(name) is None and name in nullable:
                continue
            owned = name in owners
            guess = f", but of {' and '.join(owners[name])}" if owned else did_you_mean(name, known)
            yield Mistake(name, f"is not a setting of the format {self.name}{guess} (known here: {', '.join(known)})")


def _spellings(settings: Iterable[Option]) -> list[str]:
    return list(dict.fromkeys(name for one in settings for name in (one.name, camel_name(one))))


def file_names(settings: Iterable[Option], values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each given setting that names a file, in its spelling, with the name.

    >>> schema = Option("schema", Kind(str, file=True), "a file")
    >>> list(file_names([schema], {"schema": "flight.proto", "message": "Flight"}))
    [('schema', 'flight.proto')]
    """
    for name in _spellings(one for one in settings if one.kind.file):
        value = values.get(name)
        if isinstance(value, str):
            yield name, value

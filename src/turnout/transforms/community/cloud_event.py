"""CloudEvent: records as CloudEvents 1.0, in structured or binary mode."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self
from urllib.parse import quote, unquote

import numpy as np
import yaml

from turnout.base.untrusted import JsonObject
from turnout.base.yaml_values import load, position_of
from turnout.errors import RecordError
from turnout.records import Batch, Block, Positions, Schema, Struct, group
from turnout.records.field_paths import PathError
from turnout.records.text import iso_of, text_of
from turnout.records.types import Column, DynamicValue, Value
from turnout.transforms.base import Errors, Side, Transform
from turnout.transforms.community.condition import check_key, texts_of
from turnout.transforms.options import STRING, Option, OptionError, Options, one_of

VERSION: Final = "1.0"
"""Version of the specification."""

PREFIXES: Final = ("ce-", "ce_")
"""Prefixes of headers: of NATS and HTTP, and of Kafka."""

STRUCTURED: Final = "application/cloudevents+json"
"""Content type of an event with its attributes in the value."""

_CONTENT_TYPE: Final = "content-type"
_DATA: Final = ("data", "data_base64")
_REQUIRED: Final = ("id", "source", "type")
_NAME_LENGTH: Final = 20
_NOT_ENCODED: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that a header of HTTP or NATS has as they are."""

_Attributes = dict[int, dict[str, Value]]
"""Attributes by row and name: not a column for each name, as any number of names may occur in a batch."""


@dataclass(frozen=True, slots=True)
class CloudEvent(Transform):
    """See ``summary``. Not part of Connect.

    Source: CloudEvents 1.0, with its JSON format and its bindings to Kafka and NATS.

    Attributes:
        attributes: pairs of an attribute and its value: a text, ``$`` and the key of a condition, or None.
    """

    summary: ClassVar[str] = "Reads records as CloudEvents 1.0, sets attributes, and writes them in one mode."
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "mode",
            STRING,
            "Where the attributes go: into the value beside `data`, into headers, or nowhere.",
            default="binary",
            check=one_of("structured", "binary", "data"),
            valid="structured, binary, data",
        ),
        Option(
            "header.prefix",
            STRING,
            "What begins the names of headers: `ce-` for NATS, `ce_` for Kafka. Both are read.",
            default="ce-",
            check=one_of(*PREFIXES),
            valid="ce-, ce_",
        ),
        Option(
            "attributes",
            STRING,
            "Attributes to set, by name, as JSON or YAML: a text, `$` and the key of a condition (`$value.carrier`, "
            "`$topic`), or null to leave one out.",
            default="{}",
            block=True,
        ),
    )

    mode: str = "binary"
    header_prefix: str = "ce-"
    attributes: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the attributes."""
        try:
            document = load(options["attributes"] or "{}", max_depth=2)
        except yaml.YAMLError as error:
            raise OptionError("attributes", f"neither JSON nor YAML: {position_of(error)[0]}") from None
        if not isinstance(document, Mapping):
            raise OptionError("attributes", f"expected attributes by name, found {document!r}")
        attributes = tuple(_attribute(name, value) for name, value in document.items())
        return cls(side, options["mode"], options["header.prefix"], attributes)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Write the records of these rows as events; other values become the data of one."""
        attributes: _Attributes = {row: {} for row in rows.tolist()}
        errors: Errors = {}
        _read_headers(batch, rows, attributes)
        chosen = np.zeros(len(batch), np.bool_)
        chosen[rows] = True
        others = [block.take(np.flatnonzero(~chosen[block.rows])) for block in batch.value]
        selected = [block.take(np.flatnonzero(chosen[block.rows])) for block in batch.value]
        data = [part for block in selected if len(block) for part in _data_of(block, attributes, errors)]
        self._set(batch, attributes, errors)
        self._drop(batch, rows)
        if self.mode == "structured":
            written = list(self._structured(data, attributes))
        else:
            written = data = [part for block in data for part in _bodies(block, attributes)]
        if self.mode == "binary":
            self._append(batch, rows, data, attributes)
        elif self.mode == "structured":
            batch.headers.append(rows, _CONTENT_TYPE, None, [STRUCTURED] * len(rows))
        batch.value[:] = [block for block in (*others, *written) if len(block)]
        return errors

    def _set(self, batch: Batch, attributes: _Attributes, errors: Errors) -> None:
        """Set the attributes of the options and those that every event has; note missing ones."""
        columns = {
            name: texts_of(batch, value[1:]) if value is not None and value.startswith("$") else [value] * len(batch)
            for name, value in self.attributes
        }
        for row, own in attributes.items():
            own |= {name: column[row] for name, column in columns.items()}
            version = own.get("specversion")
            missing = _complete(own, batch, row)
            if version not in (None, VERSION):
                errors[row] = RecordError(f"expected a CloudEvent of version {VERSION}, found {version!r}")
            elif missing:
                errors.setdefault(row, RecordError(f"a CloudEvent needs {' and '.join(missing)}"))

    def _drop(self, batch: Batch, rows: Positions) -> None:
        """Remove the headers that say something about the event in its old form."""
        batch.headers.drop_where(_is_of_event, rows)

    def _structured(self, data: Sequence[Block], attributes: _Attributes) -> Iterator[Block]:
        """Return events whose values have the attributes and the data."""
        for block in data:
            events: list[JsonObject] = []
            for row, value in zip(block.rows.tolist(), block.whole(), strict=True):
                event: JsonObject = {
                    name: attribute for name, attribute in attributes[row].items() if attribute is not None
                }
                if isinstance(value, bytes):
                    event["data_base64"] = b64encode(value).decode("ascii")
                elif value is not None:
                    event["data"] = _inside(value, block.schema)
                events.append(event)
            for part in group(block.rows, None, events):
                part.form = "json"
                yield part

    def _append(self, batch: Batch, rows: Positions, data: Sequence[Block], attributes: _Attributes) -> None:
        """Append a header for each attribute."""
        encode = self.header_prefix == "ce-"
        types = {row: own.pop("datacontenttype", None) for row, own in attributes.items()}
        for block in data:
            plain = block.kind == "null" or (block.kind == "plain" and any(isinstance(v, bytes) for v in block.values))
            for row in [] if plain else block.rows.tolist():
                types[row] = types[row] or "application/json"
        columns: dict[str, dict[int, str]] = {}
        for row in rows.tolist():
            for name, value in attributes[row].items():
                if value is not None:
                    columns.setdefault(self.header_prefix + name, {})[row] = _header_text(value, encode=encode)
        columns[_CONTENT_TYPE] = {
            row: _header_text(types[row], encode=False) for row in rows.tolist() if types[row] is not None
        }
        for header, texts in columns.items():
            if texts:
                batch.headers.append(np.fromiter(texts, np.intp, len(texts)), header, None, list(texts.values()))


def _attribute(name: object, value: object) -> tuple[str, str | None]:
    """Return an attribute of the options with its text.

    Raises:
        OptionError: the specification knows no such name, or the value is no text.
    """
    if not isinstance(name, str) or not _is_name(name):
        problem = f"expected the name of an attribute, 1 to {_NAME_LENGTH} of a-z and 0-9, found {name!r}"
        raise OptionError("attributes", problem)
    if value is not None and not isinstance(value, str | int | float):
        raise OptionError("attributes", f"expected a text for {name}, found {value!r}")
    text = text_of(value)
    if text is not None and text.startswith("$"):
        try:
            check_key(text[1:])
        except PathError as error:
            raise OptionError("attributes", f"{name}: {error}") from None
    return name, text


def _is_name(name: str) -> bool:
    is_plain = (
        1 <= len(name) <= _NAME_LENGTH and name.isascii() and name.isalnum() and name.islower() | name.isdecimal()
    )
    return is_plain and name not in _DATA


def _attribute_of(header: str) -> str:
    """Return the attribute that a header holds, ignoring the case of its name; empty if none."""
    name = header.lower()
    return name[3:] if name.startswith(PREFIXES) else ""


def _complete(attributes: dict[str, Value], batch: Batch, row: int) -> list[str]:
    """Add the attributes that a record gives an event, and return the required ones that are missing."""
    attributes["specversion"] = VERSION
    if attributes.get("id") is None:
        attributes["id"] = _id_of(batch, row)
    if attributes.get("time") is None and batch.timestamps[row] is not None:
        attributes["time"] = iso_of(int(batch.timestamps[row] or 0))
    return [name for name in _REQUIRED if attributes.get(name) in (None, "")]


def _is_of_event(header: str) -> bool:
    return bool(_attribute_of(header)) or header.lower() == _CONTENT_TYPE


def _read_headers(batch: Batch, rows: Positions, attributes: _Attributes) -> None:
    """Read the attributes of events in binary mode."""
    found = list(batch.headers.texts_where(_is_of_event, rows))
    binary = {row for row, header, _ in found if _attribute_of(header) == "specversion"}
    for row, header, text in found:
        if row not in binary or text is None:
            continue
        name = _attribute_of(header)
        if name:
            encoded = header[2:3] == "-" and name != "datacontenttype"
            attributes[row][name] = unquote(text) if encoded else text
        else:
            attributes[row]["datacontenttype"] = text


def _data_of(block: Block, attributes: _Attributes, errors: Errors) -> list[Block]:
    """Return the data of the events in a block, and note their attributes; other values are data themselves."""
    if block.kind != "object" or "specversion" not in block.columns:
        return [block]
    for name, column in block.columns.items():
        if name not in _DATA:
            for row, value in zip(block.rows.tolist(), column, strict=True):
                attributes[row][str(name)] = value
    column = block.columns.get("data") or [None] * len(block)
    encoded = block.columns.get("data_base64")
    if encoded is not None and any(value is not None for value in encoded):
        return _as_json(group(block.rows, None, _binary(block, encoded, column, errors)))
    schema = block.schema and block.schema.field("data")
    parts = group(block.rows, schema, column)
    return parts if schema is not None else _as_json(parts)


def _as_json(parts: list[Block]) -> list[Block]:
    """Mark the data of events in JSON, which is JSON where it is neither bytes nor a text of another type."""
    for part in parts:
        part.form = "json" if part.kind != "null" else ""
    return parts


def _bodies(block: Block, attributes: _Attributes) -> Iterator[Block]:
    """Yield the data of events: bytes, and texts of a type that is not JSON, are bodies as they are."""
    if block.kind != "plain":
        yield block
        return
    types = [attributes[row].get("datacontenttype") for row in block.rows.tolist()]
    is_body = np.array(
        [
            isinstance(value, bytes) or (isinstance(value, str) and not _is_json(type_))
            for value, type_ in zip(block.values, types, strict=True)
        ]
    )
    for chosen, form in ((is_body, "body"), (~is_body, block.form)):
        part = block.take(np.flatnonzero(chosen))
        if len(part):
            part = part.with_values(part.schema, part.values, checked=part.checked) if part is block else part
            part.form = form
            yield part


def _is_json(content_type: Value) -> bool:
    """Return whether data of a content type is JSON, as it is without one."""
    name = str(content_type or "application/json").partition(";")[0].strip().lower()
    return name in ("application/json", "text/json") or name.endswith("+json")


def _binary(block: Block, encoded: Column, data: Column, errors: Errors) -> Iterator[Value]:
    """Yield the bytes of each event, or its data where it has none."""
    for row, value, other in zip(block.rows.tolist(), encoded, data, strict=True):
        try:
            yield other if value is None else b64decode(value, validate=True)
        except (ValueError, TypeError):
            errors[row] = RecordError("expected base64 as the data_base64 of a CloudEvent")
            yield None


def _inside(value: DynamicValue, schema: Schema | None) -> DynamicValue:
    """Return data in its form in a schemaless event."""
    return Struct(schema, value) if schema is not None and schema.type == "struct" else value


def _id_of(batch: Batch, row: int) -> str | None:
    offset = None if batch.offsets is None else batch.offsets[row]
    return None if offset is None else f"{batch.topics[row]}:{batch.partitions[row]}:{offset}"


def _header_text(value: Value, *, encode: bool) -> str:
    text = text_of(value) or ""
    return quote(text, safe=_NOT_ENCODED) if encode else text

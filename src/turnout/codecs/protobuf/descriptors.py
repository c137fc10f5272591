"""Protobuf schemas: a ``.proto`` text or a serialized descriptor set, to the descriptor of a message.

Texts are compiled by protoc itself, which ``grpcio-tools`` brings: the reference implementation of the language,
released with the ``protobuf`` library, so that proto2, proto3 and editions have their standard meaning. It runs in a
process of its own, as a text of a schema registry is untrusted: neither a crash nor an endless compilation
reaches the route.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from turnout.base.files import read_file
from turnout.errors import MissingExtraError

DECIMAL: Final = "confluent.type.Decimal"
DATE: Final = "google.type.Date"
TIME_OF_DAY: Final = "google.type.TimeOfDay"

META: Final = "confluent/meta.proto"

_HEAD: Final = 'syntax = "proto3";\npackage {};\n'

KNOWN_FILES: Final = {
    "google/type/date.proto": _HEAD.format("google.type")
    + "message Date {int32 year = 1; int32 month = 2; int32 day = 3;}",
    "google/type/timeofday.proto": _HEAD.format("google.type")
    + "message TimeOfDay {int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4;}",
    "confluent/type/decimal.proto": _HEAD.format("confluent.type")
    + "message Decimal {bytes value = 1; uint32 precision = 2; int32 scale = 3;}",
    META: _HEAD.format("confluent")
    + 'import "google/protobuf/descriptor.proto";\n'
    + "message Meta {string doc = 1; map<string, string> params = 2; repeated string tags = 3;"
    + " repeated Rule rules = 4;}\n"
    + "message Rule {string name = 1; string doc = 2; string expr = 3; string sql = 4;}\n"
    + "".join(
        f"extend google.protobuf.{kind}Options {{Meta {kind_name}_meta = 1088;}}\n"
        for kind, kind_name in (
            ("File", "file"),
            ("Message", "message"),
            ("Field", "field"),
            ("Enum", "enum"),
            ("EnumValue", "enum_value"),
        )
    ),
}
"""Name as imports write it → text."""


_NUMBER = 1088
"""Of the extension ``confluent.field_meta``."""


def meta_params(field: FieldDescriptor) -> Mapping[str, str]:
    """Return the ``params`` of a field's ``confluent.field_meta``; none where the file does not set them."""
    if not field.has_options:
        return {}
    try:
        options = _options_class().FromString(field.GetOptions().SerializeToString())
    except DecodeError:
        # Another company's extension of the same number.
        return {}
    return {entry.key: entry.value for entry in options.field_meta.params}


@cache
def _options_class() -> Any:
    """Options of a field, of which only the parameters are read."""
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(name="turnout/field_meta.proto", package="turnout.field_meta", syntax="proto3")
    for name, fields in (
        ("Param", (("key", 1, kinds.TYPE_STRING, None), ("value", 2, kinds.TYPE_STRING, None))),
        ("Meta", (("params", 2, kinds.TYPE_MESSAGE, "Param"),)),
        ("Options", (("field_meta", _NUMBER, kinds.TYPE_MESSAGE, "Meta"),)),
    ):
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = kinds.LABEL_REPEATED if field == "params" else kinds.LABEL_OPTIONAL
            message.field.add(
                name=field, number=number, type=kind, label=label, type_name=of and f".turnout.field_meta.{of}"
            )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("turnout.field_meta.Options"))


SECONDS: Final = 30
"""Time that protoc has for a schema."""

_SHOWN_CHARACTERS: Final = 500
"""Characters of protoc's errors that are shown."""

MAX_TEXT: Final = 4 << 20
"""Characters of a schema with its references."""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """Compiled file of a schema.

    Attributes:
        descriptor: the file.
        pool: the file and all its imports.
    """

    descriptor: FileDescriptor
    pool: DescriptorPool

    def message(self, name: str | None = None) -> Descriptor:
        """Return the message of a full name, or the first of the file.

        Raises:
            ValueError: there is none.
        """
        if name is None:
            first = next(iter(_ordered(self.descriptor)), None)
            if first is None:
                raise ValueError(f"expected a message in {self.descriptor.name}, found none")
            return first
        try:
            return self.pool.FindMessageTypeByName(name)
        except KeyError:
            names = ", ".join(sorted(message.full_name for message in _ordered(self.descriptor)))
            raise ValueError(f"no message {name!r} in {self.descriptor.name}; there are {names}") from None

    def message_at(self, indexes: Sequence[int]) -> Descriptor:
        """Return the message that Confluent's message indexes lead to: of the file, then of each message.

        Raises:
            ValueError: there is none.
        """
        inside, found = _ordered(self.descriptor), None
        for index in indexes:
            if not 0 <= index < len(inside):
                raise ValueError(f"no message at the indexes {list(indexes)} of the schema")
            found = inside[index]
            inside = _nested(found)
        if found is None:
            raise ValueError("expected the indexes of a message, found none")
        return found

    def message_named(self, name: str) -> Descriptor:
        """Return the message of this file with a name without its package, which is not inside of another.

        Raises:
            ValueError: there is none.
        """
        messages: dict[str, Descriptor] = self.descriptor.message_types_by_name
        if name not in messages:
            raise ValueError(f"no message {name!r} in the schema; there are {', '.join(sorted(messages))}")
        return messages[name]

    def indexes_of(self, message: Descriptor) -> tuple[int, ...]:
        """Return the message indexes that lead to a message of this file."""
        siblings = _nested(message.containing_type) if message.containing_type else _ordered(self.descriptor)
        own = next(at for at, one in enumerate(siblings) if one.full_name == message.full_name)
        return (*self.indexes_of(message.containing_type), own) if message.containing_type else (own,)


def _ordered(file: FileDescriptor) -> list[Descriptor]:
    return list(file.message_types_by_name.values())


def _nested(message: Descriptor) -> list[Descriptor]:
    """Return the messages inside, without the entries of maps, which a .proto file does not write as messages."""
    return [one for one in message.nested_types if not one.GetOptions().map_entry]


def file_of(path: Path) -> SchemaFile:
    """Return the schema in a file: ``.proto`` is text, anything else a descriptor set, as protoc writes it.

    Raises:
        ValueError: it is no schema.
        OSError: it cannot be read.
        MissingExtraError: the compiler is not installed.
    """
    content = read_file(path)
    if path.suffix != ".proto":
        return _of_set(content, None)
    with TemporaryDirectory(prefix="turnout-proto-") as folder:
        return _compiled(path.name, [path.resolve().parent], Path(folder))


@lru_cache(maxsize=256)
def text_of_registry(text: str, references: tuple[tuple[str, str], ...] = ()) -> SchemaFile:
    """Return the schema of a ``.proto`` text with the texts that it imports, by the names of the imports.

    Raises:
        ValueError: it is no schema.
        MissingExtraError: the compiler is not installed.
    """
    if len(text) + sum(len(other) for _, other in references) > MAX_TEXT:
        raise ValueError(f"expected a schema of at most {MAX_TEXT:,} characters")
    with TemporaryDirectory(prefix="turnout-proto-") as folder:
        source, target = Path(folder, "in"), Path(folder, "out")
        _write(source, {**dict(references), _MAIN: text})
        target.mkdir()
        return _compiled(_MAIN, [source], target)


_MAIN: Final = "turnout-schema.proto"


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in texts.items():
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name:
            raise ValueError(f"expected the name of an imported file, found {name!r}")
        path = folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _compiled(name: str, folders: Sequence[Path], work: Path) -> SchemaFile:
    if find_spec("grpc_tools") is None:
        raise MissingExtraError("protobuf", "grpcio-tools")
    from importlib.resources import as_file, files

    _write(work / "known", KNOWN_FILES)
    descriptor_file = work / "schema.desc"
    with as_file(files("grpc_tools").joinpath("_proto")) as own:
        paths = [f"--proto_path={folder}" for folder in (*folders, work / "known", own)]
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            *paths,
            f"--descriptor_set_out={descriptor_file}",
            "--include_imports",
        ]
        try:
            done = subprocess.run([*command, name], capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ValueError(f"protoc was not done with the schema within {SECONDS} seconds") from None
    if done.returncode:
        found = done.stderr.decode("utf-8", "replace").strip()
        for folder in folders:
            found = found.replace(f"{folder}/", "")
        raise ValueError(f"the schema cannot be compiled: {found[:_SHOWN_CHARACTERS] or done.returncode}")
    return _of_set(descriptor_file.read_bytes(), name)


def _of_set(content: bytes, name: str | None) -> SchemaFile:
    """Return the file *name* of a descriptor set, or the last, which those before it are imported by."""
    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError as failure:
        raise ValueError(f"expected a descriptor set, as protoc --descriptor_set_out writes it: {failure}") from None
    if not files:
        raise ValueError("expected a descriptor set with a file, found none")
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
        return SchemaFile(pool.FindFileByName(name or files[-1].name), pool)
    except (TypeError, KeyError) as failure:
        raise ValueError(f"the descriptor set is not complete (--include_imports): {failure}") from None

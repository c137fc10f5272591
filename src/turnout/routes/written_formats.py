"""Formats of what a route writes: for each sink that of keys and values, and that of requests to webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from turnout.codecs import Format, codec_of
from turnout.codecs.conversion import misfit_of
from turnout.codecs.pairs import NEEDS_SCHEMA, Pair, pair_of
from turnout.codecs.schema_registry import RegistryOptions
from turnout.errors import ConfigError, Mistake
from turnout.records import Schema
from turnout.routes.files import FileNames


class WrittenFormats(NamedTuple):
    """Formats of the keys and values that a sink gets."""

    key: Format
    value: Format


def with_registry(format_: Format, *, dead_letter: bool, of_keys: bool) -> Format:
    """Return a format whose registry, if it has one, knows the route's ``errors`` and the side.

    Args:
        format_: the format.
        dead_letter: whether a record is dead-lettered while the registry is down.
        of_keys: whether it is the format of keys.
    """
    registry = format_.settings.get("registry")
    if not isinstance(registry, RegistryOptions):
        return format_
    options = replace(registry, dead_letter=dead_letter, of_keys=of_keys)
    return Format(format_.format, **{**format_.settings, "registry": options})


def written_format(
    block: Mapping[str, object],
    read: Format,
    side: str,
    files: FileNames,
    *,
    schema: Schema | None = None,
    is_changed: bool = True,
    dead_letter: bool = False,
) -> tuple[Format, Pair]:
    """Return the format of a sink's ``key`` or ``value``, and what becomes of values that are read in another.

    Args:
        block: the sink's block.
        read: format that the route reads that side in.
        side: ``key`` or ``value``.
        files: makes the names of files whole.
        schema: schema that all values of that side are read with; None where it is not known.
        is_changed: whether values may have another schema when they are written.
        dead_letter: whether a record is dead-lettered while a registry is down.

    Raises:
        ConfigError: the format cannot be used, or no value of the schema fits that of the format.
    """
    format_ = Format.from_config(files.codec(block), path=side)
    if format_.format == "json" and read.format == "protobuf" and "mapping" not in format_.settings:
        format_ = Format("json", **{**format_.settings, "mapping": "PROTOBUF"})
    format_ = with_registry(format_, dead_letter=dead_letter, of_keys=side == "key")
    target = codec_of(format_).schema()
    if schema is not None and target is not None and not is_changed and format_ != read:
        drops_unknown = format_.format != "avro" or format_.settings.get("unknown.fields") == "DROP"
        problem = misfit_of(schema, target, drops_unknown=drops_unknown) if format_.format in NEEDS_SCHEMA else None
        if problem is not None:
            raise ConfigError([Mistake(side, f"no {side} that is read can be written: {problem}")])
    return format_, pair_of(read, format_, schema)

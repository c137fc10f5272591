"""Which codec a format means."""

from __future__ import annotations

from collections.abc import Mapping

from turnout.codecs.codec import Codec
from turnout.codecs.connect_json import ConnectJson
from turnout.codecs.format import Format, plugins
from turnout.codecs.plain import NUMBERS, Boolean, Bytes, Raw, String
from turnout.codecs.schemaless_json import SchemalessJson
from turnout.codecs.typed_json import TypedJson

__all__ = ["codec_of"]

_PLAIN: Mapping[str, Codec] = {"raw": Raw(), "string": String(), "bytes": Bytes(), "boolean": Boolean(), **NUMBERS}


def codec_of(format: Format) -> Codec:  # noqa: A002 - its name everywhere
    """The codec of a format; it keeps what it has learnt, so that one is enough for a topic.

    Raises:
        ConfigError: a format of another package does not like its settings.
        LookupError: no package offers such a format.
    """
    name = format.format
    if name == "json":
        return SchemalessJson() if format.schema is None else TypedJson(format.schema)
    if name == "connect-json":
        return ConnectJson(
            format.value_schema,
            enable=format.schemas_enable,
            defaults=format.replace_null_with_default,
            numeric=format.decimal_format == "NUMERIC",
        )
    if name in _PLAIN:
        return _PLAIN[name]
    codec: Codec = plugins()[name].load()(format)
    return codec

"""Registry of codecs by format."""

from __future__ import annotations

from collections.abc import Mapping

from turnout.codecs.codec import Codec
from turnout.codecs.connect_json import ConnectJson
from turnout.codecs.format import Format, plugins
from turnout.codecs.plain import NUMBERS, Boolean, Bytes, Raw, String
from turnout.codecs.schemaless_json import SchemalessJson
from turnout.codecs.typed_json import TypedJson

_PLAIN: Mapping[str, Codec] = {"raw": Raw(), "string": String(), "bytes": Bytes(), "boolean": Boolean(), **NUMBERS}


def codec_of(format: Format) -> Codec:  # noqa: A002 - its name everywhere
    """The codec of a format; it keeps what it has learnt, so that one is enough for a topic.

    Raises:
        ConfigError: a format of another package does not like its settings.
        LookupError: no package offers such a format.

    >>> from turnout.records.block import rows_of
    >>> codec = codec_of(Format("json"))
    >>> blocks, errors = codec.decode(rows_of(3), [b'{"n": 1, "city": "Oulu"}', b"{", b'{"n": 2, "city": "Kemi"}'])
    >>> [dict(block.columns) for block in blocks], list(errors)
    ([{'n': [1, 2], 'city': ['Oulu', 'Kemi']}], [1])
    >>> codec.encode(blocks[0])
    [b'{"n":1,"city":"Oulu"}', b'{"n":2,"city":"Kemi"}']
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

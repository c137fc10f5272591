"""Bytes of keys and values, read to blocks and written: JSON, Connect's JSON, and Kafka's plain values."""

from turnout.base.options import Kind, Option
from turnout.codecs.codec import (
    Codec,
    CodecKind,
    EncodeErrors,
    Notation,
    TextNotation,
    ValueNotation,
    decode_each,
    encode_each,
)
from turnout.codecs.ddl import DdlError, parse_ddl
from turnout.codecs.format import (
    ENTRY_POINT,
    FORMATS,
    Converters,
    Format,
    codec_of,
    converters_of,
    named_files,
    notation_of,
)
from turnout.codecs.json_writing import builtin_of

__all__ = [
    "ENTRY_POINT",
    "FORMATS",
    "Codec",
    "CodecKind",
    "Converters",
    "DdlError",
    "EncodeErrors",
    "Format",
    "Kind",
    "Notation",
    "Option",
    "TextNotation",
    "ValueNotation",
    "builtin_of",
    "codec_of",
    "converters_of",
    "decode_each",
    "encode_each",
    "named_files",
    "notation_of",
    "parse_ddl",
]

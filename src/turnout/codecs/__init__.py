"""Bytes of keys and values, read to blocks and written: JSON, Connect's JSON, and Kafka's plain values."""

from turnout.codecs.codec import Codec, EncodeErrors
from turnout.codecs.converters import Converters, converters_of
from turnout.codecs.ddl import DdlError, parse_ddl
from turnout.codecs.format import ENTRY_POINT, FORMATS, Format
from turnout.codecs.registry import codec_of

__all__ = [
    "ENTRY_POINT",
    "FORMATS",
    "Codec",
    "Converters",
    "DdlError",
    "EncodeErrors",
    "Format",
    "codec_of",
    "converters_of",
    "parse_ddl",
]

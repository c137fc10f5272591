"""Shared helpers for tests of codecs: texts in, values and errors out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from turnout.codecs import Codec, EncodeErrors, Format, codec_of
from turnout.records import Block, Schema, group

ERROR = "error"


def codec(**config: Any) -> Codec:
    """The codec of a route's ``value`` mapping; dots in names are written as two underscores."""
    return codec_of(Format.from_config({name.replace("__", "."): value for name, value in config.items()}))


def decoded(of: Codec, *texts: bytes | str | None) -> list[Any]:
    """Each text's value; the word ``error`` where there is none."""
    blocks, errors = blocks_of(of, *texts)
    values: list[Any] = [ERROR if row in errors else None for row in range(len(texts))]
    for block in blocks:
        for row, value in zip(block.rows.tolist(), block.whole(), strict=True):
            assert row not in errors
            values[row] = value
    return values


def blocks_of(of: Codec, *texts: bytes | str | None) -> tuple[list[Block], dict[int, Exception]]:
    payloads = [text.encode() if isinstance(text, str) else text for text in texts]
    blocks, errors = of.decode(np.arange(len(payloads)), payloads)
    rows = [row for block in blocks for row in block.rows.tolist()]
    assert sorted([*rows, *errors]) == list(range(len(payloads)))
    return blocks, dict(errors)


def encoded(of: Codec, schema: Schema | None, *values: Any) -> list[Any]:
    """Each value's bytes; the word ``error`` where there are none."""
    texts: list[Any] = [None] * len(values)
    for block in group(np.arange(len(values)), schema, values, checked=False):
        try:
            encoded: list[Any] = list(of.encode(block))
        except EncodeErrors as failures:
            encoded = [ERROR if place in failures.errors else text for place, text in enumerate(failures.texts)]
        for row, text in zip(block.rows.tolist(), encoded, strict=True):
            texts[row] = text
    return texts


def rewritten(of: Codec, *texts: bytes | str | None) -> list[Any]:
    """Each text read and written again, as Python's JSON reads it."""
    blocks, errors = blocks_of(of, *texts)
    values: list[Any] = [ERROR if row in errors else None for row in range(len(texts))]
    for block in blocks:
        for row, text in zip(block.rows.tolist(), of.encode(block), strict=True):
            values[row] = text and json.loads(text)
    return values

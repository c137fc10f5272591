"""Avro object files as records of a route: each value of a file is one, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from turnout.codecs import Codec, Format, codec_of
from turnout.codecs.avro.connect_schema import connect_schema_of
from turnout.codecs.avro.object_file import AvroObjectFile
from turnout.codecs.codec import EncodeErrors
from turnout.errors import RecordError
from turnout.records import Schema, group
from turnout.records.types import NewColumn
from turnout.spark.workers.map_in_arrow import map_in_arrow

if TYPE_CHECKING:
    from turnout.routes.endpoints import FileSource

AVRO_COLUMNS: Final = (
    "topic string, partition int, offset bigint, key string, value binary,"
    " headers array<struct<key:string,value:binary>>, timestamp timestamp, problem string"
)
"""Columns of a record, two of them for a value, and the reason of a failure to read it."""

_ROWS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("problem", pa.string()),
    ]
)
_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"


def avro_records(spark: SparkSession, source: FileSource) -> DataFrame:
    """Return the values of the files, streaming as the source says."""
    options = {name: text for name, text in source.options().items() if name not in ("topic", "schemas")}
    if source.stream:
        files = spark.readStream.format("binaryFile").schema(_FILE).options(**options).load(source.path)
    else:
        files = spark.read.format("binaryFile").options(**options).load(source.path)
    return map_in_arrow(files.select("path", "content"), _Reading(source.topic, bool(source.schemas)), AVRO_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Function from files to records.

    Attributes:
        topic: topic of all records; None for the full name of their schema.
        schemas: true if values are Connect's JSON with their schema.
    """

    topic: str | None
    schemas: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from self._file(path, content)

    def _file(self, path: str, content: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the records of a file, and one with the problem where it cannot be read on."""
        topic = self.topic
        try:
            file = AvroObjectFile(content)
            topic = topic or file.type.name or file.type.kind
            schema = connect_schema_of(file.type)
            codec = codec_of(Format("connect-json" if self.schemas else "json"))
            for values in file.blocks():
                texts, problems = self._texts(path, values, schema, codec)
                yield _rows(topic, texts, problems)
        except (ValueError, RecordError) as wrong:
            yield _rows(topic or "avro", [None], [f"{path}: {wrong}"])

    @staticmethod
    def _texts(
        path: str, values: NewColumn, schema: Schema, codec: Codec
    ) -> tuple[list[bytes | None], list[str | None]]:
        """Return the JSON of each value, and the reason for each that has none."""
        texts: list[bytes | None] = [None] * len(values)
        problems: list[str | None] = [None] * len(values)
        for block in group(np.arange(len(values)), schema, values):
            rows = block.rows.tolist()
            try:
                written, errors = codec.encode(block), {}
            except EncodeErrors as failed:
                written, errors = failed.texts, failed.errors
            for row, text in zip(rows, written, strict=True):
                texts[row] = text
            for index, error in errors.items():
                problems[rows[index]] = f"{path}: {error}"
        return texts, problems


def _rows(topic: str, texts: list[bytes | None], problems: list[str | None]) -> pa.RecordBatch:
    by_name = {"topic": pa.repeat(topic, len(texts)), "value": texts, "problem": problems}
    columns = [
        pa.array(by_name[field.name], field.type) if field.name in by_name else pa.nulls(len(texts), field.type)
        for field in _ROWS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ROWS)
